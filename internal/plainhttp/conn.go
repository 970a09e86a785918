package plainhttp

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxPlain   = 64 << 10 // of a request, head and body
	smallBytes = 4 << 10  // what a connection has while it waits
)

var large = sync.Pool{New: func() any { return new([maxPlain]byte) }}

// What a connection does; see conn.doing.
const (
	fresh   = iota // waits for its first request
	idle           // waits for the next one
	reading        // part of a request is there
	serving
	ended // the sweep or Shutdown closed it, or net/http has it
)

// conn is one connection, served by one goroutine.
type conn struct {
	server   *Server
	listener *listener
	net      net.Conn
	ctx      context.Context //nolint:containedctx // of all its requests, as net/http has one for each
	cancel   context.CancelFunc
	// doing is what it does and since which tick of the server's clock, so that nothing per request needs a timer.
	doing atomic.Int64
	mu    sync.Mutex // of the sweep's read deadline, which net/http must not get
	known bool       // the server's note has heard of its first request

	small      [smallBytes]byte
	large      *[maxPlain]byte // nil while small is enough
	buf        []byte          // small or large
	begin, end int             // of what was read and not served yet
	trimmed    int             // bytes before the next request
	head       head
	body       body
	answer     answer
}

// body is a request's, which is in memory already.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// set notes what the connection does from now on; false: it was ended meanwhile.
func (c *conn) set(doing int64) bool {
	was := c.doing.Load()
	return was%8 != ended && c.doing.CompareAndSwap(was, c.server.clock.Load()*8+doing)
}

func (c *conn) serve() {
	c.buf = c.small[:]
	handed := false
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler { //nolint:errorlint // the very value, as net/http compares it
			c.server.log.Error("a handler panicked", slog.Any("panic", p))
		}
		c.cancel()
		c.free()
		c.server.remove(c, handed)
	}()
	for {
		if !c.trim() {
			return
		}
		size, length, v := c.head.read(c.ctx, c.buf[c.begin:c.end], c.server.routes)
		whole := size + length
		switch {
		case v == other, whole > maxPlain, v == incomplete && c.end-c.begin == maxPlain:
			handed = c.handOver()
			return
		case v == plain && c.end-c.begin >= whole:
			if !c.set(serving) || !c.serveOne(size, length) { // ended while it waited, or its last
				return
			}
			continue
		}
		if err := c.fill(max(whole, c.end-c.begin+1)); err != nil {
			// What is slow, or ends too early; less than that can't be a request, and ends as quietly as with net/http.
			handed = (c.end >= least || c.end > 0 && !c.known) && c.handOver()
			return
		}
	}
}

// trim passes over the line ends that old callers send after a body, as many as net/http does.
func (c *conn) trim() bool {
	if !c.known || c.begin == c.end {
		return true
	}
	for c.begin < c.end && c.trimmed < least && (c.buf[c.begin] == '\r' || c.buf[c.begin] == '\n') {
		c.begin++
		c.trimmed++
	}
	if c.begin < c.end {
		return true
	}
	c.free()
	return c.set(idle)
}

// serveOne answers the request at begin; false: it was the last one.
func (c *conn) serveOne(size, length int) bool {
	if !c.known {
		c.known = true
		c.server.note(c.net, http.StateActive)
	}
	c.trimmed = 0
	from := c.begin + size
	c.begin = from + length
	r := c.head.request
	c.body.Reset(c.buf[from:c.begin])
	r.Body, r.ContentLength = &c.body, int64(length)
	c.answer.reset()
	c.head.route.handler.ServeHTTP(&c.answer, r)
	last := c.server.draining.Load() || c.answer.header["Connection"] != nil // which no handler sets but to close
	delete(c.answer.header, "Connection")
	if _, err := c.net.Write(c.answer.bytes(*c.server.date.Load(), last)); err != nil || last || c.ctx.Err() != nil {
		return false
	}
	if c.begin == c.end {
		c.free()
		return c.set(idle)
	}
	return c.set(reading)
}

// free gives the large buffer back; nothing is in it.
func (c *conn) free() {
	c.begin, c.end = 0, 0
	if c.large != nil {
		large.Put(c.large)
		c.large, c.buf = nil, c.small[:]
	}
}

// fill reads more, with room for a request of want bytes. Without an error there is something to look at.
func (c *conn) fill(want int) error {
	if want > len(c.buf) {
		c.large = large.Get().(*[maxPlain]byte)
		c.end = copy(c.large[:], c.buf[c.begin:c.end])
		c.begin, c.buf = 0, c.large[:]
	} else if c.begin > 0 {
		c.end = copy(c.buf, c.buf[c.begin:c.end])
		c.begin = 0
	}
	n, err := c.net.Read(c.buf[c.end:])
	if n > 0 {
		first := c.end == 0
		c.end += n
		if first && !c.set(reading) {
			return net.ErrClosed
		}
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.net.SetReadDeadline(time.Time{})
		if c.end == 0 { // the sweep was late: what was slow came after all
			return nil
		}
	}
	return err
}

// handOver gives the connection to net/http, with what was read. False: it takes no more.
func (c *conn) handOver() bool {
	c.mu.Lock()
	c.doing.Store(ended)
	_ = c.net.SetReadDeadline(time.Time{}) // a connection that is gone has no deadline
	c.mu.Unlock()
	rest := &handed{Conn: c.net, read: bytes.Clone(c.buf[c.begin:c.end])}
	select {
	case c.listener.handed <- accepted{conn: rest}:
		return true
	case <-c.listener.done:
		return false
	}
}

// handed is a connection of which something was read already.
type handed struct {
	net.Conn
	read []byte
}

func (h *handed) Read(p []byte) (int, error) {
	if len(h.read) == 0 {
		return h.Conn.Read(p)
	}
	n := copy(p, h.read)
	if h.read = h.read[n:]; len(h.read) == 0 {
		h.read = nil
	}
	return n, nil
}

// CloseWrite lets net/http end a connection whose caller is still sending.
func (h *handed) CloseWrite() error {
	if c, ok := h.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
