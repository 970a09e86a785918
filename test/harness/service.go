package harness

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Service is one `databus broker` or `databus agent` of its own. It survives stops and kills: Start brings it back on the
// same ports. Methods may run concurrently, but one start, stop or kill at a time.
type Service struct {
	binary, name string
	settings     []string

	mu         sync.Mutex
	cur        *process
	http, grpc string
}

// StartService starts a service on free ports of 127.0.0.1, below those that the kernel gives to outgoing connections: they are
// still free when it comes back. Each setting is key=value, as --set takes it.
func StartService(ctx context.Context, binary, name string, settings ...string) (*Service, error) {
	for try := 1; ; try++ {
		offset := randomOffset()
		s := &Service{binary: binary, name: name, settings: settings,
			http: "127.0.0.1:" + strconv.Itoa(BrokerHTTP+offset), grpc: "127.0.0.1:" + strconv.Itoa(BrokerGRPC+offset)}
		err := s.Start(ctx)
		if err == nil {
			return s, nil
		}
		var exit *ExitError
		if try == 10 || !errors.As(err, &exit) || !strings.Contains(exit.Output, "the port is in use") {
			return nil, err
		}
	}
}

// RunService is StartService for one test: the service is killed when the test ends, and shows what it printed last where the
// test failed.
func RunService(t testing.TB, binary, name string, settings ...string) *Service {
	t.Helper()
	s, err := StartService(t.Context(), binary, name, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("databus %s printed last:\n%s", name, s.Output())
		}
	})
	return s
}

// serving finds the addresses in the line that a service logs once its ports are bound. Calls are answered from then on.
var serving = regexp.MustCompile(`msg=serving .*\bhttp=(\S+) .*?grpc=(\S+)`)

func isServing(_ bool, line string) bool { return serving.MatchString(line) }

// Start starts the service, or starts it again after Stop or Kill, and waits until its ports are bound.
func (s *Service) Start(ctx context.Context) error {
	args := []string{s.name, "--set", "http_addr=" + s.HTTPAddr(), "--set", "grpc_addr=" + s.GRPCAddr(), "--set", "log.format=text"}
	for _, setting := range s.settings {
		args = append(args, "--set", setting)
	}
	p, err := startProcess(isServing, s.binary, args...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, fmt.Errorf("waited %s", startBound))
	defer cancel()
	if err := p.awaitReady(ctx); err != nil {
		_, killed := p.signal(context.WithoutCancel(ctx), syscall.SIGKILL)
		return errors.Join(fmt.Errorf("databus %s: %w", strings.Join(args, " "), err), killed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := serving.FindStringSubmatch(p.first)
	s.cur, s.http, s.grpc = p, found[1], found[2]
	return nil
}

// Stop sends SIGTERM, waits for the end and expects exit code 0.
func (s *Service) Stop() error {
	code, err := s.end(syscall.SIGTERM)
	if err == nil && code != 0 {
		err = fmt.Errorf("databus %s ended with code %d on SIGTERM, want 0:\n%s", s.name, code, s.Output())
	}
	return err
}

// Kill sends SIGKILL and waits for the end. A service that is gone already is no error.
func (s *Service) Kill() error {
	_, err := s.end(syscall.SIGKILL)
	return err
}

func (s *Service) end(sig syscall.Signal) (int, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopBound, fmt.Errorf("waited %s", stopBound))
	defer cancel()
	return s.current().signal(ctx, sig)
}

// Signal sends a signal and waits for nothing.
func (s *Service) Signal(sig syscall.Signal) error { return s.current().cmd.Process.Signal(sig) }

// PID of the process that was started last.
func (s *Service) PID() int { return s.current().cmd.Process.Pid }

func (s *Service) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur
}

// Output is what the service printed last.
func (s *Service) Output() string { return s.current().output() }

// HTTPAddr is host:port of the HTTP port.
func (s *Service) HTTPAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.http
}

// GRPCAddr is host:port of the gRPC port.
func (s *Service) GRPCAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grpc
}

// URL is HTTPAddr with the HTTP scheme.
func (s *Service) URL() string { return "http://" + s.HTTPAddr() }
