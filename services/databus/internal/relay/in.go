package relay

import (
	"runtime"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// Channel is the owner of a spooled batch, as far as the spool must know it.
type Channel interface{ Name() string }

// In is the sink of the batcher of spooled channels. Ready may be called concurrently; Close ends it and is idempotent.
type In struct {
	spool *spool.Spool

	mu     sync.Mutex
	more   *sync.Cond
	lanes  []*batcher.Lane // ready, in the order in which they became so
	closed bool
	work   sync.WaitGroup
}

// NewIn starts an In.
func NewIn(s *spool.Spool) *In {
	in := &In{spool: s}
	in.more = sync.NewCond(&in.mu)
	for range runtime.GOMAXPROCS(0) { // they encode what no publisher did
		in.work.Go(in.run)
	}
	return in
}

// Ready puts the lane in line.
func (in *In) Ready(l *batcher.Lane) {
	in.mu.Lock()
	in.lanes = append(in.lanes, l)
	in.mu.Unlock()
	in.more.Signal()
}

// run serves lanes. A lane is in line once, so its batches keep their order.
func (in *In) run() {
	for {
		in.mu.Lock()
		for len(in.lanes) == 0 && !in.closed {
			in.more.Wait()
		}
		if in.closed {
			in.mu.Unlock()
			return
		}
		l := in.lanes[0]
		in.lanes = append(in.lanes[:0], in.lanes[1:]...)
		in.mu.Unlock()
		if in.serve(l) {
			in.Ready(l)
		}
	}
}

// serve takes one batch of a lane into the spool, and tells whether to look again.
func (in *In) serve(l *batcher.Lane) bool {
	b, needProducer := l.Take()
	switch {
	case needProducer:
		l.SetProducer(-1, -1) // the spool gives out identities
		return true
	case b == nil:
		return false
	}
	data, err := b.Bytes()
	if err != nil {
		in.spool.Channel(nameOf(b)).Release(b.Held())
		b.Refused(batcher.Fatal, errs.New(errs.Internal, "BATCH_NOT_BUILT", "build a batch for %s/%d", l.Topic(), l.Partition()).Wrap(err))
		return true
	}
	e := spool.Entry{
		Channel: nameOf(b), Topic: l.Topic(), Partition: l.Partition(), Layout: b.Options().Layout,
		Stage: b.Options().Stage, Batch: data, Reserved: b.Held(), Placed: b.Sending,
	}
	if err := in.spool.Append(e, func(err error) { answer(b, err) }); err != nil {
		answer(b, err)
	}
	return true
}

// answer tells the batch's producers what became of it.
func answer(b *batcher.Batch, err error) {
	if err == nil {
		b.Acked(-1, 0)
		return
	}
	b.Refused(batcher.Fatal, errs.New(errs.Unavailable, "SPOOL_FAILED", "spool a batch for %s/%d", b.Topic(), b.Partition()).
		WithRetryAfter(time.Second).WithNext("look at the disk of the agent's data directory").Wrap(err))
}

func nameOf(b *batcher.Batch) string {
	if c, ok := b.Owner().(Channel); ok {
		return c.Name()
	}
	return ""
}

// Close ends the workers. What they had taken is answered by the spool.
func (in *In) Close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.more.Broadcast()
	in.work.Wait()
}
