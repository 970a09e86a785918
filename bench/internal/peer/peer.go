// Package peer starts the other systems that a benchmark compares with, each as
// a process of its own on loopback ports, and stops them again. `make
// bench-peers` builds them into bin/peers.
package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/databus-suite/databus/bench/internal/ports"
)

// ErrMissing says that a peer's binary was not built.
var ErrMissing = errors.New("peer is not built; run make bench-peers")

// Process is a running peer.
type Process struct {
	cmd  *exec.Cmd
	dir  string
	keep bool
}

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Dir is where the process runs.
func (p *Process) Dir() string { return p.dir }

// Kill ends the process as a crash would, and removes its directory as Stop does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	p.Stop()
}

// Stop ends the process and removes its directory, unless that was given.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-done
	}
	if !p.keep {
		_ = os.RemoveAll(p.dir)
	}
}

// Spec says how a peer is started.
type Spec struct {
	Name  string
	Bin   string            // path of the binary under the repository's root; empty: bin/peers/NAME
	Dir   string            // where it runs, kept when it ends; empty: a directory of its own
	Files map[string]string // written to the peer's directory first
	Args  func(dir string) []string
	Addr  string // accepts connections once the peer is up
}

// Start starts a peer from bin/peers and waits until it accepts connections.
func Start(ctx context.Context, root string, s Spec) (*Process, error) {
	bin := filepath.Join(root, "bin", "peers", s.Name)
	if s.Bin != "" {
		bin = filepath.Join(root, s.Bin)
	}
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, ErrMissing)
	}
	dir := s.Dir
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp(root, ".bench-"+s.Name+"-"); err != nil {
			return nil, err
		}
	}
	for name, text := range s.Files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = logFile.Close() }()
	cmd := exec.Command(bin, s.Args(dir)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, logFile, logFile
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	p := &Process{cmd: cmd, dir: dir, keep: s.Dir != ""}
	for deadline := time.Now().Add(30 * time.Second); ; {
		conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
		if err == nil {
			_ = conn.Close()
			return p, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			text, _ := os.ReadFile(logFile.Name())
			p.Stop()
			return nil, fmt.Errorf("%s did not come up at %s; it said: %.2000s", s.Name, s.Addr, text)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Dapr is Dapr's sidecar with its in-memory pub/sub, which stores nothing.
func Dapr() (s Spec, publishURL string, err error) {
	var addr, port, grpcPort, internalPort, metricsPort string
	addr, port, err = ports.Free()
	for _, p := range []*string{&grpcPort, &internalPort, &metricsPort} {
		if err == nil {
			_, *p, err = ports.Free()
		}
	}
	return Spec{Name: "daprd", Addr: addr,
		Files: map[string]string{"components/pubsub.yaml": "apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata:\n  name: pubsub\nspec:\n  type: pubsub.in-memory\n  version: v1\n"},
		Args: func(dir string) []string {
			return []string{"--app-id", "bench", "--mode", "standalone", "--resources-path", filepath.Join(dir, "components"), "--dapr-http-port", port,
				"--dapr-grpc-port", grpcPort, "--dapr-internal-grpc-port", internalPort, "--metrics-port", metricsPort, "--dapr-listen-addresses", "127.0.0.1",
				"--log-level", "warn", "--placement-host-address", ""}
		}}, "http://" + addr + "/v1.0/publish/pubsub/bench", err
}

// Benthos takes HTTP posts and appends them to a file, which it does not sync.
func Benthos() (s Spec, publishURL string, err error) {
	addr, _, err := ports.Free()
	return Spec{Name: "benthos", Addr: addr,
		Files: map[string]string{"config.yaml": "http:\n  enabled: false\nlogger:\n  level: WARN\ninput:\n  http_server:\n    address: " + addr + "\n    path: /post\noutput:\n  file:\n    path: ./out\n    codec: lines\n"},
		Args:  func(string) []string { return []string{"-c", "config.yaml"} }}, "http://" + addr + "/post", err
}

// Otelcol takes OTLP logs over HTTP into a persistent queue that an exporter sends on to sink.
func Otelcol(sink string) (s Spec, publishURL string, err error) {
	addr, _, err := ports.Free()
	config := `
receivers:
  otlp:
    protocols:
      http:
        endpoint: ` + addr + `
exporters:
  otlphttp:
    endpoint: http://` + sink + `
    sending_queue:
      storage: file_storage
      queue_size: 1000000
extensions:
  file_storage:
    directory: queue
    create_directory: true
service:
  telemetry:
    metrics:
      level: none
    logs:
      level: error
  extensions: [file_storage]
  pipelines:
    logs:
      receivers: [otlp]
      exporters: [otlphttp]
`
	return Spec{Name: "otelcol", Addr: addr, Files: map[string]string{"config.yaml": config},
		Args: func(string) []string { return []string{"--config", "file:config.yaml"} }}, "http://" + addr + "/v1/logs", err
}
