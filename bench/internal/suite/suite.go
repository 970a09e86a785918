// Package suite runs bin/databus for a benchmark, on a directory and ports of
// its own, and stops it again.
package suite

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/databus-suite/databus/bench/internal/ports"
)

// Suite is a running `databus dev`.
type Suite struct {
	Offset int
	Dir    string
	cmd    *exec.Cmd
	log    *os.File
}

// Root finds the repository's root from the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("suite: no go.work above the working directory; run from inside the repository")
}

// Start starts bin/databus dev under root and waits for its ready line.
func Start(ctx context.Context, root string) (*Suite, error) {
	bin := filepath.Join(root, "bin", "databus")
	if _, err := os.Stat(bin); err != nil {
		return nil, fmt.Errorf("suite: %s is missing; run make build first", bin)
	}
	dir, err := os.MkdirTemp(root, ".bench-")
	if err != nil {
		return nil, err
	}
	offset, err := ports.Offset(8080, 8081, 8090, 8091, 8100, 8101, 8110, 8111, 9092)
	if err != nil {
		return nil, err
	}
	logFile, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(bin, "dev", "--data", filepath.Join(dir, "data"), "--port-offset", strconv.Itoa(offset))
	cmd.Stderr = logFile
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("suite: start %s: %w", bin, err)
	}
	s := &Suite{Offset: offset, Dir: dir, cmd: cmd, log: logFile}
	ready := make(chan error, 1)
	go func() {
		sc := bufio.NewScanner(out)
		for sc.Scan() {
			if strings.HasPrefix(sc.Text(), "ready") {
				ready <- nil
				_, _ = io.Copy(io.Discard, out)
				return
			}
		}
		ready <- errors.New("suite: databus dev ended before it was ready")
	}()
	select {
	case err = <-ready:
	case <-time.After(60 * time.Second):
		err = errors.New("suite: databus dev was not ready within 60 s")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		text, _ := os.ReadFile(logFile.Name())
		s.Stop()
		return nil, fmt.Errorf("%w; it said: %s", err, text)
	}
	return s, nil
}

// Addr gives a service's address from its default port.
func (s *Suite) Addr(defaultPort int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(defaultPort+s.Offset))
}

// PID of the process.
func (s *Suite) PID() int { return s.cmd.Process.Pid }

// Stop ends the suite and removes its directory.
func (s *Suite) Stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-done
	}
	_ = s.log.Close()
	_ = os.RemoveAll(s.Dir)
}

// CreateChannel makes a channel with a config, as JSON; {} is every default.
func (s *Suite) CreateChannel(ctx context.Context, name, config string) error {
	return CreateChannel(ctx, s.Addr(8090), name, config)
}

// CreateChannel makes a channel on the broker whose HTTP address is given, with a config, as JSON; {} is every default.
func CreateChannel(ctx context.Context, broker, name, config string) error {
	return post(ctx, "http://"+broker+"/v1/channels", fmt.Sprintf(`{"name":%q,"config":%s}`, name, config))
}

// CreateTopic makes a topic with some partitions.
func (s *Suite) CreateTopic(ctx context.Context, name string, partitions int) error {
	return CreateTopic(ctx, s.Addr(8090), name, partitions)
}

// CreateTopic makes a topic with some partitions on the broker whose HTTP address is given.
func CreateTopic(ctx context.Context, broker, name string, partitions int) error {
	return post(ctx, "http://"+broker+"/v1/topics", fmt.Sprintf(`{"name":%q,"partitions":%d}`, name, partitions))
}

func post(ctx context.Context, url, body string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := new(http.Client).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("POST %s: status %d: %s", url, resp.StatusCode, text)
	}
	return nil
}
