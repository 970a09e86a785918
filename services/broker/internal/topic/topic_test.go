package topic

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/natskv"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

// world is one broker's storage: an embedded NATS and a log over directories that outlive them.
type world struct {
	t        *testing.T
	nats     *natskv.Server
	conn     *natskv.Conn
	log      *log.Log
	registry *Registry
}

func open(t *testing.T, natsDir, logDir string) *world {
	t.Helper()
	ctx := t.Context()
	w := &world{t: t}
	var err error
	if w.nats, err = natskv.StartServer(ctx, natskv.ServerConfig{StoreDir: natsDir}); err != nil {
		t.Fatal(err)
	}
	if w.conn, err = w.nats.Connect(ctx, "test", nil); err != nil {
		t.Fatal(err)
	}
	if w.log, err = log.Open(ctx, log.Config{Dirs: []string{logDir}, Logger: slog.New(slog.DiscardHandler), PreallocBytes: -1}); err != nil {
		t.Fatal(err)
	}
	w.registry = w.reopen()
	t.Cleanup(w.close)
	return w
}

// reopen makes a second registry over the same storage, as another process or a restart would.
func (w *world) reopen() *Registry {
	w.t.Helper()
	r, err := Open(w.t.Context(), Config{Conn: w.conn, Log: w.log, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) close() {
	_ = w.log.Close(context.Background())
	w.conn.Close()
	w.nats.Close()
}

func wantReason(t *testing.T, err error, reason, field string) {
	t.Helper()
	if e := errs.From(err); err == nil || e.Reason != reason || e.Field != field {
		t.Errorf("error %v, want reason %s and field %q", err, reason, field)
	}
}

func (w *world) create(name string, partitions int32) *Topic {
	w.t.Helper()
	topic, err := w.registry.Create(w.t.Context(), Spec{Name: name, Partitions: partitions})
	if err != nil {
		w.t.Fatal(err)
	}
	return topic
}

func TestLifeOfATopic(t *testing.T) {
	t.Parallel()
	natsDir, logDir := t.TempDir(), t.TempDir()
	w := open(t, natsDir, logDir)
	ctx := t.Context()
	first := w.create("orders..v1.", 0)
	if first.Partitions != DefaultPartitions || first.UUID() == "" {
		t.Errorf("created %+v", first)
	}
	if got := first.Proto().Config; got.Retention.AsDuration() != defaultRetention || got.SegmentBytes != 1<<30 {
		t.Errorf("config in force: %v", got)
	}
	_, err := w.registry.Create(ctx, Spec{Name: "orders..v1."})
	wantReason(t, err, "TOPIC_EXISTS", "name")
	_, _, err = w.registry.Partition(ctx, "orders..v1.", 4)
	wantReason(t, err, "PARTITION_NOT_FOUND", "partition")
	_, _, err = w.registry.Partition(ctx, "nosuch", 0)
	wantReason(t, err, "TOPIC_NOT_FOUND", "")

	changed := w.registry.Changed()
	_, err = w.registry.Update(ctx, "orders..v1.", &brokerv1.TopicConfig{Retention: durationpb.New(time.Hour), SegmentBytes: 1 << 20},
		&fieldmaskpb.FieldMask{Paths: []string{"retention"}}, 6)
	if err != nil {
		t.Fatal(err)
	}
	<-changed
	_, err = w.registry.Update(ctx, "orders..v1.", nil, nil, 5)
	wantReason(t, err, "PARTITION_COUNT", "partitions")

	w.close()
	w = open(t, natsDir, logDir)
	again, p, err := w.registry.Partition(ctx, "orders..v1.", 5)
	if err != nil {
		t.Fatal(err)
	}
	if again.ID != first.ID || p.ID() != first.ID || again.Partitions != 6 || again.settings.RetentionAge != time.Hour || again.settings.SegmentBytes != 1<<30 {
		t.Errorf("after a restart: %+v", again)
	}
	if err := w.registry.Delete(ctx, "orders..v1."); err != nil {
		t.Fatal(err)
	}
	wantReason(t, w.registry.Delete(ctx, "orders..v1."), "TOPIC_NOT_FOUND", "")
	if n := len(w.log.Topics()); n != 0 {
		t.Errorf("%d topics are left in the log", n)
	}
	if second := w.create("orders..v1.", 1); second.ID == first.ID {
		t.Error("a topic made again must be another one")
	}
}

func TestDeletionIsFinishedAtStart(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir(), t.TempDir())
	topic := w.create("half", 2)
	// The crash comes after the decision and before anything else.
	if _, err := w.registry.edit(t.Context(), "delete", "half", func(t *Topic) error { t.deleting = true; return nil }); err != nil {
		t.Fatal(err)
	}
	_, err := w.registry.Create(t.Context(), Spec{Name: "half"})
	wantReason(t, err, "TOPIC_DELETING", "")
	_, err = w.registry.Get("half")
	wantReason(t, err, "TOPIC_NOT_FOUND", "")
	_, err = w.registry.openPartition(t.Context(), topic, 0)
	if err != nil {
		t.Errorf("a partition that was open before stays known: %v", err)
	}
	w.registry = w.reopen()
	if n := len(w.log.Topics()); n != 0 {
		t.Errorf("%d topics are left in the log", n)
	}
	w.create("half", 1)
}

func TestCreateRace(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir(), t.TempDir())
	registries := []*Registry{w.registry, w.reopen()}
	var made atomic.Int32
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			_, err := registries[i%2].Create(t.Context(), Spec{Name: "raced", Partitions: 1})
			if err == nil {
				made.Add(1)
			} else if errs.CodeOf(err) != errs.AlreadyExists {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 {
		t.Errorf("%d made the topic", made.Load())
	}
	a, errA := registries[0].Get("raced")
	b, errB := registries[1].Get("raced")
	if errA != nil || errB != nil || a.ID != b.ID {
		t.Errorf("two topics: %v %v %v %v", a, b, errA, errB)
	}
}

func TestRunFollowsOthers(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir(), t.TempDir())
	other := w.reopen()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { other.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	w.create("seen", 1)
	waitFor(t, other, func() bool { _, err := other.Get("seen"); return err == nil })
	if err := w.registry.Delete(ctx, "seen"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, other, func() bool { _, err := other.Get("seen"); return err != nil })
}

// TestEchoDoesNotBringBack: the watch lags behind our own writes and tells of a topic that we have deleted since.
func TestEchoDoesNotBringBack(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir(), t.TempDir())
	topic := w.create("gone", 1)
	if err := w.registry.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	w.registry.apply(topic)
	if _, err := w.registry.Get("gone"); err == nil {
		t.Error("an echo brought the topic back")
	}
}

func waitFor(t *testing.T, r *Registry, done func() bool) {
	t.Helper()
	for {
		changed := r.Changed()
		if done() {
			return
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatal("the test ended first")
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir(), t.TempDir())
	hour, negative := durationpb.New(time.Hour), durationpb.New(-time.Second)
	for _, tc := range []struct {
		spec          Spec
		reason, field string
	}{
		{Spec{}, "TOPIC_NAME", "name"},
		{Spec{Name: ".."}, "TOPIC_NAME", "name"},
		{Spec{Name: "a b"}, "TOPIC_NAME", "name"},
		{Spec{Name: "é"}, "TOPIC_NAME", "name"},
		{Spec{Name: strings.Repeat("x", 250)}, "TOPIC_NAME", "name"},
		{Spec{Name: "a", Partitions: -1}, "PARTITION_COUNT", "partitions"},
		{Spec{Name: "a", Partitions: 10_001}, "PARTITION_COUNT", "partitions"},
		{Spec{Name: "a", Config: &brokerv1.TopicConfig{SegmentBytes: 100}}, "TOPIC_CONFIG", "config.segmentBytes"},
		{Spec{Name: "a", Config: &brokerv1.TopicConfig{SegmentAge: durationpb.New(0)}}, "TOPIC_CONFIG", "config.segmentAge"},
		{Spec{Name: "a", Config: &brokerv1.TopicConfig{MaxBatchBytes: 1 << 30}}, "TOPIC_CONFIG", "config.maxBatchBytes"},
		{Spec{Name: "a", Config: &brokerv1.TopicConfig{RetentionBytes: -1}}, "TOPIC_CONFIG", "config.retentionBytes"},
		{Spec{Name: "a", Config: &brokerv1.TopicConfig{Retention: negative}}, "TOPIC_CONFIG", "config.retention"},
		{Spec{Name: "a", Config: &brokerv1.TopicConfig{MinCompactionLag: hour, MaxCompactionLag: durationpb.New(1)}}, "TOPIC_CONFIG", "config.minCompactionLag"},
	} {
		_, err := w.registry.Create(t.Context(), tc.spec)
		wantReason(t, err, tc.reason, tc.field)
	}
	_, err := w.registry.Create(t.Context(), Spec{Name: "ok", ValidateOnly: true})
	if err != nil {
		t.Error(err)
	}
	if _, more := w.registry.List("", 10); more || len(w.log.Topics()) != 0 {
		t.Error("validate only must change nothing")
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	w := open(t, t.TempDir(), t.TempDir())
	for _, name := range []string{"c", "a", "b"} {
		w.create(name, 1)
	}
	page, more := w.registry.List("", 2)
	if len(page) != 2 || page[0].Name != "a" || page[1].Name != "b" || !more {
		t.Errorf("first page %v %v", page, more)
	}
	page, more = w.registry.List("b", 2)
	if len(page) != 1 || page[0].Name != "c" || more {
		t.Errorf("second page %v %v", page, more)
	}
}
