package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/sender"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// rig is a spool whose queues a test takes from as the sender does.
type rig struct {
	*testing.T
	spool *spool.Spool
	out   *Out
	lanes chan sender.Lane
}

func start(t *testing.T, maxBytes int64) *rig {
	t.Helper()
	r := &rig{T: t, lanes: make(chan sender.Lane, 1000)}
	r.out = NewOut(OutConfig{Push: func(l sender.Lane) { r.lanes <- l }, Logger: slog.New(slog.DiscardHandler), MinBackoff: 1, MaxBackoff: 1, MaxBytes: maxBytes,
		RefugeDir: filepath.Join(t.TempDir(), "refused")})
	var err error
	if r.spool, err = spool.Open(spool.Config{Dir: t.TempDir(), Ready: r.out.Ready}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.spool.Close(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) put(partition int32, value string) { r.Helper(); r.putTo("t", partition, value) }

func (r *rig) putTo(topic string, partition int32, value string) {
	r.Helper()
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	b.Append(1, nil, []byte(value), nil)
	batch, err := b.Build(nil)
	if err != nil {
		r.Fatal(err)
	}
	if err := r.spool.Append(spool.Entry{Channel: "c", Topic: topic, Partition: partition, Batch: batch}, func(err error) {
		if err != nil {
			r.Error(err)
		}
	}); err != nil {
		r.Fatal(err)
	}
}

// next waits for a batch of any lane.
func (r *rig) next() sender.Batch {
	r.Helper()
	for {
		l := <-r.lanes
		b, needProducer := l.Next()
		if needProducer {
			l.SetProducer(100+int64(l.Partition()), 0)
		}
		if b != nil || needProducer {
			r.lanes <- l // look again
		}
		if b != nil {
			return b
		}
	}
}

func (r *rig) value(b sender.Batch) string {
	r.Helper()
	data, err := b.Bytes()
	if err != nil {
		r.Fatal(err)
	}
	for rec, err := range recordbatch.Records(data, 1<<20) {
		if err != nil {
			r.Fatal(err)
		}
		return string(rec.Value)
	}
	return ""
}

func TestBoundOfBytesInFlight(t *testing.T) {
	t.Parallel()
	r := start(t, 1) // one batch at a time
	const partitions, each = 3, 4
	for i := range each {
		for p := range int32(partitions) {
			r.put(p, fmt.Sprint(p, strings.Repeat("x", 1000), i))
		}
	}
	for range partitions * each {
		b := r.next()
		r.out.mu.Lock()
		held := r.out.bytes
		r.out.mu.Unlock()
		if data, _ := b.Bytes(); held != int64(len(data)) {
			t.Fatalf("%d bytes in flight, want those of one batch", held)
		}
		b.Acked(0, 0)
	}
	<-r.spool.Channel("c").Drained(0)
}

// TestStuckTopicsLeaveOthersRoom takes batches of topics that are never answered until there are no more: one that is answered is
// still read, and each gets at least a batch and at most its part.
func TestStuckTopicsLeaveOthersRoom(t *testing.T) {
	t.Parallel()
	const size = 1000
	r := start(t, 16*size)
	for topic := range 6 {
		for p := range int32(10) {
			r.putTo(fmt.Sprint("stuck", topic), p, strings.Repeat("x", size))
		}
	}
	held := make(map[string]int)
	take := func(topic string) sender.Batch {
		for l := range r.lanes {
			b, needProducer := l.Next()
			if needProducer {
				l.SetProducer(100+int64(l.Partition()), 0)
			}
			if b != nil || needProducer {
				r.lanes <- l
			}
			if b != nil {
				held[l.Topic()]++
				if l.Topic() == topic {
					return b
				}
			}
		}
		return nil
	}
	for i := range 20 {
		r.putTo("well", 0, fmt.Sprint(i))
		b := take("well")
		if got := r.value(b); got != fmt.Sprint(i) {
			t.Fatalf("found %s, want %d", got, i)
		}
		b.Acked(int64(i), 0)
	}
	for topic := range 6 {
		if n := held[fmt.Sprint("stuck", topic)]; n < 1 || n > 4 {
			t.Errorf("stuck%d holds %d batches, want 1 to 4: %v", topic, n, held)
		}
	}
}

func TestRepeatsFromTheOldest(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	for i := range 3 {
		r.put(0, fmt.Sprint(i))
	}
	away := errors.New("away")
	a, b, c := r.next(), r.next(), r.next()
	b.Refused(batcher.OutOfOrder, away) // the first was lost on the way
	c.Refused(batcher.OutOfOrder, away)
	a.Lost(away)
	if s := r.out.State("t"); s.Failing.IsZero() || !errors.Is(s.Cause, away) {
		t.Errorf("state %+v, want failing", s)
	}
	for i := range 3 {
		again := r.next()
		if got := r.value(again); got != fmt.Sprint(i) {
			t.Fatalf("repeat %d is %s", i, got)
		}
		data, _ := again.Bytes()
		h, err := recordbatch.Check(data)
		if err != nil || h.BaseSequence != int32(i) || h.ProducerID != 100 {
			t.Errorf("repeat %d: %+v %v, want the sequence of the first time", i, h, err)
		}
		again.Acked(int64(i), 0)
	}
	if s := r.out.State("t"); !s.Failing.IsZero() {
		t.Errorf("state %+v, want well", s)
	}
}

func TestForgottenProducer(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	r.put(0, "a")
	r.put(0, "b")
	a := r.next()
	a.Refused(batcher.OutOfOrder, errors.New("who are you"))
	again := r.next()
	data, _ := again.Bytes()
	if h, err := recordbatch.Check(data); err != nil || h.BaseSequence != 0 || r.value(again) != "a" {
		t.Errorf("after the broker forgot the producer: %+v %v", h, err)
	}
}

// TestPartitionGone: what is spooled for a partition that the topic has lost goes to another one, once none of it can be in the log.
func TestPartitionGone(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	r.put(5, "a")
	r.put(5, "b")
	a, b := r.next(), r.next()
	l := a.(*sent).line
	a.Lost(errors.New("away"))
	if l.Resize(4) {
		t.Fatal("the line moved while batches of it may be in the log")
	}
	b.Refused(batcher.Gone, errors.New("no such partition"))
	if !l.Resize(4) {
		t.Fatal("the line did not move")
	}
	for _, want := range []string{"a", "b"} {
		got := r.next()
		if r.value(got) != want || got.Partition() != 1 {
			t.Errorf("%s for partition %d, want %s for 1", r.value(got), got.Partition(), want)
		}
		got.Acked(0, 0)
	}
}

func TestIdleLinesGo(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	for i := range 500 {
		r.putTo(fmt.Sprint("t", i), 0, "x")
		r.next().Acked(0, 0)
	}
	r.out.mu.Lock()
	defer r.out.mu.Unlock()
	if n := len(r.out.lines); n > 128 {
		t.Errorf("%d lines are kept for 500 topics without traffic", n)
	}
}

func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	r := start(t, 0)
	r.put(0, "a")
	r.put(0, "b")
	a := r.next()
	a.Refused(batcher.Fatal, errors.New("too large"))
	if b := r.next(); r.value(b) != "b" {
		t.Errorf("after the refused one: %s, want b", r.value(b))
	}
	kept, err := os.ReadFile(filepath.Join(r.out.cfg.RefugeDir, "t-0.batches"))
	if err != nil {
		t.Fatal(err)
	}
	for rec, err := range recordbatch.Records(kept, 1<<20) {
		if err != nil || string(rec.Value) != "a" {
			t.Errorf("kept aside: %q %v, want a", rec.Value, err)
		}
	}
}
