package batcher

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// sweepEvery is how exact a delivery deadline is.
const sweepEvery = 100 * time.Millisecond

// maxPooled is the largest buffer that is kept for the next batch.
const maxPooled = 2 << 20

type laneKey struct {
	topic     string
	partition int32
}

// Batcher owns the lanes of an agent. All methods may run concurrently. Whoever made it calls Drain and then Close.
type Batcher struct {
	sink     Sink
	timers   timers
	flushing atomic.Bool

	mu     sync.Mutex // taken before a lane's lock
	lanes  map[laneKey]*Lane
	unused int // lanes that no source uses; they go once nothing of them is under way

	builders sync.Pool
	buffers  sync.Pool

	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
}

// New starts a Batcher that hands its batches to the sink.
func New(sink Sink) *Batcher {
	b := &Batcher{sink: sink, lanes: make(map[laneKey]*Lane), stop: make(chan struct{})}
	b.timers.wake = make(chan struct{}, 1)
	b.done.Go(func() { b.timers.run(b.stop) })
	b.done.Go(b.sweep)
	return b
}

// lane returns a partition's lane for one more source. drop must follow.
func (b *Batcher) lane(topic string, partition int32) *Lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := laneKey{topic, partition}
	l := b.lanes[k]
	if l == nil {
		l = &Lane{batcher: b, topic: topic, home: partition, want: partition}
		l.at.Store(partition)
		b.lanes[k] = l
	} else if l.users == 0 {
		b.unused--
	}
	l.users++
	return l
}

// drop ends the use of lanes by sources.
func (b *Batcher) drop(sources []*source) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range sources {
		if s.lane.users--; s.lane.users == 0 {
			b.unused++
		}
	}
	b.tidy()
}

// tidy forgets the lanes that nobody uses and that have nothing under way. The caller holds the lock.
func (b *Batcher) tidy() {
	if b.unused == 0 {
		return
	}
	for k, l := range b.lanes {
		if l.users == 0 && l.empty() {
			delete(b.lanes, k)
			b.unused--
		}
	}
}

// Lanes lists every lane.
func (b *Batcher) Lanes() []*Lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]*Lane, 0, len(b.lanes))
	for _, l := range b.lanes {
		out = append(out, l)
	}
	return out
}

// sweep looks for batches past their deadline.
func (b *Batcher) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-b.stop:
			return
		case now := <-tick.C:
			for _, l := range b.Lanes() {
				l.expire(now, nil)
			}
			b.mu.Lock()
			b.tidy()
			b.mu.Unlock()
		}
	}
}

// Hurry makes every batch that is opened or added to from now on due at once.
func (b *Batcher) Hurry() { b.flushing.Store(true) }

// Drain makes everything due at once, now and from now on, and waits until the given generations, which it retires, are
// drained. It returns the context's error when that takes too long.
func (b *Batcher) Drain(ctx context.Context, generations []*Generation) error {
	b.flushing.Store(true)
	for _, g := range generations {
		g.Retire()
	}
	for _, g := range generations {
		select {
		case <-g.Drained():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close answers for everything that is left with ErrClosed and stops the goroutines. It is idempotent.
func (b *Batcher) Close() {
	b.once.Do(func() {
		close(b.stop)
		b.done.Wait()
		for _, l := range b.Lanes() {
			l.expire(time.Now(), ErrClosed)
		}
	})
}

func (b *Batcher) builder(o *Options) *recordbatch.Builder {
	opts := recordbatch.BuilderOptions{Codec: o.Codec, Level: o.Level}
	if x, ok := b.builders.Get().(*recordbatch.Builder); ok {
		x.Reset(opts)
		return x
	}
	return recordbatch.NewBuilder(opts)
}

func (b *Batcher) putBuilder(x *recordbatch.Builder) {
	if x.Size() <= maxPooled {
		b.builders.Put(x)
	}
}

func (b *Batcher) buffer() []byte {
	if x, ok := b.buffers.Get().(*[]byte); ok {
		return (*x)[:0]
	}
	return nil
}

func (b *Batcher) putBuffer(x []byte) {
	if cap(x) > 0 && cap(x) <= maxPooled {
		b.buffers.Put(&x)
	}
}
