package batcher

import (
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// Batch is one record batch from its first message until the broker answered for it. Done, Result, Topic and Partition may
// be called by any number of waiters concurrently; the rest belongs to whoever took it from its lane.
type Batch struct {
	lane   *Lane
	source *source
	opts   *Options
	fill   Fill
	opened time.Time
	traces []string
	bytes  int64
	claims []Claimed
	note   any // the owner's

	// Under the lane's lock.
	sealed      bool
	due         bool
	queued      bool
	answered    bool
	notify      []func()
	outstanding bool
	sends       int
	ordinal     int64 // its place among all that the lane has sent
	producerID  int64
	epoch       int16
	sequence    int32
	stamped     bool

	builder *recordbatch.Builder
	encode  sync.Once
	data    []byte
	encErr  error
	count   int

	// Written before done is closed, read after.
	done       chan struct{}
	baseOffset int64
	appendTime int64
	err        error
}

// Done is closed once the batch is acknowledged, refused, or past its deadline.
func (b *Batch) Done() <-chan struct{} { return b.done }

// Result is the offset of the first record and the time that the broker stamped on all of them (0: none), or why the batch is
// not in the log: ErrExpired, ErrClosed, or what the sink reported. Only after Done.
func (b *Batch) Result() (baseOffset, appendTime int64, err error) {
	return b.baseOffset, b.appendTime, b.err
}

// Notify calls fn once Done is closed, perhaps at once, from any goroutine. fn must not block.
func (b *Batch) Notify(fn func()) {
	b.lane.mu.Lock()
	if !b.answered {
		b.notify = append(b.notify, fn)
		fn = nil
	}
	b.lane.mu.Unlock()
	if fn != nil {
		<-b.done // it is about to be closed
		fn()
	}
}

// Topic by name.
func (b *Batch) Topic() string { return b.lane.topic }

// Partition by number.
func (b *Batch) Partition() int32 { return b.lane.Partition() }

// Traces are the W3C traceparents of its messages' publishes, in order and each once, MaxTraces at most.
func (b *Batch) Traces() []string { return b.traces }

// Bytes encodes the batch where that has not happened yet, and stamps its producer and sequence. The slice is the batch's own
// and stays valid until it is acknowledged. The error is final: the batch can never be sent.
func (b *Batch) Bytes() ([]byte, error) {
	b.seal()
	if b.encErr != nil {
		return nil, b.encErr
	}
	if !b.stamped {
		if b.sends > 1 {
			// An earlier stream may still hold the old bytes.
			b.data = append([]byte(nil), b.data...)
		}
		recordbatch.SetProducer(b.data, b.producerID, b.epoch, b.sequence)
		b.stamped = true
		if !b.opts.Spooled {
			b.Sending(0)
		}
	}
	return b.data, nil
}

// seal encodes a batch that no longer grows: on the goroutine that filled it, or on the one that takes it.
func (b *Batch) seal() {
	b.encode.Do(func() {
		start := time.Now()
		pool := b.lane.batcher
		raw := b.builder.Size()
		b.data, b.encErr = b.builder.Build(pool.buffer())
		pool.putBuilder(b.builder)
		b.builder = nil
		if b.encErr == nil {
			b.source.gen.owner.Sealed(Stats{
				Messages: b.count, RawBytes: raw, Bytes: len(b.data), Fill: b.fill,
				QueueTime: start.Sub(b.opened), Compressed: time.Since(start),
			})
		}
	})
}

// answer records the outcome for the waiters, once. It runs under the lane's lock; release runs after it.
func (b *Batch) answer(base, appendTime int64, err error) bool {
	if b.answered {
		return false
	}
	b.answered = true
	b.baseOffset, b.appendTime, b.err = base, appendTime, err
	return true
}

// wake tells the waiters and the owner; outside of the lane's lock, since many goroutines start to run.
func (b *Batch) wake() {
	close(b.done)
	for _, fn := range b.notify { // answered: nobody adds to it any more
		fn()
	}
	b.notify = nil
	b.source.gen.owner.Answered(b.count, time.Since(b.opened), b.err)
	b.source.gen.Leave()
}

// resolve gives the memory back. Bytes that went out once and were acknowledged cannot be in use any more; others may still
// be held by a broken stream, and are left to the garbage collector.
func (b *Batch) resolve(acked bool) {
	b.source.gen.owner.Resolved(b.bytes)
	if b.sends == 0 {
		b.encode.Do(func() { // unless whoever filled it encodes it: nobody else will
			b.lane.batcher.putBuilder(b.builder)
			b.builder = nil
		})
	}
	if b.sends == 0 || acked && b.sends == 1 {
		b.lane.batcher.putBuffer(b.data)
	}
	b.data = nil
	b.source.topic.resolved()
}

// Lane that the batch goes through.
func (b *Batch) Lane() *Lane { return b.lane }

// Options of the batch.
func (b *Batch) Options() *Options { return b.opts }

// Owner of the batch.
func (b *Batch) Owner() Owner { return b.source.gen.owner }

// Held is the sum of Record.Bytes of its messages.
func (b *Batch) Held() int64 { return b.bytes }

// Claims are the messages that came with one.
func (b *Batch) Claims() []Claimed { return b.claims }

// Identity is how the broker recognises the batch, and an offset of the partition before which it is not, or -1.
func (b *Batch) Identity() (producerID int64, epoch int16, sequence int32, from int64) {
	return b.producerID, b.epoch, b.sequence, b.lane.end.Load() - 1
}

// SetNote keeps something of the owner's with the batch; Note returns it.
func (b *Batch) SetNote(n any) { b.note = n }

// Note is what SetNote was given.
func (b *Batch) Note() any { return b.note }

// Sending tells the owner of a batch with claims; see Owner.
func (b *Batch) Sending(entry uint64) {
	if len(b.claims) > 0 {
		b.source.gen.owner.Sending(b, entry)
	}
}

func (b *Batch) settled(baseOffset, appendTime int64, ok bool) {
	if len(b.claims) > 0 {
		b.source.gen.owner.Settled(b, baseOffset, appendTime, ok)
	}
}

// Acked, Refused and Lost report to the batch's lane.
func (b *Batch) Acked(baseOffset, appendTime int64) { b.lane.Acked(b, baseOffset, appendTime) }

// Refused is Lane.Refused.
func (b *Batch) Refused(r Refusal, cause error) { b.lane.Refused(b, r, cause) }

// Lost is Lane.Lost.
func (b *Batch) Lost(cause error) { b.lane.Lost(b, cause) }
