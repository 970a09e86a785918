package journal

import (
	"errors"
	"fmt"
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
			j, err := OpenLocal(dir, Options{FS: vfs.OS{}, FileBytes: 1500})
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
			j, err := OpenLocal("/d/journal", Options{FS: fs, FileBytes: 900})
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
