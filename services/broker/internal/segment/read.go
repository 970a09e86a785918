package segment

import (
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
	at, err := s.lookup(offset)
	if err != nil {
		return 0, recordbatch.Header{}, err
	}
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return 0, recordbatch.Header{}, err
	}
	defer fh.Release()
	for at < limit {
		h, err := readHeader(fh, s.Path(), at)
		if err != nil {
			return 0, h, err
		}
		if h.LastOffset() >= offset {
			return at, h, nil
		}
		at += int64(h.Size())
	}
	return limit, recordbatch.Header{}, nil
}

// lookup returns the position of a batch at or before the one that holds offset.
func (s *Segment) lookup(offset int64) (int64, error) {
	if err := s.load(); err != nil {
		return 0, err
	}
	s.mu.RLock()
	at, err := s.index.lookup(offset)
	size := s.size
	s.mu.RUnlock()
	if err == nil && at < size || size == 0 {
		return min(at, size), err
	}
	if err == nil {
		err = &CorruptError{File: s.index.name, Offset: 0, Cause: fmt.Errorf("it points to %d past the log's %d bytes", at, size)}
	}
	// A damaged index costs one pass over the log, not the data.
	if rerr := s.Rebuild(); rerr != nil {
		return 0, errors.Join(err, rerr)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.lookup(offset)
}

// Read returns whole, checked batches from the one that holds offset on, up to maxBytes and never past position
// limit; the first is returned however large it is. next is the offset behind the last batch, offset when there is none.
func (s *Segment) Read(offset int64, maxBytes int, limit int64) (b []byte, next int64, err error) {
	at, first, err := s.Find(offset, limit)
	if err != nil || at >= limit {
		return nil, offset, err
	}
	b, next, _, err = s.ReadFrom(at, first.Size(), maxBytes, limit)
	return b, next, err
}

// ReadFrom is Read from a known position of a batch; least is how much must be read at least (the first batch's
// size, or 0 when it is not known). end is the position behind what was read.
func (s *Segment) ReadFrom(at int64, least, maxBytes int, limit int64) (b []byte, next, end int64, err error) {
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return nil, 0, at, err
	}
	defer fh.Release()
	if least == 0 {
		h, err := readHeader(fh, s.Path(), at)
		if err != nil {
			return nil, 0, at, err
		}
		least = h.Size()
	}
	n := min(int64(max(maxBytes, least)), limit-at)
	if n < int64(least) {
		return nil, 0, at, &CorruptError{File: s.Path(), Offset: at, Cause: fmt.Errorf("a batch of %d bytes reaches past the segment's end %d", least, limit)}
	}
	b = make([]byte, n)
	if _, err := fh.ReadAt(b, at); err != nil {
		if err == io.EOF {
			err = &CorruptError{File: s.Path(), Offset: at, Cause: io.ErrUnexpectedEOF}
		}
		return nil, 0, at, fmt.Errorf("read %s at %d: %w", s.Path(), at, err)
	}
	b, next, err = trim(b, s.Path(), at, s.base)
	return b, next, at + int64(len(b)), err
}

// trim checks the batches in b and cuts off the last one when it is not whole.
func trim(b []byte, name string, at, next int64) ([]byte, int64, error) {
	done := 0
	for len(b)-done >= recordbatch.HeaderSize {
		size, ok := batchSize(b[done:])
		if !ok {
			return nil, 0, &CorruptError{File: name, Offset: at + int64(done), Cause: fmt.Errorf("impossible batch length %d", size)}
		}
		if len(b)-done < size {
			break
		}
		h, err := checkAt(name, at+int64(done), b[done:done+size], next)
		if err != nil {
			return nil, 0, err
		}
		next = h.LastOffset() + 1
		done += size
	}
	return b[:done], next, nil
}

// OffsetForTime returns the first record from offset least on, before position limit, whose timestamp is at least ts.
// ok is false when there is none.
func (s *Segment) OffsetForTime(ts, least, limit int64) (offset, timestamp int64, ok bool, err error) {
	if err := s.load(); err != nil {
		return 0, 0, false, err
	}
	s.mu.RLock()
	from, found, err := s.times.lookup(ts)
	s.mu.RUnlock()
	if err != nil {
		return 0, 0, false, err
	}
	start := int64(0)
	if found {
		if start, _, err = s.Find(from, limit); err != nil {
			return 0, 0, false, err
		}
	}
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return 0, 0, false, err
	}
	defer fh.Release()
	return firstAt(fh, s.Path(), start, limit, ts, least)
}

func firstAt(fh vfs.File, name string, at, limit, ts, least int64) (offset, timestamp int64, ok bool, err error) {
	for at < limit {
		h, err := readHeader(fh, name, at)
		if err != nil {
			return 0, 0, false, err
		}
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
