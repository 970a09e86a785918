// Package suite runs several services in one process: it starts them in order, each once the one before answers, and stops them
// in reverse, so that an agent can still hand what it holds to its broker. It owns order and failure; it may not know which
// services there are.
package suite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Part is one service.
type Part struct {
	Name string
	// Listen binds the ports. All parts listen before the first runs, so that a port in use is told at once.
	Listen func() error
	// Run serves until its context ends, and then drains within a bound of its own.
	Run func(context.Context) error
	// ReadyURL answers 200 once the service is ready; asked for after Listen.
	ReadyURL func() string
	// Close gives up what Listen bound where Run is never called.
	Close func() error
}

// pollEvery is how often a starting service is asked whether it is ready; remindEvery is how often the log says who is slow.
const (
	pollEvery   = 10 * time.Millisecond
	remindEvery = 10 * time.Second
)

// Run runs the parts until ctx ends or one of them does. Once all are ready it calls ready, whose context ends with the first
// of these, and whose error stops everything. The error is nil where every part stopped cleanly because ctx ended.
func Run(ctx context.Context, log *slog.Logger, parts []Part, ready func(context.Context) error) error {
	for i, p := range parts {
		if err := p.Listen(); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", p.Name, err), closeAll(parts[:i+1]))
		}
	}
	// A part that ends by itself cancels the rest, with its error as the cause.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running []*process
	for i, p := range parts {
		running = append(running, start(ctx, p, cancel))
		if err := awaitReady(ctx, log, p); err != nil {
			return errors.Join(cause(ctx, err), stopAll(running), closeAll(parts[i+1:]))
		}
		log.Info("service is ready", slog.String("service", p.Name))
	}
	err := ready(ctx)
	if err == nil {
		<-ctx.Done()
	}
	return errors.Join(cause(ctx, err), stopAll(running))
}

// cause is why the suite stops: nil where somebody asked it to, else the part that ended, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if why := context.Cause(ctx); !errors.Is(why, context.Canceled) {
		return why
	}
	return nil
}

// process is a part that runs.
type process struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
}

// start runs a part in a context of its own, because the parts stop one after the other, not all at once.
func start(ctx context.Context, p Part, ended context.CancelCauseFunc) *process {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &process{name: p.Name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		err := p.Run(own)
		switch {
		case own.Err() != nil:
			if err != nil {
				r.err = fmt.Errorf("stop %s: %w", p.Name, err)
			}
		case err != nil:
			ended(fmt.Errorf("%s ended: %w", p.Name, err))
		default:
			ended(fmt.Errorf("%s ended by itself", p.Name))
		}
	}()
	return r
}

// stopAll stops in reverse order, each once the one before is done.
func stopAll(running []*process) error {
	var all error
	for i := len(running) - 1; i >= 0; i-- {
		running[i].cancel()
		<-running[i].done
		all = errors.Join(all, running[i].err)
	}
	return all
}

func closeAll(parts []Part) error {
	var all error
	for _, p := range parts {
		all = errors.Join(all, p.Close())
	}
	return all
}

// awaitReady asks until the part answers 200, or ctx ends. Recovery of a large log takes its time, so nothing else bounds it.
func awaitReady(ctx context.Context, log *slog.Logger, p Part) error {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	poll, remind := time.NewTicker(pollEvery), time.NewTicker(remindEvery)
	defer poll.Stop()
	defer remind.Stop()
	for {
		if isReady(ctx, client, p.ReadyURL()) {
			return nil
		}
		select {
		case <-poll.C:
		case <-remind.C:
			log.Warn("service is not ready yet", slog.String("service", p.Name), slog.String("asked", p.ReadyURL()))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func isReady(ctx context.Context, client *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	res, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close() // only the status counts
	return res.StatusCode == http.StatusOK
}
