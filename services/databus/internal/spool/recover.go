package spool

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// Recovery is what Open found.
type Recovery struct {
	Batches   int   // not yet acknowledged
	Messages  int64 // in those
	TornBytes int64 // cut from the end of the newest file: never acknowledged
	Damaged   int   // places in which records that had been durable can not be read
}

// found is what recovery gathers before it knows what is done.
type found struct {
	entries map[uint64]*item
	heads   map[uint64]entryHead
	marks   map[place]placedMark
	shed    map[place][]span
	cuts    map[uint32]int64
}

// placedMark is a mark and where it stands: the last one written counts.
type placedMark struct {
	mark
	file uint32
	pos  int64
}

// recover reads all files and rebuilds the queues. The files are not written to again: the next commit starts one.
func (s *Spool) recover() error {
	dir, err := s.fs.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	for _, e := range dir {
		if n, ok := parseFileName(e.Name()); ok {
			s.files = append(s.files, &file{number: n, name: s.fileName(n)})
		}
	}
	slices.SortFunc(s.files, func(a, b *file) int { return cmp.Compare(a.number, b.number) })
	fd := found{
		entries: make(map[uint64]*item), heads: make(map[uint64]entryHead),
		marks: make(map[place]placedMark), shed: make(map[place][]span), cuts: make(map[uint32]int64),
	}
	// Newest first, because a newer file says where an older one ends.
	for i := len(s.files) - 1; i >= 0; i-- {
		if err := s.readFile(s.files[i], i == len(s.files)-1, &fd); err != nil {
			s.closeFiles()
			return err
		}
	}
	if n := len(s.files); n > 0 {
		s.w.number = s.files[n-1].number
	}
	for number, end := range fd.cuts {
		s.w.cuts = append(s.w.cuts, cut{number, end})
	}
	s.rebuild(&fd)
	if s.recovery.Damaged > 0 {
		s.log.Error("the spool is damaged; what can be read is kept", slog.String("dir", s.cfg.Dir), slog.Any("places", s.recovery.Damaged))
	}
	return nil
}

// readFile reads one file into fd. Torn bytes at the end of the newest are cut off on disk, so that no later start takes them for
// durable.
func (s *Spool) readFile(f *file, newest bool, fd *found) error {
	b, err := vfs.ReadFile(s.fs, f.name)
	if err != nil {
		return fmt.Errorf("read %s: %w", f.name, err)
	}
	if end, ok := fd.cuts[f.number]; ok && end < int64(len(b)) {
		b = b[:end]
	}
	end, damaged, err := scanFile(b, f.number, func(r record, at int) error { return fd.take(f, r, int64(at)) })
	if err != nil {
		return err
	}
	s.recovery.Damaged += damaged
	if f.out, err = s.fs.OpenFile(f.name, os.O_RDWR); err != nil {
		return err
	}
	f.size = int64(end)
	if !newest {
		return nil
	}
	if end < len(b) {
		s.recovery.TornBytes = int64(len(b) - end)
		if err := f.out.Truncate(f.size); err != nil {
			return fmt.Errorf("cut %s at byte %d: %w", f.name, end, err)
		}
	}
	// What a killed process wrote may be in the page cache only. It is about to be sent, so it must be there after a power
	// loss too: another batch under its sequence would be taken for a duplicate of it.
	if err := f.out.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", f.name, err)
	}
	return s.fs.SyncDir(s.cfg.Dir)
}

// scanFile passes a file's whole records on. It returns where the last one that counts ends, and how many places before that can
// not be read.
//
// What can not be read is the torn end of the last write, unless a later write follows: writes go out one after the other, each
// after the one before was synced, and every record says where its write began.
func scanFile(b []byte, number uint32, fn func(r record, at int) error) (end, damaged int, err error) {
	at := fileHeaderSize
	if err := parseFileHeader(b, number); err != nil {
		if errors.Is(err, ErrVersion) {
			return 0, 0, err
		}
		next := findRecord(b, number, 0, fileHeaderSize+1)
		if next < 0 {
			return 0, 0, nil // made and never synced
		}
		at, damaged = next, 1
	}
	end = at
	for at < len(b) {
		r, err := parseRecord(b[at:], number)
		if err != nil {
			next := findRecord(b, number, at+recordAlign, at+1)
			if next < 0 {
				return end, damaged, nil
			}
			damaged++
			at = next
			continue
		}
		if err := fn(r, at); err != nil {
			damaged++
		}
		at += r.size
		end = min(at, len(b))
	}
	return end, damaged, nil
}

// findRecord is the position of the first whole record from position from on that belongs to a write which began at begun or
// later, or -1.
func findRecord(b []byte, number uint32, from, begun int) int {
	for at := align(from); at+recordHeadSize <= len(b); at += recordAlign {
		if b[at] != recordMagic>>24 {
			continue
		}
		if r, err := parseRecord(b[at:], number); err == nil && int(r.group) >= begun {
			return at
		}
	}
	return -1
}

// take notes what a record says. An error means that it is damaged though its checksum fits.
func (fd *found) take(f *file, r record, at int64) error {
	switch r.kind {
	case kindEntry:
		h, batch, err := parseEntry(r.body)
		if err != nil {
			return err
		}
		if _, err := recordbatch.ParseHeader(batch); err != nil {
			return err
		}
		// Files are read newest first, and a batch that was moved is in the newest place that has it.
		if old := fd.entries[h.id]; old == nil || old.file == f {
			fd.entries[h.id] = &item{id: h.id, created: h.created, file: f, pos: at, size: int32(r.size), count: h.count}
			fd.heads[h.id] = h
		}
	case kindMark:
		p, m, err := parseMark(r.body)
		if err != nil {
			return err
		}
		old, ok := fd.marks[p]
		if !ok || f.number > old.file || f.number == old.file && at > old.pos {
			fd.marks[p] = placedMark{m, f.number, at}
		}
	case kindShed:
		p, spans, err := parseShed(r.body)
		if err != nil {
			return err
		}
		fd.shed[p] = append(fd.shed[p], spans...)
	case kindCut:
		number, end, err := parseCut(r.body)
		if err != nil {
			return err
		}
		if old, ok := fd.cuts[number]; !ok || end < old {
			fd.cuts[number] = end
		}
	}
	return nil
}

// rebuild makes the queues out of what was found.
func (s *Spool) rebuild(fd *found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, m := range fd.marks {
		q := s.queueLocked(p)
		q.state, q.doneAt = m.mark, m.through
	}
	for p, spans := range fd.shed {
		s.queueLocked(p).restoreDropped(spans)
	}
	ids := make([]uint64, 0, len(fd.entries))
	for id := range fd.entries {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		x, h := fd.entries[id], fd.heads[id]
		q := s.queueLocked(h.place)
		q.newest = max(q.newest, x.file.number)
		if id <= q.state.through || inSpans(q.dropped, id) {
			continue
		}
		x.channel = s.channelLocked(h.channel)
		x.channel.used.Add(int64(x.size))
		q.pushLocked(x, h.layout)
		s.recovery.Batches++
		s.recovery.Messages += int64(x.count)
	}
	for _, q := range s.queues {
		if s.recovery.Damaged > 0 {
			// What is missing may have been sent. Another batch under its sequence would be taken for a duplicate of it and
			// lost; under a new producer the worst is that a batch whose answer was lost comes twice.
			q.state.producerID = -1
		}
		for _, x := range q.items[:min(len(q.items), Window)] {
			x.state = stateSent // perhaps
		}
		q.nextSeq = q.state.seq
	}
	s.w.cuts = slices.DeleteFunc(s.w.cuts, func(c cut) bool { return !s.hasFileLocked(c.file) })
}

// restoreDropped takes over what shed records say; of the same batches there may be many.
func (q *Queue) restoreDropped(spans []span) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, r := range spans {
		if n := len(q.dropped); n > 0 && r.from <= q.dropped[n-1].to {
			q.dropped[n-1].to = max(q.dropped[n-1].to, r.to)
		} else if r.to > q.state.through && r.to >= r.from {
			q.dropped = append(q.dropped, r)
		}
	}
}

func inSpans(spans []span, id uint64) bool {
	i, _ := slices.BinarySearchFunc(spans, id, func(r span, id uint64) int { return cmp.Compare(r.to, id) })
	return i < len(spans) && spans[i].from <= id
}

func (s *Spool) hasFileLocked(number uint32) bool {
	return slices.ContainsFunc(s.files, func(f *file) bool { return f.number == number })
}

func (s *Spool) closeFiles() {
	for _, f := range s.files {
		if f.out != nil {
			_ = f.out.Close() // only read
		}
	}
}
