package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/databus-suite/databus/internal/vfs"
)

// Sizes of index entries in bytes.
const (
	offsetEntrySize = 8
	timeEntrySize   = 12
)

// table is what both indexes are: fixed-size entries, the older ones in a file, the newer ones in memory until
// they are flushed. Lookups read the file rather than map it: a page that can not be read is an error here and
// would be a dead process there. The segment's lock guards it.
type table struct {
	entry  int
	stored int64  // entries in the file
	tail   []byte // entries not yet in the file
}

func (t *table) len() int64 { return t.stored + int64(len(t.tail)/t.entry) }

// search returns the last entry for which before is true, before being true for a prefix of the entries.
func (t *table) search(files *vfs.Files, name string, before func(e []byte) bool) (e []byte, err error) {
	mem := len(t.tail) / t.entry
	i := sort.Search(mem, func(i int) bool { return !before(t.tail[i*t.entry : (i+1)*t.entry]) })
	if i > 0 {
		return t.tail[(i-1)*t.entry : i*t.entry], nil
	}
	if t.stored == 0 {
		return nil, nil
	}
	h, err := files.Acquire(name)
	if err != nil {
		return nil, err
	}
	defer h.Release()
	var buf [timeEntrySize]byte
	at := func(i int64) ([]byte, error) {
		b := buf[:t.entry]
		_, err := h.ReadAt(b, i*int64(t.entry))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return b, err
	}
	lo, hi := int64(0), t.stored // the first for which before is false lies in [lo, hi]
	for lo < hi {
		mid := (lo + hi) / 2
		b, err := at(mid)
		if err != nil {
			return nil, fmt.Errorf("read index %s: %w", name, err)
		}
		if before(b) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return nil, nil
	}
	b, err := at(lo - 1)
	if err != nil {
		return nil, fmt.Errorf("read index %s: %w", name, err)
	}
	return append([]byte(nil), b...), nil
}

// acquire opens the file, and makes one that may be missing: there was no room for it, or it holds nothing yet.
func (t *table) acquire(files *vfs.Files, name string) (*vfs.Handle, error) {
	h, err := files.Acquire(name)
	if errors.Is(err, os.ErrNotExist) && t.stored == 0 {
		h, err = files.Create(name)
	}
	return h, err
}

// store writes the entries in memory to the file, without a sync.
func (t *table) store(files *vfs.Files, name string) error {
	if len(t.tail) == 0 {
		return nil
	}
	h, err := t.acquire(files, name)
	if err != nil {
		return err
	}
	defer h.Release()
	if _, err := h.WriteV([][]byte{t.tail}, t.stored*int64(t.entry)); err != nil {
		return err
	}
	t.stored = t.len()
	t.tail = nil
	return nil
}

// cut keeps the first n entries.
func (t *table) cut(files *vfs.Files, name string, n int64) error {
	if n >= t.stored {
		t.tail = t.tail[:min(int64(len(t.tail)), (n-t.stored)*int64(t.entry))]
		return nil
	}
	t.tail = nil
	h, err := files.Acquire(name)
	if err != nil {
		return err
	}
	defer h.Release()
	if err := h.Truncate(n * int64(t.entry)); err != nil {
		return fmt.Errorf("truncate index %s: %w", name, err)
	}
	t.stored = n
	return nil
}

// clear drops every entry; a missing file is made.
func (t *table) clear(files *vfs.Files, name string) error {
	t.stored, t.tail = 0, nil
	h, err := t.acquire(files, name)
	if err != nil {
		return err
	}
	defer h.Release()
	return h.Truncate(0)
}

// all reads every entry.
func (t *table) all(files *vfs.Files, name string) ([]byte, error) {
	b := make([]byte, t.stored*int64(t.entry), t.len()*int64(t.entry))
	if t.stored > 0 {
		h, err := files.Acquire(name)
		if err != nil {
			return nil, err
		}
		defer h.Release()
		if _, err := h.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	return append(b, t.tail...), nil
}

// toMemory takes all entries into memory.
func (t *table) toMemory(files *vfs.Files, name string) error {
	b, err := t.all(files, name)
	if err != nil {
		return err
	}
	t.stored, t.tail = 0, b
	return nil
}

// offsetIndex maps the last offset of a batch to the batch's position.
type offsetIndex struct {
	table
	files *vfs.Files
	name  string
	base  int64
}

func (x *offsetIndex) add(offset, pos int64) {
	x.tail = binary.BigEndian.AppendUint32(x.tail, uint32(offset-x.base))
	x.tail = binary.BigEndian.AppendUint32(x.tail, uint32(pos))
}

// lookup returns the last entry at or before offset: a batch's position and last offset, 0 and -1 when there is none.
func (x *offsetIndex) lookup(offset int64) (pos, last int64, err error) {
	rel := offset - x.base
	e, err := x.search(x.files, x.name, func(e []byte) bool {
		return int64(binary.BigEndian.Uint32(e)) <= rel
	})
	if e == nil || err != nil {
		return 0, -1, err
	}
	return int64(binary.BigEndian.Uint32(e[4:])), x.base + int64(binary.BigEndian.Uint32(e)), nil
}

// lookupPos is lookup by position: the last batch at or before pos that has an entry.
func (x *offsetIndex) lookupPos(pos int64) (at, last int64, err error) {
	e, err := x.search(x.files, x.name, func(e []byte) bool {
		return int64(binary.BigEndian.Uint32(e[4:])) <= pos
	})
	if e == nil || err != nil {
		return 0, -1, err
	}
	return int64(binary.BigEndian.Uint32(e[4:])), x.base + int64(binary.BigEndian.Uint32(e)), nil
}

func (x *offsetIndex) store() error { return x.table.store(x.files, x.name) }

// cut drops the entries of batches at or past pos.
func (x *offsetIndex) cut(pos int64) error {
	b, err := x.all(x.files, x.name)
	if err != nil {
		return err
	}
	n := sort.Search(len(b)/offsetEntrySize, func(i int) bool {
		return int64(binary.BigEndian.Uint32(b[i*offsetEntrySize+4:])) >= pos
	})
	return x.table.cut(x.files, x.name, int64(n))
}

// clear drops every entry; a missing file is made.
func (x *offsetIndex) clear() error { return x.table.clear(x.files, x.name) }

// dropLast drops the last entry.
func (x *offsetIndex) dropLast() error { return x.table.cut(x.files, x.name, max(x.len()-1, 0)) }

// timeIndex maps a timestamp to the last offset of the batch by which the log first reached it.
type timeIndex struct {
	table
	files *vfs.Files
	name  string
	base  int64
	last  int64 // timestamp of the last entry
}

// add appends an entry when it goes on from the last one; timestamps in the index only grow.
func (x *timeIndex) add(ts, offset int64) {
	if x.len() > 0 && ts <= x.last || ts < 0 {
		return
	}
	x.tail = binary.BigEndian.AppendUint64(x.tail, uint64(ts))
	x.tail = binary.BigEndian.AppendUint32(x.tail, uint32(offset-x.base))
	x.last = ts
}

// lookup returns the last entry below ts; ok is false when there is none.
func (x *timeIndex) lookup(ts int64) (offset, stamp int64, ok bool, err error) {
	e, err := x.search(x.files, x.name, func(e []byte) bool {
		return int64(binary.BigEndian.Uint64(e)) < ts
	})
	if e == nil || err != nil {
		return 0, 0, false, err
	}
	return x.base + int64(binary.BigEndian.Uint32(e[8:])), int64(binary.BigEndian.Uint64(e)), true, nil
}

func (x *timeIndex) store() error { return x.table.store(x.files, x.name) }

func (x *timeIndex) clear() error {
	x.last = -1
	return x.table.clear(x.files, x.name)
}

// cut drops the entries of offsets past lastOffset.
func (x *timeIndex) cut(lastOffset int64) error {
	b, err := x.all(x.files, x.name)
	if err != nil {
		return err
	}
	n := sort.Search(len(b)/timeEntrySize, func(i int) bool {
		return x.base+int64(binary.BigEndian.Uint32(b[i*timeEntrySize+8:])) > lastOffset
	})
	x.last = -1
	if n > 0 {
		x.last = int64(binary.BigEndian.Uint64(b[(n-1)*timeEntrySize:]))
	}
	return x.table.cut(x.files, x.name, int64(n))
}

// load opens the index files' sizes and checks that they can belong to the log.
func (s *Segment) loadIndexes() error {
	n, last, err := loadTable(s.files, s.index.name, offsetEntrySize)
	if err != nil {
		return err
	}
	if n > 0 && int64(binary.BigEndian.Uint32(last[4:])) >= s.size {
		// Entries past the valid log: left over from a crash. Whoever recovers cuts them.
		s.index.stored = n
		if err := s.index.cut(s.size); err != nil {
			return err
		}
		n = s.index.stored
	}
	s.index.stored = n
	n, last, err = loadTable(s.files, s.times.name, timeEntrySize)
	if err != nil {
		return err
	}
	s.times.stored = n
	s.times.last = -1
	if n > 0 {
		s.times.last = int64(binary.BigEndian.Uint64(last))
		s.maxTime = s.times.last
		s.maxLast = s.base + int64(binary.BigEndian.Uint32(last[8:]))
	}
	if s.size == 0 {
		return nil
	}
	h, err := s.headerAt(0)
	if err != nil {
		return err
	}
	s.firstTS = h.MaxTimestamp
	return nil
}

// loadTable returns the number of entries in an index file and the last one.
func loadTable(files *vfs.Files, name string, entry int) (n int64, last []byte, err error) {
	h, err := files.Acquire(name)
	if err != nil {
		return 0, nil, err
	}
	defer h.Release()
	size, err := h.Size()
	if err != nil {
		return 0, nil, err
	}
	if size%int64(entry) != 0 {
		return 0, nil, &CorruptError{File: name, Offset: size, Cause: fmt.Errorf("size is no multiple of %d", entry)}
	}
	if size == 0 {
		return 0, nil, nil
	}
	last = make([]byte, entry)
	if _, err := h.ReadAt(last, size-int64(entry)); err != nil && !errors.Is(err, io.EOF) {
		return 0, nil, err
	}
	return size / int64(entry), last, nil
}
