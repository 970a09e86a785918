package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// Find returns the position and header of the first batch whose last offset is at least offset, looking no
// further than limit. It returns limit when there is none.
func (s *Segment) Find(offset, limit int64) (int64, recordbatch.Header, error) {
	return s.find(offset, limit, func(int64) {})
}

// errIndex says that an index leads somewhere else than it says.
var errIndex = errors.New("index does not match the log")

// find is Find; before tells the position from which on it is going to read the log.
func (s *Segment) find(offset, limit int64, before func(at int64)) (int64, recordbatch.Header, error) {
	at, h, err := s.findByIndex(offset, limit, before)
	if errors.Is(err, errIndex) {
		// A damaged index costs one pass over the log, not the data.
		if err := s.Rebuild(); err != nil {
			return 0, h, err
		}
		at, h, err = s.findByIndex(offset, limit, before)
	}
	return at, h, err
}

func (s *Segment) findByIndex(offset, limit int64, before func(at int64)) (int64, recordbatch.Header, error) {
	at, last, err := s.lookup(offset)
	if err != nil {
		return 0, recordbatch.Header{}, err
	}
	before(at)
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return 0, recordbatch.Header{}, err
	}
	defer fh.Release()
	next := s.base
	for first := true; at < limit; first = false {
		h, err := readHeader(fh, s.Path(), at)
		if first && last >= 0 && (err != nil || h.LastOffset() != last) {
			return 0, h, errIndex
		}
		if err != nil {
			return 0, h, err
		}
		if h.BaseOffset < next {
			return 0, h, outOfOrder(s.Path(), at, h, next)
		}
		if h.LastOffset() >= offset {
			return at, h, nil
		}
		next = h.LastOffset() + 1
		at += int64(h.Size())
	}
	return limit, recordbatch.Header{}, nil
}

func outOfOrder(name string, at int64, h recordbatch.Header, next int64) error {
	return &CorruptError{File: name, Offset: at, Cause: fmt.Errorf("offset %d where at least %d belongs", h.BaseOffset, next)}
}

// lookup returns the position of a batch at or before the one that holds offset, and that batch's last offset, -1 when
// it is not known.
func (s *Segment) lookup(offset int64) (at, last int64, err error) {
	if err := s.load(); err != nil {
		return 0, 0, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	at, last, err = s.index.lookup(offset)
	if err == nil && at >= s.size && s.size > 0 {
		err = errIndex
	}
	return at, last, err
}

// Read returns whole, checked batches from the one that holds offset on, up to maxBytes and never past position
// limit, before which all offsets are below end; the first is returned however large it is. next is the offset behind
// the last batch, offset when there is none. b lies in buf where there is room for it, and for one batch header more.
func (s *Segment) Read(buf []byte, offset int64, maxBytes int, limit, end int64) (b []byte, next int64, err error) {
	at, first, err := s.Find(offset, limit)
	if err != nil || at >= limit {
		return nil, offset, err
	}
	if int64(first.Size()) > limit-at {
		return nil, 0, &CorruptError{File: s.Path(), Offset: at, Cause: fmt.Errorf("a batch of %d bytes reaches past the segment's end %d", first.Size(), limit)}
	}
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return nil, 0, err
	}
	defer fh.Release()
	want := max(maxBytes, first.Size())
	// One header more than asked for: offsets are outside of a batch's checksum, the next batch tells a wrong one.
	if n := int(min(int64(want)+recordbatch.HeaderSize, limit-at)); n <= len(buf) {
		b = buf[:n]
	} else {
		b = make([]byte, n)
	}
	if _, err := fh.ReadAt(b, at); err != nil {
		if errors.Is(err, io.EOF) {
			err = &CorruptError{File: s.Path(), Offset: at, Cause: io.ErrUnexpectedEOF}
		}
		return nil, 0, fmt.Errorf("read %s at %d: %w", s.Path(), at, err)
	}
	done, next, err := trim(b, s.Path(), at, s.base, want)
	if err != nil {
		return nil, 0, err
	}
	follows := end
	if rest := b[done:]; len(rest) >= recordbatch.HeaderSize {
		follows = min(end, int64(binary.BigEndian.Uint64(rest)))
	} else if at+int64(done) < limit {
		h, err := readHeader(fh, s.Path(), at+int64(done))
		if err != nil {
			return nil, 0, err
		}
		follows = min(end, h.BaseOffset)
	}
	if next > follows {
		return nil, 0, &CorruptError{File: s.Path(), Offset: at + int64(done), Cause: fmt.Errorf("offset %d follows %d", follows, next-1)}
	}
	return b[:done:done], next, nil
}

// trim checks the batches in b, up to want bytes, and returns how many bytes of it are whole batches. Those before a bad one
// are returned without an error, which is the next reader's.
func trim(b []byte, name string, at, next int64, want int) (done int, _ int64, err error) {
	for len(b)-done >= recordbatch.HeaderSize {
		size, ok := batchSize(b[done:])
		if !ok {
			err = &CorruptError{File: name, Offset: at + int64(done), Cause: fmt.Errorf("impossible batch length %d", size)}
			break
		}
		if len(b)-done < size || done+size > want {
			break
		}
		var h recordbatch.Header
		if h, err = checkAt(name, at+int64(done), b[done:done+size], next); err != nil {
			break
		}
		next = h.LastOffset() + 1
		done += size
	}
	if done > 0 {
		err = nil
	}
	return done, next, err
}

// OffsetForTime returns the first record from offset least on, before position limit, whose timestamp is at least ts.
// ok is false when there is none.
func (s *Segment) OffsetForTime(ts, least, limit int64) (offset, timestamp int64, ok bool, err error) {
	if err := s.load(); err != nil {
		return 0, 0, false, err
	}
	start, err := s.before(ts, limit)
	if errors.Is(err, errIndex) {
		if err := s.Rebuild(); err != nil {
			return 0, 0, false, err
		}
		start, err = s.before(ts, limit)
	}
	if err != nil {
		return 0, 0, false, err
	}
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return 0, 0, false, err
	}
	defer fh.Release()
	return firstAt(fh, s.Path(), start, limit, ts, least)
}

// before returns the position of a batch before which every timestamp is below ts.
func (s *Segment) before(ts, limit int64) (int64, error) {
	s.mu.RLock()
	offset, stamp, found, err := s.times.lookup(ts)
	s.mu.RUnlock()
	if err != nil || !found {
		return 0, err
	}
	at, h, err := s.Find(offset, limit)
	if err == nil && at < limit && (h.LastOffset() != offset || h.MaxTimestamp != stamp) {
		err = errIndex
	}
	return at, err
}

func firstAt(fh vfs.File, name string, at, limit, ts, least int64) (offset, timestamp int64, ok bool, err error) {
	for next := int64(0); at < limit; {
		h, err := readHeader(fh, name, at)
		if err != nil {
			return 0, 0, false, err
		}
		if h.BaseOffset < next {
			return 0, 0, false, outOfOrder(name, at, h, next)
		}
		next = h.LastOffset() + 1
		if h.MaxTimestamp >= ts && h.LastOffset() >= least {
			offset, timestamp, ok, err := firstRecord(fh, name, at, h, ts, least)
			if ok || err != nil {
				return offset, timestamp, ok, err
			}
		}
		at += int64(h.Size())
	}
	return 0, 0, false, nil
}

// firstRecord looks into one batch for the first record from offset least on whose timestamp is at least ts.
func firstRecord(f io.ReaderAt, name string, at int64, h recordbatch.Header, ts, least int64) (offset, timestamp int64, ok bool, err error) {
	b := make([]byte, h.Size())
	if _, err := f.ReadAt(b, at); err != nil {
		return 0, 0, false, fmt.Errorf("read %s at %d: %w", name, at, err)
	}
	if _, err := recordbatch.Check(b); err != nil {
		return 0, 0, false, &CorruptError{File: name, Offset: at, Cause: err}
	}
	for r, err := range recordbatch.Records(b, math.MaxInt32) {
		if err != nil {
			return 0, 0, false, &CorruptError{File: name, Offset: at, Cause: err}
		}
		if r.Timestamp >= ts && r.Offset >= least {
			return r.Offset, r.Timestamp, true, nil
		}
	}
	return 0, 0, false, nil
}
