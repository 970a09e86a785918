package configset

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

func newEdit() *Edit { return New((&databusv1.ChannelConfig{}).ProtoReflect().Descriptor()) }

func TestSet(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, value string
		want        *databusv1.ChannelConfig
		mask        string
	}{
		{"keyPath", "$.user.id", &databusv1.ChannelConfig{KeyPath: "$.user.id"}, "key_path"},
		{"key_path", "12", &databusv1.ChannelConfig{KeyPath: "12"}, "key_path"},
		{"paused", "true", &databusv1.ChannelConfig{Paused: true}, "paused"},
		{"batch.linger", "5ms", &databusv1.ChannelConfig{Batch: &databusv1.Batch{Linger: durationpb.New(5 * time.Millisecond)}}, "batch.linger"},
		{"batch.maxBytes", "256KiB", &databusv1.ChannelConfig{Batch: &databusv1.Batch{MaxBytes: 256 << 10}}, "batch.max_bytes"},
		{"rateLimit.messagesPerSecond", "9007199254740993", &databusv1.ChannelConfig{RateLimit: &databusv1.RateLimit{MessagesPerSecond: 9007199254740993}}, "rate_limit.messages_per_second"},
		{"lanes.expiry", "7d", &databusv1.ChannelConfig{Lanes: &databusv1.Lanes{Expiry: durationpb.New(168 * time.Hour)}}, "lanes.expiry"},
		{"compression.codec", "lz4", &databusv1.ChannelConfig{Compression: &databusv1.Compression{Codec: databusv1.Codec_CODEC_LZ4}}, "compression.codec"},
		{"partitioner.strategy", "key-hash", &databusv1.ChannelConfig{Partitioner: &databusv1.Partitioner{Strategy: databusv1.PartitionStrategy_PARTITION_STRATEGY_KEY_HASH}}, "partitioner.strategy"},
		{"routes", `[{"topic":"a","when":"key == 'x'"}]`, &databusv1.ChannelConfig{Routes: []*databusv1.Route{{Topic: "a", When: "key == 'x'"}}}, "routes"},
		{"batch", `{"linger":"1s","maxMessages":7}`, &databusv1.ChannelConfig{Batch: &databusv1.Batch{Linger: durationpb.New(time.Second), MaxMessages: 7}}, "batch.linger,batch.max_messages"},
	} {
		t.Run(tt.path+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			e := newEdit()
			if err := e.Set(tt.path, tt.value); err != nil {
				t.Fatal(err)
			}
			got := &databusv1.ChannelConfig{}
			if err := e.Into(got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			if mask := strings.Join(e.Mask().GetPaths(), ","); mask != tt.mask {
				t.Errorf("mask %s, want %s", mask, tt.mask)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ path, value, field, says string }{
		{"bacth.linger", "5ms", "config.bacth", "batch"},
		{"batch.lingr", "5ms", "config.batch.lingr", "batch.linger"},
		{"keyPath.a", "x", "config.keyPath.a", "no fields inside"},
		{"nothing", "x", "config.nothing", "routes"},
		{"paused", "perhaps", "config.paused", "true nor false"},
		{"batch.maxBytes", "big", "config.batch.maxBytes", "64KiB"},
		{"batch.maxBytes", "99999999999999999999", "config.batch.maxBytes", "number"},
		{"batch.maxBytes", "9007199254740993GiB", "config.batch.maxBytes", "number"},
		{"batch.maxBytes", "8GiB", "config.batch.maxBytes", "8589934592"},
		{"batch.linger", "soon", "config.batch.linger", "soon"},
		{"compression.codec", "zip", "config.compression.codec", "ZSTD"},
		{"routes", "orders", "config.routes", "JSON"},
		{"routes", `[{"topi":"a"}]`, "config.routes[0].topi", "topic"},
		{"batch", "5ms", "config.batch", "object"},
	} {
		t.Run(tt.path+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			e := newEdit()
			err := e.Set(tt.path, tt.value)
			if err == nil {
				err = e.Into(&databusv1.ChannelConfig{})
			}
			got, ok := errors.AsType[*errs.Error](err)
			if !ok {
				t.Fatalf("got %v, want an error with a code", err)
			}
			if got.Field != tt.field {
				t.Errorf("field %q, want %q", got.Field, tt.field)
			}
			if text := got.Error() + " " + got.Next; !strings.Contains(text, tt.says) {
				t.Errorf("%q does not say %q", text, tt.says)
			}
			if strings.Contains(got.Error(), "line 1") {
				t.Errorf("%q names a line of a document that nobody wrote", got.Error())
			}
		})
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	const whole = `
name: orders
revision: "7"
config:
  routes:
    - topic: vip
      when: headers["tier"] == "gold"
    - topic: orders
  batch: {linger: 5ms, maxBytes: 1MiB}
  compression:
    codec: lz4
  spool: null
`
	e := newEdit()
	if err := e.Merge("orders.yaml", []byte(whole)); err != nil {
		t.Fatal(err)
	}
	if err := e.Set("batch.linger", "9ms"); err != nil { // a flag wins over the file
		t.Fatal(err)
	}
	got := &databusv1.ChannelConfig{}
	if err := e.Into(got); err != nil {
		t.Fatal(err)
	}
	want := &databusv1.ChannelConfig{
		Routes:      []*databusv1.Route{{Topic: "vip", When: `headers["tier"] == "gold"`}, {Topic: "orders"}},
		Batch:       &databusv1.Batch{Linger: durationpb.New(9 * time.Millisecond), MaxBytes: 1 << 20},
		Compression: &databusv1.Compression{Codec: databusv1.Codec_CODEC_LZ4},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if mask := strings.Join(e.Mask().GetPaths(), ","); mask != "batch.linger,batch.max_bytes,compression.codec,routes,spool" {
		t.Errorf("mask %s", mask)
	}
	for _, bad := range []string{"a: [", "- a", "bacth: {}", `"text"`} {
		if err := newEdit().Merge("bad.yaml", []byte(bad)); err == nil || !strings.Contains(err.Error(), "bad.yaml") {
			t.Errorf("%q: got %v, want an error that names the file", bad, err)
		}
	}
}

func TestLastOneWins(t *testing.T) {
	t.Parallel()
	e := newEdit()
	for _, step := range []error{e.Set("batch.linger", "5ms"), e.Unset("batch"), e.Set("batch.maxBytes", "2MiB"), e.Set("batch.max_bytes", "1MiB")} {
		if step != nil {
			t.Fatal(step)
		}
	}
	got := &databusv1.ChannelConfig{}
	if err := e.Into(got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&databusv1.ChannelConfig{Batch: &databusv1.Batch{MaxBytes: 1 << 20}}, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestFlattenAndDiff(t *testing.T) {
	t.Parallel()
	from := &databusv1.ChannelConfig{
		KeyPath: "$.id", Batch: &databusv1.Batch{Linger: durationpb.New(5 * time.Millisecond)},
		Routes: []*databusv1.Route{{Topic: "a"}},
	}
	settings, err := Flatten(from)
	if err != nil {
		t.Fatal(err)
	}
	want := []Setting{{"routes", `[{"topic":"a"}]`}, {"keyPath", "$.id"}, {"batch.linger", "5ms"}}
	if diff := cmp.Diff(want, settings); diff != "" {
		t.Error(diff)
	}

	to, ok := proto.Clone(from).(*databusv1.ChannelConfig)
	if !ok {
		t.Fatal("a clone of another type")
	}
	to.KeyPath, to.Batch.Linger, to.Batch.MaxBytes = "", durationpb.New(time.Hour), 7
	changes, err := Diff(from, to)
	if err != nil {
		t.Fatal(err)
	}
	wantChanges := []Change{{"batch.linger", "5ms", "1h"}, {"batch.maxBytes", "", "7"}, {"keyPath", "$.id", ""}}
	if diff := cmp.Diff(wantChanges, changes); diff != "" {
		t.Error(diff)
	}
	var none *databusv1.ChannelConfig
	if settings, err := Flatten(none); err != nil || settings != nil {
		t.Errorf("no config flattens to %v, %v", settings, err)
	}
}

// FuzzMerge looks for documents that make an edit panic or one whose config cannot be built.
func FuzzMerge(f *testing.F) {
	for _, seed := range []string{"batch: {linger: 5ms}", `{"routes":[{"topic":"a"}]}`, "config: {paused: true}", "a: &x {b: *x}", "batch:", "{}", "? x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		e := newEdit()
		if e.Merge("fuzz", document) != nil {
			return
		}
		_ = e.Mask()
		_ = e.Into(&databusv1.ChannelConfig{}) // may refuse a value, must not panic
	})
}
