package spool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/databus-suite/databus/internal/recordbatch"
)

var orders = place{"orders", 0}

func TestHandsOutInOrderWithSequences(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	putAll(t, s, orders, "a b", "c", "d e f", "g", "h", "i", "j")
	q := s.Queue("orders", 0)
	if _, _, err := q.Next(); !errors.Is(err, ErrProducer) {
		t.Fatalf("Next without a producer: %v, want ErrProducer", err)
	}
	q.SetProducer(7, 1)
	flush(t, s)
	var items []Item
	for {
		it, ok, err := q.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		items = append(items, it)
	}
	if len(items) != Window {
		t.Fatalf("%d batches in flight, want %d", len(items), Window)
	}
	var seqs []int32
	for _, it := range items {
		h, err := recordbatch.Check(it.Batch)
		if err != nil {
			t.Fatal(err)
		}
		if h.ProducerID != 7 || h.ProducerEpoch != 1 {
			t.Errorf("producer %d/%d, want 7/1", h.ProducerID, h.ProducerEpoch)
		}
		seqs = append(seqs, h.BaseSequence)
	}
	if diff := cmp.Diff([]int32{0, 2, 3, 6, 7}, seqs); diff != "" {
		t.Errorf("sequences (-want +got):\n%s", diff)
	}
	// Acknowledged is not enough: a broker would forget the first of them before the spool has.
	q.Acked(items[0].ID)
	flush(t, s)
	if it, ok, err := q.Next(); !ok || err != nil || it.Sequence != 8 {
		t.Errorf("after the acknowledgement was flushed: %+v %v %v, want sequence 8", it, ok, err)
	}
	q.Rewind()
	it, ok, err := q.Next()
	if !ok || err != nil || it.ID != items[1].ID || it.Sequence != 2 {
		t.Errorf("after Rewind: %+v %v %v, want the second batch again, as before", it, ok, err)
	}
}

func TestReplaysAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newBroker()
	s := open(t, Config{Dir: dir})
	putAll(t, s, orders, "a", "b c", "d", "e", "f")
	snd := &sender{t: t, b: b, flying: map[*Queue][]Item{}}
	q := s.Queue("orders", 0)
	snd.take(q)
	flush(t, s)
	snd.take(q)      // the broker has all of them
	snd.answer(q, 2) // and the agent knows of two
	closeSpool(t, s)

	s = open(t, Config{Dir: dir})
	if got := s.Recovery(); got.Batches != 3 || got.Messages != 3 {
		t.Errorf("recovered %+v, want 3 batches", got)
	}
	putAll(t, s, orders, "g h")
	drain(t, s, b)
	if got := strings.Join(b.logs[orders], ""); got != "abcdefgh" {
		t.Errorf("broker has %q, want everything once and in order", got)
	}
	st := s.Channel("c").Stats()
	if st.Bytes != 0 || st.Messages != 0 || st.Reserved != 0 {
		t.Errorf("after the drain: %+v, want nothing", st)
	}
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, Config{Dir: dir})
	if _, err := Open(Config{Dir: dir}); err == nil {
		t.Fatal("two spools in one directory")
	}
}

func TestFullPolicies(t *testing.T) {
	t.Parallel()
	size := int64(entrySize(&Entry{Channel: "c", Topic: "orders", Batch: batchOf(t, "a")}))
	ctx := context.Background()
	t.Run("reject", func(t *testing.T) {
		s := open(t, Config{FS: newMemFS()})
		ch := s.Channel("c")
		ch.SetLimit(Limit{Bytes: 2 * size})
		putAll(t, s, orders, "a", "b")
		if err := ch.Reserve(ctx, size); !errors.Is(err, ErrFull) {
			t.Errorf("Reserve in a full channel: %v, want ErrFull", err)
		}
		if err := ch.Reserve(ctx, 3*size); !errors.Is(err, ErrTooLarge) {
			t.Errorf("Reserve of more than the bound: %v, want ErrTooLarge", err)
		}
		drain(t, s, newBroker())
		if err := ch.Reserve(ctx, 2*size); err != nil {
			t.Errorf("Reserve in an empty channel: %v", err)
		}
		ch.Release(2 * size)
	})
	t.Run("block", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, Config{FS: newMemFS()})
			ch := s.Channel("c")
			ch.SetLimit(Limit{Bytes: 2 * size, Policy: Block, Timeout: time.Second})
			putAll(t, s, orders, "a", "b")
			if err := ch.Reserve(ctx, size); !errors.Is(err, ErrFull) {
				t.Errorf("Reserve in a full channel: %v, want ErrFull after the timeout", err)
			}
			got := make(chan error)
			go func() { got <- ch.Reserve(ctx, size) }()
			synctest.Wait()
			drain(t, s, newBroker())
			if err := <-got; err != nil {
				t.Errorf("Reserve while room appears: %v", err)
			}
			ch.Release(size)
			closeSpool(t, s)
		})
	})
	t.Run("shed oldest", func(t *testing.T) {
		fs := newMemFS()
		var dropped int
		s := open(t, Config{FS: fs, Observer: Observer{Dropped: func(channel, reason string, n int) { dropped += n }}})
		ch := s.Channel("c")
		ch.SetLimit(Limit{Bytes: 6 * size, Policy: ShedOldest})
		b := newBroker()
		snd := &sender{t: t, b: b, flying: map[*Queue][]Item{}}
		q := s.Queue("orders", 0)
		putAll(t, s, orders, "a", "b")
		snd.take(q)
		flush(t, s)
		snd.take(q) // a and b may be in the log: they stay
		for _, v := range "cdefghij" {
			if err := ch.Reserve(ctx, size); err != nil {
				t.Fatal(err)
			}
			e := Entry{Channel: "c", Topic: "orders", Batch: batchOf(t, string(v)), Reserved: size}
			if err := s.Append(e, func(error) {}); err != nil {
				t.Fatal(err)
			}
			flush(t, s)
		}
		if dropped != 4 || ch.Stats().Shed != 4 {
			t.Errorf("%d messages reported and %d counted as shed, want 4", dropped, ch.Stats().Shed)
		}
		if n := len(q.dropped); n != 1 {
			t.Errorf("%d spans, want one: %v", n, q.dropped)
		}
		// A restart must not bring them back.
		s2 := open(t, Config{FS: fs.kill()})
		drain(t, s2, b)
		if got := strings.Join(b.logs[orders], ""); got != "abghij" {
			t.Errorf("broker has %q, want the oldest unsent gone", got)
		}
	})
}

func TestPartitionCountChangeKeepsOrder(t *testing.T) {
	t.Parallel()
	s := open(t, Config{FS: newMemFS()})
	p1 := place{"orders", 1}
	for _, step := range []struct {
		p          place
		partitions int32
		value      string
	}{{orders, 1, "a"}, {orders, 1, "b"}, {p1, 2, "c"}, {orders, 2, "d"}} {
		if err := putOne(t, s, "c", step.p, step.partitions, step.value); err != nil {
			t.Fatal(err)
		}
	}
	q0, q1 := s.Queue("orders", 0), s.Queue("orders", 1)
	q0.SetProducer(1, 0)
	q1.SetProducer(1, 0)
	flush(t, s)
	if _, ok, err := q1.Next(); ok || err != nil {
		t.Fatalf("the second partition is sent before the first is acknowledged (%v)", err)
	}
	a, _, _ := q0.Next()
	b, _, _ := q0.Next()
	if _, ok, _ := q0.Next(); ok {
		t.Fatal("a message of the next era is sent before the first era is acknowledged")
	}
	q0.Acked(a.ID)
	q0.Acked(b.ID)
	if it, ok, err := q1.Next(); !ok || err != nil || it.Count != 1 {
		t.Fatalf("second partition after that: %v %v", ok, err)
	}
	if _, ok, err := q0.Next(); !ok || err != nil {
		t.Fatalf("first partition after that: %v %v", ok, err)
	}
}

func TestHeldChannel(t *testing.T) {
	t.Parallel()
	ready := make(chan *Queue, 100)
	s := open(t, Config{FS: newMemFS(), Ready: func(q *Queue) { ready <- q }})
	s.Channel("c").Hold(0)
	putAll(t, s, orders, "a")
	q := s.Queue("orders", 0)
	q.SetProducer(1, 0)
	flush(t, s)
	if _, ok, _ := q.Next(); ok {
		t.Fatal("a held channel's batch is handed out")
	}
	for len(ready) > 0 {
		<-ready
	}
	s.Channel("c").Unhold(0)
	if got := <-ready; got != q {
		t.Fatal("wrong queue")
	}
	if _, ok, err := q.Next(); !ok || err != nil {
		t.Fatalf("after Unhold: %v %v", ok, err)
	}
}

func TestRefusedBatchLeavesNoHole(t *testing.T) {
	t.Parallel()
	s := open(t, Config{FS: newMemFS()})
	putAll(t, s, orders, "a", "b", "c")
	q := s.Queue("orders", 0)
	q.SetProducer(3, 0)
	flush(t, s)
	a, _, _ := q.Next()
	bb, _, _ := q.Next()
	q.Acked(a.ID)
	q.Refused(bb.ID)
	q.Rewind()
	flush(t, s)
	if c, ok, err := q.Next(); !ok || err != nil || c.Sequence != 1 {
		t.Errorf("behind the refused batch: %+v %v %v, want sequence 1", c, ok, err)
	}
}

func TestDiskFailure(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		write, sync error
	}{{"write", errors.New("no space left"), nil}, {"sync", nil, errors.New("input/output error")}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fs := newMemFS()
			s := open(t, Config{FS: fs})
			putAll(t, s, orders, "a")
			fs.fail(tc.write, tc.sync)
			if err := putOne(t, s, "c", orders, 1, "lost"); !errors.Is(err, ErrDisk) {
				t.Fatalf("spooled on a failing disk: %v, want ErrDisk", err)
			}
			fs.fail(nil, nil)
			putAll(t, s, orders, "b")
			if st := s.Channel("c").Stats(); st.Messages != 2 || st.Reserved != 0 {
				t.Errorf("stats %+v, want two messages", st)
			}
			// What failed may well be in the file, and must not come back: its sequence went to another.
			for _, again := range []*memFS{fs.kill(), fs} {
				var sp *Spool
				if again == fs {
					sp = s
				} else {
					sp = open(t, Config{FS: again})
				}
				b := newBroker()
				drain(t, sp, b)
				if got := b.logs[orders]; !slices.Equal(got, []string{"a", "b"}) {
					t.Errorf("broker has %q, want a and b", got)
				}
			}
		})
	}
}

func TestStuckPartitionDoesNotKeepFiles(t *testing.T) {
	t.Parallel()
	fs := newMemFS()
	s := open(t, Config{FS: fs, FileBytes: 8 << 10})
	stuck := place{"stuck", 0}
	b := newBroker()
	q := s.Queue("orders", 0)
	snd := &sender{t: t, b: b, flying: map[*Queue][]Item{}}
	big := strings.Repeat("x", 200)
	for i := range 400 {
		if i%50 == 0 {
			putAll(t, s, stuck, fmt.Sprint("s", i))
		}
		putAll(t, s, orders, big)
		snd.take(q)
		flush(t, s)
		snd.take(q)
		snd.answer(q, len(snd.flying[q]))
		flush(t, s)
	}
	if n := s.DiskBytes(); n > 64<<10 {
		t.Errorf("%d bytes on disk for 8 small batches", n)
		for _, f := range s.files {
			t.Log(f.number, f.size, f.live, f.moving)
		}
	}
	drain(t, open(t, Config{FS: fs.kill()}), b)
	if got := strings.Join(b.logs[stuck], " "); got != "s0 s50 s100 s150 s200 s250 s300 s350" {
		t.Errorf("stuck partition: %q", got)
	}
	if n := len(b.logs[orders]); n != 400 {
		t.Errorf("%d messages in the other, want 400", n)
	}
}

func TestChannelDrained(t *testing.T) {
	t.Parallel()
	s := open(t, Config{FS: newMemFS()})
	ch := s.Channel("c")
	<-ch.Drained(0)
	putAll(t, s, orders, "a")
	d := ch.Drained(0)
	select {
	case <-d:
		t.Fatal("drained with a batch in the spool")
	default:
	}
	drain(t, s, newBroker())
	<-d
}
