package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"google.golang.org/grpc"
)

// serve starts a goroutine for each listener. The first that fails while nobody asked it to stop is reported.
func (s *Server) serve(ctx context.Context) <-chan error {
	failed := make(chan error, 1)
	run := func(what string, f func() error) {
		go func() {
			err := f()
			if err == nil || errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
				return
			}
			select {
			case failed <- fmt.Errorf("serve %s: %w", what, err):
			default: // one reason to stop is enough
			}
		}()
	}
	// Handlers must not lose their context when ctx ends: the drain gives them time. Closing a connection ends it.
	calls := context.WithoutCancel(ctx)
	s.http.BaseContext = func(net.Listener) context.Context { return calls }
	serveHTTP := func(l net.Listener) error {
		if s.plain != nil {
			l = s.plain.Listener(calls, l)
		}
		return s.http.Serve(l)
	}
	s.mu.Lock()
	l := s.listeners
	s.mu.Unlock()
	if l.http != nil {
		run("HTTP on "+l.http.Addr().String(), func() error { return serveHTTP(l.http) })
	}
	if l.unix != nil {
		run("HTTP on "+l.unix.Addr().String(), func() error { return serveHTTP(l.unix) })
	}
	if l.grpc != nil {
		run("gRPC on "+l.grpc.Addr().String(), func() error { return s.public.Serve(l.grpc) })
	}
	if s.pipe != nil {
		run("the gateway", func() error { return s.inner.Serve(s.pipe) })
	}
	return failed
}

// drain lets calls end within the timeout. The gateway's inner server goes last, since REST calls under way
// still need it.
func (s *Server) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	s.closeOnce.Do(func() {
		close(s.draining)
		s.health.Shutdown()
		var wg sync.WaitGroup
		wg.Go(func() {
			s.leaving.Store(true)
			s.awaitNextCalls(ctx)
			s.awaitFirstCalls(ctx)
			if err := s.shutdownHTTP(ctx); err != nil {
				s.cfg.Logger.WarnContext(ctx, "HTTP calls were cut: they did not end within the drain timeout",
					slog.Duration("drain_timeout", s.cfg.DrainTimeout), slog.Any("error", err))
				_ = s.http.Close() // Close is called again by Run, which reports
			}
		})
		wg.Go(func() {
			if !stopGracefully(ctx, s.public) {
				s.cfg.Logger.WarnContext(ctx, "gRPC calls were cut: they did not end within the drain timeout",
					slog.Duration("drain_timeout", s.cfg.DrainTimeout))
			}
		})
		wg.Wait()
		s.inner.Stop() // nobody is left to call it
	})
}

// shutdownHTTP ends connections as they become idle.
func (s *Server) shutdownHTTP(ctx context.Context) error {
	if s.plain == nil {
		return s.http.Shutdown(ctx)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.plain.Shutdown(ctx) }()
	err := s.http.Shutdown(ctx)
	return errors.Join(err, <-ended)
}

// stopGracefully reports whether the server's calls ended before ctx did. A handler that does not heed its context
// is left behind: waiting for it would break the bound.
func stopGracefully(ctx context.Context, srv *grpc.Server) bool {
	done := make(chan struct{})
	go func() {
		srv.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		srv.Stop()
		return false
	}
}
