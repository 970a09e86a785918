package store

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/databus-suite/databus/services/broker/internal/segment"
)

// Endings of files that compaction makes. A cleaned file is unfinished and worth nothing. A swap file is complete;
// its name says which segments it takes the place of: those with a base in [first, end).
const (
	CleanedSuffix = ".cleaned"
	SwapSuffix    = ".swap"
)

// SwapName is the name of the file that replaces the segments with a base in [first, end).
func SwapName(first, end int64) string { return fmt.Sprintf("%020d.%020d%s", first, end, SwapSuffix) }

func parseSwap(name string) (first, end int64, ok bool) {
	v, ok := strings.CutSuffix(name, SwapSuffix)
	if !ok || len(v) != 41 || v[20] != '.' {
		return 0, 0, false
	}
	first, err1 := strconv.ParseInt(v[:20], 10, 64)
	end, err2 := strconv.ParseInt(v[21:], 10, 64)
	return first, end, err1 == nil && err2 == nil && first < end
}

// swaps finds the complete swap files in a partition's directory and drops unfinished ones.
func (s *FS) swaps(d *dataDir, dir string, entries []fs.DirEntry) (found []Swap, err error) {
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if strings.HasSuffix(e.Name(), CleanedSuffix) {
			if err := s.fs.Remove(name); err != nil {
				return nil, fmt.Errorf("drop unfinished compaction: %w", err)
			}
			continue
		}
		first, end, ok := parseSwap(e.Name())
		if !ok {
			continue
		}
		st, err := s.fs.Stat(name)
		if err != nil {
			return nil, err
		}
		found = append(found, Swap{Dir: dir, ID: d.id, First: first, End: end, Size: st.Size()})
	}
	return found, nil
}

// DropSwap implements Store.
func (s *FS) DropSwap(w Swap) error {
	return s.fs.Remove(filepath.Join(w.Dir, SwapName(w.First, w.End)))
}

// FinishSwap implements Store.
func (s *FS) FinishSwap(w Swap) error {
	dir, first, end := w.Dir, w.First, w.End
	entries, err := readDir(s.fs, dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, ok := segment.ParseName(e.Name())
		if !ok || base < first || base >= end {
			continue
		}
		// The indexes go first: a log without them is complete, they are built anew.
		for _, suffix := range []string{segment.IndexSuffix, segment.TimeIndexSuffix, segment.LogSuffix} {
			if suffix == segment.LogSuffix && base == first {
				continue // the rename replaces it
			}
			name := filepath.Join(dir, segment.Name(base, suffix))
			s.files.Forget(name)
			if err := s.fs.Remove(name); err != nil && !isNotExist(err) {
				return fmt.Errorf("swap compacted segment: %w", err)
			}
		}
	}
	if err := s.fs.SyncDir(dir); err != nil {
		return fmt.Errorf("swap compacted segment: %w", err)
	}
	to := filepath.Join(dir, segment.Name(first, segment.LogSuffix))
	s.files.Forget(to)
	if err := s.fs.Rename(filepath.Join(dir, SwapName(first, end)), to); err != nil {
		return fmt.Errorf("swap compacted segment: %w", err)
	}
	s.files.Forget(to)
	if err := s.fs.SyncDir(dir); err != nil {
		return fmt.Errorf("swap compacted segment: %w", err)
	}
	return nil
}
