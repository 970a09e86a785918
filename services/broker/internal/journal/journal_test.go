package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

// TestLargeFlushes: flushes of several blocks, in files that are new and in files that are written over, come back whole.
func TestLargeFlushes(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	data := make([]byte, 6*blockBytes)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(data)
	for i, size := range []int{10, blockBytes, 3*blockBytes + 5, 6 * blockBytes} {
		j, err := OpenLocal(dir, Options{FS: vfs.OS{}, FileBytes: 2 * blockBytes})
		if err != nil {
			t.Fatal(err)
		}
		var last [][]byte
		err = j.Replay(func(_ uint64, e Entry) error {
			last = append(last, bytes.Clone(e.Batches[0]))
			return nil
		})
		if err != nil || i > 0 && (len(last) != 2 || !bytes.Equal(last[0], last[1])) {
			t.Fatalf("replayed %d entries before flushes of %d bytes: %v", len(last), size, err)
		}
		if err := j.Trim(^uint64(0)); err != nil {
			t.Fatal(err)
		}
		for _, split := range []int{0, size / 3} {
			if _, err := j.Append([]Entry{{Batches: [][]byte{data[:split], data[split:size]}}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVersion1: a journal whose flushes are aligned to 8 bytes, as version 1 wrote it, is replayed and gone on with.
func TestVersion1(t *testing.T) {
	fs := vfstest.NewMem()
	if err := fs.MkdirAll("/j"); err != nil {
		t.Fatal(err)
	}
	file := fileHeader(5)
	binary.BigEndian.PutUint32(file[4:], 1)
	binary.BigEndian.PutUint32(file[28:], crc32.Checksum(file[:28], castagnoli))
	for seq := range uint64(3) {
		head, bufs := appendFrame(nil, nil, 5, 5+seq, []Entry{{Base: int64(seq), Last: int64(seq), Batches: [][]byte{[]byte("odd size")[:3+seq]}}})
		file = append(file, head...)
		file = append(file, bufs[1]...)
		file = append(file, make([]byte, alignUp(len(file), frameAlignV1)-len(file))...)
	}
	if err := vfs.WriteFile(fs, fmt.Sprintf("/j/%020d%s", 5, fileSuffix), file); err != nil {
		t.Fatal(err)
	}
	for lives, want := range []int64{3, 4} {
		j, err := OpenLocal("/j", Options{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		err = j.Replay(func(seq uint64, e Entry) error {
			if seq != uint64(5+n) || e.Base != n {
				return fmt.Errorf("flush %d with entry %d, want the %dth", seq, e.Base, n)
			}
			n++
			return nil
		})
		if err != nil || n != want {
			t.Fatalf("life %d: replayed %d of %d: %v", lives, n, want, err)
		}
		if seq, err := j.Append([]Entry{{Base: n, Last: n, Batches: [][]byte{[]byte("x")}}}); err != nil || seq != uint64(5+n) {
			t.Fatalf("append: flush %d, %v", seq, err)
		}
	}
}

func FuzzReplay(f *testing.F) {
	head, bufs := appendFrame(nil, nil, 1, 1, []Entry{{Partition: 3, Base: 1, Last: 2, Batches: [][]byte{[]byte("abc")}}})
	valid := append(fileHeader(1), head...)
	for _, b := range bufs[1:] {
		valid = append(valid, b...)
	}
	f.Add(valid)
	f.Add(fileHeader(1))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = replayFile(b, file{name: "x", first: 1}, func(uint64, Entry) error { return nil })
	})
}

// TestHeaderComesWithTheFirstFlush: a loss of power in the first flush of a file that is written over leaves nothing that
// looks like damage.
func TestHeaderComesWithTheFirstFlush(t *testing.T) {
	mem := vfstest.NewMem()
	fs := vfstest.NewFault(mem)
	open := func(fsys vfs.FS) *Local {
		j, err := OpenLocal("/j", Options{FS: fsys})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Replay(func(uint64, Entry) error { return nil }); err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := open(fs)
	one := []Entry{{Batches: [][]byte{make([]byte, 100)}}}
	if _, err := j.Append(one); err != nil {
		t.Fatal(err)
	}
	if err := j.Trim(^uint64(0)); err != nil {
		t.Fatal(err)
	}
	fs.Set(func(op vfstest.Op, name string) error {
		if op == vfstest.OpSync && filepath.Ext(name) == fileSuffix {
			return errors.New("the power fails")
		}
		return nil
	})
	if _, err := j.Append(one); err == nil {
		t.Fatal("a flush that was not synced was acknowledged")
	}
	for seed := range uint64(100) {
		open(mem.Crash(rand.New(rand.NewPCG(seed, 0))))
	}
}
