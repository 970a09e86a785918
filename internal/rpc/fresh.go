package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A drain waits this long at most for the first calls of connections that were accepted just before, and looks this often. A
// connection that says nothing must not hold it up for long.
const (
	freshWait  = time.Second
	freshEvery = 2 * time.Millisecond
)

// fresh counts the connections that were accepted and have not brought a call yet. Its method may run concurrently.
type fresh struct {
	conns sync.Map // net.Conn → nothing
	count atomic.Int64
}

// note is the server's ConnState hook.
func (f *fresh) note(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		f.conns.Store(conn, nil)
		f.count.Add(1)
		return
	}
	if _, was := f.conns.LoadAndDelete(conn); was {
		f.count.Add(-1)
	}
}

// awaitFirstCalls closes the HTTP listeners and waits for the first call of each connection that was accepted before: net/http
// closes without an answer what it reads its first call from after Shutdown has begun, and whoever sent it was not refused.
func (s *Server) awaitFirstCalls(ctx context.Context) {
	s.mu.Lock()
	l := s.listeners
	s.mu.Unlock()
	for _, lis := range []net.Listener{l.http, l.unix} {
		if lis == nil {
			continue
		}
		if err := lis.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			s.cfg.Logger.WarnContext(ctx, "listener not closed", slog.Any("error", err))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, freshWait)
	defer cancel()
	tick := time.NewTicker(freshEvery)
	defer tick.Stop()
	for quiet := 0; quiet < 2; { // twice: a connection is noted a moment after it was accepted, and a call a moment before it is served
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if quiet++; s.fresh.count.Load() > 0 {
			quiet = 0
		}
	}
}
