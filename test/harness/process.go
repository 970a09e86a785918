package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// logLines is how many of a process's last lines are kept.
const logLines = 400

// pipeBound is how long the end of a process waits for children that still hold its output open.
const pipeBound = 5 * time.Second

// process is a running binary whose output is read line by line. All methods may run concurrently.
type process struct {
	cmd    *exec.Cmd
	ready  chan struct{} // closed at the first line that says so
	exited chan struct{} // closed once the process is gone and its output read

	mu      sync.Mutex
	isReady func(stderr bool, line string) bool // nil once it said yes
	lines   []string
	first   string // the line that said that it is ready
}

// saysReady tells the line of `databus dev` that says that it is ready.
func saysReady(stderr bool, line string) bool { return !stderr && strings.HasPrefix(line, "ready") }

// startProcess starts binary. The caller ends it by signal and waits for exited. isReady tells the line that says that the
// process is ready; it is asked until it says yes.
func startProcess(isReady func(stderr bool, line string) bool, binary string, args ...string) (*process, error) {
	p := &process{
		cmd:    exec.Command(binary, args...),
		ready:  make(chan struct{}),
		exited: make(chan struct{}),
	}
	p.cmd.SysProcAttr = dieWithParent()
	p.isReady = isReady
	p.cmd.Stdout = &lineWriter{process: p}
	p.cmd.Stderr = &lineWriter{process: p, stderr: true}
	p.cmd.WaitDelay = pipeBound
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return p, nil
}

// run owns the process from start to end. It keeps its OS thread: the kernel sends the parent-death signal when the thread
// that started the process ends, not when the whole parent does.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // the exit code is in ProcessState
	close(p.exited)
}

// lineWriter keeps the lines written to it. Only os/exec's copying goroutine writes.
type lineWriter struct {
	process *process
	stderr  bool
	partial []byte
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.partial = append(w.partial, b...)
	for {
		line, rest, whole := bytes.Cut(w.partial, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		w.process.keep(w.stderr, string(line))
		w.partial = append(w.partial[:0], rest...)
	}
}

func (p *process) keep(stderr bool, line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) == logLines {
		p.lines = append(p.lines[:0], p.lines[1:]...)
	}
	p.lines = append(p.lines, line)
	if p.isReady != nil && p.isReady(stderr, line) {
		p.isReady, p.first = nil, line
		close(p.ready)
	}
}

// output is the last lines that the process printed.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.lines, "\n")
}

// awaitReady waits for the ready line. A process that ends first is an error of type *ExitError.
func (p *process) awaitReady(ctx context.Context) error {
	select {
	case <-p.ready:
		return nil
	case <-p.exited:
		return &ExitError{Code: p.cmd.ProcessState.ExitCode(), Output: p.output()}
	case <-ctx.Done():
		return fmt.Errorf("no ready line: %w\n%s", context.Cause(ctx), p.output())
	}
}

// signal sends sig and waits until the process is gone. It answers with the exit code, -1 where a signal ended it.
func (p *process) signal(ctx context.Context, sig syscall.Signal) (int, error) {
	if err := p.cmd.Process.Signal(sig); err != nil {
		select {
		case <-p.exited:
			return p.cmd.ProcessState.ExitCode(), nil
		default:
			return 0, fmt.Errorf("send %s: %w", sig, err)
		}
	}
	select {
	case <-p.exited:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		err := errors.Join(fmt.Errorf("still running after %s: %w\n%s", sig, context.Cause(ctx), p.output()), p.cmd.Process.Kill())
		<-p.exited
		return 0, err
	}
}

// ExitError says that a process ended before it was ready.
type ExitError struct {
	Code   int
	Output string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("databus ended with code %d before it was ready:\n%s", e.Code, e.Output)
}
