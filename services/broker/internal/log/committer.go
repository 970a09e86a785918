package log

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

const (
	// overlapBytes is how much must wait before the next group is written while the one before is still being synced.
	// Below it a sync costs more than a write, and gathering until the sync ends makes the next one serve more.
	overlapBytes = 512 << 10
	// syncQueue is how many groups may be written and wait for the sync stage, which takes all of them as one.
	syncQueue = 8
	// maxGather bounds how long a group waits for those who were in the one before it.
	maxGather = time.Millisecond
)

// committer writes and syncs for the partitions whose active segment is in one directory, so that a slow disk does
// not hold up the others. Two goroutines: one takes all partitions that have something pending and writes each one's
// in one call; the other makes what was written durable and acknowledges it, in order.
type committer struct {
	log   *Log
	dir   store.ID
	path  string
	syncq chan *group
	wg    sync.WaitGroup

	mu      sync.Mutex // a leaf: nothing is locked under it
	cond    *sync.Cond
	dirty   []*Partition
	calls   []func() // run by the write goroutine while nothing is in the sync stage
	bytes   int64    // pending since the last take
	durable int      // entries among them that wait for a sync
	busy    int      // groups in the sync stage
	closing bool

	// Whoever was just answered is likely to send again. The next group waits a moment for all of them: otherwise the
	// first one back has a sync for itself while the others wait for the next.
	expect int       // durable entries to wait for
	until  time.Time // and until when
	gather *time.Timer

	// of the write goroutine
	bufs    [][]byte
	batches []segment.Batch
}

// group is what is synced together.
type group struct {
	items []*item
	bytes int
	count int // how many groups of the write stage it is
}

// item is one partition's part of a group.
type item struct {
	p        *Partition
	seg      store.Segment
	entries  []*entry
	from, to mark
	durable  bool
	merged   int // later items of the same partition that it took in
	sync     func() error
	err      error
}

func newCommitter(l *Log, dir store.ID, path string) *committer {
	c := &committer{log: l, dir: dir, path: path, syncq: make(chan *group, syncQueue)}
	c.cond = sync.NewCond(&c.mu)
	c.gather = time.AfterFunc(time.Hour, c.cond.Broadcast)
	c.wg.Go(c.writeLoop)
	c.wg.Go(c.syncLoop)
	return c
}

// add notes that a partition has n more bytes pending; its mu is held. queue puts it in the list.
func (c *committer) add(p *Partition, queue bool, n int, durable bool) {
	c.mu.Lock()
	if queue {
		c.dirty = append(c.dirty, p)
	}
	c.bytes += int64(n)
	if durable {
		c.durable++
	}
	c.mu.Unlock()
	c.cond.Broadcast()
}

// take waits for partitions with something pending. ok is false when there are none left and the log closes.
func (c *committer) take() (parts []*Partition, calls []func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if len(c.calls) > 0 {
			calls, c.calls = c.calls, nil
			return nil, calls, true
		}
		if len(c.dirty) > 0 && (c.bytes >= overlapBytes || c.durable == 0 || c.busy == 0 && c.gathered()) {
			parts, c.dirty = c.dirty, nil
			c.bytes, c.durable = 0, 0
			return parts, nil, true
		}
		if c.closing && len(c.dirty) == 0 && c.busy == 0 {
			return nil, nil, false
		}
		c.cond.Wait()
	}
}

// gathered says whether the next group is worth a sync of its own; mu is held.
func (c *committer) gathered() bool {
	return c.durable >= c.expect || c.closing || len(c.calls) > 0 || !time.Now().Before(c.until)
}

// synced notes that a group of n durable entries left the sync stage after took. The next one gathers as many, for as
// long as half a sync at most, which is what a sync of its own would have the others wait.
func (c *committer) synced(g *group, n int, took time.Duration) {
	c.mu.Lock()
	c.busy -= g.count
	if c.expect = n + c.durable; c.expect > 1 {
		wait := min(took/2, maxGather)
		c.until = time.Now().Add(wait)
		c.gather.Reset(wait)
	}
	c.mu.Unlock()
	c.cond.Broadcast()
}

// drain waits until the sync stage is empty.
func (c *committer) drain() {
	c.mu.Lock()
	for c.busy > 0 {
		c.cond.Wait()
	}
	c.mu.Unlock()
}

// call runs fn in the write goroutine, with nothing in the sync stage, and waits for it.
func (c *committer) call(fn func()) {
	done := make(chan struct{})
	c.mu.Lock()
	c.calls = append(c.calls, func() { fn(); close(done) })
	c.mu.Unlock()
	c.cond.Broadcast()
	<-done
}

// close lets the committer finish what is pending and ends it.
func (c *committer) close() {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
	c.cond.Broadcast()
	c.wg.Wait()
}

func (c *committer) writeLoop() {
	defer close(c.syncq)
	for {
		parts, calls, ok := c.take()
		if !ok {
			return
		}
		if len(calls) > 0 {
			c.drain()
			for _, call := range calls {
				call()
			}
			continue
		}
		parts = c.prepare(parts)
		g := &group{count: 1, items: make([]*item, 0, len(parts))}
		for _, p := range parts {
			if it := c.write(p); it != nil {
				g.items = append(g.items, it)
				g.bytes += int(it.to.pos - it.from.pos)
			}
		}
		if len(g.items) > 0 {
			c.mu.Lock()
			c.busy++
			c.mu.Unlock()
			c.syncq <- g
		}
	}
}

// prepare gives the partitions that need one a new segment. It returns those that can be written to here.
func (c *committer) prepare(parts []*Partition) []*Partition {
	var moving []*Partition
	ready := parts[:0]
	for _, p := range parts {
		p.mu.Lock()
		need := p.needsSegment()
		switch {
		case p.com != c: // it was put in this list while it moved: only one committer may write to it
			p.queueLocked()
		case need:
			p.queued = false
			moving = append(moving, p)
		default:
			ready = append(ready, p)
		}
		p.mu.Unlock()
	}
	if len(moving) == 0 {
		return ready
	}
	c.drain() // acknowledgements of one partition stay in order, and nothing uses the old segment
	parallel(moving, func(p *Partition) { p.renew() })
	for _, p := range moving {
		p.mu.Lock()
		mine := p.com == c && !p.needsSegment() && p.err == nil && !p.queued
		if !mine {
			p.requeueLocked()
		}
		p.mu.Unlock()
		if mine {
			ready = append(ready, p)
		}
	}
	return ready
}

// requeueLocked puts the partition in its committer's list again when something is pending; mu is held.
func (p *Partition) requeueLocked() {
	if !p.queued && len(p.pending)+len(p.requeue) > 0 {
		p.queueLocked()
	}
}

// queueLocked puts the partition in its committer's list; mu is held.
func (p *Partition) queueLocked() {
	p.queued = true
	n := 0
	for _, e := range p.pending {
		n += e.size
	}
	p.com.add(p, true, n, true)
}

// fitting splits off the pending entries that go into the active segment, at least one; mu is held.
func (p *Partition) fitting() (entries []*entry, n int) {
	room := p.cfg.SegmentBytes - p.written.pos
	for i, e := range p.pending {
		if i > 0 && int64(n+e.size) > room || !p.active().Fits(n+e.size, e.next) {
			break
		}
		n += e.size
		entries = p.pending[:i+1]
	}
	p.pending = p.pending[len(entries):]
	return entries, n
}

// needsSegment says whether the next write goes to another segment; mu is held.
func (p *Partition) needsSegment() bool {
	if p.broken || p.unnamed || p.gaps && !p.gapsKnown {
		return true
	}
	if p.written.pos == 0 || p.err != nil {
		return p.err == nil && p.roll && len(p.avoid) > 0
	}
	if p.roll {
		return true
	}
	if len(p.pending) == 0 || p.pending[0].size == 0 {
		return false
	}
	e := p.pending[0]
	return p.written.pos+int64(e.size) > p.cfg.SegmentBytes || !p.active().Fits(e.size, e.next) ||
		p.nowMillis()-p.created > p.cfg.SegmentAge.Milliseconds()
}

// write appends what is pending to the active segment in one call. It returns what waits for the sync stage.
func (c *committer) write(p *Partition) *item {
	p.mu.Lock()
	p.queued = false
	if p.broken || p.err != nil || len(p.pending) == 0 {
		p.refuseLocked()
		return nil
	}
	entries, n := p.fitting()
	p.taken, p.writing = entries, true
	it := &item{p: p, seg: p.active(), entries: entries, from: p.written}
	p.mu.Unlock()

	c.bufs, c.batches = c.bufs[:0], c.batches[:0]
	for _, e := range entries {
		c.bufs = append(c.bufs, e.bufs...)
		c.batches = append(c.batches, e.batches...)
		it.durable = it.durable || e.durable
		it.to.offset = e.next
	}
	var size int64
	for _, b := range c.batches {
		size += int64(b.Size)
	}
	it.to.pos = it.from.pos + size
	var err error
	if size > 0 {
		err = it.seg.Append(c.bufs, c.batches)
	}
	clear(c.bufs)
	if err != nil {
		c.writeFailed(p, it, err)
		return nil
	}
	c.log.tail.add(p, it.entries)
	if f := c.log.cfg.Observer.Written; f != nil && n > 0 {
		f(p.key.Topic, p.key.Partition, n)
	}
	return c.wrote(p, it, size)
}

// wrote accounts for a write that succeeded.
func (c *committer) wrote(p *Partition, it *item, size int64) *item {
	p.mu.Lock()
	p.writing, p.taken, p.avoid = false, nil, nil
	p.written = it.to
	p.wroteSum += size
	p.sinceCk += size
	if p.sinceCk > c.log.cfg.CheckpointBytes {
		c.log.wantCheckpoint(p)
	}
	if len(p.pending) > 0 {
		p.requeueLocked()
	}
	if it.durable || p.inflight > 0 {
		p.inflight++
		if it.durable {
			it.sync = it.seg.Sync
		}
		p.mu.Unlock()
		return it
	}
	p.raise(p.written)
	p.mu.Unlock()
	for _, e := range it.entries {
		c.log.release(e.size)
		p.answer(e)
	}
	return nil
}

// refuseLocked answers what can not be written now; mu is held and let go.
func (p *Partition) refuseLocked() {
	if p.broken && p.err == nil {
		p.requeueLocked()
		p.mu.Unlock()
		return
	}
	var failed []*entry
	if p.err != nil {
		failed = p.unwind(p.err, true)
	}
	p.mu.Unlock()
	p.answerAll(failed)
}

// unwind takes back what is pending, newest first, and returns it to be answered with err. What was acknowledged
// already stays pending with all before it, unless all is to go. mu is held.
func (p *Partition) unwind(err error, all bool) []*entry {
	keep := 0
	if !all {
		for i, e := range p.pending {
			if e.keep {
				keep = i + 1
			}
		}
	}
	failed := p.pending[keep:]
	for i := len(failed) - 1; i >= 0; i-- {
		e := failed[i]
		e.takeBack(p.producers)
		p.next = e.prev
		if e.err == nil {
			e.err = p.errorf("append to", err)
		}
	}
	p.pending = p.pending[:keep:keep]
	return failed
}

// reclaim makes what was written to a failed segment and not acknowledged pending again; mu is held.
func (p *Partition) reclaim() {
	if len(p.requeue) == 0 {
		return
	}
	p.written.offset = p.requeue[0].prev // what follows in the failed segment does not count any more
	p.pending = append(p.requeue, p.pending...)
	p.requeue = nil
}

func (p *Partition) answerAll(entries []*entry) {
	for _, e := range entries {
		p.log.release(e.size)
		p.answer(e)
	}
}

func isNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// spaceRetry is how soon a write that found the disk full is tried again for records that were acknowledged already.
const spaceRetry = 250 * time.Millisecond

// writeFailed puts the entries back in line and decides what becomes of them.
func (c *committer) writeFailed(p *Partition, it *item, err error) {
	p.mu.Lock()
	p.writing, p.taken = false, nil
	p.pending = append(append([]*entry(nil), it.entries...), p.pending...)
	if !isNoSpace(err) {
		p.broken = true
		p.mu.Unlock()
		c.log.dirFailed(it.seg.Dir, err)
		p.mu.Lock()
		p.requeueLocked()
		p.mu.Unlock()
		return
	}
	p.avoid = append(p.avoid, it.seg.Dir)
	if len(p.avoid) < len(c.log.committers) {
		p.roll = true // another directory may have room
		p.requeueLocked()
		p.mu.Unlock()
		return
	}
	c.outOfSpace(p, err)
}

// outOfSpace answers what is pending with ErrNoSpace; mu is held and let go. The next append tries again by itself.
func (c *committer) outOfSpace(p *Partition, err error) {
	p.avoid, p.roll = nil, false
	p.reclaim()
	failed := p.unwind(fmt.Errorf("%w: %w; free space or add a data directory", ErrNoSpace, err), p.closing)
	if len(p.pending) > 0 {
		time.AfterFunc(spaceRetry, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.closed {
				p.requeueLocked()
			}
		})
	}
	p.mu.Unlock()
	p.answerAll(failed)
}
