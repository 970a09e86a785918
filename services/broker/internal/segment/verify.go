package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// Verified says what Verify has read.
type Verified struct {
	Size    int64 // bytes of whole batches
	Batches int64
	Records int64
	Next    int64 // the offset behind the last batch
}

// Verify reads a whole segment without changing it. It reports every *CorruptError: the log's first, then each index
// entry that does not lead where it should. fn, when given, sees each good batch.
func Verify(fsys vfs.FS, dir string, base int64, report func(*CorruptError), fn func(at int64, h recordbatch.Header, batch []byte) error) (Verified, error) {
	v := Verified{Next: base}
	name := filepath.Join(dir, Name(base, LogSuffix))
	f, err := fsys.OpenFile(name, 0)
	if err != nil {
		return v, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return v, err
	}
	type place struct{ last, maxTS int64 }
	at := make(map[int64]place) // by position
	lasts := make(map[int64]int64)
	v.Size, err = scan(f, name, base, 0, size, func(pos int64, h recordbatch.Header, b []byte) error {
		v.Batches++
		v.Records += int64(h.Count)
		v.Next = h.LastOffset() + 1
		at[pos] = place{last: h.LastOffset(), maxTS: h.MaxTimestamp}
		lasts[h.LastOffset()] = h.MaxTimestamp
		if fn != nil {
			return fn(pos, h, b)
		}
		return nil
	})
	var c *CorruptError
	if errors.As(err, &c) {
		report(c)
	} else if err != nil {
		return v, err
	}
	checkIndex(fsys, filepath.Join(dir, Name(base, IndexSuffix)), offsetEntrySize, report, func(e []byte) error {
		pos := int64(binary.BigEndian.Uint32(e[4:]))
		offset := base + int64(binary.BigEndian.Uint32(e))
		if p, ok := at[pos]; pos < v.Size && (!ok || p.last != offset) {
			return fmt.Errorf("offset %d is not the last of a batch at position %d", offset, pos)
		}
		return nil
	})
	checkIndex(fsys, filepath.Join(dir, Name(base, TimeIndexSuffix)), timeEntrySize, report, func(e []byte) error {
		offset := base + int64(binary.BigEndian.Uint32(e[8:]))
		if ts, ok := lasts[offset]; offset < v.Next && (!ok || ts != int64(binary.BigEndian.Uint64(e))) {
			return fmt.Errorf("no batch ends with offset %d and has timestamp %d as its largest", offset, binary.BigEndian.Uint64(e))
		}
		return nil
	})
	return v, nil
}

// checkIndex checks that entries ascend and that each is good.
func checkIndex(fsys vfs.FS, name string, entry int, report func(*CorruptError), check func(e []byte) error) {
	b, err := vfs.ReadFile(fsys, name)
	if err != nil {
		report(&CorruptError{File: name, Cause: err})
		return
	}
	if len(b)%entry != 0 {
		report(&CorruptError{File: name, Offset: int64(len(b)), Cause: fmt.Errorf("size is no multiple of %d", entry)})
	}
	for i := 0; i+entry <= len(b); i += entry {
		e := b[i : i+entry]
		err := check(e)
		if err == nil && i > 0 && string(e[:entry-4]) < string(b[i-entry:i-4]) {
			err = errors.New("entries do not ascend")
		}
		if err != nil {
			report(&CorruptError{File: name, Offset: int64(i), Cause: err})
		}
	}
}
