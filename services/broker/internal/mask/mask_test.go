package mask

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

type config = databusv1.ChannelConfig

func base() *config {
	return &config{
		KeyPath: "$.id", Paused: true,
		Routes: []*databusv1.Route{{Topic: "a", When: "key == 'x'"}, {Topic: "b"}},
		Batch:  &databusv1.Batch{Linger: durationpb.New(5 * time.Millisecond), MaxBytes: 1000},
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	linger := &databusv1.Batch{Linger: durationpb.New(20 * time.Millisecond)}
	for _, tc := range []struct {
		name string
		src  *config
		mask []string
		want func(*config)
	}{
		{"one field", &config{Batch: linger}, []string{"batch.linger"}, func(c *config) { c.Batch.Linger = linger.Linger }},
		{"config prefix", &config{Batch: linger}, []string{"config.batch.linger"}, func(c *config) { c.Batch.Linger = linger.Linger }},
		{"camel", &config{KeyPath: "$.k"}, []string{"keyPath"}, func(c *config) { c.KeyPath = "$.k" }},
		{"snake", &config{KeyPath: "$.k"}, []string{"key_path"}, func(c *config) { c.KeyPath = "$.k" }},
		{"nested camel", &config{}, []string{"batch.maxBytes"}, func(c *config) { c.Batch.MaxBytes = 0 }},
		{"whole message", &config{Batch: linger}, []string{"batch"}, func(c *config) { c.Batch = linger }},
		{"cleared", &config{}, []string{"paused", "batch"}, func(c *config) { c.Paused, c.Batch = false, nil }},
		{"nothing to clear", &config{}, []string{"spool.maxBytes"}, func(*config) {}},
		{"only what is named", &config{KeyPath: "$.k", Batch: linger}, []string{"paused"}, func(c *config) { c.Paused = false }},
		{"no mask merges", &config{Batch: linger, Retry: &databusv1.Retry{}}, nil, func(c *config) { c.Batch.Linger = linger.Linger }},
		{"an empty group goes", &config{}, []string{"batch.linger", "batch.maxBytes"}, func(c *config) { c.Batch = nil }},
		{"no mask replaces lists", &config{Routes: []*databusv1.Route{{Topic: "c"}}}, nil, func(c *config) { c.Routes = []*databusv1.Route{{Topic: "c"}} }},
		{"whole config", &config{KeyPath: "$.z"}, []string{"config"}, func(c *config) { proto.Reset(c); c.KeyPath = "$.z" }},
	} {
		got, want := base(), base()
		tc.want(want)
		if err := Apply(got, tc.src, &fieldmaskpb.FieldMask{Paths: tc.mask}); err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	for path, part := range map[string]string{
		"nosuch":         "names no field",
		"batch.nosuch":   "no \"nosuch\" in Batch",
		"spool.nosuch":   "no \"nosuch\" in Spool",
		"keyPath.x":      "no fields of its own",
		"routes.topic":   "no fields of its own",
		"batch.linger.s": "no fields of its own",
		"":               "names no field",
	} {
		err := Apply(base(), &config{}, &fieldmaskpb.FieldMask{Paths: []string{path}})
		if e := errs.From(err); err == nil || e.Code != errs.Invalid || e.Field != "updateMask" || !strings.Contains(e.Message, part) {
			t.Errorf("mask %q: %v", path, err)
		}
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	to := base()
	to.KeyPath, to.Paused = "", false
	to.Batch.Linger, to.Batch.Adaptive = durationpb.New(1500*time.Millisecond), true
	to.Compression = &databusv1.Compression{Codec: databusv1.Codec_CODEC_LZ4, Level: 3}
	to.Durability = databusv1.Durability_DURABILITY_BUFFERED
	to.Routes[0].Topic = "z"
	to.Routes = append(to.Routes, &databusv1.Route{Topic: "c", When: "true"})
	want := []string{
		`routes[0].topic: "a" -> "z"`,
		`routes[2]: none -> {"topic":"c","when":"true"}`,
		`keyPath: "$.id" -> default`,
		`batch.linger: 5ms -> 1.5s`,
		`batch.adaptive: false -> true`,
		`compression.codec: default -> LZ4`,
		`compression.level: default -> 3`,
		`durability: default -> BUFFERED`,
		`paused: true -> false`,
	}
	if diff := cmp.Diff(want, Diff(base(), to)); diff != "" {
		t.Error(diff)
	}
	if lines := Diff(base(), base()); len(lines) != 0 {
		t.Errorf("equal configs differ by %q", lines)
	}
}
