package segment

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

func build(t testing.TB, base, ts int64, n int) []byte {
	t.Helper()
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	for i := range n {
		b.Append(ts+int64(i), nil, fmt.Appendf(nil, "value %d", i), nil)
	}
	out, err := b.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	recordbatch.SetOffset(out, base, 0)
	return out
}

// fill makes a segment of batches of three records with ascending times.
func fill(t testing.TB, fs vfs.FS, dir string, batches int) (*Segment, *vfs.Files) {
	t.Helper()
	files := vfs.NewFiles(fs, 8)
	t.Cleanup(files.Close)
	s, err := Create(files, fs, dir, 100, Options{IndexInterval: 200})
	if err != nil {
		t.Fatal(err)
	}
	for i := range batches {
		b := build(t, 100+int64(i)*3, 1000+int64(i)*10, 3)
		h, err := recordbatch.Check(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Append([][]byte{b}, []Batch{BatchOf(h)}); err != nil {
			t.Fatal(err)
		}
	}
	return s, files
}

func TestSegmentFindsEveryOffset(t *testing.T) {
	t.Parallel()
	for _, sealed := range []bool{false, true} {
		dir := t.TempDir()
		s, files := fill(t, vfs.OS{}, dir, 100)
		if sealed {
			if err := s.Seal(); err != nil {
				t.Fatal(err)
			}
			s = Open(files, vfs.OS{}, dir, 100, s.Size(), Options{IndexInterval: 200})
			if _, err := Verify(vfs.OS{}, dir, 100, func(c *CorruptError) { t.Error(c) }, nil); err != nil {
				t.Fatal(err)
			}
		}
		for offset := int64(100); offset < 400; offset++ {
			b, next, err := s.Read(nil, offset, 1, s.Size(), 400)
			if err != nil {
				t.Fatal(err)
			}
			h, err := recordbatch.Check(b)
			if err != nil || h.BaseOffset > offset || h.LastOffset() < offset || next != h.LastOffset()+1 {
				t.Fatalf("offset %d: batch %d..%d, next %d, %v", offset, h.BaseOffset, h.LastOffset(), next, err)
			}
		}
		if s.MaxTimestamp() != 1992 || s.FirstTimestamp() != 1002 {
			t.Errorf("timestamps %d, %d", s.FirstTimestamp(), s.MaxTimestamp())
		}
	}
}

func TestRecoverCutsGarbage(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewMem()
	if err := fs.MkdirAll("/d"); err != nil {
		t.Fatal(err)
	}
	s, files := fill(t, fs, "/d", 40)
	good := s.Size()
	s.Clean()
	name := filepath.Join("/d", Name(100, LogSuffix))
	data, err := vfs.ReadFile(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, garbage := range [][]byte{{1, 2, 3}, make([]byte, 5000), build(t, 0, 1, 1), build(t, 220, 1, 5)[:80]} {
		if err := vfs.WriteFile(fs, name, append(data[:good:good], garbage...)); err != nil {
			t.Fatal(err)
		}
		s := Open(files, fs, "/d", 100, 0, Options{IndexInterval: 200})
		n := 0
		cut, err := s.Recover(0, true, func(recordbatch.Header) { n++ })
		if err != nil || cut == nil || cut.Offset != good || n != 40 || s.Size() != good {
			t.Errorf("cut %v, %v, %d batches, size %d of %d", cut, err, n, s.Size(), good)
		}
		if err := s.Seal(); err != nil {
			t.Fatal(err)
		}
		if _, err := Verify(fs, "/d", 100, func(c *CorruptError) { t.Error(c) }, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Recover(good+1, true, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a log shorter than its checkpoint: %v", err)
	}
}

// FuzzFiles opens a segment whose three files hold anything.
func FuzzFiles(f *testing.F) {
	fs := vfstest.NewMem()
	if err := fs.MkdirAll("/d"); err != nil {
		f.Fatal(err)
	}
	s, _ := fill(f, fs, "/d", 8)
	if err := s.Seal(); err != nil {
		f.Fatal(err)
	}
	var seeds [3][]byte
	for i, suffix := range []string{LogSuffix, IndexSuffix, TimeIndexSuffix} {
		b, err := vfs.ReadFile(fs, filepath.Join("/d", Name(100, suffix)))
		if err != nil {
			f.Fatal(err)
		}
		seeds[i] = b
	}
	f.Add(seeds[0], seeds[1], seeds[2], int64(110))
	f.Add(seeds[0], []byte{1}, []byte{2}, int64(110))
	f.Add(seeds[0][:100], seeds[1], seeds[2], int64(100))
	f.Fuzz(func(t *testing.T, log, index, times []byte, offset int64) {
		fs := vfstest.NewMem()
		_ = fs.MkdirAll("/d")
		for i, b := range [][]byte{log, index, times} {
			if err := vfs.WriteFile(fs, filepath.Join("/d", Name(100, []string{LogSuffix, IndexSuffix, TimeIndexSuffix}[i])), b); err != nil {
				t.Fatal(err)
			}
		}
		files := vfs.NewFiles(fs, 4)
		defer files.Close()
		s := Open(files, fs, "/d", 100, int64(len(log)), Options{})
		if b, _, err := s.Read(nil, offset, 1000, s.Size(), 1<<40); err == nil && len(b) > 0 {
			if _, err := recordbatch.Check(b[:firstSize(b)]); err != nil {
				t.Errorf("served a bad batch: %v", err)
			}
		}
		_, _, _, _ = s.OffsetForTime(offset, 0, s.Size())
		_, _ = Open(files, fs, "/d", 100, 0, Options{}).Recover(0, true, nil)
	})
}

func firstSize(b []byte) int {
	n, _ := batchSize(b)
	return n
}
