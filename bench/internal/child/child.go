// Package child runs a bare peer as a process of its own by starting the benchmark's binary again: a server that shared the
// load generator's process would share its garbage collector too.
package child

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Start starts this binary with arguments that make it a server, which prints its address once it takes connections. stop
// has it end by itself, and waits.
func Start(ctx context.Context, args ...string) (addr string, pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", 0, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = fmt.Fscanln(out, &addr)
	}
	if err != nil {
		cancel()
		return "", 0, nil, fmt.Errorf("start %s: %w", strings.Join(args, " "), err)
	}
	return addr, cmd.Process.Pid, func() { cancel(); _ = cmd.Wait() }, nil
}
