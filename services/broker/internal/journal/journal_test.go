package journal

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

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
