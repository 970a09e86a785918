package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/databus-suite/databus/test/harness"
)

// keysPerConnection is how many keys a connection publishes; no other connection publishes them.
const keysPerConnection = 8

// load is a number of connections that publish numbered messages with keys, spread over agents, until finish. It is open loop:
// messages are due at the rate whatever the agents do, and what could not be sent in time follows in larger requests.
type load struct {
	began   time.Time
	pauses  pauses
	stop    chan struct{}
	done    sync.WaitGroup
	all     []*connection
	acked   atomic.Int64
	refused atomic.Int64 // by a pause

	mu     sync.Mutex
	faults []error
	times  []time.Duration // of requests, from when their first message was due
}

// connection publishes its keys one request at a time.
type connection struct {
	load   *load
	url    string
	client *http.Client
	keys   []string
	next   []int         // by key: the number of its next message
	sent   int           // messages
	every  time.Duration // between two of them
	body   bytes.Buffer
}

// pauses knows when a request may be refused because its channel is paused.
type pauses struct {
	turns atomic.Int64 // odd: a pause may be in force
	mu    sync.Mutex
	over  chan struct{}
	since time.Time
	total time.Duration // of all pauses
}

func (p *pauses) begin() {
	p.mu.Lock()
	p.over, p.since = make(chan struct{}), time.Now()
	p.mu.Unlock()
	p.turns.Add(1)
}

func (p *pauses) end() {
	p.turns.Add(1)
	p.mu.Lock()
	close(p.over)
	p.total += time.Since(p.since)
	p.mu.Unlock()
}

func (p *pauses) await() {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if over != nil {
		<-over
	}
}

// loadConfig says what a load is like.
type loadConfig struct {
	channel     string
	agents      []*harness.Service
	connections int
	rate        int  // messages a second, all together
	reconnect   bool // for each request
}

// startLoad begins a load.
func startLoad(cfg loadConfig) *load {
	l := &load{stop: make(chan struct{}), began: time.Now()}
	channel, agents, connections := cfg.channel, cfg.agents, cfg.connections
	every := time.Duration(float64(time.Second) * float64(connections) / float64(cfg.rate))
	for i := range connections {
		transport := &http.Transport{MaxIdleConnsPerHost: 1, DisableKeepAlives: cfg.reconnect}
		c := &connection{load: l, client: &http.Client{Transport: transport},
			url: agents[i%len(agents)].URL() + "/v1/channels/" + channel + "/messages", next: make([]int, keysPerConnection), every: every}
		for k := range keysPerConnection {
			c.keys = append(c.keys, fmt.Sprintf("c%d-%d", i, k))
		}
		l.all = append(l.all, c)
		l.done.Go(func() { c.run() })
	}
	return l
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) < 20 {
		l.faults = append(l.faults, err)
	}
}

func (l *load) took(d time.Duration) {
	l.mu.Lock()
	l.times = append(l.times, d)
	l.mu.Unlock()
}

// percentile of the requests' times.
func (l *load) percentile(p float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.times) == 0 {
		return 0
	}
	slices.Sort(l.times)
	return l.times[int(p*float64(len(l.times)-1))].Round(100 * time.Microsecond)
}

// awaitAcks waits until so many more messages were acknowledged.
func (l *load) awaitAcks(t *testing.T, n int64) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	bound := time.After(60 * time.Second)
	for goal := l.acked.Load() + n; l.acked.Load() < goal; {
		select {
		case <-tick.C:
		case <-bound:
			t.Fatalf("%d messages acknowledged after a minute, want %d", l.acked.Load(), goal)
		}
	}
}

// finish ends the load and reports what went wrong. It answers with how many messages of each key were taken.
func (l *load) finish(t *testing.T) map[string]int {
	t.Helper()
	close(l.stop)
	l.done.Wait()
	taken := make(map[string]int)
	for _, c := range l.all {
		c.client.CloseIdleConnections()
		for k, key := range c.keys {
			taken[key] = c.next[k]
		}
	}
	for _, err := range l.faults {
		t.Error(err)
	}
	return taken
}

const (
	requestEvery  = 50 * time.Millisecond // of each connection, while its requests take no longer
	maxPerRequest = 1000
)

func (c *connection) run() {
	tick := time.NewTicker(max(c.every, requestEvery))
	defer tick.Stop()
	for {
		n := min(int(time.Since(c.load.began)/c.every)-c.sent, maxPerRequest)
		if n < 1 {
			select {
			case <-c.load.stop:
				return
			case <-tick.C:
			}
			continue
		}
		select {
		case <-c.load.stop:
			return
		default:
		}
		if err := c.send(n); err != nil {
			c.load.fail(fmt.Errorf("publish to %s: %w", c.url, err))
			return // what follows would not be in order
		}
	}
}

// send publishes the next n messages, again where a pause refuses them.
func (c *connection) send(n int) error {
	due := c.load.began.Add(time.Duration(c.sent+1) * c.every)
	c.encode(n)
	for {
		again, err := c.publish()
		if err != nil {
			return err
		}
		if !again {
			break
		}
		c.load.refused.Add(1)
		c.load.pauses.await()
	}
	for i := range n {
		c.next[(c.sent+i)%keysPerConnection]++
	}
	c.sent += n
	c.load.acked.Add(int64(n))
	c.load.took(time.Since(due))
	return nil
}

var padding = strings.Repeat("x", 100)

func (c *connection) encode(n int) {
	c.body.Reset()
	c.body.WriteString(`{"messages":[`)
	var ahead [keysPerConnection]int
	for i := range n {
		if i > 0 {
			c.body.WriteByte(',')
		}
		k := (c.sent + i) % keysPerConnection
		fmt.Fprintf(&c.body, `{"key":%q,"headers":{"kind":"%d"},"timestamp":"2001-01-01T00:00:00Z","value":{"n":%d,"padding":%q}}`, c.keys[k], k%3, c.next[k]+ahead[k], padding)
		ahead[k]++
	}
	c.body.WriteString(`]}`)
}

// publish sends the body. again: the channel was paused, and nothing was taken.
func (c *connection) publish() (again bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	turn := c.load.pauses.turns.Load()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(c.body.Bytes()))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, err
	}
	switch {
	case resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusAccepted:
		if bytes.Contains(text, []byte(`"error"`)) {
			return false, fmt.Errorf("status %d with an error: %s", resp.StatusCode, text)
		}
		return false, nil
	case resp.StatusCode == http.StatusServiceUnavailable && bytes.Contains(text, []byte("CHANNEL_PAUSED")):
		if _, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil {
			return false, errors.New("a paused channel refuses without Retry-After")
		}
		if turn%2 == 0 && c.load.pauses.turns.Load() == turn {
			return false, errors.New("refused as paused while no pause was in force")
		}
		return true, nil
	}
	return false, fmt.Errorf("status %d: %s", resp.StatusCode, text)
}
