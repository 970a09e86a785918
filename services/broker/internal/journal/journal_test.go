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

	"github.com/google/go-cmp/cmp"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

// conformance is what every Journal must do. reopen closes the journal and opens what it left.
func conformance(t *testing.T, open func(t *testing.T) (j Journal, reopen func() Journal)) {
	entry := func(p int32, base int64, text string) Entry {
		return Entry{Topic: [16]byte{1}, Partition: p, Base: base, Last: base + 1, Batches: [][]byte{[]byte(text), []byte("!")}}
	}
	replay := func(t *testing.T, j Journal) (out []string) {
		t.Helper()
		last := uint64(0)
		err := j.Replay(func(seq uint64, e Entry) error {
			if seq < last {
				t.Errorf("flush %d after %d", seq, last)
			}
			last = seq
			text := ""
			for _, b := range e.Batches {
				text += string(b)
			}
			out = append(out, fmt.Sprintf("%d/%d/%d %s", e.Partition, e.Base, e.Last, text))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	t.Run("what is appended is replayed in order", func(t *testing.T) {
		j, reopen := open(t)
		if got := replay(t, j); got != nil {
			t.Errorf("a new journal holds %v", got)
		}
		var want []string
		var last uint64
		for i := range int64(50) {
			seq, err := j.Append([]Entry{entry(0, i, "a"), entry(1, i, "b")})
			if err != nil || seq <= last {
				t.Fatalf("append: %d after %d, %v", seq, last, err)
			}
			last = seq
			want = append(want, fmt.Sprintf("0/%d/%d a!", i, i+1), fmt.Sprintf("1/%d/%d b!", i, i+1))
		}
		j = reopen()
		if diff := cmp.Diff(want, replay(t, j)); diff != "" {
			t.Error(diff)
		}
		if seq, err := j.Append([]Entry{entry(0, 50, "c")}); err != nil || seq <= last {
			t.Errorf("append after reopen: %d, %v", seq, err)
		}
	})
	t.Run("what is trimmed may go, the rest stays", func(t *testing.T) {
		j, reopen := open(t)
		replay(t, j)
		var seqs []uint64
		for i := range int64(100) {
			seq, err := j.Append([]Entry{entry(0, i, "some text to fill a file with")})
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, seq)
		}
		before := j.Size()
		if err := j.Trim(seqs[79]); err != nil {
			t.Fatal(err)
		}
		if j.Size() >= before {
			t.Errorf("trim freed nothing of %d bytes", before)
		}
		for i := int64(100); i < 150; i++ {
			if _, err := j.Append([]Entry{entry(0, i, "over what was trimmed")}); err != nil {
				t.Fatal(err)
			}
		}
		got := replay(t, reopen())
		if len(got) < 70 || got[len(got)-1] != "0/149/150 over what was trimmed!" {
			t.Errorf("%d entries, the last is %q", len(got), got[len(got)-1])
		}
	})
	t.Run("it can be read while it is appended to", func(t *testing.T) {
		j, _ := open(t)
		replay(t, j)
		var first uint64
		for i := range int64(40) {
			seq, err := j.Append([]Entry{entry(0, i, "some text to fill a file with")})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = seq
			}
			n, last := int64(0), first
			err = j.Read(func(seq uint64, e Entry) error {
				if e.Base != n || seq < last {
					return fmt.Errorf("entry %d of flush %d after %d", e.Base, seq, last)
				}
				n, last = n+1, seq
				return nil
			})
			if err != nil || n != i+1 || last != seq {
				t.Fatalf("read %d of %d entries up to flush %d of %d: %v", n, i+1, last, seq, err)
			}
		}
	})
	t.Run("all of it can be trimmed", func(t *testing.T) {
		j, reopen := open(t)
		replay(t, j)
		for i := range int64(5) {
			if _, err := j.Append([]Entry{entry(0, i, "x")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := j.Trim(^uint64(0)); err != nil {
			t.Fatal(err)
		}
		if j.Size() != 0 {
			t.Errorf("%d bytes are left", j.Size())
		}
		j = reopen()
		if got := replay(t, j); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Append([]Entry{entry(0, 1, "x")}); !errors.Is(err, ErrClosed) {
			t.Errorf("append after close: %v", err)
		}
	})
}

func TestLocalConformance(t *testing.T) {
	t.Parallel()
	conformance(t, func(t *testing.T) (Journal, func() Journal) {
		dir := filepath.Join(t.TempDir(), "journal")
		open := func() Journal {
			j, err := OpenLocal(dir, Options{FS: vfs.OS{}, FileBytes: 5 * frameAlign})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = j.Close() })
			return j
		}
		j := open()
		return j, func() Journal {
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			return open()
		}
	})
}

// TestLocalPowerLoss: after a loss of power every acknowledged flush is there, however often files were written over.
func TestLocalPowerLoss(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	for range 60 {
		fs := vfstest.NewMem()
		if err := errors.Join(fs.MkdirAll("/d"), fs.SyncDir("/")); err != nil {
			t.Fatal(err)
		}
		var acked, trimmed int64
		for range 3 {
			j, err := OpenLocal("/d/journal", Options{FS: fs, FileBytes: 3 * frameAlign})
			if err != nil {
				t.Fatal(err)
			}
			next, last := trimmed, int64(-1)
			err = j.Replay(func(_ uint64, e Entry) error {
				if e.Base > next || last >= 0 && e.Base != last+1 {
					return fmt.Errorf("entry %d after %d and %d", e.Base, last, next)
				}
				last = e.Base
				next = max(next, e.Last)
				return nil
			})
			if err != nil || next < acked {
				t.Fatalf("replayed up to %d of %d: %v", next, acked, err)
			}
			acked = next
			for range rng.IntN(60) {
				n := rng.IntN(300)
				seq, err := j.Append([]Entry{{Base: acked, Last: acked + 1, Batches: [][]byte{make([]byte, n)}}})
				if err != nil {
					t.Fatal(err)
				}
				acked++
				if rng.IntN(8) == 0 {
					if err := j.Trim(seq); err != nil {
						t.Fatal(err)
					}
					trimmed = acked
				}
			}
			fs = fs.Crash(rng)
		}
	}
}

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
