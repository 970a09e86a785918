package topic

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

func TestIdleTopicsGo(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir(), t.TempDir())
	ctx := t.Context()
	w.create("kept", 1)
	for _, name := range []string{"idle", "busy"} {
		if _, err := w.registry.Create(ctx, Spec{Name: name, Partitions: 2, Config: &brokerv1.TopicConfig{IdleExpiry: durationpb.New(time.Minute)}}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]idle{}
	now := time.Now()
	for range 5 {
		w.registry.expire(ctx, now, seen)
		now = now.Add(25 * time.Second)
		_, p, err := w.registry.Partition(ctx, "busy", 1)
		if err != nil {
			t.Fatal(err)
		}
		b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
		b.Append(1, nil, []byte("x"), nil)
		batch, err := b.Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Append(ctx, batch, log.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"kept": true, "busy": true, "idle": false} {
		if _, err := w.registry.Get(name); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := w.registry.Create(ctx, Spec{Name: "x", Config: &brokerv1.TopicConfig{IdleExpiry: durationpb.New(-time.Second)}})
	if errs.From(err).Field != "config.idleExpiry" {
		t.Errorf("negative expiry: %v", err)
	}
}
