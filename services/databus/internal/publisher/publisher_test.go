package publisher

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/murmur2"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/channel"
	"github.com/databus-suite/databus/services/databus/internal/memory"
	"github.com/databus-suite/databus/services/databus/internal/sender"
)

// topics has every topic, with as many partitions as it says.
type topics struct{ partitions int32 }

func (x *topics) Known(string) (sender.Topic, bool) {
	return sender.Topic{Partitions: x.partitions}, true
}
func (x *topics) ResolveExpiring(ctx context.Context, name string, _ time.Duration) (sender.Topic, error) {
	return x.Resolve(ctx, name)
}

func (x *topics) Forget(string) {}

func (x *topics) Resolve(context.Context, string) (sender.Topic, error) {
	return sender.Topic{Partitions: x.partitions}, nil
}

// acking answers every batch at once, on a goroutine of its own; while held it answers none.
type acking struct {
	lanes  chan *batcher.Lane
	next   map[*batcher.Lane]int64
	topics []string // of the batches, in the order in which they were sent
	values []string
}

func (a *acking) Ready(l *batcher.Lane) { a.lanes <- l }

func (a *acking) run(t *testing.T) {
	id := int64(0)
	for l := range a.lanes {
		for {
			b, need := l.Take()
			if need {
				id++
				l.SetProducer(id, 0)
				continue
			}
			if b == nil {
				break
			}
			data, err := b.Bytes()
			if err != nil {
				t.Error(err)
			}
			base := a.next[l]
			for r, err := range recordbatch.Records(data, 1<<20) {
				if err != nil {
					t.Error(err)
				}
				a.next[l]++
				a.values = append(a.values, string(r.Value))
			}
			a.topics = append(a.topics, b.Topic())
			l.Acked(b, base, 0)
		}
	}
}

type fixture struct {
	*Publisher
	t        *testing.T
	compiler *channel.Compiler
	sink     *acking
	topics   *topics
	revision int64
}

// in runs a test under a publisher whose broker answers at once.
func in(t *testing.T, limit int64, f func(*fixture)) {
	compiler, err := channel.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		x := &fixture{t: t, compiler: compiler, topics: &topics{4}, sink: &acking{lanes: make(chan *batcher.Lane, 1000), next: make(map[*batcher.Lane]int64)}}
		b := batcher.New(x.sink)
		x.Publisher = New(Config{Batcher: b, Topics: x.topics, Memory: memory.NewPool(limit), Find: func(_ context.Context, name string) error {
			return errs.New(errs.NotFound, "CHANNEL_NOT_FOUND", "no %s", name)
		}})
		go x.sink.run(t)
		f(x)
		b.Close()
		close(x.sink.lanes)
	})
}

func (x *fixture) set(cfg *databusv1.ChannelConfig) {
	x.t.Helper()
	x.revision++
	cfg = proto.CloneOf(cfg)
	if cfg.GetCompression() == nil { // the zstd encoder's pool knows no bubbles
		if cfg == nil {
			cfg = &databusv1.ChannelConfig{}
		}
		cfg.Compression = &databusv1.Compression{Codec: databusv1.Codec_CODEC_NONE}
	}
	p, err := x.compiler.Compile(&databusv1.Channel{Name: "c", Config: cfg, Revision: x.revision})
	if err != nil {
		x.t.Fatal(err)
	}
	x.Apply(p)
}

// publish returns a line for each message: topic/partition@offset or the error's reason.
func (x *fixture) publish(messages ...wirejson.Message) ([]wirejson.Result, error) {
	p := Get()
	if err := x.Publish(x.t.Context(), &Request{Channel: "c", Messages: messages}, p); err != nil {
		return nil, err
	}
	return p.Results(), nil
}

func header(k, v string) []wirejson.Header { return []wirejson.Header{{Key: k, Value: []byte(v)}} }

func TestRouting(t *testing.T) {
	in(t, 1<<20, func(x *fixture) {
		x.set(&databusv1.ChannelConfig{KeyPath: "$.k", Routes: []*databusv1.Route{
			{Topic: "red", When: `lane == "red"`}, {Topic: "big", When: `json.n > 10`}, {Topic: "keyed", When: `key != ""`}}})
		for _, tc := range []struct {
			m     wirejson.Message
			topic string
			err   string
		}{
			{wirejson.Message{Value: []byte(`{"n":11}`), Headers: header("databus-lane", "red")}, "red", ""},
			{wirejson.Message{Value: []byte(`{"n":11}`)}, "big", ""},
			{wirejson.Message{Value: []byte(`{"n":1,"k":"a"}`)}, "keyed", ""},
			{wirejson.Message{Value: []byte(`{"n":1}`)}, "", "NO_ROUTE"},
			{wirejson.Message{Value: []byte("\xff"), Key: []byte("k")}, "keyed", ""},
		} {
			res, err := x.publish(tc.m)
			if err != nil {
				t.Fatal(err)
			}
			if tc.err != "" {
				if res[0].Err == nil || res[0].Err.Reason != tc.err {
					t.Errorf("%s: %+v, want %s", tc.m.Value, res[0], tc.err)
				}
				continue
			}
			if res[0].Err != nil || res[0].Topic != tc.topic {
				t.Errorf("%s: %+v, want topic %s", tc.m.Value, res[0], tc.topic)
			}
		}
	})
}

func TestPartitioners(t *testing.T) {
	key := []byte("some key")
	for _, tc := range []struct {
		name     string
		strategy databusv1.PartitionStrategy
		m        wirejson.Message
		want     int32 // -1: any
		err      string
	}{
		{"key", databusv1.PartitionStrategy_PARTITION_STRATEGY_UNSPECIFIED, wirejson.Message{Key: key}, murmur2.Partition(key, 4), ""},
		{"empty key", databusv1.PartitionStrategy_PARTITION_STRATEGY_KEY_HASH, wirejson.Message{Key: []byte{}}, murmur2.Partition([]byte{}, 4), ""},
		{"no key", databusv1.PartitionStrategy_PARTITION_STRATEGY_KEY_HASH, wirejson.Message{Value: []byte("1")}, -1, ""},
		{"explicit", databusv1.PartitionStrategy_PARTITION_STRATEGY_EXPLICIT, wirejson.Message{Key: key, Partition: 3, HasPartition: true}, 3, ""},
		{"explicit without", databusv1.PartitionStrategy_PARTITION_STRATEGY_EXPLICIT, wirejson.Message{Key: key}, murmur2.Partition(key, 4), ""},
		{"explicit, none such", databusv1.PartitionStrategy_PARTITION_STRATEGY_EXPLICIT, wirejson.Message{Key: key, Partition: 4, HasPartition: true}, 0, "NO_SUCH_PARTITION"},
		{"not explicit", databusv1.PartitionStrategy_PARTITION_STRATEGY_KEY_HASH, wirejson.Message{Key: key, Partition: 9, HasPartition: true}, murmur2.Partition(key, 4), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in(t, 1<<20, func(x *fixture) {
				x.set(&databusv1.ChannelConfig{Partitioner: &databusv1.Partitioner{Strategy: tc.strategy}})
				res, err := x.publish(tc.m)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case tc.err != "":
					if res[0].Err == nil || res[0].Err.Reason != tc.err {
						t.Fatalf("%+v", res[0])
					}
				case res[0].Err != nil || tc.want >= 0 && res[0].Partition != tc.want:
					t.Fatalf("%+v, want partition %d", res[0], tc.want)
				}
			})
		})
	}
}

func TestRefusalsOfWholeRequests(t *testing.T) {
	one := wirejson.Message{Value: []byte("1")}
	for _, tc := range []struct {
		name   string
		cfg    *databusv1.ChannelConfig
		before int // publishes that pass
		m      wirejson.Message
		reason string
		code   int
	}{
		{"paused", &databusv1.ChannelConfig{Paused: true}, 0, one, "CHANNEL_PAUSED", 503},
		{"messages a second", &databusv1.ChannelConfig{RateLimit: &databusv1.RateLimit{MessagesPerSecond: 3}}, 3, one, "RATE_LIMITED", 429},
		{"bytes a second", &databusv1.ChannelConfig{RateLimit: &databusv1.RateLimit{BytesPerSecond: 2}}, 2, one, "RATE_LIMITED", 429},
		{"never fits", &databusv1.ChannelConfig{Limits: &databusv1.Limits{MaxPendingBytes: 1000}}, 0, wirejson.Message{Value: make([]byte, 2000)}, "REQUEST_TOO_LARGE", 413},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in(t, 1<<20, func(x *fixture) {
				x.set(tc.cfg)
				for range tc.before {
					if res, err := x.publish(one); err != nil || res[0].Err != nil {
						t.Fatalf("%v %v", res, err)
					}
				}
				// The clock stands still but for lingers, which fill a bucket by a hundredth.
				_, err := x.publish(tc.m)
				e := errs.From(err)
				if err == nil || e.Reason != tc.reason || e.HTTPStatus() != tc.code {
					t.Fatalf("%v", err)
				}
				if tc.code != 413 && e.RetryAfter <= 0 {
					t.Error("no time to retry after")
				}
				if used := x.cfg.Memory.Used(); used != 0 {
					t.Errorf("%d bytes stay reserved", used)
				}
				var rejected int64
				x.Totals(func(c Totals) { rejected = c.Rejected[tc.reason] })
				if rejected != 1 {
					t.Errorf("%d counted", rejected)
				}
			})
		})
	}
}

func TestMemoryFullIsRefusedAndPasses(t *testing.T) {
	in(t, 1<<20, func(x *fixture) {
		x.set(&databusv1.ChannelConfig{Batch: &databusv1.Batch{Linger: durationpb.New(10 * time.Second)},
			Limits: &databusv1.Limits{MaxPendingBytes: 3000}, Durability: databusv1.Durability_DURABILITY_BUFFERED})
		m := wirejson.Message{Value: make([]byte, 2000)}
		if _, err := x.publish(m); err != nil {
			t.Fatal(err)
		}
		if _, err := x.publish(m); errs.From(err).Reason != "CHANNEL_FULL" || errs.From(err).HTTPStatus() != 429 {
			t.Fatal(err)
		}
		<-time.After(11 * time.Second)
		synctest.Wait()
		if _, err := x.publish(m); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMixedRequestGivesBackWhatItRefused(t *testing.T) {
	in(t, 1<<20, func(x *fixture) {
		x.set(&databusv1.ChannelConfig{Limits: &databusv1.Limits{MaxMessageBytes: 100}})
		res, err := x.publish(wirejson.Message{Value: make([]byte, 200)}, wirejson.Message{Value: []byte("1")}, wirejson.Message{})
		if err != nil {
			t.Fatal(err)
		}
		if res[0].Err.Reason != "MESSAGE_TOO_LARGE" || res[1].Err != nil || res[2].Err.Reason != "TOMBSTONE_WITHOUT_KEY" ||
			res[2].Err.Field != "messages[2].value" {
			t.Fatalf("%+v", res)
		}
		if used := x.cfg.Memory.Used(); used != 0 {
			t.Errorf("%d bytes stay reserved", used)
		}
	})
}

func TestPlansChangeUnderTraffic(t *testing.T) {
	in(t, 64<<20, func(x *fixture) {
		configs := []*databusv1.ChannelConfig{
			{Routes: []*databusv1.Route{{Topic: "a"}}},
			{Routes: []*databusv1.Route{{Topic: "b"}}},
			{Routes: []*databusv1.Route{{Topic: "a"}}, Batch: &databusv1.Batch{Linger: durationpb.New(0)}},
			{Routes: []*databusv1.Route{{Topic: "a"}}, Compression: &databusv1.Compression{Codec: databusv1.Codec_CODEC_SNAPPY}},
			{Routes: []*databusv1.Route{{Topic: "b"}}, Batch: &databusv1.Batch{Adaptive: true}},
		}
		x.set(configs[0])
		const n = 500
		pending := make([]*Pending, 0, n)
		for i := range n {
			if i%7 == 0 {
				x.set(configs[i/7%len(configs)])
			}
			if i%90 == 0 {
				x.topics.partitions++
				x.TopicChanged("a")
				x.TopicChanged("b")
			}
			p := Get()
			m := wirejson.Message{Key: []byte("k"), Value: []byte(strings.Repeat("x", i))}
			if err := x.Enqueue(x.t.Context(), &Request{Channel: "c", Messages: []wirejson.Message{m}}, p); err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
			if i%13 == 0 {
				<-time.After(time.Millisecond)
			}
		}
		for i, p := range pending {
			if err := p.Wait(x.t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := p.Results()[0]; r.Err != nil {
				t.Fatalf("message %d: %v", i, r.Err)
			}
		}
		synctest.Wait()
		if len(x.sink.values) != n {
			t.Fatalf("%d messages arrived, want %d", len(x.sink.values), n)
		}
		for i, v := range x.sink.values {
			if len(v) != i {
				t.Fatalf("place %d has message %d", i, len(v))
			}
		}
	})
}

func TestRemovedChannelIsGoneAndComesBack(t *testing.T) {
	in(t, 1<<20, func(x *fixture) {
		x.set(nil)
		if _, err := x.publish(wirejson.Message{Value: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		x.Remove("c")
		if _, err := x.publish(wirejson.Message{Value: []byte("2")}); errs.CodeOf(err) != errs.NotFound {
			t.Fatal(err)
		}
		x.set(nil)
		if _, err := x.publish(wirejson.Message{Value: []byte("3")}); err != nil {
			t.Fatal(err)
		}
		if err := x.Drain(x.t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := x.publish(wirejson.Message{Value: []byte("4")}); errs.From(err).Reason != "AGENT_STOPPING" {
			t.Fatal(err)
		}
	})
}

func TestNotifyComesOnceForAllBatches(t *testing.T) {
	in(t, 1<<20, func(x *fixture) {
		x.set(nil)
		p := Get()
		var messages []wirejson.Message
		for i := range 50 {
			messages = append(messages, wirejson.Message{Key: []byte{byte(i)}, Value: []byte("1")})
		}
		if err := x.Enqueue(x.t.Context(), &Request{Channel: "c", Messages: messages}, p); err != nil {
			t.Fatal(err)
		}
		calls := make(chan int, 10)
		p.Notify(func() { calls <- 1 })
		<-calls
		synctest.Wait()
		if len(calls) != 0 {
			t.Fatal("called again")
		}
		for _, r := range p.Results() {
			if r.Err != nil || !r.Placed {
				t.Fatalf("%+v", r)
			}
		}
	})
}
