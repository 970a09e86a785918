package segment

import (
	"fmt"
	"slices"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// Section is a run of whole batches in a segment's file, which is held open.
type Section struct {
	File       *vfs.Handle // to be released
	At, Length int64       // bytes
	Next       int64       // offset where to go on
}

// Section is Read for whoever sends the bytes from the file. ok is false, and nothing held, when there is none or the file is not
// the operating system's.
//
// Each byte is checked once by this process before it is named, and again when some of its section had left the system's cache
// by the time of the call. Not noticed is damage to what was in the cache all along, or left it after a check and was brought
// back by something else: another program, or the system reading ahead. Unlike Read's, a receiver must check the batches'
// CRC, as every client of Kafka does.
func (s *Segment) Section(offset int64, maxBytes int, limit, end int64) (x Section, ok bool, err error) {
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return x, false, err
	}
	defer func() {
		if !ok {
			fh.Release()
		}
	}()
	if fh.OS() == nil {
		return x, false, nil
	}
	var cached int64 // up to here, as of before anything was read
	at, first, err := s.find(offset, limit, func(from int64) {
		const beyond = 64 << 10 // the batch may lie behind from
		if to := min(limit, from+int64(maxBytes)+beyond); vfs.Cached(fh.OS(), from, to-from) {
			cached = to
		}
	})
	if err != nil || at >= limit {
		return x, false, err
	}
	to, next, err := s.sectionEnd(fh, at, at+int64(max(maxBytes, first.Size())), limit, end)
	if err != nil {
		return x, false, err
	}
	if to > cached || !s.wasChecked(at, to) {
		if err := s.checkSection(fh, at, to, next); err != nil {
			return x, false, err
		}
	}
	return Section{File: fh, At: at, Length: to - at, Next: next}, true, nil
}

func (s *Segment) wasChecked(from, to int64) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.checked.contain(from, to)
}

// sectionEnd finds the last position up to bound at which a batch begins, and that batch's first offset.
func (s *Segment) sectionEnd(fh vfs.File, at, bound, limit, end int64) (to, next int64, err error) {
	if bound >= limit {
		return limit, end, nil
	}
	s.mu.RLock()
	pos, last, err := s.index.lookupPos(bound)
	s.mu.RUnlock()
	if err != nil {
		return 0, 0, err
	}
	if pos <= at {
		pos = at
	} else if h, err := readHeader(fh, s.Path(), pos); err != nil || h.LastOffset() != last {
		pos = at // an index that leads astray: one header after the other, then
	}
	for pos < limit {
		h, err := readHeader(fh, s.Path(), pos)
		if err != nil {
			return 0, 0, err
		}
		if pos+int64(h.Size()) > bound {
			return pos, h.BaseOffset, nil
		}
		pos += int64(h.Size())
	}
	return limit, end, nil
}

// checkSection reads and checks batches up to a position where next follows.
func (s *Segment) checkSection(fh *vfs.Handle, at, to, next int64) error {
	last := int64(-1)
	_, err := scan(fh, s.Path(), s.base, at, to, func(_ int64, h recordbatch.Header, _ []byte) error {
		last = h.LastOffset()
		return nil
	})
	if err == nil && last >= next {
		err = &CorruptError{File: s.Path(), Offset: to, Cause: fmt.Errorf("offset %d follows %d", next, last)}
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	if to <= s.size { // not cut off since
		s.checked.add(at, to)
	}
	s.mu.Unlock()
	return nil
}

// maxSpans bounds what a segment remembers.
const maxSpans = 64

type span struct{ from, to int64 }

// spans are positions of a log, in order, none touching another.
type spans []span

func (s spans) contain(from, to int64) bool {
	i, _ := slices.BinarySearchFunc(s, from, func(x span, from int64) int { return int(min(max(x.to-1-from, -1), 1)) })
	return i < len(s) && s[i].from <= from && to <= s[i].to
}

// add takes a span in; where there are too many the others are forgotten.
func (s *spans) add(from, to int64) {
	rest := make(spans, 0, len(*s)+1)
	at := 0
	for _, x := range *s {
		switch {
		case x.to < from:
			rest = append(rest, x)
			at = len(rest)
		case x.from > to:
			rest = append(rest, x)
		default:
			from, to = min(from, x.from), max(to, x.to)
		}
	}
	if len(rest) >= maxSpans {
		rest, at = nil, 0
	}
	*s = slices.Insert(rest, at, span{from, to})
}

// cut forgets what lies past at.
func (s *spans) cut(at int64) {
	*s = slices.DeleteFunc(*s, func(x span) bool { return x.from >= at })
	if n := len(*s); n > 0 {
		(*s)[n-1].to = min((*s)[n-1].to, at)
	}
}
