package log

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker/internal/journal"
	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

// recover opens all partitions, lets the journal bring them up to what was acknowledged, and makes that durable in
// the segments, so that the journal starts empty.
func (l *Log) recover(ctx context.Context) error {
	keys, err := l.store.List()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	stale := make([]store.Key, 0)
	parallel(keys, func(k store.Key) {
		p := l.newPartition(k)
		if ctx.Err() == nil {
			if err := p.load(); err != nil {
				p.fail(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		n := name{k.Topic, k.Partition}
		if other := l.parts[n]; other != nil && other.key.ID != k.ID {
			stale = append(stale, k)
			return
		}
		l.parts[n] = p
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, k := range stale {
		l.cfg.Logger.Warn("two topics of one name are on disk; the second is not opened", slog.Any("topic", k.Topic), slog.Any("partition", k.Partition))
	}
	if err := l.openJournal(); err != nil {
		return err
	}
	parts := l.partitions()
	parallel(parts, func(p *Partition) {
		if p.err != nil {
			return
		}
		if err := p.settle(); err != nil {
			p.fail(err)
		}
	})
	for _, p := range parts {
		if p.err != nil { // it is out of use and said so; what the journal holds for it may still be wanted
			l.journal.hold()
		}
	}
	return l.journal.trimAll()
}

// fail takes a partition that can not be opened out of use.
func (p *Partition) fail(err error) {
	p.log.cfg.Logger.Error("partition can not be opened", slog.Any("topic", p.key.Topic), slog.Any("partition", p.key.Partition), slog.Any("err", err))
	p.err = diskError(err)
	p.segs = nil
}

// load opens the partition from its last checkpoint and reads what lies past it.
func (p *Partition) load() error {
	found, err := p.log.store.Load(p.key)
	if err != nil {
		return err
	}
	c, damaged := newest(found.Checkpoints)
	if damaged != nil {
		p.log.cfg.Logger.Warn("a checkpoint can not be read, as after a crash while it was written", slog.Any("topic", p.key.Topic), slog.Any("partition", p.key.Partition), slog.Any("err", damaged))
	}
	if c == nil {
		c = &checkpoint{logStart: -1, gaps: true} // not known
		p.metaDirty = true
	}
	if found.Segments, err = p.settleSwaps(c, found); err != nil {
		return err
	}
	if p.log.cfg.repair != nil {
		if err := p.salvage(c, found.Segments); err != nil {
			return err
		}
	}
	if err := p.adopt(c, found.Segments); err != nil {
		return err
	}
	if len(p.segs) == 0 { // a crash while it was made
		seg, err := p.create(0, nil)
		if err != nil {
			return err
		}
		p.segs = []store.Segment{seg}
		p.metaDirty = true
	}
	p.logStart = min(max(c.logStart, p.segs[0].Base()), p.next)
	p.cleanedTo, p.gapsKnown = c.cleanedTo, c.gaps
	p.ckGen = c.generation
	return nil
}

// settleSwaps completes the compactions that the checkpoint names and drops the others. It returns the segments that are
// there after that.
func (p *Partition) settleSwaps(c *checkpoint, found store.Found) ([]store.Stub, error) {
	segs := found.Segments
	for _, w := range found.Swaps {
		inside := func(s store.Stub) bool { return s.Dir == w.ID && s.Base >= w.First && s.Base < w.End }
		named := slices.DeleteFunc(slices.Clone(c.segments), func(s store.Stub) bool { return !inside(s) })
		done := store.Stub{Dir: w.ID, Base: w.First, Size: w.Size}
		if len(named) != 1 || named[0] != done {
			if err := p.log.store.DropSwap(w); err != nil {
				return nil, err
			}
			continue
		}
		if err := p.log.store.FinishSwap(w); err != nil {
			return nil, err
		}
		segs = append(slices.DeleteFunc(segs, inside), done)
	}
	slices.SortFunc(segs, func(a, b store.Stub) int { return cmp.Compare(a.Base, b.Base) })
	return segs, nil
}

// adopt opens the segments that the checkpoint names, then those that follow them, and removes what is left over.
func (p *Partition) adopt(c *checkpoint, found []store.Stub) error {
	p.epoch, p.gaps = c.leaderEpoch, c.gaps
	if c.producers != nil {
		p.producers = c.producers
	}
	left := make(map[store.Stub]int64, len(found)) // without size → size
	for _, s := range found {
		left[store.Stub{Dir: s.Dir, Base: s.Base}] = s.Size
	}
	take := func(s store.Stub) (int64, bool) {
		key := store.Stub{Dir: s.Dir, Base: s.Base}
		size, ok := left[key]
		delete(left, key)
		return size, ok
	}
	for i, s := range c.segments {
		size, ok := take(s)
		end := c.offset
		if i+1 < len(c.segments) {
			end = c.segments[i+1].Base
		}
		if !ok && end <= c.logStart && i+1 < len(c.segments) {
			continue
		}
		if !ok || size < s.Size {
			return &CorruptError{File: fmt.Sprintf("%s of %s", segment.Name(s.Base, segment.LogSuffix), p.key), Offset: size,
				Cause: fmt.Errorf("the checkpoint says %d bytes; run log repair to go on without them", s.Size)}
		}
		if i+1 == len(c.segments) {
			if err := p.openActive(s, c.position, c.offset); err != nil {
				return err
			}
			break
		}
		seg, err := p.log.store.Open(p.key, s, p.segmentOptions())
		if err != nil {
			return err
		}
		p.segs = append(p.segs, seg)
	}
	for _, s := range found { // by base
		if _, ok := left[store.Stub{Dir: s.Dir, Base: s.Base}]; !ok {
			continue
		}
		if err := p.adoptStray(s, len(c.segments) > 0); err != nil {
			return err
		}
	}
	return nil
}

// adoptStray opens a segment that no checkpoint names, because it was begun just before a crash or because there is
// no checkpoint. One that holds nothing new is removed.
func (p *Partition) adoptStray(s store.Stub, known bool) error {
	if known && s.Base < p.next || len(p.segs) > 0 && s.Base == p.active().Base() {
		p.stray, p.metaDirty = append(p.stray, s), true
		return nil
	}
	if n := len(p.segs); n > 0 {
		if s.Base != p.next && p.log.cfg.repair == nil {
			seg, err := p.log.store.Open(p.key, s, p.segmentOptions())
			if err != nil {
				return err
			}
			return &CorruptError{File: p.active().Path(), Offset: p.written.pos,
				Cause: fmt.Errorf("the segment ends with offset %d and %s follows", p.next, seg.Path())}
		}
		if p.active().Size() == 0 {
			p.stray, p.metaDirty = append(p.stray, s), true
			return nil
		}
		if err := p.active().Seal(); err != nil {
			return err
		}
	}
	p.metaDirty = true
	return p.openActive(s, 0, s.Base)
}

// openActive opens the last segment, reading from position pos, which offset is the first one behind.
func (p *Partition) openActive(s store.Stub, pos, offset int64) error {
	s.Size = pos
	seg, err := p.log.store.Open(p.key, s, p.segmentOptions())
	if err != nil {
		return err
	}
	next := offset
	now := p.nowMillis()
	cut, err := seg.Recover(pos, !p.gaps, func(h recordbatch.Header) {
		next = h.LastOffset() + 1
		p.epoch = max(p.epoch, h.LeaderEpoch)
		if !p.producers.knows(h) {
			p.producers.apply(h, now)
		}
	})
	if err != nil {
		return err
	}
	if cut != nil {
		p.log.cfg.Logger.Info("cut off the unfinished end of a log", slog.Any("file", cut.File), slog.Any("byte", cut.Offset), slog.Any("cause", cut.Cause))
	}
	if ts := seg.FirstTimestamp(); ts >= 0 {
		p.created = min(p.created, ts)
	}
	p.segs = append(p.segs, seg)
	p.next = next
	p.written = mark{offset: next, pos: seg.Size()}
	p.synced = mark{offset: offset, pos: pos}
	p.durable = offset
	return nil
}

// replay applies one journal entry: what of it is not in the segment yet.
func (p *Partition) replay(e journal.Entry) error {
	if e.Last < p.next {
		return nil
	}
	if e.Base > p.next && p.log.cfg.repair != nil {
		p.repaired(p.active().Path(), p.written.pos, fmt.Sprintf("offsets %d to %d are lost; the journal has what follows them", p.next, e.Base-1))
	} else if e.Base > p.next {
		return &CorruptError{File: p.active().Path(), Offset: p.written.pos,
			Cause: fmt.Errorf("the log ends with offset %d, the journal goes on with %d; run log repair to go on without them", p.next, e.Base)}
	}
	return eachBatch(e, func(h recordbatch.Header, b []byte) error {
		if h.BaseOffset < p.next {
			return nil
		}
		return p.replayBatch(h, b)
	})
}

func (p *Partition) replayBatch(h recordbatch.Header, b []byte) error {
	if !p.active().Fits(len(b), h.LastOffset()) {
		if err := p.active().Seal(); err != nil {
			return err
		}
		seg, err := p.create(p.next, nil)
		if err != nil {
			return err
		}
		p.segs = append(p.segs, seg)
		p.written, p.synced = mark{offset: p.next}, mark{offset: p.next}
		p.metaDirty = true
	}
	if err := p.active().Append([][]byte{b}, []segment.Batch{segment.BatchOf(h)}); err != nil {
		return err
	}
	if !p.producers.knows(h) {
		p.producers.apply(h, p.nowMillis())
	}
	p.epoch = max(p.epoch, h.LeaderEpoch)
	p.next = h.LastOffset() + 1
	p.written = mark{offset: p.next, pos: p.written.pos + int64(len(b))}
	return nil
}

// settle makes what was recovered durable before anyone reads it.
func (p *Partition) settle() error {
	seg := p.active()
	recovered := p.written.pos - p.synced.pos
	if recovered > 0 {
		if err := seg.Sync(); err != nil {
			return err
		}
	}
	seg.Clean()
	p.synced, p.durable = p.written, p.written.offset
	p.high = p.written
	p.sinceCk = recovered
	if !p.metaDirty && recovered <= p.log.cfg.CheckpointBytes/4 {
		return nil
	}
	if err := p.Checkpoint(); err != nil {
		if isNoSpace(err) {
			p.log.cfg.Logger.Warn("no space for a checkpoint", slog.Any("topic", p.key.Topic), slog.Any("partition", p.key.Partition), slog.Any("err", err))
			return nil // what is in the segments is durable, and found again without it
		}
		return err
	}
	// Only now: the checkpoint that does not name them may have been on its way to the disk when the process died, and
	// an older one that names them would be found after a loss of power.
	for _, s := range p.stray {
		if err := p.log.store.Remove(p.key, s); err != nil {
			return err
		}
	}
	p.stray = nil
	return nil
}
