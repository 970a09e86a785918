package test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/databus-suite/databus/test/harness"
)

// outageAcks is how many messages are taken in each part of an outage; DATABUS_TEST_OUTAGE_ACKS asks for more.
func outageAcks(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv("DATABUS_TEST_OUTAGE_ACKS")
	if text == "" {
		return 400
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		t.Fatalf("DATABUS_TEST_OUTAGE_ACKS=%q: want a number from 1", text)
	}
	return n
}

// outageLength is how long a broker stays away at least; DATABUS_TEST_OUTAGE asks for more than no time.
func outageLength(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("DATABUS_TEST_OUTAGE")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		t.Fatalf("DATABUS_TEST_OUTAGE=%q: want a duration such as 2m", text)
	}
	return d
}

// outage is producers with a key each that publish numbered messages through an agent, each with an id, and repeat one until it is
// taken.
type outage struct {
	t       *testing.T
	pair    *harness.Pair
	client  *http.Client
	channel string

	acks     atomic.Int64
	more     chan struct{}
	stop     chan struct{}
	wait     sync.WaitGroup
	refused  atomic.Int64 // answers other than 200
	retryAft atomic.Int64 // of those, with Retry-After
	sent     [8]int
}

func startOutage(t *testing.T, pair *harness.Pair, channel string) *outage {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(transport.CloseIdleConnections)
	o := &outage{t: t, pair: pair, client: &http.Client{Transport: transport}, channel: channel, more: make(chan struct{}, 1), stop: make(chan struct{})}
	for k := range o.sent {
		o.wait.Go(func() { o.produce(k) })
	}
	return o
}

// produce publishes one key's messages.
func (o *outage) produce(k int) {
	target := o.pair.Agent.URL(harness.AgentHTTP) + "/v1/channels/" + o.channel + "/messages"
	for i := 0; ; i++ {
		body := fmt.Appendf(nil, `{"messages":[{"id":"%d-%d","key":"k%d","value":%d}]}`, k, i, k, i)
		for {
			select {
			case <-o.stop:
				o.sent[k] = i
				return
			default:
			}
			answer, err := harness.Call(o.t.Context(), o.client, http.MethodPost, target, body, nil)
			if err == nil && answer.Status == http.StatusOK {
				break
			}
			if err == nil {
				o.refused.Add(1)
				if answer.Header.Get("Retry-After") != "" {
					o.retryAft.Add(1)
				}
			}
			pauseFor(o.t, 20*time.Millisecond) // the agent is away, or said when to come back
		}
		o.acks.Add(1)
		select {
		case o.more <- struct{}{}:
		default:
		}
	}
}

func pauseFor(t *testing.T, d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// awaitAcks waits until n more messages were taken.
func (o *outage) awaitAcks(n int64) {
	o.t.Helper()
	for until := o.acks.Load() + n; o.acks.Load() < until; {
		select {
		case <-o.more:
		case <-o.t.Context().Done():
			o.t.Fatal("the test ended first")
		}
	}
}

// finish ends the producers and waits until the log has what they were told is safe: once, and in order.
func (o *outage) finish(topic string) {
	o.t.Helper()
	close(o.stop)
	o.wait.Wait()
	total := 0
	for _, n := range o.sent {
		total += n
	}
	began := time.Now()
	for {
		end, err := o.pair.Broker.Count(o.t.Context(), o.client, topic)
		if err == nil && end >= int64(total) {
			break
		}
		if o.t.Context().Err() != nil {
			o.t.Fatalf("%d of %d messages: %v", end, total, err)
		}
		pauseFor(o.t, 50*time.Millisecond)
	}
	o.t.Logf("the last message was in the log %s after the producers ended", time.Since(began).Round(time.Millisecond))
	messages, err := o.pair.Broker.Read(o.t.Context(), o.client, topic)
	must(o.t, err)
	o.check(messages)
}

func (o *outage) check(messages []harness.Message) {
	o.t.Helper()
	next := map[string]int{}
	for _, m := range messages {
		if string(m.Value) != strconv.Itoa(next[string(m.Key)]) {
			o.t.Fatalf("partition %d offset %d: key %s has %s, want %d", m.Partition, m.Offset, m.Key, m.Value, next[string(m.Key)])
		}
		next[string(m.Key)]++
	}
	for k, n := range o.sent {
		// One more may be there: the one that was not answered when the producers ended.
		if got := next[fmt.Sprint("k", k)]; got != n && got != n+1 {
			o.t.Errorf("key %d has %d messages, want %d", k, got, n)
		}
	}
	o.t.Logf("%d messages, %d answers that asked to wait", len(messages), o.refused.Load())
}

// TestSpooledThroughOutages: the broker is killed, then the agent as well, under load; while the agent lives its producers see
// nothing but success, and in the end everything is in the log once and in order.
func TestSpooledThroughOutages(t *testing.T) {
	t.Parallel()
	pair := harness.RunPair(t, binary, "")
	if err := pair.Broker.CreateChannel(t.Context(), http.DefaultClient, "spooled", `{"durability":"SPOOLED"}`); err != nil {
		t.Fatal(err)
	}
	n, half := outageAcks(t), outageLength(t)/2
	o := startOutage(t, pair, "spooled")
	o.awaitAcks(n)
	must(t, pair.Broker.Kill())
	pauseFor(t, half)
	o.awaitAcks(n)
	must(t, pair.Agent.Kill())
	must(t, pair.Agent.Start(t.Context()))
	pauseFor(t, half)
	o.awaitAcks(n)
	t.Logf("%d messages taken when the broker comes back", o.acks.Load())
	must(t, pair.Broker.Start(t.Context()))
	o.awaitAcks(n)
	must(t, pair.Agent.Kill()) // while it catches up
	must(t, pair.Agent.Start(t.Context()))
	o.awaitAcks(n)
	must(t, pair.Broker.Kill())
	must(t, pair.Broker.Start(t.Context()))
	o.awaitAcks(n)
	o.finish("spooled")
	if r := o.refused.Load(); r > 0 {
		t.Errorf("%d answers were not 200", r)
	}
}

// TestDurableThroughOutages: producers are told to come back, and repeats of their ids leave one message each.
func TestDurableThroughOutages(t *testing.T) {
	t.Parallel()
	pair := harness.RunPair(t, binary, "")
	if err := pair.Broker.CreateChannel(t.Context(), http.DefaultClient, "durable", `{"retry":{"deliveryTimeout":"0.2s","maxBackoff":"0.1s"}}`); err != nil {
		t.Fatal(err)
	}
	n, length := outageAcks(t), outageLength(t)
	o := startOutage(t, pair, "durable")
	o.awaitAcks(n)
	for range 2 {
		must(t, pair.Broker.Kill())
		pauseFor(t, length)
		length = 0 // the second one is short
		for before := o.refused.Load(); o.refused.Load() < before+20; {
			pauseFor(t, 10*time.Millisecond)
		}
		must(t, pair.Broker.Start(t.Context()))
		o.awaitAcks(n)
	}
	must(t, pair.Agent.Kill())
	must(t, pair.Agent.Start(t.Context()))
	o.awaitAcks(n)
	o.finish("durable")
	if r := o.refused.Load(); r == 0 || o.retryAft.Load() != r {
		t.Errorf("%d answers were not 200, %d of them said Retry-After", r, o.retryAft.Load())
	}
}

// TestLaneTopicGoes: a lane's topic is made on demand and goes by itself.
func TestLaneTopicGoes(t *testing.T) {
	t.Parallel()
	pair := harness.RunPair(t, binary, "")
	if err := pair.Broker.CreateChannel(t.Context(), http.DefaultClient, "lanes", `{"lanes":{"mode":"LANE_MODE_TOPIC","expiry":"1s"}}`); err != nil {
		t.Fatal(err)
	}
	target := pair.Agent.URL(harness.AgentHTTP) + "/v1/channels/lanes/messages"
	answer, err := harness.Call(t.Context(), http.DefaultClient, http.MethodPost, target, []byte(`{"messages":[{"value":1}]}`),
		http.Header{"Baggage": {"databus-lane=pr-7"}})
	if err != nil || answer.Status != http.StatusOK || !strings.Contains(string(answer.Body), `"lanes.lane.pr-7"`) {
		t.Fatalf("%v %d %s", err, answer.Status, answer.Body)
	}
	for {
		answer, err := harness.Call(t.Context(), http.DefaultClient, http.MethodGet, pair.Broker.URL(harness.BrokerHTTP)+"/v1/topics/lanes.lane.pr-7", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status == http.StatusNotFound {
			return
		}
		pauseFor(t, 100*time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
