package batcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/databus-suite/databus/internal/recordbatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink collects ready lanes.
type sink struct {
	mu    sync.Mutex
	lanes []*Lane
}

func (s *sink) Ready(l *Lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lanes = append(s.lanes, l)
}

// take takes the next batch of any ready lane, as a sender does; nil where there is none.
func (s *sink) take() *Batch {
	for {
		s.mu.Lock()
		if len(s.lanes) == 0 {
			s.mu.Unlock()
			return nil
		}
		l := s.lanes[0]
		s.mu.Unlock()
		b, need := l.Take()
		if need {
			l.SetProducer(producerIDs.next(), 0)
			continue
		}
		if b != nil {
			return b
		}
		s.mu.Lock()
		s.lanes = slices.Delete(s.lanes, 0, 1)
		s.mu.Unlock()
	}
}

type ids struct {
	mu sync.Mutex
	n  int64
}

func (p *ids) next() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	return p.n
}

var producerIDs ids

// owner counts.
type owner struct {
	mu       sync.Mutex
	fills    []Fill
	answered int
	resolved int64
}

func (o *owner) Sealed(s Stats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fills = append(o.fills, s.Fill)
}

func (o *owner) Answered(n int, _ time.Duration, _ error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answered += n
}

func (o *owner) Sending(*Batch, uint64) {}

func (o *owner) Settled(*Batch, int64, int64, bool) {}

func (o *owner) Resolved(n int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.resolved += n
}

func options(change ...func(*Options)) *Options {
	o := &Options{Codec: recordbatch.None, Linger: 5 * time.Millisecond, MaxBytes: 1 << 20, MaxMessages: 1000, Deadline: 10 * time.Second,
		MinBackoff: 50 * time.Millisecond, MaxBackoff: time.Second}
	for _, f := range change {
		f(o)
	}
	return o
}

type bench struct {
	*Batcher
	sink  *sink
	owner *owner
	gen   *Generation
	topic *Topic
	sent  int
}

func setup(t interface{ Cleanup(func()) }, o *Options) *bench {
	x := &bench{sink: &sink{}, owner: &owner{}}
	x.Batcher = New(x.sink)
	x.gen = x.NewGeneration(nil, x.owner, o, nil)
	x.topic = x.gen.Topic("t", 4)
	t.Cleanup(x.Close)
	return x
}

// append adds numbered messages to a partition and returns their batches.
func (x *bench) append(topic *Topic, partition int32, n int) []*Batch {
	var out []*Batch
	for range n {
		if !topic.gen.Enter() {
			panic("retired")
		}
		b, _ := topic.Append(time.Now(), partition, &Record{Value: fmt.Append(nil, x.sent), Bytes: 1})
		topic.gen.Leave()
		x.sent++
		if !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	return out
}

func values(t testing.TB, b *Batch) []string {
	data, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for r, err := range recordbatch.Records(data, 1<<20) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(r.Value))
	}
	return out
}

func header(t testing.TB, b *Batch) recordbatch.Header {
	data, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	h, err := recordbatch.Check(data)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// pass lets time pass in the test's bubble, and all that it brings about.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func isDone(b *Batch) bool {
	select {
	case <-b.Done():
		return true
	default:
		return false
	}
}

func TestBatchIsClosedByTheFirstLimit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options *Options
		n       int
		wait    time.Duration
		want    []int // messages of the batches that can be taken
		fill    Fill
	}{
		{"linger not over", options(), 3, 4 * time.Millisecond, nil, 0},
		{"linger over", options(), 3, 6 * time.Millisecond, []int{3}, FillLinger},
		{"no linger", options(func(o *Options) { o.Linger = 0 }), 3, 0, []int{3}, FillLinger},
		{"count", options(func(o *Options) { o.MaxMessages = 2 }), 5, 0, []int{2, 2}, FillCount},
		{"bytes", options(func(o *Options) { o.MaxBytes = 61 + 25 }), 5, 0, []int{2, 2}, FillBytes},
		{"one larger than the limit", options(func(o *Options) { o.MaxBytes = 1 }), 2, 0, []int{1, 1}, FillBytes},
		{"adaptive", options(func(o *Options) { o.Adaptive = true }), 3, 0, []int{3}, FillIdle},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := setup(t, tc.options)
				x.append(x.topic, 1, tc.n)
				pass(tc.wait)
				for i, n := range tc.want {
					b := x.sink.take()
					if b == nil || len(values(t, b)) != n {
						t.Fatalf("batch %d is not there or has not %d messages", i, n)
					}
				}
				if b := x.sink.take(); b != nil {
					t.Errorf("another batch: %v", values(t, b))
				}
				for _, f := range x.owner.fills {
					if f != tc.fill {
						t.Errorf("closed by %v, want %v", f, tc.fill)
					}
				}
			})
		})
	}
}

func TestAdaptiveGrowsWhileOneIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.Adaptive, o.Linger = true, time.Minute }))
		x.append(x.topic, 0, 1)
		first := x.sink.take()
		x.append(x.topic, 0, 7)
		if b := x.sink.take(); b != nil {
			t.Fatal("a batch is due although one is in flight")
		}
		first.Lane().Acked(first, 0, 0)
		if b := x.sink.take(); b == nil || len(values(t, b)) != 7 {
			t.Fatal("what gathered is not due")
		}
	})
}

func TestDueBatchGrowsUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.Linger = 0 }))
		for range Window {
			x.append(x.topic, 0, 1)
			if x.sink.take() == nil {
				t.Fatal("no batch")
			}
		}
		batches := x.append(x.topic, 0, 100)
		if len(batches) != 1 || x.sink.take() != nil {
			t.Fatal("the window is full: messages gather in one batch")
		}
	})
}

func TestSequencesFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.MaxMessages = 3 }))
		x.append(x.topic, 0, 9)
		next := int32(0)
		var id int64
		for i := range 3 {
			h := header(t, x.sink.take())
			if i == 0 {
				id = h.ProducerID
			}
			if h.BaseSequence != next || h.ProducerID != id {
				t.Fatalf("batch %d: producer %d sequence %d, want %d", i, h.ProducerID, h.BaseSequence, next)
			}
			next += h.Count
		}
	})
	if got := after(1<<31-2, 3); got != 1 {
		t.Errorf("sequence wraps to %d", got)
	}
}

func TestRefusalSendsTheWindowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.MaxMessages = 1 }))
		x.append(x.topic, 0, 4)
		l := x.topic.Lane(0)
		var flight []*Batch
		for range 3 {
			flight = append(flight, x.sink.take())
		}
		busy := errors.New("busy")
		l.Acked(flight[0], 0, 0)
		l.Refused(flight[1], Retry, busy)
		if x.sink.take() != nil {
			t.Fatal("sent before every answer was there")
		}
		l.Refused(flight[2], OutOfOrder, errors.New("out of order"))
		if x.sink.take() != nil {
			t.Fatal("sent without a back-off")
		}
		if s := l.State(); s.Failing.IsZero() || !errors.Is(s.Cause, busy) {
			t.Errorf("state %+v", s)
		}
		pass(time.Second)
		for i, want := range []int32{1, 2, 3} {
			b := x.sink.take()
			if h := header(t, b); h.BaseSequence != want {
				t.Fatalf("sequence %d, want %d", h.BaseSequence, want)
			}
			if i < 2 && b != flight[i+1] {
				t.Fatal("another batch")
			}
			l.Acked(b, int64(i), 0)
		}
		if s := l.State(); !s.Failing.IsZero() || s.Waiting != 0 {
			t.Errorf("state %+v", s)
		}
	})
}

func TestForgottenProducerGetsANewIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.MaxMessages = 2 }))
		x.append(x.topic, 0, 6)
		l := x.topic.Lane(0)
		a, b, c := x.sink.take(), x.sink.take(), x.sink.take()
		old := header(t, a).ProducerID
		l.Acked(a, 0, 0)
		for _, y := range []*Batch{b, c} {
			l.Refused(y, OutOfOrder, errors.New("out of order"))
		}
		pass(time.Second)
		for i, want := range []*Batch{b, c} {
			got := x.sink.take()
			h := header(t, got)
			if got != want || h.ProducerID == old || h.BaseSequence != int32(i*2) {
				t.Fatalf("batch %d: producer %d (before %d), sequence %d", i, h.ProducerID, old, h.BaseSequence)
			}
		}
	})
}

func TestFatalRefusalAnswersAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.MaxMessages = 1 }))
		bad := errors.New("bad")
		batches := x.append(x.topic, 0, 2)
		first := x.sink.take()
		first.Lane().Refused(first, Fatal, bad)
		if _, _, err := batches[0].Result(); !isDone(batches[0]) || !errors.Is(err, bad) {
			t.Fatalf("result %v", err)
		}
		second := x.sink.take()
		second.Lane().Refused(second, OutOfOrder, errors.New("gap"))
		pass(time.Second)
		if h := header(t, x.sink.take()); h.BaseSequence != 0 {
			t.Errorf("sequence %d under the new identity", h.BaseSequence)
		}
		if x.owner.resolved != 1 {
			t.Errorf("%d bytes given back, want 1", x.owner.resolved)
		}
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.MaxMessages, o.Deadline = 1, time.Second }))
		batches := x.append(x.topic, 0, 2)
		sent := x.sink.take()
		l := sent.Lane()
		away := errors.New("away")
		l.Lost(sent, away)
		pass(2 * time.Second)
		for _, b := range batches {
			if _, _, err := b.Result(); !isDone(b) || !errors.Is(err, ErrExpired) || !errors.Is(err, away) {
				t.Fatalf("result %v", err)
			}
		}
		if x.owner.resolved != 1 {
			t.Errorf("%d bytes given back: the batch that was sent must stay", x.owner.resolved)
		}
		if l.Broken(time.Now(), time.Second) == nil {
			t.Error("the lane is not broken although it has failed for longer than the deadline")
		}
		again := x.sink.take()
		if again != sent || header(t, again).BaseSequence != 0 {
			t.Fatal("the batch that was sent is not sent again")
		}
		l.Acked(again, 7, 0)
		if _, _, err := sent.Result(); !errors.Is(err, ErrExpired) {
			t.Errorf("the answer changed to %v", err)
		}
		if x.owner.resolved != 2 || l.Broken(time.Now(), time.Second) != nil {
			t.Error("the lane is not whole again")
		}
		if x.sink.take() != nil {
			t.Error("the expired batch was sent")
		}
	})
}

// TestSilentPartitionFails: a broker that takes batches and never answers is as good as away.
func TestSilentPartitionFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.Linger, o.Deadline = 0, time.Second }))
		x.append(x.topic, 0, 1)
		sent := x.sink.take()
		pass(1500 * time.Millisecond)
		if l := x.topic.Lane(0); l.Broken(time.Now(), time.Second) != nil {
			t.Error("refused before a second message could have found out")
		}
		pass(time.Second)
		l := x.topic.Lane(0)
		if err := l.Broken(time.Now(), time.Second); !errors.Is(err, errNoAnswer) {
			t.Errorf("two timeouts without an answer: %v", err)
		}
		l.Acked(sent, 0, 0)
		if err := l.Broken(time.Now(), time.Second); err != nil {
			t.Errorf("after the answer: %v", err)
		}
	})
}

func TestNextGenerationWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.Linger, o.Deadline = time.Hour, 0 }))
		x.append(x.topic, 0, 2)
		next := x.NewGeneration(x.gen, x.owner, options(func(o *Options) { o.Deadline = 0 }), nil)
		x.gen.Retire()
		if x.gen.Enter() {
			t.Fatal("the old generation takes messages")
		}
		other := next.Topic("u", 1)
		x.append(other, 0, 3)
		third := x.NewGeneration(next, x.owner, options(func(o *Options) { o.Deadline = 0 }), nil)
		next.Retire()
		x.append(third.Topic("t", 4), 0, 1)
		pass(time.Minute)

		old := x.sink.take()
		if old == nil || old.Topic() != "t" || len(values(t, old)) != 2 {
			t.Fatal("the old generation was not flushed")
		}
		if x.sink.take() != nil {
			t.Fatal("the new generation was sent before the old one was answered")
		}
		old.Lane().Acked(old, 0, 0)
		synctest.Wait()
		mid := x.sink.take()
		if mid == nil || mid.Topic() != "u" || x.sink.take() != nil {
			t.Fatal("the second generation must come alone")
		}
		mid.Lane().Acked(mid, 0, 0)
		synctest.Wait()
		last := x.sink.take()
		if last == nil || last.Topic() != "t" {
			t.Fatal("the third generation is not sent")
		}
		last.Lane().Acked(last, 2, 0)
	})
}

func TestStickyMovesOnWhenTheBatchIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.MaxMessages = 2 }))
		first := x.topic.Sticky()
		x.append(x.topic, first, 1)
		if x.topic.Sticky() != first {
			t.Fatal("moved before the batch was closed")
		}
		x.append(x.topic, first, 1)
		if x.topic.Sticky() == first {
			t.Fatal("did not move")
		}
	})
}

func TestDrainAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.Linger = time.Hour }))
		lost := x.append(x.topic, 0, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := x.Drain(ctx, []*Generation{x.gen}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("drain: %v", err)
		}
		x.Close()
		x.Close()
		if _, _, err := lost[0].Result(); !isDone(lost[0]) || !errors.Is(err, ErrClosed) {
			t.Fatalf("result: %v", err)
		}
		if x.owner.resolved != 1 {
			t.Errorf("%d bytes given back", x.owner.resolved)
		}
	})
}
