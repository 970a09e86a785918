package log

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/databus-suite/databus/services/broker/internal/journal"
)

const (
	// syncParallel is how many files are synced at the same time: the file system commits its own journal once
	// for all that wait.
	syncParallel = 16
	// A group with at most journalGroup bytes for each of its partitions goes to the journal, where one sync over blocks
	// that exist serves all of them; a larger one is cheaper synced where it is than written twice. The sync of one file is
	// cheaper than the syncs of many, so a partition by itself has a lower bound.
	journalGroup      = 512 << 10
	journalGroupOfOne = 128 << 10
)

func (c *committer) syncLoop() {
	for g := range c.syncq {
		g = c.merge(g)
		start := time.Now()
		n := g.durable()
		c.flush(g)
		c.synced(g, n, time.Since(start))
	}
}

// merge adds the groups that are written already: what came while the last one was synced shares a sync.
func (c *committer) merge(g *group) *group {
	for {
		select {
		case more, ok := <-c.syncq:
			if !ok {
				return g
			}
			g.add(more)
		default:
			return g
		}
	}
}

// add takes a later group in. Two items of one partition become one: both are of the segment that is active, since the
// sync stage is drained before that changes.
func (g *group) add(more *group) {
	at := make(map[*Partition]*item, len(g.items))
	for _, it := range g.items {
		at[it.p] = it
	}
	for _, it := range more.items {
		old := at[it.p]
		if old == nil {
			g.items = append(g.items, it)
			continue
		}
		old.entries = append(old.entries, it.entries...)
		old.to = it.to
		if it.durable {
			old.durable, old.sync = true, it.sync
		}
		old.merged++
	}
	g.bytes += more.bytes
	g.count += more.count
}

// durable counts the entries that wait for the group's sync.
func (g *group) durable() (n int) {
	for _, it := range g.items {
		for _, e := range it.entries {
			if e.durable {
				n++
			}
		}
	}
	return n
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

var errBroken = fmt.Errorf("%w: the partition has to move to another one first", ErrDirFailed)

// useJournal decides where a group goes.
func (l *Log) useJournal(items []*item) bool {
	if len(items) == 0 || !l.journalRoom() {
		return false
	}
	var n int64
	for _, it := range items {
		n += it.to.pos - it.from.pos
	}
	if len(items) == 1 {
		return n <= min(journalGroupOfOne, l.cfg.journalGroup)
	}
	return n <= int64(len(items))*l.cfg.journalGroup
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
	p.inflight -= 1 + it.merged
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
	p.inflight -= 1 + it.merged
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
