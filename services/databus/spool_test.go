package databus

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
)

const spooledLevel = databusv1.Durability_DURABILITY_SPOOLED

// counting publishes numbered messages for a few keys, and knows how many of each were answered with success.
type counting struct {
	r    *rig
	sent [5]int
}

// publish sends n messages, key by key in order, and wants each answered with the status.
func (c *counting) publish(status, n int) {
	c.r.Helper()
	var wg sync.WaitGroup
	for k := range c.sent {
		first := c.sent[k]
		c.sent[k] += n
		wg.Go(func() {
			for i := first; i < first+n; i++ {
				got, answer, _ := c.r.post("/v1/channels/c/messages", "application/json", fmt.Sprintf(`{"messages":[{"key":"k%d","value":%d}]}`, k, i))
				if got != status {
					c.r.Errorf("message %d of key %d: status %d, want %d: %s", i, k, got, status, answer)
				}
			}
		})
	}
	wg.Wait()
}

// check waits until the broker has all of it, and wants it once and in order.
func (c *counting) check(t *testing.T) {
	t.Helper()
	total := 0
	for _, n := range c.sent {
		total += n
	}
	next := map[string]int{}
	for _, p := range c.r.broker.Await("c", total) {
		for _, rec := range p {
			if string(rec.Value) != fmt.Sprint(next[string(rec.Key)]) {
				t.Fatalf("%s: got %s, want %d", rec.Key, rec.Value, next[string(rec.Key)])
			}
			next[string(rec.Key)]++
		}
	}
	for k, n := range c.sent {
		if next[fmt.Sprint("k", k)] != n {
			t.Errorf("key %d has %d messages, want %d", k, next[fmt.Sprint("k", k)], n)
		}
	}
}

func TestSpooledOutlivesBrokerAndAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inDir := func(c *Config) { c.DataDir = dir }
	r := start(t, inDir)
	var drop atomic.Bool
	r.broker.Drop = func(string, int32) bool { return drop.Load() && rand.IntN(4) == 0 }
	rev := r.broker.SetChannel("c", &databusv1.ChannelConfig{Durability: spooledLevel, Batch: &databusv1.Batch{MaxMessages: 2}})
	c := &counting{r: r}
	r.broker.AwaitReport(func(q *databusv1.ReportAgentRequest) bool {
		return len(q.Channels) == 1 && q.Channels[0].Revision == rev
	})
	c.publish(200, 10)
	drop.Store(true) // answers get lost while it runs
	c.publish(200, 20)
	r.broker.Down()
	c.publish(200, 30)
	r.halt()

	c.r = startOn(t, r.broker, inDir) // while the broker is away
	c.publish(200, 30)
	r.broker.Up()
	c.publish(200, 10)
	drop.Store(false)
	c.check(t)
}

// TestLevelChangesKeepOrder changes the level over and over while the broker comes and goes.
func TestLevelChangesKeepOrder(t *testing.T) {
	t.Parallel()
	r := start(t)
	set := func(d databusv1.Durability) {
		rev := r.broker.SetChannel("c", &databusv1.ChannelConfig{Durability: d})
		r.broker.AwaitReport(func(q *databusv1.ReportAgentRequest) bool {
			return len(q.Channels) == 1 && q.Channels[0].Revision == rev
		})
	}
	const buffered, durable = databusv1.Durability_DURABILITY_BUFFERED, databusv1.Durability_DURABILITY_DURABLE
	c := &counting{r: r}
	set(durable)
	c.publish(200, 5)
	r.broker.Down()
	r.broker.Up()
	set(buffered)
	c.publish(202, 5)
	set(spooledLevel)
	c.publish(200, 5)
	set(durable)
	c.publish(200, 5)
	set(spooledLevel)
	c.publish(200, 5)
	release := r.broker.Hold("c") // nothing gets through any more
	c.publish(200, 5)
	set(buffered)
	c.publish(202, 5)
	set(spooledLevel)
	c.publish(200, 5)
	set(buffered)
	c.publish(202, 5)
	set(spooledLevel)
	c.publish(200, 5)
	release()
	c.check(t)
}

func TestPartitionsGrowUnderSpool(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", &databusv1.ChannelConfig{Durability: spooledLevel})
	c := &counting{r: r}
	c.publish(200, 5)
	release := r.broker.Hold("c")
	c.publish(200, 20)
	r.broker.Grow("c", 16)
	r.broker.AwaitReport(func(*databusv1.ReportAgentRequest) bool { return true })
	c.publish(200, 20)
	release()
	c.publish(200, 20)
	for range 3 { // whenever the agent finds out
		r.broker.Grow("c", 16)
		c.publish(200, 5)
	}
	// Records of a key may lie in two partitions, so order across them is what was appended first.
	total := 0
	for _, n := range c.sent {
		total += n
	}
	type seen struct{ value, partition int }
	byKey := map[string][]seen{}
	for p, records := range r.broker.Await("c", total) {
		for _, rec := range records {
			var v int
			if _, err := fmt.Sscan(string(rec.Value), &v); err != nil {
				t.Fatal(err)
			}
			byKey[string(rec.Key)] = append(byKey[string(rec.Key)], seen{v, p})
		}
	}
	for k, s := range byKey {
		last := map[int]int{}
		for _, x := range s {
			if prev, ok := last[x.partition]; ok && x.value <= prev {
				t.Errorf("%s: %d after %d in partition %d", k, x.value, prev, x.partition)
			}
			last[x.partition] = x.value
		}
		if len(last) > 2 {
			t.Errorf("%s is in %d partitions", k, len(last))
		}
	}
}

func TestSpoolFull(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", &databusv1.ChannelConfig{Durability: spooledLevel, Spool: &databusv1.Spool{MaxBytes: 4000},
		Compression: &databusv1.Compression{Codec: databusv1.Codec_CODEC_NONE}})
	r.want(200, "/v1/channels/c/messages", "application/json", `{"messages":[{"value":1}]}`)
	r.broker.Await("c", 1)
	release := r.broker.Hold("c")
	body := `{"messages":[{"value":"` + strings.Repeat("x", 500) + `"}]}`
	taken := 0
	for range 20 {
		status, answer, header := r.post("/v1/channels/c/messages", "application/json", body)
		if status == 200 {
			taken++
			continue
		}
		if status != 503 || !strings.Contains(answer, "SPOOL_FULL") || header.Get("Retry-After") == "" {
			t.Fatalf("a full spool: %d %s", status, answer)
		}
		break
	}
	if taken < 3 || taken > 7 {
		t.Errorf("%d messages of 500 bytes in 4000", taken)
	}
	r.want(413, "/v1/channels/c/messages", "application/json", `{"messages":[{"value":"`+strings.Repeat("x", 5000)+`"}]}`)
	release()
	r.broker.Await("c", 1+taken)
	waitFor(t, func() bool {
		status, _, _ := r.post("/v1/channels/c/messages", "application/json", body)
		return status == 200
	})
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inDir := func(c *Config) { c.DataDir = dir }
	r := start(t, inDir)
	r.broker.SetChannel("c", nil)
	const path = "/v1/channels/c/messages"
	first := results(t, r.want(200, path, "application/json", `{"messages":[{"id":"a","key":"k","value":1},{"id":"b","key":"k","value":2}]}`))
	check := func(r *rig) {
		t.Helper()
		answer := r.want(200, path, "application/json", `{"messages":[{"id":"b","key":"k","value":2}]}`)
		again := results(t, answer)
		if !strings.Contains(answer, `"duplicate":true`) || *again[0].Offset != *first[1].Offset || again[0].Timestamp != first[1].Timestamp {
			t.Errorf("the repeat got %s, the first %+v", answer, first[1])
		}
		if answer := r.want(422, path, "application/json", `{"messages":[{"id":"b","key":"k","value":3}]}`); !strings.Contains(answer, "IDEMPOTENCY_KEY_REUSED") {
			t.Error(answer)
		}
	}
	check(r)
	r.want(200, "/v1/channels/c/events", "text/plain", "x", "Idempotency-Key", "e")
	if answer := r.want(200, "/v1/channels/c/events", "text/plain", "x", "Idempotency-Key", "e"); !strings.Contains(answer, `"duplicate":true`) {
		t.Error(answer)
	}
	// Twice in one request.
	if answer := r.want(200, path, "application/json", `{"messages":[{"id":"t","value":1},{"id":"t","value":1}]}`); strings.Count(answer, "duplicate") != 1 {
		t.Error(answer)
	}
	r.halt()
	r = startOn(t, r.broker, inDir)
	check(r)
	n := 0
	for _, p := range r.broker.Records("c") {
		n += len(p)
	}
	if n != 4 {
		t.Errorf("%d records, want 4", n)
	}
}

func TestRepeatWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", nil)
	r.want(200, "/v1/channels/c/messages", "application/json", `{"messages":[{"key":"k","value":0}]}`)
	release := r.broker.Hold("c")
	const repeats = 8
	answers := make(chan string, repeats)
	for range repeats {
		go func() {
			_, answer, _ := r.post("/v1/channels/c/messages", "application/json", `{"messages":[{"id":"a","key":"k","value":1}]}`)
			answers <- answer
		}()
	}
	release()
	duplicates := 0
	for range repeats {
		answer := <-answers
		if !strings.Contains(answer, `"offset":"1"`) {
			t.Errorf("answer %s, want offset 1", answer)
		}
		duplicates += strings.Count(answer, `"duplicate":true`)
	}
	if duplicates != repeats-1 {
		t.Errorf("%d duplicates, want all but the first", duplicates)
	}
}

// TestDoubtIsClearedUp stops the agent between sending and being answered.
func TestDoubtIsClearedUp(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		inLog bool
	}{{"in the log", true}, {"not in the log", false}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			change := func(c *Config) { c.DataDir, c.DrainTimeout = dir, 100*time.Millisecond }
			r := start(t, change)
			var broken atomic.Bool
			var refused sync.Map // producers; what they sent may still be on its way when the agent is gone
			r.broker.Drop = func(string, int32) bool { return broken.Load() }
			r.broker.Refuse = func(_ string, _ int32, batch []byte) *errs.Error {
				h, err := recordbatch.ParseHeader(batch)
				if err == nil && broken.Load() && !tc.inLog {
					refused.Store(h.ProducerID, true)
				}
				if _, ok := refused.Load(h.ProducerID); ok {
					return errs.New(errs.Unavailable, "NOT_NOW", "not now").WithRetryAfter(time.Second)
				}
				return nil
			}
			r.broker.SetChannel("c", nil)
			const path, body = "/v1/channels/c/messages", `{"messages":[{"id":"a","key":"k","value":1}]}`
			for i := range 10 { // so that there is something to search through
				r.want(200, path, "application/json", fmt.Sprintf(`{"messages":[{"key":"k","value":%d}]}`, 100+i))
			}
			rev := r.broker.SetChannel("c", &databusv1.ChannelConfig{Retry: &databusv1.Retry{DeliveryTimeout: durationpb.New(150 * time.Millisecond)}})
			r.broker.AwaitReport(func(q *databusv1.ReportAgentRequest) bool {
				return len(q.Channels) == 1 && q.Channels[0].Revision == rev
			})
			broken.Store(true)
			r.want(503, path, "application/json", body)
			r.want(503, path, "application/json", body) // still nobody knows
			r.halt()
			broken.Store(false)
			r.broker.SetChannel("c", nil)

			r = startOn(t, r.broker, change)
			var answer string
			waitFor(t, func() bool {
				var status int
				status, answer, _ = r.post(path, "application/json", body)
				return status == 200
			})
			if got := strings.Contains(answer, `"duplicate":true`); got != tc.inLog {
				t.Errorf("answer %s, want duplicate %v", answer, tc.inLog)
			}
			if *results(t, answer)[0].Offset != "10" {
				t.Errorf("answer %s, want offset 10", answer)
			}
			if n := len(flat(r.broker.Records("c"))); n != 11 {
				t.Errorf("%d records, want 11", n)
			}
		})
	}
}

func flat[T any](lists [][]T) (all []T) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestSpooledIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inDir := func(c *Config) { c.DataDir = dir }
	r := start(t, inDir)
	r.broker.SetChannel("c", &databusv1.ChannelConfig{Durability: spooledLevel})
	const path, body = "/v1/channels/c/messages", `{"messages":[{"id":"a","key":"k","value":1}]}`
	r.want(200, path, "application/json", `{"messages":[{"key":"k","value":0}]}`)
	r.broker.Await("c", 1)
	release := r.broker.Hold("c")
	r.want(200, path, "application/json", body)
	if answer := r.want(200, path, "application/json", body); !strings.Contains(answer, `"duplicate":true`) {
		t.Error(answer)
	}
	r.halt()
	release()
	r = startOn(t, r.broker, inDir)
	if answer := r.want(200, path, "application/json", body); !strings.Contains(answer, `"duplicate":true`) {
		t.Error(answer)
	}
	r.want(200, path, "application/json", `{"messages":[{"key":"k","value":2}]}`)
	if all := flat(r.broker.Await("c", 3)); len(all) != 3 {
		t.Errorf("%d records, want 3", len(all))
	}
}
