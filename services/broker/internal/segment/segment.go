// Package segment owns one segment of a partition: a log of record batches with its offset index and time
// index, in Kafka's own three formats byte for byte (docs/format/log.md).
//
// It knows how batches lie in files and how to find, check and cut them. It does not know which batches
// are acknowledged, who may read them, or in which directory the next segment goes.
package segment

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// File name endings, as Kafka's.
const (
	LogSuffix       = ".log"
	IndexSuffix     = ".index"
	TimeIndexSuffix = ".timeindex"
)

// writeOutStep is how many bytes SyncSlowly has on their way to the disk at a time.
const writeOutStep = 128 << 10

// DefaultIndexInterval is how many bytes of log lie between two index entries, as Kafka's.
const DefaultIndexInterval = 4096

// ErrCorrupt is matched by every CorruptError.
var ErrCorrupt = errors.New("corrupt")

// CorruptError says where a file does not hold what it should.
type CorruptError struct {
	File   string
	Offset int64 // byte position in File
	Cause  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %v", e.File, e.Offset, e.Cause)
}
func (e *CorruptError) Unwrap() error        { return e.Cause }
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Name returns the file name of a segment's file: twenty digits and the suffix.
func Name(base int64, suffix string) string { return fmt.Sprintf("%020d%s", base, suffix) }

// ParseName is Name's inverse for log files.
func ParseName(name string) (base int64, ok bool) {
	digits, found := strings.CutSuffix(name, LogSuffix)
	if !found || len(digits) != 20 {
		return 0, false
	}
	base, err := strconv.ParseInt(digits, 10, 64)
	return base, err == nil && base >= 0
}

// Batch is what a segment needs to know of a batch beside its bytes.
type Batch struct {
	Base, Last   int64 // offsets
	MaxTimestamp int64
	Size         int
}

// Segment is one segment. One goroutine may append, cut and flush; any number may read at the same time.
// It holds no file open by itself but what was written and not synced: Sync and Close let go of it.
type Segment struct {
	files    *vfs.Files
	fs       vfs.FS
	dir      string
	base     int64
	interval int64
	prealloc int64

	// Owned by the writer.
	dirty      *vfs.Handle // held from the first unsynced write to the sync after it
	reserved   int64       // blocks are reserved up to here
	sinceIndex int64       // bytes since the last index entry

	mu      sync.RWMutex
	size    int64 // bytes of valid log
	maxTime int64 // largest timestamp, -1 when empty
	maxLast int64 // last offset of the batch that holds maxTime
	firstTS int64 // largest timestamp of the first batch, -1 when empty
	loaded  bool  // the fields below and the timestamps are known
	index   offsetIndex
	times   timeIndex
	checked spans // of the log, by Section
}

// Options says how a segment is written.
type Options struct {
	IndexInterval int32 // bytes of log between index entries; 0 means DefaultIndexInterval
	Prealloc      int64 // bytes reserved ahead of the writes; 0 reserves nothing
}

func newSegment(files *vfs.Files, fsys vfs.FS, dir string, base int64, o Options) *Segment {
	interval := int64(o.IndexInterval)
	if interval <= 0 {
		interval = DefaultIndexInterval
	}
	s := &Segment{files: files, fs: fsys, dir: dir, base: base, interval: interval, prealloc: o.Prealloc,
		maxTime: -1, maxLast: base - 1, firstTS: -1, loaded: true}
	s.index = offsetIndex{files: files, name: s.path(IndexSuffix), base: base, table: table{entry: offsetEntrySize}}
	s.times = timeIndex{files: files, name: s.path(TimeIndexSuffix), base: base, table: table{entry: timeEntrySize}, last: -1}
	return s
}

// Create makes an empty segment's three files in dir and makes their names durable.
func Create(files *vfs.Files, fsys vfs.FS, dir string, base int64, o Options) (*Segment, error) {
	s := newSegment(files, fsys, dir, base, o)
	for _, suffix := range []string{LogSuffix, IndexSuffix, TimeIndexSuffix} {
		files.Forget(s.path(suffix))
		f, err := fsys.OpenFile(s.path(suffix), os.O_RDWR|os.O_CREATE|os.O_TRUNC)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("create segment %s: %w", s.path(suffix), err)
		}
	}
	if err := fsys.SyncDir(dir); err != nil {
		return nil, fmt.Errorf("create segment %s: %w", s.Path(), err)
	}
	return s, nil
}

// Open returns a segment whose log has size valid bytes, of which the caller is sure: nothing is read. The indexes
// are loaded by the first reader; where a file is missing or impossible they are built anew from the log.
func Open(files *vfs.Files, fsys vfs.FS, dir string, base, size int64, o Options) *Segment {
	s := newSegment(files, fsys, dir, base, o)
	s.size = size
	s.loaded = false
	return s
}

func (s *Segment) path(suffix string) string { return filepath.Join(s.dir, Name(s.base, suffix)) }

// Path is the log file's name. Dir is the directory that holds the segment. Base is its first offset.
func (s *Segment) Path() string { return s.path(LogSuffix) }
func (s *Segment) Dir() string  { return s.dir }
func (s *Segment) Base() int64  { return s.base }

// Size is the number of bytes of log.
func (s *Segment) Size() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.size
}

// MaxTimestamp is the largest timestamp in the segment, -1 when it is empty.
func (s *Segment) MaxTimestamp() int64 {
	_ = s.load() // an unreadable segment has no timestamp; whoever reads it learns why
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.maxTime
}

// FirstTimestamp is the largest timestamp of the first batch, by which a segment's age is counted; -1 when empty.
func (s *Segment) FirstTimestamp() int64 {
	_ = s.load()
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.firstTS
}

// Fits says whether n more bytes and offset last can be addressed by the indexes' 32 bits.
func (s *Segment) Fits(n int, last int64) bool {
	const max32 = 1<<31 - 1
	return s.Size()+int64(n) <= max32 && last-s.base <= max32
}

// Append writes whole batches at the end in one call. bufs are their bytes, batches describes them in the
// same order. After an error the segment is as before; what was partly written will be overwritten.
func (s *Segment) Append(bufs [][]byte, batches []Batch) error {
	if s.dirty == nil {
		h, err := s.files.Acquire(s.Path())
		if err != nil {
			return fmt.Errorf("append to %s: %w", s.Path(), err)
		}
		s.dirty = h
	}
	var n int64
	for i := range batches {
		n += int64(batches[i].Size)
	}
	at := s.Size()
	s.reserve(at + n)
	if _, err := s.dirty.WriteV(bufs, at); err != nil {
		return fmt.Errorf("append to %s at %d: %w", s.Path(), at, err)
	}
	s.mu.Lock()
	for i := range batches {
		s.note(at, batches[i])
		at += int64(batches[i].Size)
	}
	s.size = at
	s.mu.Unlock()
	return nil
}

// reserve keeps blocks allocated ahead of the writes once a segment has shown that it grows, so that ten
// thousand idle partitions reserve nothing.
func (s *Segment) reserve(end int64) {
	if s.prealloc <= 0 || end <= s.reserved || end < s.prealloc/4 {
		return
	}
	from := max(s.reserved, end-(end%s.prealloc))
	to := end + s.prealloc
	if s.dirty.Preallocate(from, to-from) != nil {
		s.prealloc = 0 // no room or no support: the write itself will say so
		return
	}
	s.reserved = to
}

// note accounts for one batch at position at; s.mu is held.
func (s *Segment) note(at int64, b Batch) {
	if b.MaxTimestamp > s.maxTime {
		s.maxTime, s.maxLast = b.MaxTimestamp, b.Last
	}
	if at == 0 {
		s.firstTS = b.MaxTimestamp
	}
	if s.sinceIndex > s.interval {
		s.index.add(b.Last, at)
		s.times.add(s.maxTime, s.maxLast)
		s.sinceIndex = 0
	}
	s.sinceIndex += int64(b.Size)
}

// Sync makes the log durable. After an error nothing may be assumed of what was appended since the last success.
// It may run while the writer appends more.
func (s *Segment) Sync() error {
	h, err := s.files.Acquire(s.Path())
	if err != nil {
		return fmt.Errorf("sync %s: %w", s.Path(), err)
	}
	defer h.Release()
	if err := h.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", s.Path(), err)
	}
	return nil
}

// SyncSlowly is Sync where nobody waits for it: what lies between two positions is written out step by step first. In one
// go it would keep the journal's flushes to the same disk waiting until all of it is there.
func (s *Segment) SyncSlowly(from, to int64) error {
	// In a file of its own: the system tells each open file once of a write that failed, and Sync must hear of it.
	if f, err := s.fs.OpenFile(s.Path(), os.O_RDWR); err == nil {
		for ; from < to; from += writeOutStep {
			f.WriteOut(from, min(writeOutStep, to-from))
		}
		_ = f.Close()
	}
	return s.Sync()
}

// Clean lets go of the file once the caller knows that all of it is synced. Only the writer may call it.
func (s *Segment) Clean() {
	if s.dirty != nil {
		s.dirty.Release()
		s.dirty = nil
	}
}

// FlushIndexes writes the index entries that are still in memory to their files and syncs them. It may run while
// the writer appends more.
func (s *Segment) FlushIndexes() error {
	s.mu.Lock()
	err := errors.Join(s.index.store(), s.times.store())
	s.mu.Unlock()
	if err == nil {
		err = errors.Join(s.syncFile(s.index.name), s.syncFile(s.times.name))
	}
	if err != nil {
		return fmt.Errorf("flush the indexes of %s: %w", s.Path(), err)
	}
	return nil
}

func (s *Segment) syncFile(name string) error {
	h, err := s.files.Acquire(name)
	if err != nil {
		return err
	}
	defer h.Release()
	return h.Sync()
}

// Seal syncs the log, completes and syncs the indexes and gives reserved blocks back. Nothing may be appended after.
func (s *Segment) Seal() error {
	s.mu.Lock()
	if s.size > 0 {
		s.times.add(s.maxTime, s.maxLast)
	}
	size := s.size
	s.mu.Unlock()
	if s.dirty != nil && s.reserved > size {
		if err := s.dirty.Truncate(size); err != nil {
			return fmt.Errorf("seal %s: %w", s.Path(), err)
		}
		s.reserved = size
	}
	// Even when nothing was written since the last sync: what a recovery found may never have been synced.
	if err := s.Sync(); err != nil {
		return err
	}
	if err := s.FlushIndexes(); err != nil {
		// The log is what counts. Without index files the next process builds them anew; a short one would mislead it.
		if derr := s.indexesToMemory(); derr != nil {
			return errors.Join(err, derr)
		}
	}
	s.Clean()
	return nil
}

// indexesToMemory removes the index files and keeps their entries in memory.
func (s *Segment) indexesToMemory() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.indexesToMemoryLocked()
}

func (s *Segment) indexesToMemoryLocked() error {
	if err := errors.Join(s.index.toMemory(s.files, s.index.name), s.times.toMemory(s.files, s.times.name)); err != nil {
		return err
	}
	for _, name := range []string{s.index.name, s.times.name} {
		s.files.Forget(name)
		if err := s.fs.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Truncate cuts the log at position at, which must be a batch's begin, and drops index entries past it.
// lastOffset is the last offset that remains.
func (s *Segment) Truncate(at, lastOffset int64) error {
	h, err := s.files.Acquire(s.Path())
	if err != nil {
		return fmt.Errorf("truncate %s: %w", s.Path(), err)
	}
	defer h.Release()
	if err := h.Truncate(at); err != nil {
		return fmt.Errorf("truncate %s to %d: %w", s.Path(), at, err)
	}
	if err := h.Sync(); err != nil {
		return fmt.Errorf("truncate %s to %d: %w", s.Path(), at, err)
	}
	s.mu.Lock()
	s.size = min(s.size, at)
	s.reserved = 0
	s.checked.cut(at)
	err = errors.Join(s.index.cut(at), s.times.cut(lastOffset))
	s.mu.Unlock()
	return err
}

// Bound makes position at the end for every reader without touching the file: the rest lives in a later segment.
func (s *Segment) Bound(at int64) {
	s.mu.Lock()
	s.size = min(s.size, at)
	s.mu.Unlock()
}

// Close lets go of the files. It does not sync.
func (s *Segment) Close() { s.Clean() }

// Remove deletes the three files. Whoever reads from an acquired file goes on doing so.
func (s *Segment) Remove() error {
	s.Clean()
	var errs []error
	for _, suffix := range []string{IndexSuffix, TimeIndexSuffix, LogSuffix} {
		s.files.Forget(s.path(suffix))
		if err := s.fs.Remove(s.path(suffix)); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Forget makes the next reader open the files anew.
func (s *Segment) Forget() {
	for _, suffix := range []string{IndexSuffix, TimeIndexSuffix, LogSuffix} {
		s.files.Forget(s.path(suffix))
	}
}

// BatchOf describes a batch by its header.
func BatchOf(h recordbatch.Header) Batch {
	return Batch{Base: h.BaseOffset, Last: h.LastOffset(), MaxTimestamp: h.MaxTimestamp, Size: h.Size()}
}
