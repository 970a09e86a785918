package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// scanChunk is how much a scan reads at a time; a larger batch grows the buffer to its own size.
const scanChunk = 1 << 20

// scanBuffers are of scanChunk bytes.
var scanBuffers = sync.Pool{New: func() any { return new([scanChunk]byte) }}

// ErrStop ends a scan early without an error.
var ErrStop = errors.New("stop")

// Scan reads whole batches from position from to position to, checks each (structure, CRC, offsets that go on)
// and passes it on; the slice is valid only during the call. It returns the position behind the last good batch.
// A bad batch is a *CorruptError.
func (s *Segment) Scan(from, to int64, fn func(at int64, h recordbatch.Header, batch []byte) error) (int64, error) {
	h, err := s.files.Acquire(s.Path())
	if err != nil {
		return from, fmt.Errorf("scan %s: %w", s.Path(), err)
	}
	defer h.Release()
	return scan(h, s.Path(), s.base, from, to, fn)
}

func scan(f vfs.File, name string, base, from, to int64, fn func(int64, recordbatch.Header, []byte) error) (int64, error) {
	at, next := from, base
	pooled := scanBuffers.Get().(*[scanChunk]byte)
	defer scanBuffers.Put(pooled)
	buf := pooled[:0]
	var rest []byte
	for at < to {
		if len(rest) >= recordbatch.HeaderSize {
			size, ok := batchSize(rest)
			if !ok || at+int64(size) > to {
				return at, &CorruptError{File: name, Offset: at, Cause: fmt.Errorf("no whole record batch (length %d)", size)}
			}
			if len(rest) >= size {
				h, err := checkAt(name, at, rest[:size], next)
				if err != nil {
					return at, err
				}
				if err := fn(at, h, rest[:size]); err != nil {
					if errors.Is(err, ErrStop) {
						err = nil
					}
					return at, err
				}
				next = h.LastOffset() + 1
				at += int64(size)
				rest = rest[size:]
				continue
			}
			if size > cap(buf) {
				buf = append(make([]byte, 0, size), rest...)
				rest = buf
			}
		} else if to-at < recordbatch.HeaderSize {
			return at, &CorruptError{File: name, Offset: at, Cause: fmt.Errorf("%d bytes are less than a batch header", to-at)}
		}
		// Move what is left to the front and fill up behind it.
		have := copy(buf[:cap(buf)], rest)
		want := int(min(int64(cap(buf)), to-at))
		n, err := f.ReadAt(buf[have:want], at+int64(have))
		if err != nil && !errors.Is(err, io.EOF) {
			return at, fmt.Errorf("scan %s at %d: %w", name, at, err)
		}
		if n == 0 {
			return at, &CorruptError{File: name, Offset: at + int64(have), Cause: io.ErrUnexpectedEOF}
		}
		rest = buf[:have+n]
	}
	return at, nil
}

func checkAt(name string, at int64, batch []byte, next int64) (recordbatch.Header, error) {
	h, err := recordbatch.Check(batch)
	if err != nil {
		return h, &CorruptError{File: name, Offset: at, Cause: err}
	}
	if h.BaseOffset < next {
		return h, &CorruptError{File: name, Offset: at, Cause: fmt.Errorf("offset %d where at least %d belongs", h.BaseOffset, next)}
	}
	return h, nil
}

// batchSize reads a batch's size from its first bytes; ok is false when no batch can have it.
func batchSize(b []byte) (size int, ok bool) {
	n := int32(binary.BigEndian.Uint32(b[8:]))
	if n < recordbatch.HeaderSize-12 || n > 1<<30 {
		return int(n), false
	}
	return int(n) + 12, true
}

// headerAt reads the header of the batch at position at without checking the batch.
func (s *Segment) headerAt(at int64) (recordbatch.Header, error) {
	h, err := s.files.Acquire(s.Path())
	if err != nil {
		return recordbatch.Header{}, err
	}
	defer h.Release()
	return readHeader(h, s.Path(), at)
}

func readHeader(f io.ReaderAt, name string, at int64) (recordbatch.Header, error) {
	var b [recordbatch.HeaderSize]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		if err == io.EOF {
			err = &CorruptError{File: name, Offset: at, Cause: io.ErrUnexpectedEOF}
		}
		return recordbatch.Header{}, err
	}
	h, err := recordbatch.ParseHeader(b[:])
	if err != nil {
		return h, &CorruptError{File: name, Offset: at, Cause: err}
	}
	if size, ok := batchSize(b[:]); !ok {
		return h, &CorruptError{File: name, Offset: at, Cause: fmt.Errorf("impossible batch length %d", size)}
	}
	return h, nil
}

// Recover reads the log from position from, where a caller that knows of a durable prefix says it ends, to the
// end of the file, brings the indexes up to it and cuts off what is no batch. fn sees every batch from from on.
// With dense, offsets must follow one another without a gap: they are outside of a batch's checksum. It returns the cause
// of the cut, nil when there was nothing to cut; err is a failure of the disk.
func (s *Segment) Recover(from int64, dense bool, fn func(h recordbatch.Header)) (cut *CorruptError, err error) {
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return nil, fmt.Errorf("recover %s: %w", s.Path(), err)
	}
	defer fh.Release()
	fileSize, err := fh.Size()
	if err != nil {
		return nil, fmt.Errorf("recover %s: %w", s.Path(), err)
	}
	if from > fileSize {
		return nil, &CorruptError{File: s.Path(), Offset: fileSize,
			Cause: fmt.Errorf("the checkpoint says that %d bytes are durable", from)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = true
	start, next := s.prepare(fh, from)
	last := next - 1
	end, err := scan(fh, s.Path(), next, start, fileSize, func(at int64, h recordbatch.Header, _ []byte) error {
		if dense && h.BaseOffset != last+1 {
			return outOfOrder(s.Path(), at, h, last+1)
		}
		s.note(at, BatchOf(h))
		last = h.LastOffset()
		if at >= from && fn != nil {
			fn(h)
		}
		return nil
	})
	s.size = end
	if err != nil {
		if !errors.As(err, &cut) {
			return nil, err
		}
		if end < from {
			return nil, cut // inside of what was durable: no crash does that
		}
	}
	if end < fileSize {
		if err := s.truncateLocked(fh, end, last); err != nil {
			return cut, err
		}
	}
	return cut, nil
}

// prepare loads what the index files hold of the log before position from and returns where the scan must
// begin and the least offset that may stand there: at the last index entry, so that what is counted since then is exact.
func (s *Segment) prepare(fh vfs.File, from int64) (start, next int64) {
	s.size = from
	s.sinceIndex, s.maxTime, s.maxLast, s.firstTS = 0, -1, s.base-1, -1
	reset := func() (int64, int64) {
		_ = s.index.clear()
		_ = s.times.clear()
		s.maxTime, s.maxLast, s.firstTS = -1, s.base-1, -1
		return 0, s.base
	}
	if s.loadIndexes() != nil || s.index.stored == 0 || from == 0 {
		return reset()
	}
	b, err := s.index.all(s.files, s.index.name)
	if err != nil || len(b) < offsetEntrySize {
		return reset()
	}
	e := b[len(b)-offsetEntrySize:]
	offset := s.base + int64(binary.BigEndian.Uint32(e))
	pos := int64(binary.BigEndian.Uint32(e[4:]))
	h, err := readHeader(fh, s.Path(), pos)
	if err != nil || h.LastOffset() != offset || s.times.cut(offset) != nil {
		return reset()
	}
	// Without the last entries: note adds them again when the scan comes by.
	if s.index.dropLast() != nil {
		return reset()
	}
	if s.times.len() > 0 {
		t, err := s.times.all(s.files, s.times.name)
		if err != nil {
			return reset()
		}
		t = t[len(t)-timeEntrySize:]
		s.maxTime = int64(binary.BigEndian.Uint64(t))
		s.maxLast = s.base + int64(binary.BigEndian.Uint32(t[8:]))
	}
	s.sinceIndex = s.interval + 1
	return pos, h.BaseOffset
}

func (s *Segment) truncateLocked(fh vfs.File, at, lastOffset int64) error {
	if err := fh.Truncate(at); err != nil {
		return fmt.Errorf("truncate %s to %d: %w", s.Path(), at, err)
	}
	if err := fh.Sync(); err != nil {
		return fmt.Errorf("truncate %s to %d: %w", s.Path(), at, err)
	}
	return errors.Join(s.index.cut(at), s.times.cut(lastOffset))
}

// Rebuild makes both indexes anew from the log.
func (s *Segment) Rebuild() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = true
	return s.rebuildLocked()
}

func (s *Segment) rebuildLocked() error {
	fh, err := s.files.Acquire(s.Path())
	if err != nil {
		return err
	}
	defer fh.Release()
	if err := errors.Join(s.index.clear(), s.times.clear()); err != nil {
		return err
	}
	s.sinceIndex, s.maxTime, s.maxLast, s.firstTS = 0, -1, s.base-1, -1
	_, err = scan(fh, s.Path(), s.base, 0, s.size, func(at int64, h recordbatch.Header, _ []byte) error {
		s.note(at, BatchOf(h))
		return nil
	})
	if err != nil {
		return err
	}
	if s.size > 0 {
		s.times.add(s.maxTime, s.maxLast)
	}
	err = errors.Join(s.index.store(), s.times.store(), s.syncFile(s.index.name), s.syncFile(s.times.name))
	if err != nil && s.indexesToMemoryLocked() == nil {
		return nil // no room for them now: the next process tries again
	}
	return err
}

// load makes sure that a sealed segment's indexes are known; the first reader pays for it.
func (s *Segment) load() error {
	s.mu.RLock()
	ok := s.loaded
	s.mu.RUnlock()
	if ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	if err := s.loadIndexes(); err != nil || (s.size > 0 && s.times.stored == 0) {
		if rerr := s.rebuildLocked(); rerr != nil {
			return fmt.Errorf("rebuild the indexes of %s: %w", s.Path(), errors.Join(rerr, err))
		}
	}
	s.loaded = true
	return nil
}
