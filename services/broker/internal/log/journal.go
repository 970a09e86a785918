package log

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker/internal/journal"
	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

const (
	// A flush's number says in its high bits which journal of the log it is of: the first, or one that was begun because
	// the one before failed. A recovery replays only the newest: what the others held was synced before it was begun.
	generationShift = 40
	// journalRetry is how soon after an attempt to begin a new journal another one is made.
	journalRetry = 10 * time.Second
)

// journalState is the journal and which partitions rely on it.
type journalState struct {
	limit int64
	trim  sync.Mutex // one trim at a time

	mu    sync.Mutex // a leaf but for the journal's own lock
	j     journal.Journal
	dir   store.ID // where it is
	seq   uint64   // of the newest flush
	parts []*Partition
	err   error     // why j is not written to any more; it is not trimmed either
	held  bool      // j may have what is nowhere else: it stays as it is until a restart
	retry time.Time // no new journal is begun before
}

// openJournal replays the newest journal and goes on with it. Older ones, of directories that failed, are dropped.
func (l *Log) openJournal() error {
	s := &l.journal
	s.limit = l.cfg.JournalBytes
	type found struct {
		*journal.Local
		dir  store.ID
		path string
	}
	var all []found
	for _, d := range l.store.Dirs() {
		path := journalPath(d.Path)
		if _, err := l.cfg.FS.Stat(path); err != nil {
			continue
		}
		j, err := l.openLocal(path)
		if err != nil {
			return err
		}
		all = append(all, found{j, d.ID, path})
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(a.Last()>>generationShift, b.Last()>>generationShift) })
	for i, f := range all {
		var err error
		if newest := all[len(all)-1].Last(); f.Last()>>generationShift < newest>>generationShift {
			err = errors.Join(f.Reset(1), f.Close())
		} else {
			err = l.replayJournal(f.Local, f.path)
			s.adopt(f.Local, f.dir)
		}
		if err != nil {
			for _, rest := range all[i:] {
				err = errors.Join(err, rest.Close())
			}
			return err
		}
	}
	if s.j != nil || s.limit < 0 {
		return nil
	}
	d := l.store.Dirs()[0]
	j, err := l.openLocal(journalPath(d.Path))
	if err == nil {
		s.adopt(j, d.ID)
	}
	return err
}

func journalPath(dir string) string { return filepath.Join(dir, "journal") }

func (l *Log) openLocal(path string) (*journal.Local, error) {
	if _, err := l.cfg.FS.Stat(store.DirFile(filepath.Dir(path))); err != nil { // nothing is made where a disk is not mounted any more
		return nil, fmt.Errorf("open journal: %w: %w", store.ErrMissingDir, err)
	}
	return journal.OpenLocal(path, journal.Options{FS: l.cfg.FS, FileBytes: max(l.cfg.JournalBytes/8, 1<<20)})
}

// replayJournal brings the partitions up to what the journal acknowledged.
func (l *Log) replayJournal(j journal.Journal, path string) error {
	byID := make(map[name]*Partition, len(l.parts))
	for _, p := range l.parts {
		byID[name{string(p.key.ID[:]), p.key.Partition}] = p
	}
	err := j.Replay(func(_ uint64, e journal.Entry) error {
		p := byID[name{string(e.Topic[:]), e.Partition}]
		if p == nil || p.err != nil {
			return nil //nolint:nilerr // the partition is out of use and said so
		}
		if err := p.replay(e); err != nil {
			p.fail(err)
		}
		return nil
	})
	if err != nil && l.cfg.repair != nil && errors.Is(err, journal.ErrCorrupt) {
		l.cfg.repair(Finding{File: path, Offset: -1, Problem: err.Error() + "; what follows was given up"})
		return nil
	}
	return err
}

// adopt takes a replayed journal to write to. One that was there before is only trimmed and closed.
func (s *journalState) adopt(j *journal.Local, dir store.ID) {
	s.seq = j.Last()
	s.dir = dir
	if s.j == nil {
		s.j = j
		return
	}
	s.j = &chain{Journal: j, old: s.j}
}

// chain is a journal beside an older one that is kept until its entries are not needed.
type chain struct {
	journal.Journal
	old journal.Journal
}

func (c *chain) Trim(seq uint64) error {
	return errors.Join(c.old.Trim(^uint64(0)), c.Journal.Trim(seq))
}
func (c *chain) Close() error { return errors.Join(c.old.Close(), c.Journal.Close()) }

// hold keeps the journal as it is until a restart, because it may have what is nowhere else.
func (s *journalState) hold() {
	s.mu.Lock()
	s.held = true
	s.mu.Unlock()
}

// fail gives up the journal if it is the one in a directory that failed: a directory that is not there any more can go
// on taking writes.
func (s *journalState) fail(dir store.ID, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.j != nil && s.dir == dir && s.err == nil {
		s.err = cause
	}
}

// journalRoom says whether the journal can take a group.
func (l *Log) journalRoom() bool {
	s := &l.journal
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.j != nil && s.limit > 0 && s.err == nil && s.j.Size() < s.limit
}

// journalAppend makes entries durable in the journal; false means that it can not now.
func (l *Log) journalAppend(entries []journal.Entry, items []*item) bool {
	s := &l.journal
	// In the list first: a trim that runs at this moment must find them.
	s.mu.Lock()
	j := s.j
	for _, it := range items {
		it.p.mu.Lock()
		if !it.p.journaled {
			it.p.journaled = true
			s.parts = append(s.parts, it.p)
		}
		it.p.mu.Unlock()
	}
	s.mu.Unlock()
	seq, err := j.Append(entries)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.j != j || s.err != nil {
		return false // it was given up meanwhile
	}
	if err != nil {
		if !errors.Is(err, journal.ErrFull) {
			s.err = err
			l.cfg.Logger.Error("journal failed; segments are synced directly until a new one is begun", slog.Any("err", err))
			l.keeper.signal()
		}
		return false
	}
	s.seq = max(s.seq, seq)
	if j.Size() > s.limit/2 {
		l.keeper.signal()
	}
	return true
}

func (s *journalState) wantsTrim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.j != nil && (s.err != nil || s.j.Size() > s.limit/2)
}

// trimAll lets go of everything, unless it must be kept.
func (s *journalState) trimAll() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.j == nil || s.err != nil || s.held {
		return nil // one that failed was reported then, and is never trimmed
	}
	return s.j.Trim(^uint64(0))
}

func (s *journalState) close() error {
	if s.j == nil {
		return nil
	}
	return s.j.Close()
}

// trimJournal syncs the segments of all partitions that rely on the journal, then lets go of it. In place of one that
// failed it begins a new one.
func (l *Log) trimJournal() {
	s := &l.journal
	s.trim.Lock()
	defer s.trim.Unlock()
	s.mu.Lock()
	if s.j == nil {
		s.mu.Unlock()
		return
	}
	j, seq, parts := s.j, s.seq, s.parts
	s.parts = nil
	s.mu.Unlock()
	start := time.Now()
	var mu sync.Mutex
	var failed []*Partition
	parallel(parts, func(p *Partition) {
		if err := p.syncJournaled(); err != nil {
			l.syncError(p, err)
			mu.Lock()
			failed = append(failed, p)
			mu.Unlock()
		}
	})
	if f := l.cfg.Observer.Synced; f != nil && len(parts) > 0 {
		f("", SyncTrim, len(parts), 0, time.Since(start))
	}
	s.mu.Lock()
	s.parts = append(s.parts, failed...) // they move first; the next trim finds them
	broken, keep := s.err != nil, s.held || len(failed) > 0
	s.mu.Unlock()
	switch {
	case keep:
	case broken:
		l.renewJournal()
	default:
		if err := j.Trim(seq); err != nil {
			l.cfg.Logger.Warn("trim journal", slog.Any("err", err))
		}
	}
}

// renewJournal begins a new journal in a healthy directory after the one before failed and nothing relies on that any
// more.
func (l *Log) renewJournal() {
	s := &l.journal
	s.mu.Lock()
	old, failedIn, next := s.j, s.dir, (s.seq>>generationShift+1)<<generationShift
	ready := s.limit > 0 && !l.cfg.Now().Before(s.retry)
	if ready {
		s.retry = l.cfg.Now().Add(journalRetry)
	}
	s.mu.Unlock()
	if !ready {
		return
	}
	var healthy []store.DirStatus
	for _, d := range l.store.Dirs() {
		if d.Err == nil {
			healthy = append(healthy, d)
		}
	}
	slices.SortStableFunc(healthy, func(a, b store.DirStatus) int { // the one that failed last
		return boolToInt(a.ID == failedIn) - boolToInt(b.ID == failedIn)
	})
	for _, d := range healthy {
		j, err := l.openLocal(journalPath(d.Path))
		if err == nil {
			err = j.Reset(next)
		}
		if err != nil {
			l.cfg.Logger.Warn("begin a new journal", slog.String("dir", d.Path), slog.Any("err", err))
			continue
		}
		s.mu.Lock()
		s.j, s.dir, s.seq, s.err = j, d.ID, next, nil
		s.mu.Unlock()
		_ = old.Close()
		l.cfg.Logger.Info("a new journal is begun", slog.String("dir", d.Path))
		return
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// readJournal reads what the journal holds of a partition between two offsets, as far as it goes on without a hole.
func (l *Log) readJournal(k store.Key, from, to int64) (data []byte, batches []segment.Batch) {
	s := &l.journal
	s.mu.Lock()
	j := s.j
	s.mu.Unlock()
	if j == nil {
		return nil, nil
	}
	err := j.Read(func(_ uint64, e journal.Entry) error {
		if e.Topic != k.ID || e.Partition != k.Partition {
			return nil
		}
		return eachBatch(e, func(h recordbatch.Header, b []byte) error {
			if h.BaseOffset == from && from < to {
				data = append(data, b...)
				batches = append(batches, segment.BatchOf(h))
				from = h.LastOffset() + 1
			}
			return nil
		})
	})
	if err != nil {
		l.cfg.Logger.Warn("read journal", slog.Any("err", err))
	}
	return data, batches
}

// eachBatch passes the batches of a journal entry after checking them.
func eachBatch(e journal.Entry, fn func(h recordbatch.Header, b []byte) error) error {
	for _, rest := range e.Batches {
		for len(rest) > 0 {
			b, r, err := recordbatch.Split(rest)
			if err != nil {
				return err
			}
			rest = r
			h, err := recordbatch.Check(b)
			if err != nil {
				return err
			}
			if err := fn(h, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// syncJournaled syncs the active segment when something in it is durable only by the journal.
func (p *Partition) syncJournaled() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	if p.broken {
		p.mu.Unlock()
		return errBroken
	}
	p.journaled = false // what is journaled from now on counts anew
	seg, from, at := p.active(), p.synced, p.written
	done := from == at
	p.mu.Unlock()
	if done {
		return nil
	}
	err := seg.SyncSlowly(from.pos, at.pos)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.active().Segment != seg.Segment {
		return nil // it was synced and left meanwhile, and may be removed
	}
	if err != nil {
		p.journaled = true
		return err
	}
	p.syncedTo(at, seg.Segment)
	return nil
}
