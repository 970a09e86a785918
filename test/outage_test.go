package test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
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

// outageLoad is how many producers there are, and how many messages each sends at once, as one NDJSON body where they are several;
// DATABUS_TEST_OUTAGE_LOAD asks for more than 8x1.
func outageLoad(t *testing.T) (producers, batch int) {
	t.Helper()
	text := os.Getenv("DATABUS_TEST_OUTAGE_LOAD")
	if text == "" {
		return 8, 1
	}
	left, right, _ := strings.Cut(text, "x")
	producers, err := strconv.Atoi(left)
	batch, berr := strconv.Atoi(right)
	if err != nil || berr != nil || producers < 1 || batch < 1 {
		t.Fatalf("DATABUS_TEST_OUTAGE_LOAD=%q: want PRODUCERSxMESSAGES, such as 50x100", text)
	}
	return producers, batch
}

// outage is producers with a key each that publish numbered messages through an agent as fast as it takes them, each with an id, and
// repeat what was not taken.
type outage struct {
	t       *testing.T
	pair    *harness.Pair
	client  *http.Client
	channel string
	batch   int // messages in a request

	began    time.Time
	acks     atomic.Int64
	more     chan struct{}
	stop     chan struct{}
	wait     sync.WaitGroup
	refused  atomic.Int64 // answers other than 200
	retryAft atomic.Int64 // of those, with Retry-After
	sent     []int
}

// startOutage makes a channel and begins to publish to it. config is JSON's inside of braces.
func startOutage(t *testing.T, pair *harness.Pair, channel, config string) *outage {
	t.Helper()
	must(t, pair.Broker.CreateChannel(t.Context(), http.DefaultClient, channel, "{"+config+"}"))
	producers, batch := outageLoad(t)
	transport := &http.Transport{MaxIdleConnsPerHost: producers}
	t.Cleanup(transport.CloseIdleConnections)
	o := &outage{t: t, pair: pair, client: &http.Client{Transport: transport}, channel: channel, batch: batch, began: time.Now(),
		more: make(chan struct{}, 1), stop: make(chan struct{}), sent: make([]int, producers)}
	for k := range o.sent {
		o.wait.Go(func() { o.produce(k) })
	}
	return o
}

// request is what publishes a key's messages from number i on.
func (o *outage) request(k, i int) (path string, body []byte, header http.Header) {
	if o.batch == 1 {
		return "/messages", fmt.Appendf(nil, `{"messages":[{"id":"%d-%d","key":"k%d","value":%d}]}`, k, i, k, i), nil
	}
	for n := range o.batch {
		body = fmt.Appendf(body, "%d\n", i+n)
	}
	return "/events", body, http.Header{"Content-Type": {"application/x-ndjson"}, "Databus-Id": {fmt.Sprintf("%d-%d", k, i)}, "Databus-Key": {fmt.Sprint("k", k)}}
}

// produce publishes one key's messages.
func (o *outage) produce(k int) {
	target := o.pair.Agent.URL(harness.AgentHTTP) + "/v1/channels/" + o.channel
	for i := 0; ; i += o.batch {
		path, body, header := o.request(k, i)
		for {
			select {
			case <-o.stop:
				o.sent[k] = i
				return
			default:
			}
			answer, err := harness.Call(o.t.Context(), o.client, http.MethodPost, target+path, body, header)
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
		o.acks.Add(int64(o.batch))
		select {
		case o.more <- struct{}{}:
		default:
		}
	}
}

// part tells what has been taken so far.
func (o *outage) part(what string) {
	o.t.Helper()
	o.t.Logf("%s after %s: %d messages taken, %d answers that asked to wait", what, time.Since(o.began).Round(time.Millisecond), o.acks.Load(), o.refused.Load())
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

// finish ends the producers and reads the topic until it has what they were told is safe: once, and in order.
func (o *outage) finish(topic string) {
	o.t.Helper()
	close(o.stop)
	o.wait.Wait()
	total := 0
	want := make(map[string]int)
	for k, n := range o.sent {
		want[fmt.Sprint("k", k)] = n
		total += n
	}
	o.part("the producers ended")
	began := time.Now()
	next := make(map[string]int)
	left := total
	ctx, cancel := context.WithCancel(o.t.Context())
	defer cancel()
	must(o.t, o.pair.Broker.Follow(ctx, topic, func(partition int32, messages []*databusv1.StoredMessage) bool {
		for _, m := range messages {
			key := string(m.GetKey())
			if string(m.GetValue()) != strconv.Itoa(next[key]) {
				o.t.Fatalf("partition %d offset %d: key %s has %s, want %d", partition, m.GetOffset(), key, m.GetValue(), next[key])
			}
			if next[key]++; next[key] <= want[key] {
				left--
			}
		}
		return left > 0
	}))
	o.t.Logf("all were read and in order %s after the producers ended", time.Since(began).Round(time.Millisecond))
	if left > 0 {
		o.t.Errorf("%d of %d messages are not in the log", left, total)
	}
	end, err := o.pair.Broker.Count(ctx, o.client, topic)
	must(o.t, err)
	// More may be there, of the requests that were not answered when the producers ended.
	if end > int64(total+len(o.sent)*o.batch) {
		o.t.Errorf("the topic has %d messages, %d were taken", end, total)
	}
}

// TestSpooledThroughOutages: the broker is killed, then the agent as well, under load; while the agent lives its producers see
// nothing but success, and in the end everything is in the log once and in order.
func TestSpooledThroughOutages(t *testing.T) {
	t.Parallel()
	pair := harness.RunPair(t, binary, "")
	n, half := outageAcks(t), outageLength(t)/2
	o := startOutage(t, pair, "spooled", `"durability":"SPOOLED","spool":{"maxBytes":"34359738368"}`)
	o.awaitAcks(n)
	must(t, pair.Broker.Kill())
	o.part("the broker is away")
	pauseFor(t, half)
	o.awaitAcks(n)
	o.part("the agent is killed")
	must(t, pair.Agent.Kill())
	must(t, pair.Agent.Start(t.Context()))
	pauseFor(t, half)
	o.awaitAcks(n)
	o.part("the broker comes back")
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
	n, length := outageAcks(t), outageLength(t)
	o := startOutage(t, pair, "durable", `"retry":{"deliveryTimeout":"0.2s","maxBackoff":"0.1s"}`)
	o.awaitAcks(n)
	for range 2 {
		o.part("the broker is killed")
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
