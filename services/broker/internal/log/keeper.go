package log

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/databus-suite/databus/services/broker/internal/store"
)

// Checkpoint makes everything that is written durable in its segment and saves from where a recovery has to read. It
// does nothing when nothing has changed. While the partition moves away from a directory that failed it is an error that
// matches ErrDirFailed.
func (p *Partition) Checkpoint() error {
	p.ck.Lock()
	defer p.ck.Unlock()
	return p.checkpoint()
}

// checkpoint is Checkpoint while ck is held.
func (p *Partition) checkpoint() error {
	p.mu.Lock()
	p.ckWanted = false
	if p.closed || len(p.segs) == 0 || !p.metaDirty && p.ckDone == p.written && p.ckGen > 0 {
		p.mu.Unlock()
		return nil
	}
	if p.broken {
		p.mu.Unlock()
		return fmt.Errorf("checkpoint: %w", errBroken)
	}
	seg, at := p.active(), p.written
	c := p.snapshot(at)
	p.sinceCk, p.metaDirty = 0, false
	p.mu.Unlock()
	if err := p.save(c, seg, at); err != nil {
		p.mu.Lock()
		p.metaDirty = true
		p.mu.Unlock()
		return fmt.Errorf("checkpoint: %w", err)
	}
	p.ckDone = at
	p.mu.Lock()
	p.gapsKnown = p.gapsKnown || c.gaps
	p.unnamed = p.unnamed && p.active() != seg
	p.mu.Unlock()
	return nil
}

func (p *Partition) save(c *checkpoint, seg store.Segment, at mark) error {
	p.mu.Lock()
	from := p.synced.pos
	p.mu.Unlock()
	if at.pos > 0 {
		if err := seg.SyncSlowly(from, at.pos); err != nil {
			return err
		}
		// Without room the entries stay in memory: a recovery reads from the last one in the file on.
		if err := seg.FlushIndexes(); err != nil && !isNoSpace(err) {
			return err
		}
	}
	p.mu.Lock()
	p.syncedTo(at, seg.Segment)
	p.mu.Unlock()
	c.generation = p.ckGen + 1
	if err := p.log.store.SaveCheckpoint(p.key, seg.Dir, c.generation, c.encode()); err != nil {
		return err
	}
	p.ckGen++ // only now: a failed save is done again in the same place, not over the last good one
	return nil
}

// snapshot is the state as of what is written: without what is only pending. mu is held.
func (p *Partition) snapshot(at mark) *checkpoint {
	c := &checkpoint{logStart: p.logStart, offset: at.offset, position: at.pos, cleanedTo: p.cleanedTo, leaderEpoch: p.epoch, gaps: p.gaps}
	for i, s := range p.segs {
		size := s.Size()
		if i == len(p.segs)-1 {
			size = at.pos
		}
		c.segments = append(c.segments, store.Stub{Dir: s.Dir, Base: s.Base(), Size: size})
	}
	c.producers = make(producers, len(p.producers))
	for id, x := range p.producers {
		c.producers[id] = x
	}
	back := func(entries []*entry) {
		for i := len(entries) - 1; i >= 0; i-- {
			for j := len(entries[i].undo) - 1; j >= 0; j-- {
				c.producers.takeBack(entries[i].undo[j])
			}
		}
	}
	back(p.pending)
	back(p.taken)
	return c
}

// keeper is the log's background work that durability needs: it trims the journal, checkpoints partitions that have
// written much, and looks whether the data directories are still there.
type keeper struct {
	log  *Log
	wake chan struct{}
	stop chan struct{}
	wg   sync.WaitGroup

	mu    sync.Mutex // a leaf
	parts []*Partition
}

// probeInterval is how often the data directories are looked at: until one that is gone is noticed, what is written there
// succeeds.
const probeInterval = 250 * time.Millisecond

func newKeeper(l *Log) *keeper {
	k := &keeper{log: l, wake: make(chan struct{}, 1), stop: make(chan struct{})}
	k.wg.Go(k.run)
	return k
}

func (k *keeper) close() {
	close(k.stop)
	k.wg.Wait()
}

func (k *keeper) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// wantCheckpoint asks for a checkpoint of a partition; its mu is held.
func (l *Log) wantCheckpoint(p *Partition) {
	if p.ckWanted {
		return
	}
	p.ckWanted = true
	l.keeper.mu.Lock()
	l.keeper.parts = append(l.keeper.parts, p)
	l.keeper.mu.Unlock()
	l.keeper.signal()
}

func (k *keeper) run() {
	probe := time.NewTicker(probeInterval)
	defer probe.Stop()
	for {
		select {
		case <-k.stop:
			return
		case <-probe.C:
			k.log.probeDirs()
		case <-k.wake:
		}
		k.mu.Lock()
		parts := k.parts
		k.parts = nil
		k.mu.Unlock()
		for _, p := range parts {
			if err := p.Checkpoint(); err != nil {
				k.log.syncError(p, err)
			}
		}
		if k.log.journal.wantsTrim() {
			k.log.trimJournal()
		}
	}
}

// syncError deals with a failed sync or checkpoint outside of the committer.
func (l *Log) syncError(p *Partition, err error) {
	if errors.Is(err, errBroken) {
		return // its directory failed before, and may be back by now
	}
	if isNoSpace(err) {
		l.cfg.Logger.Warn("no space for a checkpoint", slog.String("topic", p.key.Topic), slog.Int("partition", int(p.key.Partition)), slog.Any("err", err))
		return
	}
	p.mu.Lock()
	gone := p.closing || len(p.segs) == 0
	var dir store.ID
	if !gone {
		dir = p.active().Dir
	}
	p.mu.Unlock()
	if !gone {
		l.dirFailed(dir, err)
	}
}

// probeDirs notices a directory that went away: writing to files that are open would go on as if nothing were.
func (l *Log) probeDirs() {
	for _, d := range l.store.Dirs() {
		if d.Err != nil {
			continue
		}
		if _, err := l.cfg.FS.Stat(store.DirFile(d.Path)); err != nil {
			l.dirFailed(d.ID, fmt.Errorf("%w: %w", store.ErrMissingDir, err))
		}
	}
}
