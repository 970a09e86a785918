package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/databus-suite/databus/internal/vfs"
)

const fileSuffix = ".spool"

// file is one file of the spool. Fields are guarded by the spool's lock; out may be read from without it while refs is held.
type file struct {
	number uint32
	name   string
	out    vfs.File
	size   int64 // what is durable
	live   int64 // bytes of batches that are not done
	refs   int
	gone   bool // to be closed by the last who holds it
	moving bool
}

func (s *Spool) fileName(number uint32) string {
	return filepath.Join(s.cfg.Dir, fmt.Sprintf("%010d%s", number, fileSuffix))
}

// parseFileName returns a spool file's number; ok is false for other files.
func parseFileName(name string) (number uint32, ok bool) {
	digits, found := strings.CutSuffix(name, fileSuffix)
	if !found {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil
}

// readBatch reads the batch of the entry at pos. The error is ErrDamaged or one of the file system.
func (f *file) readBatch(pos int64, size int) ([]byte, error) {
	b := make([]byte, size)
	if n, err := f.out.ReadAt(b, pos); n < size {
		return nil, fmt.Errorf("%s at byte %d: %w", f.name, pos, err)
	}
	r, err := parseRecord(b, f.number)
	if err != nil || r.kind != kindEntry {
		return nil, fmt.Errorf("%s at byte %d: %w", f.name, pos, ErrDamaged)
	}
	_, batch, err := parseEntry(r.body)
	if err != nil {
		return nil, fmt.Errorf("%s at byte %d: %w: %w", f.name, pos, ErrDamaged, err)
	}
	return batch, nil
}

// releaseLocked gives up what Next held.
func (s *Spool) releaseLocked(f *file) {
	f.refs--
	if f.gone && f.refs == 0 {
		_ = f.out.Close() // read only and removed
	}
}

// dropFilesLocked forgets the files that hold nothing any more, but for the newest, and returns them for removal. What their
// other records said is in the head of the newest file.
func (s *Spool) dropFilesLocked() (gone []*file) {
	keep := s.files[:0]
	for i, f := range s.files {
		if f.live > 0 || i == len(s.files)-1 {
			keep = append(keep, f)
			continue
		}
		f.gone = true
		gone = append(gone, f)
	}
	clear(s.files[len(keep):])
	s.files = keep
	return gone
}

// discard takes back a file whose first write failed: nothing in it counts. It reports whether that is so on disk too.
func (s *Spool) discard(f *file) bool {
	if err := s.fs.Remove(f.name); err != nil {
		return false
	}
	if err := s.fs.SyncDir(s.cfg.Dir); err != nil {
		return false
	}
	s.mu.Lock()
	s.files = slices.DeleteFunc(s.files, func(x *file) bool { return x == f })
	s.mu.Unlock()
	_ = f.out.Close() // nobody reads it
	return true
}

// remove deletes files that dropFilesLocked returned. Their queues' states are still in the newest file; once the next one is begun
// they may not be, so by then the removal must be durable.
func (s *Spool) remove(gone []*file) {
	var errs []error
	for _, f := range gone {
		if err := s.fs.Remove(f.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	err := errors.Join(append(errs, s.fs.SyncDir(s.cfg.Dir))...)
	if err != nil {
		s.log.Warn("spool files that are done with may stay on disk", slog.String("dir", s.cfg.Dir), slog.Any("error", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revenant = s.revenant || err != nil
	for _, f := range gone {
		if f.refs == 0 && f.out != nil {
			_ = f.out.Close() // only read
			f.gone = false    // closed
		}
	}
}
