package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// DamagedSuffix is appended to the name of a log that Salvage has replaced.
const DamagedSuffix = ".damaged"

// Salvage writes a log anew with every batch of it that is whole, and keeps the old file beside it under another name. It
// returns how many bytes were left out and where the first of them was; nothing is changed when there are none.
func Salvage(fsys vfs.FS, name string, base int64) (lost, first int64, err error) {
	data, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return 0, 0, fmt.Errorf("salvage: %w", err)
	}
	kept, first := wholeBatches(data, base)
	for _, b := range kept {
		lost -= int64(len(b))
	}
	lost += int64(len(data))
	if lost == 0 {
		return 0, 0, nil
	}
	f, err := fsys.OpenFile(name+".salvaged", os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return 0, 0, fmt.Errorf("salvage: %w", err)
	}
	if len(kept) > 0 {
		_, err = f.WriteV(kept, 0)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, 0, fmt.Errorf("salvage: %w", err)
	}
	stem := name[:len(name)-len(LogSuffix)]
	for _, suffix := range []string{IndexSuffix, TimeIndexSuffix} {
		if err := fsys.Remove(stem + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 0, 0, fmt.Errorf("salvage: %w", err)
		}
	}
	err = errors.Join(fsys.Rename(name, name+DamagedSuffix), fsys.Rename(name+".salvaged", name), fsys.SyncDir(filepath.Dir(name)))
	return lost, first, err
}

// wholeBatches finds the batches that are good and whose offsets ascend; first is the position of the first bad byte.
func wholeBatches(data []byte, next int64) (kept [][]byte, first int64) {
	first = -1
	for at := 0; at < len(data); {
		if b, h, ok := batchAt(data[at:], next); ok {
			kept = append(kept, b)
			next = h.LastOffset() + 1
			at += len(b)
			continue
		}
		if first < 0 {
			first = int64(at)
		}
		at++
	}
	return kept, first
}

// magicAt is where a batch says its format.
const magicAt = 16

func batchAt(data []byte, next int64) ([]byte, recordbatch.Header, bool) {
	if len(data) < recordbatch.HeaderSize || data[magicAt] != 2 || int64(binary.BigEndian.Uint64(data)) < next {
		return nil, recordbatch.Header{}, false
	}
	size, ok := batchSize(data)
	if !ok || size > len(data) {
		return nil, recordbatch.Header{}, false
	}
	h, err := recordbatch.Check(data[:size])
	return data[:size], h, err == nil
}
