package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"
)

// retryDelay is the pause before acknowledgements are tried again on a disk that failed.
const retryDelay = time.Second

// writer is what only the committer touches.
type writer struct {
	file    *file // nil: the next commit starts one
	at      int64
	ordinal uint32
	number  uint32 // of the newest file there ever was
	cuts    []cut  // files whose end is not durable
	heads   []byte
	bufs    [][]byte
	pad     [recordAlign]byte
}

// cut says that nothing in a file counts from end on.
type cut struct {
	file uint32
	end  int64
}

// saved is a queue's state as a commit wrote it.
type saved struct {
	queue   *Queue
	state   mark
	dropped []span
	version uint64
	unsaved int
}

// commit is one write and sync.
type commit struct {
	entries []*appending
	states  []saved
	moves   []move
	flushes []chan error
	fresh   bool // the first of its file
	size    int
}

// run is the committer: it writes what gathered while the sync before ran, until the spool is closed and nothing is left.
func (s *Spool) run() {
	defer close(s.done)
	for {
		<-s.kick
		for s.commit() {
		}
		s.mu.Lock()
		stop := s.closed && len(s.pending) == 0 && len(s.flushes) == 0
		s.mu.Unlock()
		if stop {
			s.stop()
			return
		}
	}
}

// stop closes the files.
func (s *Spool) stop() {
	s.lazy.Stop()
	s.mu.Lock()
	files := s.files
	s.files = nil
	for _, f := range files {
		if f.gone = true; f.refs == 0 && f.out != nil {
			_ = f.out.Close() // synced
		}
	}
	s.mu.Unlock()
	if err := s.lock.Close(); err != nil {
		s.log.Warn("the spool's lock can not be given back", slog.String("dir", s.cfg.Dir), slog.Any("error", err))
	}
}

// commit writes one group and reports whether there was anything to write and another may follow.
func (s *Spool) commit() bool {
	s.mu.Lock()
	c := commit{entries: s.pending, states: s.captureLocked(s.dirty)}
	c.flushes = s.flushes
	s.pending, s.dirty, s.flushes = nil, nil, nil
	moving := s.moving
	s.moving = nil
	s.mu.Unlock()
	c.moves = s.load(moving)
	if len(c.entries) == 0 && len(c.states) == 0 && len(c.moves) == 0 {
		c.flushed(nil)
		return false
	}
	start := s.cfg.Now()
	err := s.write(&c)
	if err != nil {
		s.fail(&c, err)
		c.flushed(err)
		return len(c.entries) > 0
	}
	for _, a := range c.entries {
		a.done(nil)
	}
	s.apply(&c)
	c.flushed(nil)
	if o := s.cfg.Observer.Committed; o != nil {
		o(len(c.entries), c.size, s.cfg.Now().Sub(start))
	}
	return true
}

// flushed answers those who wait in Flush.
func (c *commit) flushed(err error) {
	for _, f := range c.flushes {
		f <- err
	}
}

// captureLocked takes the state of queues for writing.
func (s *Spool) captureLocked(queues []*Queue) []saved {
	states := make([]saved, 0, len(queues))
	for _, q := range queues {
		q.queued = false
		states = append(states, saved{
			queue: q, state: q.state, dropped: append([]span(nil), q.dropped...), version: q.version, unsaved: q.unsaved,
		})
	}
	return states
}

// write makes a group durable: in the newest file, or in a new one that begins with the state of every queue.
func (s *Spool) write(c *commit) error {
	size := int64(0)
	for _, a := range c.entries {
		size += a.size
	}
	for i := range c.moves {
		size += int64(c.moves[i].item.size)
	}
	w := &s.w
	c.fresh = w.file == nil || (w.at+size > s.cfg.FileBytes && w.at > fileHeaderSize)
	if c.fresh {
		if err := s.startFile(c); err != nil {
			return err
		}
	}
	s.encode(c)
	n := 0
	for _, b := range w.bufs {
		n += len(b)
	}
	c.size = n
	_, err := w.file.out.WriteV(w.bufs, w.at)
	clear(w.bufs)
	if err == nil {
		err = w.file.out.Sync()
	}
	if err == nil && c.fresh {
		err = s.fs.SyncDir(s.cfg.Dir)
	}
	if err != nil {
		return fmt.Errorf("write %d batches to %s: %w: %w", len(c.entries), w.file.name, ErrDisk, err)
	}
	w.at += int64(n)
	return nil
}

// startFile makes the file that the group is written to, and has it carry the state of every queue.
func (s *Spool) startFile(c *commit) error {
	w := &s.w
	w.number++
	w.file = nil
	f := &file{number: w.number, name: s.fileName(w.number)}
	out, err := s.fs.OpenFile(f.name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("start spool file %s: %w: %w", f.name, ErrDisk, err)
	}
	f.out = out
	if _, err := out.WriteV([][]byte{fileHeader(f.number)}, 0); err != nil {
		return errors.Join(fmt.Errorf("start spool file %s: %w: %w", f.name, ErrDisk, err), out.Close(), s.fs.Remove(f.name))
	}
	_ = out.Preallocate(0, s.cfg.FileBytes) // advice
	w.file, w.at, w.ordinal = f, fileHeaderSize, 0
	s.beginFile(f, c)
	return nil
}

// beginFile makes f the newest file and has the group carry the state of every queue.
func (s *Spool) beginFile(f *file, c *commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := f.number
	if len(s.files) > 0 {
		oldest = s.files[0].number
	}
	all := make([]*Queue, 0, len(s.queues))
	for p, q := range s.queues {
		if q.disposableLocked(oldest) {
			delete(s.queues, p)
			continue
		}
		all = append(all, q)
	}
	c.states = s.captureLocked(all)
	s.dirty = nil
	s.files = append(s.files, f)
}

// apply makes a durable group visible: batches join their queues, states are known to be on disk, files that hold nothing go.
func (s *Spool) apply(c *commit) {
	ready := make(map[*Queue]struct{}, len(c.entries))
	s.mu.Lock()
	s.w.file.size = s.w.at
	for i := range c.states {
		st := &c.states[i]
		st.queue.unsaved -= st.unsaved
		st.queue.durable = st.version
		ready[st.queue] = struct{}{}
	}
	for i := range c.moves {
		m := &c.moves[i]
		s.releaseLocked(m.file)
		if m.item.state.done() {
			continue
		}
		m.file.live -= int64(m.item.size)
		m.item.file, m.item.pos = s.w.file, m.pos
		s.w.file.live += int64(m.item.size)
		m.item.queue.newest = s.w.file.number
	}
	for _, a := range c.entries {
		a.item.channel = s.channelLocked(a.entry.Channel)
		q := s.queueLocked(place{a.entry.Topic, a.entry.Partition})
		q.pushLocked(a.item, a.entry.Layout)
		ready[q] = struct{}{}
	}
	gone := s.dropFilesLocked()
	if !s.revenant {
		s.w.cuts = slices.DeleteFunc(s.w.cuts, func(ct cut) bool { return !s.hasFileLocked(ct.file) })
	}
	for q := range ready {
		if !q.readyLocked() {
			delete(ready, q)
		}
	}
	s.planMovesLocked()
	s.mu.Unlock()
	if len(gone) > 0 {
		s.remove(gone)
	}
	for q := range ready {
		s.cfg.Ready(q)
	}
}

// fail answers a group that is not durable. Its file is given up from where the group began: after a failed sync nobody can say
// what of it will be read back.
func (s *Spool) fail(c *commit, err error) {
	if o := s.cfg.Observer.Failed; o != nil {
		o(err)
	}
	s.log.Error("the spool can not be written", slog.String("dir", s.cfg.Dir), slog.Any("error", err))
	w := &s.w
	began := w.file
	w.file = nil
	discarded := c.fresh && began != nil && s.discard(began)
	s.mu.Lock()
	if began != nil && !discarded {
		w.cuts = append(w.cuts, cut{began.number, w.at})
		began.size = w.at
	}
	for i := range c.states {
		if q := c.states[i].queue; !q.queued {
			q.queued = true
			s.dirty = append(s.dirty, q)
		}
	}
	for i := range c.moves {
		s.releaseLocked(c.moves[i].file)
		c.moves[i].file.moving = false
	}
	closed := s.closed
	s.mu.Unlock()
	for _, a := range c.entries {
		s.Channel(a.entry.Channel).settle(a.size, 0)
		a.done(err)
	}
	if !closed {
		s.lazy.Reset(max(s.cfg.MarkDelay, retryDelay))
	}
}

// dropped tells the observer.
func (s *Spool) dropped(channel, reason string, messages int) {
	if o := s.cfg.Observer.Dropped; o != nil {
		o(channel, reason, messages)
	}
}
