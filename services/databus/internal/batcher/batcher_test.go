package batcher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

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

// TestPartitionGone: what is bound to a partition that the topic has lost goes to another one, in order and as another producer, but
// not while some of it may be in the log; and back once the topic has grown.
func TestPartitionGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options(func(o *Options) { o.MaxMessages = 2 }))
		x.append(x.topic, 3, 8)
		l := x.topic.Lane(3)
		a, b := x.sink.take(), x.sink.take()
		old := header(t, a).ProducerID
		l.Lost(a, errors.New("broken"))
		if l.Resize(2) {
			t.Fatal("the lane moved while a batch of it may be in the log")
		}
		l.Refused(b, Gone, errors.New("no such partition"))
		if !l.Resize(2) || l.Partition() != 1 {
			t.Fatalf("the lane sends to %d, want 1", l.Partition())
		}
		pass(time.Second)
		for i := range 2 {
			got := x.sink.take()
			h := header(t, got)
			if got != []*Batch{a, b}[i] || got.Partition() != 1 || h.ProducerID == old || h.BaseSequence != int32(i*2) {
				t.Fatalf("batch %d: partition %d, producer %d (before %d), sequence %d", i, got.Partition(), h.ProducerID, old, h.BaseSequence)
			}
		}
		if l.Resize(4) {
			t.Fatal("the lane moved with batches in flight")
		}
		if c := x.sink.take(); c != nil {
			t.Fatalf("%v was sent before what is in the other partition is answered", values(t, c))
		}
		l.Acked(a, 0, 0)
		l.Acked(b, 2, 0)
		if !l.Resize(4) {
			t.Fatal("the lane did not go back")
		}
		if c := x.sink.take(); c.Partition() != 3 || fmt.Sprint(values(t, c)) != "[4 5]" || header(t, c).BaseSequence != 0 {
			t.Fatalf("%v in partition %d", values(t, c), c.Partition())
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

// TestForgottenTopics: a topic is forgotten only while nothing of it is under way, its lanes go once nobody uses them, and whoever had
// asked for it before still gets through.
func TestForgottenTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := setup(t, options())
		x.append(x.topic, 0, 1)
		if x.gen.Forget("t") {
			t.Fatal("forgotten with an open batch")
		}
		pass(time.Second)
		b := x.sink.take()
		if x.gen.Forget("t") {
			t.Fatal("forgotten with a batch in flight")
		}
		b.Acked(0, 0)
		if !x.gen.Forget("t") || len(x.gen.Topics()) != 0 || len(x.Lanes()) != 0 {
			t.Fatalf("%d topics and %d lanes are left", len(x.gen.Topics()), len(x.Lanes()))
		}
		for p := range int32(2) { // of one that was used, and of one that was not
			x.append(x.topic, p, 1)
			pass(time.Second)
			if got := x.sink.take(); got.Partition() != p || fmt.Sprint(values(t, got)) != fmt.Sprint([]int32{p + 1}) {
				t.Fatalf("%v in partition %d", values(t, got), got.Partition())
			} else if got.Acked(0, 0); len(x.Lanes()) != int(p)+1 {
				t.Fatalf("%d lanes", len(x.Lanes()))
			}
		}
		x.append(x.topic, 1, 1)
		x.gen.Retire()
		if x.sink.take().Acked(0, 0); len(x.Lanes()) != 0 {
			t.Fatalf("%d lanes are left of a generation that is drained", len(x.Lanes()))
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

// TestLaneModel drives lanes against a broker that loses answers, refuses, forgets producers and breaks streams at random. In
// the end every partition holds every message once and in order.
func TestLaneModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		synctest.Test(t, func(t *testing.T) { runModel(t, seed) })
	})
}

// partitionModel keeps Kafka's rules for idempotent producers.
type partitionModel struct {
	log  []string
	id   int64
	last [][3]int64 // first, next, base
}

func (p *partitionModel) append(h recordbatch.Header, values []string) (int64, Refusal, bool) {
	if h.ProducerID != p.id {
		p.id, p.last = h.ProducerID, nil
	}
	next := int64(h.BaseSequence) + int64(h.Count)
	for _, a := range p.last {
		if a[0] == int64(h.BaseSequence) && a[1] == next {
			return a[2], 0, true
		}
	}
	want := int64(0)
	if n := len(p.last); n > 0 {
		want = p.last[n-1][1]
	}
	if int64(h.BaseSequence) != want {
		return 0, OutOfOrder, false
	}
	base := int64(len(p.log))
	p.log = append(p.log, values...)
	p.last = append(p.last, [3]int64{want, next, base})
	if len(p.last) > Window {
		p.last = p.last[1:]
	}
	return base, 0, true
}

func runModel(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := setup(t, options(func(o *Options) { o.MaxMessages, o.Deadline = 3, 0 }))
	var parts [4]partitionModel
	var pipe []*Batch // sent, not processed: the stream
	const messages = 120
	counts := [4]int{}
	for x.sent < messages || x.owner.answered < messages {
		switch n := rng.IntN(12); {
		case n < 4 && x.sent < messages:
			p := int32(rng.IntN(4))
			counts[p]++
			x.append(x.topic, p, 1)
		case n < 8:
			if b := x.sink.take(); b != nil {
				if _, err := b.Bytes(); err != nil {
					t.Fatal(err)
				}
				pipe = append(pipe, b)
			}
		case n < 10 && len(pipe) > 0:
			b := pipe[0]
			pipe = pipe[1:]
			if rng.IntN(6) == 0 {
				b.Lane().Refused(b, Retry, errors.New("busy"))
				break
			}
			base, r, ok := parts[b.Partition()].append(header(t, b), values(t, b))
			if ok {
				b.Lane().Acked(b, base, 0)
			} else {
				b.Lane().Refused(b, r, errors.New("out of order"))
			}
		case n == 10 && rng.IntN(4) == 0:
			// The stream breaks; some of it arrives all the same, in order.
			for i, b := range pipe {
				if i < len(pipe)/2 {
					parts[b.Partition()].append(header(t, b), values(t, b))
				}
			}
			for _, b := range pipe {
				b.Lane().Lost(b, errors.New("broken"))
			}
			pipe = nil
		default:
			pass(time.Duration(rng.IntN(100)) * time.Millisecond)
		}
	}
	for p := range parts {
		if len(parts[p].log) != counts[p] || !slices.IsSortedFunc(parts[p].log, func(a, b string) int {
			return len(a)*1000 - len(b)*1000 + compare(a, b)
		}) {
			t.Fatalf("partition %d: %d messages, want %d: %v", p, len(parts[p].log), counts[p], parts[p].log)
		}
	}
	if x.owner.resolved != messages {
		t.Fatalf("%d bytes given back, want %d", x.owner.resolved, messages)
	}
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
