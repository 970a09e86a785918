package log

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/databus-suite/databus/services/broker/internal/journal"
)

const (
	// syncParallel is how many files are synced at the same time: the file system commits its own journal once
	// for all that wait.
	syncParallel = 16
	// A group of at least journalFiles partitions with at most journalBytes each goes to the journal; any other
	// is cheaper synced where it is than written twice.
	journalFiles = 3
	journalBytes = 128 << 10
)

func (c *committer) syncLoop() {
	for g := range c.syncq {
		c.flush(g)
		c.mu.Lock()
		c.busy--
		c.mu.Unlock()
		c.cond.Broadcast()
	}
}

// flush makes a group durable and acknowledges it.
func (c *committer) flush(g *group) {
	var direct, journaled []*item
	for _, it := range g.items {
		p := it.p
		p.mu.Lock()
		known, broken := p.durable, p.broken
		p.mu.Unlock()
		switch {
		case broken:
			it.err = errBroken
		case !it.durable:
		case known >= it.to.offset: // only duplicates of what is durable
		case known == it.from.offset:
			journaled = append(journaled, it)
		default: // what was not synced before it must be synced with it, or the journal would have a hole
			direct = append(direct, it)
		}
	}
	if !c.log.useJournal(journaled) {
		direct, journaled = append(direct, journaled...), nil
	}
	if len(journaled) > 0 && !c.toJournal(journaled) {
		direct = append(direct, journaled...)
	}
	c.syncSegments(direct)
	for _, it := range g.items {
		if it.err != nil {
			c.syncFailed(it)
		} else {
			it.finish()
		}
	}
}

var errBroken = errors.New("an earlier sync of the segment failed")

// useJournal decides where a group goes.
func (l *Log) useJournal(items []*item) bool {
	if len(items) == 0 || len(items) < l.cfg.journalFiles || !l.journalRoom() {
		return false
	}
	var n int64
	for _, it := range items {
		n += it.to.pos - it.from.pos
	}
	return n <= int64(len(items))*journalBytes
}

// toJournal writes the items to the journal; false means that they must be synced directly.
func (c *committer) toJournal(items []*item) bool {
	entries := make([]journal.Entry, 0, len(items))
	bytes := 0
	for _, it := range items {
		e := journal.Entry{Topic: it.p.key.ID, Partition: it.p.key.Partition, Base: it.from.offset, Last: it.to.offset - 1}
		for _, x := range it.entries {
			e.Batches = append(e.Batches, x.bufs...)
			bytes += x.size
		}
		entries = append(entries, e)
	}
	start := time.Now()
	if !c.log.journalAppend(entries, items) {
		return false
	}
	c.observe(c.path, SyncJournal, len(items), bytes, time.Since(start))
	for _, it := range items {
		it.p.mu.Lock()
		it.p.durable = max(it.p.durable, it.to.offset)
		it.p.mu.Unlock()
	}
	return true
}

// syncSegments syncs each item's segment by itself.
func (c *committer) syncSegments(items []*item) {
	if len(items) == 0 {
		return
	}
	start := time.Now()
	bytes := 0
	for _, it := range items {
		bytes += int(it.to.pos - it.from.pos)
	}
	parallel(items, func(it *item) {
		if it.err = it.sync(); it.err != nil {
			return
		}
		p := it.p
		p.mu.Lock()
		p.syncedTo(it.to, it.seg.Segment)
		p.mu.Unlock()
	})
	c.observe(c.path, SyncSegments, len(items), bytes, time.Since(start))
}

func (c *committer) observe(dir string, kind SyncKind, files, bytes int, took time.Duration) {
	if f := c.log.cfg.Observer.Synced; f != nil {
		f(dir, kind, files, bytes, took)
	}
	if took > c.log.cfg.SlowSync {
		c.log.slow(dir, took)
	}
}

// finish raises the high watermark over an item that is durable and acknowledges its entries.
func (it *item) finish() {
	p := it.p
	p.mu.Lock()
	p.inflight--
	if p.inflight == 0 {
		p.raise(p.written)
	} else {
		p.raise(it.to)
	}
	start := p.logStart
	p.mu.Unlock()
	for _, e := range it.entries {
		p.log.release(e.size)
		e.res.LogStartOffset = start
		p.answer(e)
	}
}

// syncFailed keeps an item's entries to be written again elsewhere: a sync that failed is never tried again.
func (c *committer) syncFailed(it *item) {
	p := it.p
	if !errors.Is(it.err, errBroken) && !isNoSpace(it.err) {
		c.log.dirFailed(it.seg.Dir, it.err)
	}
	p.mu.Lock()
	p.broken = true
	p.inflight--
	p.requeue = append(p.requeue, it.entries...)
	p.requeueLocked()
	p.mu.Unlock()
}

// parallel calls fn for each item, in several goroutines when there is more than one.
func parallel[T any](items []T, fn func(T)) {
	if len(items) == 1 {
		fn(items[0])
		return
	}
	var wg sync.WaitGroup
	var next sync.Mutex
	i := 0
	for range min(len(items), max(syncParallel, runtime.GOMAXPROCS(0))) {
		wg.Go(func() {
			for {
				next.Lock()
				if i == len(items) {
					next.Unlock()
					return
				}
				item := items[i]
				i++
				next.Unlock()
				fn(item)
			}
		})
	}
	wg.Wait()
}
