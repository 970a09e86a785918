package rpc

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A drain waits this long at most for the next calls of connections that are kept, and for the first ones of those that were accepted
// just before, and looks this often. A connection that says nothing must not hold it up for long.
const (
	keptWait  = 250 * time.Millisecond
	freshWait = time.Second
	lookEvery = 2 * time.Millisecond
)

// conns knows the HTTP connections. Its method may run concurrently.
type conns struct {
	open  sync.Map     // net.Conn → nothing
	fresh sync.Map     // those that have not brought a call yet
	count atomic.Int64 // of fresh
}

// note is the server's ConnState hook.
func (c *conns) note(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		c.open.Store(conn, nil)
		c.fresh.Store(conn, nil)
		c.count.Add(1)
		return
	}
	if _, was := c.fresh.LoadAndDelete(conn); was {
		c.count.Add(-1)
	}
	if state == http.StateClosed || state == http.StateHijacked {
		c.open.Delete(conn)
	}
}

// awaitNextCalls waits until each connection that is open now has brought another call, whose answer says that it is the last one
// here. One that is closed while its next call is on the way has that call cut, though nobody refused it. New connections are still
// served.
func (s *Server) awaitNextCalls(ctx context.Context) {
	var kept []any
	s.conns.open.Range(func(conn, _ any) bool {
		kept = append(kept, conn)
		return true
	})
	ctx, cancel := context.WithTimeout(ctx, keptWait)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		kept = slices.DeleteFunc(kept, func(conn any) bool {
			_, open := s.conns.open.Load(conn)
			return !open
		})
		if len(kept) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
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
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for quiet := 0; quiet < 2; { // twice: a connection is noted a moment after it was accepted, and a call a moment before it is served
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if quiet++; s.conns.count.Load() > 0 {
			quiet = 0
		}
	}
}
