package topic

import (
	"fmt"
	"runtime"
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
		if err := w.put("busy", 1); err != nil {
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

// put appends a record.
func (w *world) put(topic string, partition int32) error {
	w.t.Helper()
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	b.Append(1, nil, []byte("x"), nil)
	batch, err := b.Build(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	_, p, err := w.registry.Partition(w.t.Context(), topic, partition)
	if err != nil {
		return err
	}
	_, err = p.Append(w.t.Context(), batch, log.AppendOptions{})
	return err
}

// TestExpiryAndAppendsRace: an append that comes while an idle topic is deleted is refused, or its topic stays.
func TestExpiryAndAppendsRace(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir(), t.TempDir())
	ctx := t.Context()
	kept, gone := 0, 0
	for i := range 40 {
		name := fmt.Sprint("t", i)
		if _, err := w.registry.Create(ctx, Spec{Name: name, Partitions: 2}); err != nil {
			t.Fatal(err)
		}
		was, err := w.registry.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error)
		go func() { accepted <- w.put(name, 1) }()
		if i%2 == 0 {
			runtime.Gosched()
		}
		deleted, err := w.registry.deleteIdle(ctx, was, 0)
		if err != nil {
			t.Fatal(err)
		}
		switch err := <-accepted; {
		case err == nil && deleted:
			t.Fatalf("%s was deleted with a record that was accepted", name)
		case err != nil && !deleted:
			t.Fatalf("%s is there, and refused a record: %v", name, err)
		case deleted:
			gone++
		default:
			kept++
			if err := w.put(name, 0); err != nil {
				t.Fatalf("%s takes nothing any more: %v", name, err)
			}
		}
	}
	t.Logf("%d topics stayed, %d went", kept, gone)
}
