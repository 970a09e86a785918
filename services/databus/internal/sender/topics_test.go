package sender

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/brokertest"
)

func newTopics(t *testing.T, b *brokertest.Broker, path string, changed func(string)) *Topics {
	t.Helper()
	conn, err := Dial(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return NewTopics(TopicsConfig{Client: brokerv1.NewTopicServiceClient(conn), Path: path, Changed: changed,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

func TestResolveMakesATopicOnce(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t)
	path := filepath.Join(t.TempDir(), "topics.json")
	topics := newTopics(t, b, path, nil)
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			if topic, err := topics.Resolve(t.Context(), "a"); err != nil || topic.Partitions != 4 {
				t.Errorf("%+v %v", topic, err)
			}
		})
	}
	work.Wait()
	b.Down()
	if topic, ok := newTopics(t, b, path, nil).Known("a"); !ok || topic.Partitions != 4 {
		t.Errorf("after a restart without broker: %+v %v", topic, ok)
	}
	if _, err := topics.Resolve(t.Context(), "b"); !errs.Retryable(err) {
		t.Errorf("without broker: %v", err)
	}
}

func TestRunLearnsOfNewPartitionsAndMakesTopicsAgain(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t)
	changed := make(chan string, 10)
	topics := newTopics(t, b, "", func(name string) { changed <- name })
	if _, err := topics.Resolve(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); topics.Run(ctx) }()
	b.Grow("a", 9)
	if name := <-changed; name != "a" {
		t.Fatal(name)
	}
	if topic, _ := topics.Known("a"); topic.Partitions != 9 {
		t.Fatalf("%+v", topic)
	}
	b.Forget("a")
	topics.Missing("a")
	<-changed
	if topic, _ := topics.Known("a"); topic.Partitions != 4 {
		t.Fatalf("%+v", topic)
	}
	cancel()
	<-done
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  *errs.Error
		want batcher.Refusal
	}{
		{errs.New(errs.Precondition, "OUT_OF_ORDER_SEQUENCE", ""), batcher.OutOfOrder},
		{errs.New(errs.Precondition, "PRODUCER_FENCED", ""), batcher.OutOfOrder},
		{errs.New(errs.NotFound, "TOPIC_NOT_FOUND", ""), batcher.Retry},
		{errs.New(errs.NotFound, "PARTITION_NOT_FOUND", ""), batcher.Gone},
		{errs.New(errs.Exhausted, "APPEND_BUFFERS_FULL", ""), batcher.Retry},
		{errs.New(errs.Unavailable, "NO_SPACE", ""), batcher.Retry},
		{errs.New(errs.Internal, "INTERNAL", ""), batcher.Retry},
		{errs.New(errs.TooLarge, "BATCH_TOO_LARGE", ""), batcher.Fatal},
		{errs.New(errs.Invalid, "INVALID_BATCH", ""), batcher.Fatal},
	} {
		if got := classify(errs.FromProto(tc.err.Proto())); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.err.Reason, got, tc.want)
		}
	}
}
