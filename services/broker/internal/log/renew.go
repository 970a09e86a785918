package log

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

// renew gives the partition a new active segment: because the old one is full or old, or because its directory
// failed. Only its committer calls it, with nothing of the partition in the sync stage.
func (p *Partition) renew() {
	p.mu.Lock()
	if p.closed || p.err != nil || !p.needsSegment() { // a checkpoint may have come in between
		p.mu.Unlock()
		return
	}
	broken, active := p.broken, p.active()
	gaps, unnamed := p.gaps && !p.gapsKnown, p.unnamed
	p.metaDirty = p.metaDirty || gaps
	p.writing = true // the old segment's file stays as it is
	p.mu.Unlock()
	var err error
	switch {
	case broken:
		err = p.relocate()
	case gaps, unnamed: // a recovery must know before it finds one
		if err = p.checkpointOr(active); isNoSpace(err) && unnamed {
			p.mu.Lock()
			p.avoid = append(p.avoid, active.Dir)
			p.mu.Unlock()
			err = p.rollOver()
		}
	default:
		err = p.rollOver()
	}
	p.mu.Lock()
	p.writing = false
	p.com = p.log.committers[p.active().Dir] // only now: until the new segment is named nobody may write to it
	if err == nil {
		p.mu.Unlock()
		return
	}
	p.renewFailed(err)
}

// renewFailed decides what a partition without a new segment does; mu is held and let go.
func (p *Partition) renewFailed(err error) {
	switch {
	case isNoSpace(err):
		p.com.outOfSpace(p, err)
	case errors.Is(err, store.ErrNoDir):
		err = fmt.Errorf("%w: %w; restore a data directory", ErrDirFailed, err)
		p.broken = true
		p.reclaim()
		failed := p.unwind(err, true)
		p.err = err
		p.mu.Unlock()
		p.answerAll(failed)
	default: // one directory more is fenced: try the next one
		p.broken = true
		p.mu.Unlock()
	}
}

// rollOver seals the active segment and begins a new one. Everything in the old one is durable before anything in
// the new one can be acknowledged.
func (p *Partition) rollOver() error {
	p.mu.Lock()
	old, end, avoid := p.active(), p.written, p.avoid
	p.mu.Unlock()
	empty := end.pos == 0 // its directory is full: the new one, which has the same name, takes its place
	if empty && !slices.Contains(avoid, old.Dir) {
		avoid = append(slices.Clone(avoid), old.Dir)
	}
	if err := old.Seal(); err != nil {
		p.log.dirFailed(old.Dir, err)
		return err
	}
	p.mu.Lock()
	p.synced = end
	p.durable = max(p.durable, end.offset)
	p.mu.Unlock()
	seg, err := p.create(end.offset, avoid)
	if err != nil {
		return err
	}
	p.mu.Lock()
	if empty {
		p.segs = p.segs[:len(p.segs)-1]
	}
	p.begin(seg, mark{offset: end.offset})
	p.raise(p.written)
	p.mu.Unlock()
	if err := p.checkpointOr(seg); err != nil || !empty {
		return err
	}
	_ = old.Remove() // a recovery finds what is left of it
	return nil
}

// create makes a segment in a healthy directory with room, trying one after the other; those to avoid are full.
func (p *Partition) create(base int64, avoid []store.ID) (store.Segment, error) {
	p.mu.Lock()
	o := p.segmentOptions()
	p.mu.Unlock()
	avoid = append([]store.ID(nil), avoid...)
	var full error
	if len(avoid) > 0 {
		full = syscall.ENOSPC
	}
	for {
		seg, err := p.log.store.Create(p.key, base, o, avoid...)
		switch {
		case err == nil:
			return seg, nil
		case errors.Is(err, store.ErrNoDir):
			if full != nil {
				err = full
			}
			return seg, err
		case isNoSpace(err):
			full = err
		default:
			p.log.dirFailed(seg.Dir, err)
		}
		avoid = append(avoid, seg.Dir)
	}
}

// begin makes seg the active segment; mu is held.
func (p *Partition) begin(seg store.Segment, at mark) {
	p.segs = append(p.segs[:len(p.segs):len(p.segs)], seg)
	p.written, p.synced, p.durable = at, at, at.offset
	p.created = p.nowMillis()
	p.metaDirty, p.unnamed = true, true // wherever its first offset lies
	p.roll, p.broken = false, false
}

// checkpointOr saves a checkpoint that names the new segment. Without it a recovery would not know the segment.
func (p *Partition) checkpointOr(seg store.Segment) error {
	err := p.Checkpoint()
	if err != nil && !isNoSpace(err) {
		p.log.dirFailed(seg.Dir, err)
	}
	return err
}

// relocate goes on in another directory after the active segment's failed. The old segment ends where it is known to
// be durable. What was acknowledged past that, by the journal or from memory, is read back and written again; what
// waits for its acknowledgement is still in memory and becomes pending again.
func (p *Partition) relocate() error {
	p.mu.Lock()
	safe := p.safeRequeue()
	old, synced, end := p.active(), p.synced, p.written
	if len(p.requeue) > 0 {
		end.offset = p.requeue[0].prev
	}
	p.mu.Unlock()
	p.answerAll(safe)
	data, batches := readBack(old, synced, end)
	if !reach(batches, synced, end) {
		data, batches = p.log.readJournal(p.key, synced.offset, end.offset)
	}
	begin := synced
	if !reach(batches, synced, end) {
		// It can not be read now. The offsets stay reserved for it: it is on the failed disk.
		p.log.cfg.Logger.Error("acknowledged records stay behind on a failed data directory", slog.Any("topic", p.key.Topic), slog.Any("partition", p.key.Partition), slog.Any("file", old.Path()), slog.Any("from", synced.offset), slog.Any("to", end.offset))
		data, batches, begin.offset = nil, nil, end.offset
	}
	seg, err := p.create(begin.offset, nil)
	if err != nil {
		return err
	}
	at := mark{offset: begin.offset}
	if len(batches) > 0 {
		if err = seg.Append([][]byte{data}, batches); err == nil {
			err = seg.Sync()
		}
		if err != nil {
			p.log.dirFailed(seg.Dir, err)
			return errors.Join(err, seg.Remove())
		}
		seg.Clean()
		at = mark{offset: end.offset, pos: int64(len(data))}
	}
	old.Bound(synced.pos)
	p.mu.Lock()
	if synced.pos == 0 {
		p.segs = p.segs[:len(p.segs)-1]
	}
	high := p.high.offset
	p.begin(seg, at)
	p.high = mark{offset: high, pos: at.pos}
	if high < at.offset && len(batches) > 0 {
		p.high.pos = positionOf(batches, high)
	}
	p.pending = append(p.requeue, p.pending...)
	p.requeue = nil
	p.mu.Unlock()
	old.Clean()
	return p.checkpointOr(seg)
}

// safeRequeue splits off what turned out to be durable because a checkpoint synced it after its own sync was begun;
// mu is held.
func (p *Partition) safeRequeue() []*entry {
	n := 0
	for n < len(p.requeue) && p.requeue[n].next <= p.synced.offset {
		n++
	}
	safe := p.requeue[:n]
	p.requeue = p.requeue[n:]
	if n > 0 {
		p.raise(p.synced)
	}
	return safe
}

// readBack reads what was written between two marks, as far as it is whole and goes on.
func readBack(seg store.Segment, from, to mark) ([]byte, []segment.Batch) {
	if to.offset <= from.offset {
		return nil, nil
	}
	var data []byte
	var batches []segment.Batch
	_, _ = seg.Scan(from.pos, seg.Size(), func(_ int64, h recordbatch.Header, b []byte) error {
		if h.BaseOffset >= to.offset {
			return segment.ErrStop
		}
		data = append(data, b...)
		batches = append(batches, segment.BatchOf(h))
		return nil
	})
	return data, batches
}

// reach says whether the batches are all there is between two marks.
func reach(batches []segment.Batch, from, to mark) bool {
	at := from.offset
	if n := len(batches); n > 0 {
		at = batches[n-1].Last + 1
	}
	return at >= to.offset
}

// positionOf is where the batch that begins at or after offset begins.
func positionOf(batches []segment.Batch, offset int64) int64 {
	var pos int64
	for _, b := range batches {
		if b.Base >= offset {
			break
		}
		pos += int64(b.Size)
	}
	return pos
}

// syncedTo notes that the segment is synced up to m; mu is held.
func (p *Partition) syncedTo(m mark, seg *segment.Segment) {
	if p.active().Segment != seg || p.broken {
		return
	}
	if m.offset >= p.synced.offset {
		p.synced = m
	}
	p.durable = max(p.durable, m.offset)
	if p.synced == p.written && !p.writing {
		seg.Clean()
	}
}
