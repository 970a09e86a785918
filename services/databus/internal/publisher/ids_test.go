package publisher

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/channel"
	"github.com/databus-suite/databus/services/databus/internal/dedup"
	"github.com/databus-suite/databus/services/databus/internal/memory"
)

// silent takes every batch and answers none.
type silent struct{}

func (silent) Ready(l *batcher.Lane) {
	go func() {
		for {
			b, need := l.Take()
			switch {
			case need:
				l.SetProducer(1, 0)
			case b == nil:
				return
			default:
				_, _ = b.Bytes()
			}
		}
	}()
}

// TestRepeatsWaitOnce: a request of many repeats, whose first messages are not answered, waits for one delivery timeout and not for one
// each.
func TestRepeatsWaitOnce(t *testing.T) {
	compiler, err := channel.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := dedup.Open(dedup.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer ids.Close()
	synctest.Test(t, func(t *testing.T) {
		b := batcher.New(silent{})
		defer b.Close()
		x := &fixture{t: t, compiler: compiler, Publisher: New(Config{Batcher: b, Topics: &topics{1}, Memory: memory.NewPool(1 << 20), IDs: ids,
			Find: func(context.Context, string) error { return nil }})}
		x.set(&databusv1.ChannelConfig{Retry: &databusv1.Retry{DeliveryTimeout: durationpb.New(time.Second)}})
		request := Request{Channel: "c"}
		for i := range 100 {
			request.Messages = append(request.Messages, wirejson.Message{ID: fmt.Sprint(i), Value: []byte("1")})
		}
		for _, why := range []string{"BROKER_UNAVAILABLE", "ID_IN_FLIGHT"} {
			began, p := time.Now(), Get()
			if err := x.Publish(t.Context(), &request, p); err != nil {
				t.Fatal(err)
			}
			if r := p.Results()[99]; r.Err == nil || r.Err.Reason != why {
				t.Errorf("%+v, want %s", r, why)
			}
			if waited := time.Since(began); waited > 1500*time.Millisecond {
				t.Errorf("%s after %s, want a second", why, waited)
			}
			p.Put()
		}
	})
}
