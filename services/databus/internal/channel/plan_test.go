package channel

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/recordbatch"
)

func compile(t *testing.T, cfg *databusv1.ChannelConfig) (*Plan, error) {
	t.Helper()
	c, err := NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c.Compile(&databusv1.Channel{Name: "orders", Config: cfg, Revision: 3})
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	p, err := compile(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	if topic, ok := p.Routes.Fixed(); !ok || topic != "orders" {
		t.Errorf("route %q %v", topic, ok)
	}
	b := p.Batch
	if b.Linger != 5*time.Millisecond || b.MaxBytes != 1<<20 || b.MaxMessages != 10_000 || b.Codec != recordbatch.Zstd || b.Adaptive ||
		b.Deadline != 10*time.Second || b.MinBackoff != 50*time.Millisecond || b.MaxBackoff != 2*time.Second {
		t.Errorf("batch %+v", b)
	}
	if p.Strategy != databusv1.PartitionStrategy_PARTITION_STRATEGY_KEY_HASH || p.Durability != databusv1.Durability_DURABILITY_DURABLE ||
		p.MaxMessageBytes != 1<<20 || p.Idempotency != 10*time.Minute || p.KeyPath != nil || p.Revision != 3 {
		t.Errorf("plan %+v", p)
	}
}

func TestGivenValues(t *testing.T) {
	t.Parallel()
	p, err := compile(t, &databusv1.ChannelConfig{
		KeyPath:    "$.a",
		Batch:      &databusv1.Batch{Linger: durationpb.New(0), MaxBytes: 5, MaxMessages: 6, Adaptive: true},
		Durability: databusv1.Durability_DURABILITY_BUFFERED,
		Retry:      &databusv1.Retry{InitialBackoff: durationpb.New(0), MaxBackoff: durationpb.New(0), DeliveryTimeout: durationpb.New(time.Second)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if b := p.Batch; b.Linger != 0 || b.MaxBytes != 5 || b.MaxMessages != 6 || !b.Adaptive {
		t.Errorf("batch %+v", b)
	}
	if p.Batch.MinBackoff <= 0 || p.Batch.MaxBackoff <= 0 {
		t.Error("a back-off of nothing would repeat without a pause")
	}
	if p.Batch.Deadline != 0 {
		t.Error("a buffered batch was answered for: it has no deadline")
	}
}

func TestConfigThatCannotRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		cfg  *databusv1.ChannelConfig
		part string
	}{
		{"rule", &databusv1.ChannelConfig{Routes: []*databusv1.Route{{Topic: "a", When: "nonsense("}}}, "revision 3"},
		{"key path", &databusv1.ChannelConfig{KeyPath: "$..a"}, "$..a"},
		{"codec", &databusv1.ChannelConfig{Compression: &databusv1.Compression{Codec: 99}}, "99"},
		{"level", &databusv1.ChannelConfig{Compression: &databusv1.Compression{Codec: databusv1.Codec_CODEC_GZIP, Level: 19}}, "19"},
	} {
		if _, err := compile(t, tc.cfg); err == nil || !strings.Contains(err.Error(), tc.part) {
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.part)
		}
	}
}

func TestSameRouting(t *testing.T) {
	t.Parallel()
	route := func(topic string) *databusv1.ChannelConfig {
		return &databusv1.ChannelConfig{Routes: []*databusv1.Route{{Topic: topic}}}
	}
	for _, tc := range []struct {
		name string
		a, b *databusv1.ChannelConfig
		want bool
	}{
		{"nothing", nil, nil, true},
		{"codec", nil, &databusv1.ChannelConfig{Compression: &databusv1.Compression{Codec: databusv1.Codec_CODEC_LZ4}}, true},
		{"default named", nil, &databusv1.ChannelConfig{Partitioner: &databusv1.Partitioner{Strategy: databusv1.PartitionStrategy_PARTITION_STRATEGY_KEY_HASH}}, true},
		{"topic", route("a"), route("b"), false},
		{"key path", nil, &databusv1.ChannelConfig{KeyPath: "$.a"}, false},
		{"strategy", nil, &databusv1.ChannelConfig{Partitioner: &databusv1.Partitioner{Strategy: databusv1.PartitionStrategy_PARTITION_STRATEGY_STICKY}}, false},
	} {
		a, err := compile(t, tc.a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := compile(t, tc.b)
		if err != nil {
			t.Fatal(err)
		}
		if got := SameRouting(a, b); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
