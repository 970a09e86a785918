package databus

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/brokertest"
)

// post1 posts one keyed message and reports anything but 200.
func post1(url, channel, key string, value int) error {
	body := fmt.Sprintf(`{"messages":[{"key":%q,"value":%d}]}`, key, value)
	res, err := http.Post(url+"/v1/channels/"+channel+"/messages", "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", res.StatusCode, answer)
	}
	return err
}

// writers post numbered messages, each writer one key, one after the other.
func writers(t *testing.T, url, channel string, n, each int, between func(writer, i int)) {
	t.Helper()
	var work sync.WaitGroup
	for w := range n {
		work.Go(func() {
			for i := range each {
				if err := post1(url, channel, fmt.Sprint("w", w), i); err != nil {
					t.Errorf("writer %d, message %d: %v", w, i, err)
					return
				}
				if between != nil {
					between(w, i)
				}
			}
		})
	}
	work.Wait()
}

// onceInOrder checks that every writer's messages are there once and in order in the topics, one after the other.
func onceInOrder(t *testing.T, n, each int, topics ...[][]brokertest.Record) {
	t.Helper()
	next := map[string]int{}
	for _, topic := range topics {
		for _, p := range topic {
			for _, rec := range p {
				if k := string(rec.Key); string(rec.Value) != fmt.Sprint(next[k]) {
					t.Fatalf("%s: found %s where %d should be", k, rec.Value, next[k])
				}
				next[string(rec.Key)]++
			}
		}
	}
	for w := range n {
		if k := fmt.Sprint("w", w); next[k] != each {
			t.Errorf("%s has %d messages, want %d", k, next[k], each)
		}
	}
}

func TestLostAnswersAndRefusals(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	roll := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(n) == 0
	}
	b := brokertest.Start(t)
	b.Drop = func(string, int32) bool { return roll(40) }
	b.Refuse = func(string, int32, []byte) *errs.Error {
		if roll(30) {
			return errs.New(errs.Exhausted, "APPEND_BUFFERS_FULL", "busy")
		}
		return nil
	}
	r := startOn(t, b)
	b.SetChannel("c", &databusv1.ChannelConfig{Batch: &databusv1.Batch{Linger: durationpb.New(0), MaxMessages: 2},
		Retry: &databusv1.Retry{InitialBackoff: durationpb.New(1000)}})
	writers(t, r.url, "c", 12, 40, nil)
	onceInOrder(t, 12, 40, b.Records("c"))
}

func TestForgottenTopicIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", nil)
	if err := post1(r.url, "c", "k", 0); err != nil {
		t.Fatal(err)
	}
	r.broker.Forget("c")
	if err := post1(r.url, "c", "k", 1); err != nil {
		t.Fatal(err)
	}
	r.broker.Await("c", 1)
}

// TestTopicMadeAgainWithFewerPartitions: what was taken for a partition that is gone goes to one that is there, of every level, and
// nobody is refused.
func TestTopicMadeAgainWithFewerPartitions(t *testing.T) {
	t.Parallel()
	for _, level := range []databusv1.Durability{databusv1.Durability_DURABILITY_DURABLE, databusv1.Durability_DURABILITY_BUFFERED,
		databusv1.Durability_DURABILITY_SPOOLED} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			b := brokertest.Start(t)
			b.DefaultPartitions = 16
			r := startOn(t, b)
			b.SetChannel("c", &databusv1.ChannelConfig{Durability: level})
			const path = "/v1/channels/c/messages"
			want := 200
			if level == databusv1.Durability_DURABILITY_BUFFERED {
				want = 202
			}
			const keys = 40
			publish := func(value int) {
				for k := range keys {
					r.want(want, path, "application/json", fmt.Sprintf(`{"messages":[{"key":"w%d","value":%d}]}`, k, value))
				}
			}
			publish(0)
			b.Await("c", keys)
			release := b.Hold("c")
			if level != databusv1.Durability_DURABILITY_DURABLE { // taken, and still on its way to the old topic
				publish(0)
			}
			b.Remake("c", 4) // a divisor, so that each key stays in one partition
			release()
			if level == databusv1.Durability_DURABILITY_DURABLE {
				publish(0)
			}
			publish(1)
			onceInOrder(t, keys, 2, b.Await("c", 2*keys))
		})
	}
}

func TestPartitionsGrowUnderTraffic(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", nil)
	if err := post1(r.url, "c", "first", 0); err != nil {
		t.Fatal(err)
	}
	used := func() bool {
		for _, p := range r.broker.Records("c")[4:] {
			if len(p) > 0 {
				return true
			}
		}
		return false
	}
	r.broker.Grow("c", 16)
	for i := 0; !used(); i++ {
		if err := post1(r.url, "c", fmt.Sprint("k", i), i); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStuckTopicLeavesOthersAlone holds one topic for good: its channel fills its share and is refused, another one goes on.
func TestStuckTopicLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *Config) { c.MemoryBytes = 4 << 20 })
	buffered := databusv1.Durability_DURABILITY_BUFFERED
	r.broker.SetChannel("stuck", &databusv1.ChannelConfig{Durability: buffered})
	r.broker.SetChannel("well", nil)
	release := r.broker.Hold("stuck")
	defer release()
	body := `{"messages":[{"value":"` + strings.Repeat("x", 100_000) + `"}]}`
	taken := 0
	for {
		status, answer, header := r.post("/v1/channels/stuck/messages", "application/json", body)
		if status == 202 {
			taken++
			continue
		}
		if status != 429 && status != 503 || header.Get("Retry-After") == "" {
			t.Fatalf("%d %s", status, answer)
		}
		break
	}
	if taken < 5 || taken > 41 {
		t.Fatalf("%d messages of 100 kB fit in a quarter of 4 MiB", taken)
	}
	writers(t, r.url, "well", 4, 20, nil)
	onceInOrder(t, 4, 20, r.broker.Records("well"))
	release()
	r.broker.Await("stuck", taken)
}

// TestChangesUnderTraffic changes what may change while writers post: nobody is refused, and every key keeps its order.
func TestChangesUnderTraffic(t *testing.T) {
	t.Parallel()
	r := start(t)
	codec := func(c databusv1.Codec) *databusv1.ChannelConfig {
		return &databusv1.ChannelConfig{Compression: &databusv1.Compression{Codec: c}}
	}
	configs := []*databusv1.ChannelConfig{
		nil, codec(databusv1.Codec_CODEC_LZ4), codec(databusv1.Codec_CODEC_SNAPPY), codec(databusv1.Codec_CODEC_GZIP),
		{Batch: &databusv1.Batch{Linger: durationpb.New(0)}}, {Batch: &databusv1.Batch{Adaptive: true}}, {Batch: &databusv1.Batch{MaxMessages: 2}},
		{KeyPath: "$.none"}, {Routes: []*databusv1.Route{{Topic: "c", When: `key != "w0"`}, {Topic: "c"}}},
	}
	r.broker.SetChannel("c", configs[0])
	var mu sync.Mutex
	changes := 0
	writers(t, r.url, "c", 10, 60, func(w, i int) {
		if w != 0 && i%20 != 0 {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		changes++
		r.broker.SetChannel("c", configs[changes%len(configs)])
	})
	onceInOrder(t, 10, 60, r.broker.Records("c"))
}

func TestRoutesMoveInOrder(t *testing.T) {
	t.Parallel()
	r := start(t)
	to := func(topic string) *databusv1.ChannelConfig {
		return &databusv1.ChannelConfig{Routes: []*databusv1.Route{{Topic: topic}}}
	}
	r.broker.SetChannel("c", to("a"))
	writers(t, r.url, "c", 6, 40, func(w, i int) {
		if w == 0 && i == 20 {
			r.broker.SetChannel("c", to("b"))
		}
	})
	onceInOrder(t, 6, 40, r.broker.Records("a"), r.broker.Records("b"))
}
