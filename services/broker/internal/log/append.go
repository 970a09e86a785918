package log

import (
	"context"
	"fmt"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker/internal/segment"
)

// AppendOptions says how batches are appended.
type AppendOptions struct {
	Level       Level
	LeaderEpoch int32
	// KeepOffsets takes the batches with the offsets they have, which must go on from the log's end and may leave
	// gaps: they come from another log.
	KeepOffsets bool
}

// AppendResult says where batches went.
type AppendResult struct {
	BaseOffset, LastOffset int64
	LogStartOffset         int64
	AppendTime             int64 // milliseconds, -1 when the records keep their own
	Duplicate              bool  // an idempotent producer sent them before: the offsets are those of the first time
}

// entry is one append on its way.
type entry struct {
	bufs    [][]byte
	batches []segment.Batch
	size    int
	prev    int64 // the log's end before it
	next    int64 // and after it
	durable bool
	keep    bool // was acknowledged before it was written: must not be taken back
	err     error
	res     AppendResult
	done    func(AppendResult, error) // nil once it was called
	undo    []undo
	start   time.Time
	level   Level
	records int

	buf1   [1][]byte
	batch1 [1]segment.Batch
}

// Append appends one or more whole batches as one and waits for what the level promises. It owns batches from
// here on. When ctx ends while a durable append is under way its outcome is unknown.
// Errors: all of this package but ErrOffsetOutOfRange.
func (p *Partition) Append(ctx context.Context, batches []byte, o AppendOptions) (AppendResult, error) {
	type answer struct {
		res AppendResult
		err error
	}
	ch := make(chan answer, 1)
	p.AppendAsync(ctx, batches, o, func(res AppendResult, err error) { ch <- answer{res, err} })
	select {
	case a := <-ch:
		return a.res, a.err
	case <-ctx.Done():
		select {
		case a := <-ch:
			return a.res, a.err
		default:
		}
		return AppendResult{}, p.errorf("append to", fmt.Errorf("outcome unknown: %w", context.Cause(ctx)))
	}
}

// AppendAsync is Append without the wait: done is called exactly once, possibly before AppendAsync returns. Durable
// appends of one partition are answered in order. done must not block and must not append. AppendAsync itself waits, for
// as long as ctx lets it, while the append buffers are full.
func (p *Partition) AppendAsync(ctx context.Context, batches []byte, o AppendOptions, done func(AppendResult, error)) {
	e := &entry{durable: o.Level == Durable, level: o.Level, done: done, start: time.Now()}
	heads, err := p.check(e, batches, o)
	if err == nil {
		err = p.log.reserve(ctx, e.size)
	}
	if err != nil {
		e.err, e.size = p.errorf("append to", err), 0
	}
	if now := p.admit(e, heads, o); now != nil {
		p.answer(now)
	}
}

// check validates batches without a lock and describes them in e.
func (p *Partition) check(e *entry, batches []byte, o AppendOptions) ([]recordbatch.Header, error) {
	p.mu.Lock()
	maxBatch, appendTime, compact := int(p.cfg.MaxBatchBytes), p.cfg.LogAppendTime && !o.KeepOffsets, p.cfg.Compact
	p.mu.Unlock()
	e.res.AppendTime = -1
	if appendTime {
		e.res.AppendTime = p.nowMillis()
	}
	if len(batches) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrInvalidBatch)
	}
	var heads []recordbatch.Header
	e.bufs = e.buf1[:0]
	for rest := batches; len(rest) > 0; {
		b, r, err := recordbatch.Split(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidBatch, err)
		}
		rest = r
		h, err := recordbatch.Check(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidBatch, err)
		}
		if len(b) > maxBatch {
			return nil, fmt.Errorf("%w: %d bytes, the topic takes %d", ErrTooLarge, len(b), maxBatch)
		}
		if !o.KeepOffsets {
			if err := checkProduced(h, b, compact); err != nil {
				return nil, err
			}
		}
		if appendTime {
			recordbatch.SetLogAppendTime(b, e.res.AppendTime)
			h.MaxTimestamp = e.res.AppendTime
		}
		heads = append(heads, h)
		e.bufs = append(e.bufs, b)
		e.size += len(b)
		e.records += int(h.Count)
	}
	return heads, nil
}

// checkProduced refuses what only a log may contain.
func checkProduced(h recordbatch.Header, batch []byte, compact bool) error {
	if h.IsControl() {
		return fmt.Errorf("%w: control batches are the broker's", ErrInvalidBatch)
	}
	if h.Count != h.LastOffsetDelta+1 || h.Count < 1 {
		return fmt.Errorf("%w: %d records with last offset delta %d", ErrInvalidBatch, h.Count, h.LastOffsetDelta)
	}
	if h.ProducerID >= 0 && (h.BaseSequence < 0 || h.ProducerEpoch < 0) {
		return fmt.Errorf("%w: producer %d without epoch or sequence", ErrInvalidBatch, h.ProducerID)
	}
	if !compact {
		return nil
	}
	for r, err := range recordbatch.Records(batch, 0) {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrInvalidBatch, err)
		}
		if r.Key == nil {
			return fmt.Errorf("%w: a record without a key can not go to a compacted topic", ErrInvalidBatch)
		}
	}
	return nil
}

// admit gives the entry its offsets and puts it in line. It returns what can be answered at once.
func (p *Partition) admit(e *entry, heads []recordbatch.Header, o AppendOptions) *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.err == nil {
		if err := p.assign(e, heads, o); err != nil {
			e.err = p.errorf("append to", err)
		}
	}
	e.res.LogStartOffset = p.logStart
	if e.err != nil || len(e.bufs) == 0 { // refused, or sent before
		p.log.release(e.size)
		e.bufs, e.batches, e.size, e.prev, e.next = nil, nil, 0, p.next, p.next
		idle := len(p.pending)+len(p.taken)+len(p.requeue)+p.inflight == 0
		if !e.durable || p.closing || idle && (e.err != nil || p.durable >= p.next) {
			return e
		}
		p.enqueue(e) // answered behind what was sent before it: a duplicate behind its first time
		return nil
	}
	if e.durable {
		p.enqueue(e)
		return nil
	}
	now := *e // the committer goes on with e while the answer is given
	e.done, e.keep = nil, true
	p.enqueue(e)
	return &now
}

// assign stamps offsets and leader epoch and drops batches that were sent before; mu is held.
func (p *Partition) assign(e *entry, heads []recordbatch.Header, o AppendOptions) error {
	if p.closing || p.sealed {
		return ErrClosed
	}
	if p.err != nil {
		return p.err
	}
	if o.LeaderEpoch < p.epoch {
		o.LeaderEpoch = p.epoch
	}
	now := p.nowMillis()
	e.prev = p.next
	next := p.next
	e.batches = e.batch1[:0]
	kept := 0
	var dup *producerBatch
	var err error
	for i, h := range heads {
		var d *producerBatch
		if !o.KeepOffsets {
			if d, err = p.producers.check(h); err != nil {
				break
			}
		} else if h.BaseOffset < next {
			err = fmt.Errorf("%w: offset %d where %d or more belongs", ErrInvalidBatch, h.BaseOffset, next)
			break
		}
		if d != nil {
			if dup == nil {
				dup = d
			}
			e.records -= int(h.Count)
			continue
		}
		if o.KeepOffsets {
			p.gaps = p.gaps || h.BaseOffset > next
		} else {
			h.BaseOffset = next
		}
		e.bufs[kept] = e.bufs[i]
		p.stamp(e, e.bufs[kept], h, o.LeaderEpoch, now)
		kept++
		next = h.LastOffset() + 1
	}
	if err != nil {
		e.takeBack(p.producers)
		return err
	}
	e.bufs = e.bufs[:kept]
	if kept == 0 {
		e.res.BaseOffset, e.res.LastOffset, e.res.Duplicate = dup.base, dup.last, true
		return nil
	}
	e.res.BaseOffset, e.res.LastOffset = e.batches[0].Base, next-1
	if dup != nil {
		e.res.BaseOffset = dup.base
	}
	p.epoch = o.LeaderEpoch
	p.next, e.next = next, next
	return nil
}

// stamp gives a batch its place and remembers what its producer sent; mu is held.
func (p *Partition) stamp(e *entry, batch []byte, h recordbatch.Header, epoch int32, now int64) {
	recordbatch.SetOffset(batch, h.BaseOffset, epoch)
	if u, ok := p.producers.apply(h, now); ok {
		e.undo = append(e.undo, u)
	}
	e.batches = append(e.batches, segment.BatchOf(h))
}

func (e *entry) takeBack(t producers) {
	for i := len(e.undo) - 1; i >= 0; i-- {
		t.takeBack(e.undo[i])
	}
	e.undo = nil
}

// enqueue puts an entry in line and the partition in its committer's list; mu is held.
func (p *Partition) enqueue(e *entry) {
	p.pending = append(p.pending, e)
	queue := !p.queued
	p.queued = true
	p.com.add(p, queue, e.size, e.durable)
}

// answer calls the entry's callback, once.
func (p *Partition) answer(e *entry) {
	done := e.done
	if done == nil {
		return
	}
	e.done = nil
	if e.err == nil {
		if f := p.log.cfg.Observer.Appended; f != nil {
			f(p.key.Topic, p.key.Partition, e.records, e.size, e.level, time.Since(e.start))
		}
	}
	if e.err != nil {
		done(AppendResult{LogStartOffset: e.res.LogStartOffset, BaseOffset: -1, LastOffset: -1}, e.err)
		return
	}
	done(e.res, nil)
}

// reserve accounts for n bytes of append buffers, waiting for room while ctx lets it.
func (l *Log) reserve(ctx context.Context, n int) error {
	if int64(n) > l.cfg.MemoryBytes/2 {
		return fmt.Errorf("%w: %d bytes, the append buffers hold %d", ErrTooLarge, n, l.cfg.MemoryBytes/2)
	}
	if l.budget.TryAcquire(int64(n)) {
		return nil
	}
	if err := l.budget.Acquire(ctx, int64(n)); err != nil {
		return fmt.Errorf("%w: the disk does not keep up, send less or later: %w", ErrBusy, context.Cause(ctx))
	}
	return nil
}

func (l *Log) release(n int) {
	if n > 0 {
		l.budget.Release(int64(n))
	}
}
