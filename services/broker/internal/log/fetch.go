package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"syscall"
	"time"

	"github.com/databus-suite/databus/services/broker/internal/store"
)

// FetchOptions says what to fetch.
type FetchOptions struct {
	Offset   int64
	MinBytes int           // wait until this much can be read, 0 like 1
	MaxBytes int           // more only when the first batch is larger; 0: 1 MiB
	MaxWait  time.Duration // 0: answer at once

	reuse bool // read files into recycled buffers
}

func (o FetchOptions) withDefaults() FetchOptions {
	def(&o.MaxBytes, 1<<20)
	o.MinBytes = min(max(o.MinBytes, 1), o.MaxBytes)
	return o
}

// FetchResult is what can be read. Batches must not be changed: others read the same memory.
type FetchResult struct {
	Batches        [][]byte // each one or more whole batches; the first batch may begin before Offset
	Size           int      // bytes in Batches
	NextOffset     int64    // where to fetch on
	HighWatermark  int64
	LogStartOffset int64

	buffer *[]byte // that Batches lie in, when it is to be recycled
}

// Release lets the memory be used again: no slice of Batches may be read after it. It is called once, or never: the
// garbage collector frees what is left.
func (r FetchResult) Release() {
	if r.buffer != nil {
		giveBuffer(r.buffer)
	}
}

// Bytes joins the batches, without a copy when they are one buffer.
func (r FetchResult) Bytes() []byte {
	if len(r.Batches) == 1 {
		return r.Batches[0]
	}
	return slices.Concat(r.Batches...)
}

// waiter is a fetch, or a subscription, that waits for more below the high watermark.
type waiter struct {
	target int64 // of Partition.highBytes
	wake   func()
}

// Fetch reads whole batches from the one that holds the offset on, never past the high watermark. When less than
// MinBytes can be read it waits, up to MaxWait, at the cost of one timer.
// Errors: ErrOffsetOutOfRange, ErrCorrupt, ErrDirFailed, ErrClosed, ctx's.
func (p *Partition) Fetch(ctx context.Context, o FetchOptions) (FetchResult, error) {
	start := time.Now()
	r, cached, err := p.fetch(ctx, o.withDefaults())
	if err != nil {
		return r, p.errorf("fetch from", err)
	}
	p.observeFetch(r.Size, cached, start)
	return r, nil
}

func (p *Partition) observeFetch(size int, cached bool, start time.Time) {
	if f := p.log.cfg.Observer.Fetched; f != nil {
		f(p.key.Topic, p.key.Partition, size, cached, time.Since(start))
	}
}

// fetch reads and waits; cached says that the answer comes from memory.
func (p *Partition) fetch(ctx context.Context, o FetchOptions) (r FetchResult, cached bool, err error) {
	var deadline <-chan time.Time
	for {
		r, seen, cached, err := p.read(o)
		if err != nil || r.Size >= o.MinBytes || o.MaxWait <= 0 {
			return r, cached, err
		}
		if deadline == nil {
			timer := time.NewTimer(o.MaxWait)
			defer timer.Stop()
			deadline = timer.C
		}
		woken := make(chan struct{})
		cancel := p.subscribe(seen+int64(o.MinBytes-r.Size), func() { close(woken) })
		select {
		case <-woken:
		case <-deadline:
			cancel()
			o.MaxWait = 0
		case <-ctx.Done():
			cancel()
			return FetchResult{}, false, context.Cause(ctx)
		}
	}
}

// Subscribe calls wake once, as soon as minBytes or more beyond offset can be read or the partition closes; at once
// when it is so already. wake must not block. It serves waits over many partitions; cancel ends it.
func (p *Partition) Subscribe(offset int64, minBytes int, wake func()) (cancel func()) {
	p.mu.Lock()
	seen := p.highBytes
	if offset < p.high.offset || p.closed {
		p.mu.Unlock()
		wake()
		return func() {}
	}
	p.mu.Unlock()
	return p.subscribe(seen+int64(max(minBytes, 1)), wake)
}

func (p *Partition) subscribe(target int64, wake func()) (cancel func()) {
	w := &waiter{target: target, wake: wake}
	p.mu.Lock()
	if p.highBytes >= target || p.closed {
		p.mu.Unlock()
		wake()
		return func() {}
	}
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.Index(p.waiters, w); i >= 0 {
			p.waiters = slices.Delete(p.waiters, i, i+1)
		}
	}
}

// raise moves the high watermark up to m and wakes who waited for it; mu is held.
func (p *Partition) raise(m mark) {
	if m.offset < p.high.offset || m == p.high {
		return
	}
	p.high = m
	p.highBytes = p.wroteSum - (p.written.pos - m.pos)
	if len(p.waiters) == 0 {
		return
	}
	p.waiters = slices.DeleteFunc(p.waiters, func(w *waiter) bool {
		if w.target > p.highBytes {
			return false
		}
		w.wake()
		return true
	})
}

// read is Fetch without the wait. seen is the count of readable bytes at the time.
func (p *Partition) read(o FetchOptions) (r FetchResult, seen int64, cached bool, err error) {
	offset := o.Offset
	for {
		p.mu.Lock()
		r = FetchResult{NextOffset: offset, HighWatermark: p.high.offset, LogStartOffset: p.logStart}
		seen = p.highBytes
		if err := p.readable(offset); err != nil || offset >= p.high.offset {
			p.mu.Unlock()
			return r, seen, false, err
		}
		if bufs, n, next, ok := p.fromTail(offset, o.MaxBytes); ok {
			p.mu.Unlock()
			r.Batches, r.Size, r.NextOffset = coalesce(bufs, n), n, next
			return r, seen, true, nil
		}
		p.mu.Unlock()
		following, seg, err := p.readDisk(&r, offset, o)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && !p.holds(seg) {
				continue // retention or compaction took it away in the meantime
			}
			return r, seen, false, readError(err)
		}
		if r.Size == 0 {
			if following <= offset {
				return r, seen, false, nil
			}
			offset = following // nothing is left of what was between
			continue
		}
		return r, seen, false, nil
	}
}

// readDisk reads into r from the segment that holds an offset below the high watermark. following is where to go on when
// nothing is left of what it held.
func (p *Partition) readDisk(r *FetchResult, offset int64, o FetchOptions) (following int64, seg store.Segment, err error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	p.mu.Lock()
	if len(p.segs) == 0 {
		p.mu.Unlock()
		return 0, seg, ErrClosed
	}
	seg, limit, following := p.locate(offset)
	p.mu.Unlock()
	var buf []byte
	if o.reuse {
		o.MaxBytes = min(o.MaxBytes, maxBuffer)
		r.buffer = takeBuffer(o.MaxBytes)
		buf = *r.buffer
	}
	b, next, err := seg.Read(buf, max(offset, seg.Base()), o.MaxBytes, limit, following)
	if r.buffer != nil && (len(b) == 0 || &b[0] != &buf[0]) { // nothing, or a batch that is larger
		giveBuffer(r.buffer)
		r.buffer = nil
	}
	if err != nil || len(b) == 0 {
		return following, seg, err
	}
	r.Batches, r.Size, r.NextOffset = [][]byte{b}, len(b), next
	return following, seg, nil
}

// readable says whether offset can be asked for; mu is held.
func (p *Partition) readable(offset int64) error {
	if p.closed {
		return ErrClosed
	}
	if len(p.segs) == 0 {
		return p.err
	}
	if offset < p.logStart || offset > p.next {
		return fmt.Errorf("%w: %d is not within %d and %d", ErrOffsetOutOfRange, offset, p.logStart, p.next)
	}
	return nil
}

// locate returns the segment for an offset, the position up to which it can be read and the base of the segment after
// it (the high watermark for the last one); mu is held.
func (p *Partition) locate(offset int64) (seg store.Segment, limit, following int64) {
	i := sort.Search(len(p.segs), func(i int) bool { return p.segs[i].Base() > offset }) - 1
	i = max(i, 0)
	seg = p.segs[i]
	if i == len(p.segs)-1 {
		return seg, p.high.pos, p.high.offset
	}
	return seg, seg.Size(), max(p.segs[i+1].Base(), offset+1)
}

func (p *Partition) holds(seg store.Segment) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.segs, seg)
}

// readError tells a failing disk from damage.
func readError(err error) error {
	if errors.Is(err, syscall.EIO) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrDirFailed, err)
	}
	return err
}

// coalesce joins many small batches: a copy is cheaper than handing on hundreds of slices.
func coalesce(bufs [][]byte, n int) [][]byte {
	if len(bufs) < 16 || n/len(bufs) > 8<<10 {
		return bufs
	}
	return [][]byte{slices.Concat(bufs...)}
}

// OffsetForTime returns the first readable record whose timestamp is at least ms. When there is none it returns
// the high watermark and timestamp -1.
func (p *Partition) OffsetForTime(ms int64) (offset, timestamp int64, err error) {
	p.reading.RLock()
	defer p.reading.RUnlock()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return 0, 0, p.errorf("look up time in", ErrClosed)
	}
	segs, high, start := p.segs, p.high, p.logStart
	p.mu.Unlock()
	for i, seg := range segs {
		limit := seg.Size()
		if i == len(segs)-1 {
			limit = high.pos
		} else if seg.MaxTimestamp() < ms {
			continue
		}
		offset, timestamp, ok, err := seg.OffsetForTime(ms, max(start, seg.Base()), limit)
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) && !p.holds(seg) {
				continue
			}
			return 0, 0, p.errorf("look up time in", readError(err))
		}
		if ok {
			return offset, timestamp, nil
		}
	}
	return high.offset, -1, nil
}
