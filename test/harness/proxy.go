package harness

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Proxy is a TCP proxy on a port of its own, whose connections can be held still or cut, each on its own. Methods may run
// concurrently. It ends with its test.
type Proxy struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu    sync.Mutex
	conns []*proxied // in the order in which they came
	ended bool
}

// proxied is one connection through a Proxy.
type proxied struct {
	client, server net.Conn

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
	p := &Proxy{target: target, listener: listener}
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
		c := &proxied{client: client, server: server, gate: make(chan struct{})}
		close(c.gate)
		p.mu.Lock()
		p.conns = append(p.conns, c)
		ended := p.ended
		p.mu.Unlock()
		if ended {
			c.cut()
		}
		p.work.Go(func() { c.carry(server, client) })
		p.work.Go(func() { c.carry(client, server) })
	}
}

// carry copies one direction until either end is gone.
func (c *proxied) carry(to, from net.Conn) {
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
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (c *proxied) cut() {
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
