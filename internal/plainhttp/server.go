package plainhttp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The sweep looks after slow and absent callers once a tick; the bounds are in ticks.
const (
	tick       = time.Second
	freshTicks = 10  // until the first request begins
	idleTicks  = 120 // until the next one does
	slowTicks  = 2   // that a request may take to arrive, or to be served, before somebody looks
)

// Server serves plain requests. Handle comes before Listener; the rest may run concurrently. Shutdown or Close ends it.
type Server struct {
	routes []route
	log    *slog.Logger
	note   func(net.Conn, http.ConnState)

	clock    atomic.Int64
	date     atomic.Pointer[[]byte]
	draining atomic.Bool

	mu    sync.Mutex
	conns map[*conn]struct{}

	once sync.Once
	done chan struct{}
}

// New returns a Server. note hears of connections as http.Server.ConnState does: when they are new, and when their first request
// is there, net/http has them, or they ended.
func New(log *slog.Logger, note func(net.Conn, http.ConnState)) *Server {
	s := &Server{log: log, note: note, conns: make(map[*conn]struct{}), done: make(chan struct{})}
	s.setDate()
	return s
}

// Handle has the plain requests of a path served by h: "POST /v1/channels/{channel}/events", with one segment that is the caller's.
// The request, its header and its body are used again once h has returned. An answer is buffered whole; it has a body.
func (s *Server) Handle(pattern string, h http.Handler) {
	prefix, rest, _ := strings.Cut(strings.TrimPrefix(pattern, method), "{")
	param, suffix, _ := strings.Cut(rest, "}")
	s.routes = append(s.routes, route{prefix, param, suffix, h})
}

// Listener serves the plain requests of l's connections, with contexts made from ctx, and returns a listener of the connections
// that are for net/http. Those still come after l was closed, until the returned one is.
func (s *Server) Listener(ctx context.Context, l net.Listener) net.Listener {
	out := &listener{Listener: l, handed: make(chan accepted), done: make(chan struct{})}
	go s.accept(ctx, l, out)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clock.CompareAndSwap(0, 1) {
		go s.run()
	}
	return out
}

func (s *Server) accept(ctx context.Context, l net.Listener, out *listener) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			select {
			case out.handed <- accepted{err: err}: // net/http knows which errors pass, and waits
			case <-out.done:
				return
			}
		default:
			s.start(ctx, c, out)
		}
	}
}

func (s *Server) start(ctx context.Context, nc net.Conn, l *listener) {
	c := &conn{server: s, listener: l, net: nc, answer: answer{header: make(http.Header)}}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.doing.Store(s.clock.Load()*8 + fresh)
	s.note(nc, http.StateNew)
	s.mu.Lock()
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	go c.serve()
}

// remove forgets a connection that ended, or that net/http has.
func (s *Server) remove(c *conn, handed bool) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	if handed {
		s.note(c.net, http.StateHijacked)
		return
	}
	_ = c.net.Close() // nobody waits for what closing says
	s.note(c.net, http.StateClosed)
}

func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		out = append(out, c)
	}
	return out
}

func (s *Server) setDate() {
	date := []byte(time.Now().UTC().Format(http.TimeFormat))
	s.date.Store(&date)
}

func (s *Server) run() {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-t.C:
		}
		s.setDate()
		now := s.clock.Add(1)
		for _, c := range s.all() {
			c.sweep(now)
		}
	}
}

// sweep closes a connection that is idle for long, has net/http see to a request that comes slowly, and ends the context of one
// whose caller went away.
func (c *conn) sweep(now int64) {
	doing := c.doing.Load()
	age := now - doing/8
	switch what := doing % 8; {
	case what == fresh && age > freshTicks, what == idle && age > idleTicks:
		c.close(doing)
	case what == reading && age >= slowTicks:
		c.mu.Lock()
		if c.doing.Load() == doing {
			_ = c.net.SetReadDeadline(time.Unix(1, 0)) // a connection that is gone has no deadline
		}
		c.mu.Unlock()
	case what == serving && age >= slowTicks:
		if _, gone := peek(c.net); gone {
			c.cancel()
		}
	}
}

// close closes a connection that waits for a request, unless one has arrived.
func (c *conn) close(doing int64) {
	if waiting, _ := peek(c.net); !waiting && c.doing.CompareAndSwap(doing, ended) {
		_ = c.net.Close() // its goroutine sees that
	}
}

// Shutdown lets requests under way end, and closes each connection once it waits for the next one. It returns the context's error
// where that takes too long, and closes the rest.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	defer s.Close()
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for {
		all := s.all()
		if len(all) == 0 {
			return nil
		}
		for _, c := range all {
			if doing := c.doing.Load(); doing%8 == fresh || doing%8 == idle {
				c.close(doing)
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// Close closes every connection. It is idempotent.
func (s *Server) Close() {
	s.once.Do(func() { close(s.done) })
	for _, c := range s.all() {
		c.cancel()
		_ = c.net.Close() // its goroutine sees that
	}
}

// accepted is what a listener's Accept returns.
type accepted struct {
	conn net.Conn
	err  error
}

// listener has net/http's connections.
type listener struct {
	net.Listener
	handed chan accepted
	done   chan struct{}
	once   sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case a := <-l.handed:
		return a.conn, a.err
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) { // it may well be closed already, see Server.Listener
		return err
	}
	return nil
}
