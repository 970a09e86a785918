package batcher

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

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
