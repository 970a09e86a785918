package harness

import (
	"context"
	"net"
	"sync"
	"testing"

	"golang.org/x/time/rate"
)

const (
	// proxyPiece is what a connection carries at once while the proxy is throttled: connections take turns.
	proxyPiece = 4 << 10
	// proxyBuffer is what the kernel may take from a client and the proxy has not carried yet.
	proxyBuffer = 64 << 10
)

// Proxy is a TCP proxy on a port of its own. Its connections can be held still, each on its own, and all of them together slowed down.
// Methods may run concurrently. It ends with its test.
type Proxy struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup
	up, down *rate.Limiter // of the bytes a second to and from the target

	mu    sync.Mutex
	conns []*proxied // in the order in which they came
	ended bool
}

// proxied is one connection through a Proxy.
type proxied struct {
	client, server net.Conn
	ctx            context.Context // ends with the connection
	end            context.CancelFunc

	mu   sync.Mutex
	gate chan struct{} // closed: bytes go through
}

// StartProxy starts a proxy before the target, an address of host:port.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: target, listener: listener, up: rate.NewLimiter(rate.Inf, proxyPiece), down: rate.NewLimiter(rate.Inf, proxyPiece)}
	p.work.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// Addr is the proxy's own host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Conns is how many connections there have been.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Stall holds back what the connection of that number, from 0, carries in either direction, until the returned function is called.
// Its two ends notice nothing but silence.
func (p *Proxy) Stall(n int) (resume func()) {
	c := p.conn(n)
	gate := make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gate = gate
	return sync.OnceFunc(func() { close(gate) })
}

// Throttle lets no more than so many bytes a second through from now on, all connections together, in each direction; 0: any number.
func (p *Proxy) Throttle(bytesPerSecond int) {
	limit := rate.Limit(bytesPerSecond)
	if bytesPerSecond == 0 {
		limit = rate.Inf
	}
	p.up.SetLimit(limit)
	p.down.SetLimit(limit)
}

func (p *Proxy) conn(n int) *proxied {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conns[n]
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			client.Close() // as if the target had refused
			continue
		}
		_ = client.(*net.TCPConn).SetReadBuffer(proxyBuffer) // at worst it takes more ahead
		c := &proxied{client: client, server: server, gate: make(chan struct{})}
		c.ctx, c.end = context.WithCancel(context.Background())
		close(c.gate)
		p.mu.Lock()
		p.conns = append(p.conns, c)
		ended := p.ended
		p.mu.Unlock()
		if ended {
			c.cut()
		}
		p.work.Go(func() { c.carry(server, client, p.up) })
		p.work.Go(func() { c.carry(client, server, p.down) })
	}
}

// carry copies one direction until either end is gone.
func (c *proxied) carry(to, from net.Conn, limit *rate.Limiter) {
	defer c.cut()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		c.mu.Lock()
		gate := c.gate
		c.mu.Unlock()
		<-gate
		for rest := buffer[:n]; len(rest) > 0; {
			piece := rest[:min(len(rest), proxyPiece)]
			if err := limit.WaitN(c.ctx, len(piece)); err != nil {
				return
			}
			if _, err := to.Write(piece); err != nil {
				return
			}
			rest = rest[len(piece):]
		}
	}
}

func (c *proxied) cut() {
	c.end()
	c.client.Close()
	c.server.Close()
}

// close ends the proxy. What is stalled must have been resumed.
func (p *Proxy) close() {
	p.mu.Lock()
	p.ended = true
	conns := p.conns
	p.mu.Unlock()
	p.listener.Close()
	for _, c := range conns {
		c.cut()
	}
	p.work.Wait()
}
