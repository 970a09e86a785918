package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/databus-suite/databus/internal/handover"
	"github.com/databus-suite/databus/internal/telemetry"
)

// checkWithin bounds how long a new program may take to say that it can read its config.
const checkWithin = 30 * time.Second

// restart replaces the program on SIGUSR2 by what is now at its path, with the config that is now in its file, in the same
// process and without refusing a connection: the service drains as on SIGTERM while its sockets stay open.
type restart struct {
	sockets *handover.Sockets
	path    string
	log     *slog.Logger
	asked   atomic.Bool
}

func newRestart(term *terminal, l telemetry.LogConfig) (*restart, error) {
	log, err := telemetry.NewLogger(term.err, l)
	if err != nil {
		return nil, err
	}
	sockets, err := handover.Inherit()
	if err != nil {
		return nil, err
	}
	path, err := os.Executable() // now: once it is replaced, the system calls it deleted
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the program's path: %w", err), sockets.Close())
	}
	return &restart{sockets: sockets, path: path, log: log}, nil
}

// watch returns a context that SIGUSR2 ends as well, once the new program has read its config without complaint.
func (r *restart) watch(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			if err := r.check(ctx); err != nil {
				r.log.ErrorContext(ctx, "not restarted: the new program does not take its config; this one goes on", slog.Any("error", err))
				continue
			}
			r.log.InfoContext(ctx, "restarting", slog.String("program", r.path))
			r.asked.Store(true)
			cancel()
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel()
	}
}

func (r *restart) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.path, append(os.Args[1:len(os.Args):len(os.Args)], "--check-config")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s --check-config: %w: %s", r.path, err, out)
	}
	return nil
}

// finish ends the process's sockets, or gives them to the new program, in which case it returns only where that fails.
func (r *restart) finish() error {
	if !r.asked.Load() {
		return r.sockets.Close()
	}
	return errors.Join(r.sockets.Exec(r.path, os.Args, os.Environ()), r.sockets.Close())
}
