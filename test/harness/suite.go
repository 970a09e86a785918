package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Bounds of one start and one stop. Both are waits for a signal; the bound only ends a test that would hang.
const (
	startBound = 90 * time.Second
	stopBound  = 90 * time.Second
)

// Suite is one `databus dev`, or one service alone, with its data directory and its block of ports. It survives stops and kills: Start brings
// it back on the same directory and ports. Methods may run concurrently, but one start, stop or kill at a time.
type Suite struct {
	binary string
	dir    string
	offset int
	args   []string
	alone  string // the service that runs alone; empty: databus dev

	mu  sync.Mutex
	cur *process
}

// Open starts a suite on dir, on ports that were free. args go to `databus dev` as they are.
func Open(ctx context.Context, binary, dir string, args ...string) (*Suite, error) {
	for try := 1; ; try++ {
		offset, err := FreeOffset()
		if err != nil {
			return nil, err
		}
		s := &Suite{binary: binary, dir: dir, offset: offset, args: args}
		err = s.Start(ctx)
		if err == nil {
			return s, nil
		}
		var exit *ExitError
		if try == 5 || !errors.As(err, &exit) || !strings.Contains(exit.Output, "in use") {
			return nil, err
		}
	}
}

// Run opens a suite for one test on a directory of its own, and kills it when the test ends. A test that failed shows what
// the suite printed last.
func Run(t testing.TB, binary string, args ...string) *Suite {
	t.Helper()
	s, err := Open(t.Context(), binary, t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("databus dev printed last:\n%s", s.Output())
		}
	})
	return s
}

// Start starts the suite, or starts it again after Stop or Kill, and waits for its ready line.
func (s *Suite) Start(ctx context.Context) error {
	args := append([]string{"dev", "--data", s.dir, "--port-offset", strconv.Itoa(s.offset)}, s.args...)
	ready := saysReady
	if s.alone != "" {
		args, ready = append([]string{s.alone}, s.args...), saysServing
	}
	p, err := startProcess(ready, s.binary, args...)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.cur = p
	s.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, startBound, fmt.Errorf("waited %s", startBound))
	defer cancel()
	if err := p.awaitReady(ctx); err != nil {
		_, killed := p.signal(context.WithoutCancel(ctx), syscall.SIGKILL)
		return errors.Join(err, killed)
	}
	return nil
}

// Stop sends SIGTERM, waits for the end and expects exit code 0.
func (s *Suite) Stop() error {
	code, err := s.end(syscall.SIGTERM)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("databus ended with code %d on SIGTERM, want 0:\n%s", code, s.Output())
	}
	return nil
}

// Kill sends SIGKILL and waits for the end. A suite that is gone already is no error.
func (s *Suite) Kill() error {
	_, err := s.end(syscall.SIGKILL)
	return err
}

func (s *Suite) end(sig syscall.Signal) (int, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stopBound, fmt.Errorf("waited %s", stopBound))
	defer cancel()
	return s.current().signal(ctx, sig)
}

func (s *Suite) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cur
}

// Exited is closed once the process that runs now is gone.
func (s *Suite) Exited() <-chan struct{} { return s.current().exited }

// Signal sends a signal that the process lives on after.
func (s *Suite) Signal(sig syscall.Signal) error { return s.current().cmd.Process.Signal(sig) }

// Output is what the suite printed last, standard output and error.
func (s *Suite) Output() string { return s.current().output() }

// Dir is the data directory.
func (s *Suite) Dir() string { return s.dir }

// Binary is the path of the binary.
func (s *Suite) Binary() string { return s.binary }

// Offset is what --port-offset was given.
func (s *Suite) Offset() int { return s.offset }

// Addr is the address at which the service with the given default port answers.
func (s *Suite) Addr(defaultPort int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(defaultPort+s.offset))
}

// URL is Addr with the HTTP scheme.
func (s *Suite) URL(defaultPort int) string { return "http://" + s.Addr(defaultPort) }
