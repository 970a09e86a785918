package log

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/services/broker/internal/segment"
)

// damaged opens a log whose files were changed and reads all of it. Every record that it serves must be one that was
// written; anything else must be an error that names a file. It returns whether everything was there.
func damaged(t *testing.T, fs vfs.FS, want map[int64]string, what string) (whole bool) {
	t.Helper()
	l, err := Open(t.Context(), Config{Dirs: []string{"/a"}, FS: fs})
	if err != nil {
		if !strings.Contains(err.Error(), "/a/") {
			t.Errorf("%s: the refusal names no file: %v", what, err)
		}
		return false
	}
	defer func() { _ = l.Close(context.Background()) }()
	p, ok := l.Partition("orders", 0)
	if !ok {
		return false
	}
	if err := p.Err(); err != nil {
		if !strings.Contains(err.Error(), "orders") {
			t.Errorf("%s: the partition's error names no file: %v", what, err)
		}
		return false
	}
	start, high, _ := p.Bounds()
	n := 0
	for at := start; at < high; {
		r, err := p.Fetch(t.Context(), FetchOptions{Offset: at, MaxBytes: 500})
		if err != nil {
			var c *CorruptError
			if !errors.As(err, &c) || c.File == "" {
				t.Errorf("%s: fetch at %d: %v", what, at, err)
			}
			return false
		}
		for o, v := range recordsOf(t, r.Bytes()) {
			if o >= at {
				n++
				if want[o] != v {
					t.Fatalf("%s: offset %d is %q, was %q", what, o, v, want[o])
				}
			}
		}
		if r.NextOffset <= at {
			t.Fatalf("%s: fetch at %d does not go on", what, at)
		}
		at = r.NextOffset
	}
	return n == len(want)
}

// TestDamageSweep flips bits in, and truncates, every region of every kind of file.
func TestDamageSweep(t *testing.T) {
	t.Parallel()
	for _, clean := range []bool{true, false} {
		mem := vfstest.NewMem()
		l := testLog(t, Config{Dirs: []string{"/a"}, FS: mem})
		p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 600, IndexIntervalBytes: 100})
		want := make(map[int64]string)
		for i := range 14 {
			v := fmt.Sprint("value ", i)
			want[mustAppend(t, p, AppendOptions{}, v).BaseOffset] = v
		}
		if clean {
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		image := mem.Clone()
		if !damaged(t, image.Clone(), want, "undamaged") {
			t.Fatal("the log does not open undamaged")
		}
		for _, name := range files(t, image, "/a") {
			data, err := vfs.ReadFile(image, name)
			if err != nil {
				t.Fatal(err)
			}
			step := 1 + len(data)/150
			for at := 0; at < len(data); at += step {
				fs := image.Clone()
				flipped := append([]byte(nil), data...)
				flipped[at] ^= 1 << (at % 8)
				if err := vfs.WriteFile(fs, name, flipped); err != nil {
					t.Fatal(err)
				}
				damaged(t, fs, want, fmt.Sprintf("clean=%v: %s with byte %d flipped", clean, name, at))
				fs = image.Clone()
				if err := vfs.WriteFile(fs, name, data[:at]); err != nil {
					t.Fatal(err)
				}
				damaged(t, fs, want, fmt.Sprintf("clean=%v: %s cut at byte %d", clean, name, at))
			}
			fs := image.Clone()
			if err := fs.Remove(name); err != nil {
				t.Fatal(err)
			}
			damaged(t, fs, want, fmt.Sprintf("clean=%v: %s removed", clean, name))
		}
	}
}

// files lists all files below a directory.
func files(t *testing.T, fs vfs.FS, dir string) (out []string) {
	t.Helper()
	entries, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.IsDir() {
			out = append(out, files(t, fs, name)...)
		} else {
			out = append(out, name)
		}
	}
	return out
}

func TestVerifyDumpRepair(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := Config{Dirs: []string{dir}}
	l := testLog(t, cfg)
	p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 1000, IndexIntervalBytes: 100})
	want := make(map[int64]string)
	for i := range 60 {
		v := fmt.Sprint("value ", i)
		want[mustAppend(t, p, AppendOptions{}, v).BaseOffset] = v
	}
	if _, err := Verify(t.Context(), cfg.Dirs, func(Finding) {}); err == nil {
		t.Error("verified a log that is in use")
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	verify := func() (bad []Finding) {
		t.Helper()
		sum, err := Verify(t.Context(), cfg.Dirs, func(f Finding) { bad = append(bad, f) })
		if err != nil {
			t.Fatal(err)
		}
		if sum.Partitions != 1 || sum.Segments < 4 {
			t.Errorf("summary %+v", sum)
		}
		return bad
	}
	if bad := verify(); len(bad) > 0 {
		t.Fatalf("undamaged: %+v", bad)
	}
	var dumped int
	if _, err := Dump(t.Context(), cfg.Dirs, func(Finding) {}, func(b Batch) error { dumped += int(b.Header.Count); return nil }); err != nil || dumped != 60 {
		t.Errorf("dumped %d records: %v", dumped, err)
	}
	// One batch in the middle of a sealed segment goes bad, another segment disappears.
	logs, err := filepath.Glob(filepath.Join(dir, "topics/orders/0/*"+segment.LogSuffix))
	if err != nil || len(logs) < 5 {
		t.Fatal(logs, err)
	}
	b, err := os.ReadFile(logs[1])
	if err != nil {
		t.Fatal(err)
	}
	b[200] ^= 0x40
	if err := os.WriteFile(logs[1], b, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(logs[3]); err != nil {
		t.Fatal(err)
	}
	if bad := verify(); len(bad) == 0 {
		t.Error("the damage was not found")
	}
	var repaired []Finding
	if err := Repair(t.Context(), cfg.Dirs, func(f Finding) { repaired = append(repaired, f) }); err != nil {
		t.Fatal(err)
	}
	if len(repaired) != 2 {
		t.Errorf("repaired: %+v", repaired)
	}
	if bad := verify(); len(bad) > 0 {
		t.Errorf("after the repair: %+v", bad)
	}
	p = testPartition(t, testLog(t, cfg), 0, PartitionConfig{})
	got := readAll(t, p)
	for o, v := range got {
		if want[o] != v {
			t.Errorf("offset %d: %q", o, v)
		}
	}
	if len(got) < 40 || len(got) >= 60 {
		t.Errorf("%d records are left", len(got))
	}
	if r := mustAppend(t, p, AppendOptions{}, "more"); r.BaseOffset != 60 {
		t.Errorf("append after a repair: %+v", r)
	}
}

func FuzzCheckpoint(f *testing.F) {
	c := checkpoint{generation: 3, logStart: 1, offset: 9, position: 100, producers: producers{7: {epoch: 1, n: 2}}}
	c.segments = append(c.segments, stubOf(1), stubOf(5))
	f.Add(c.encode())
	f.Add([]byte(checkpointMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeCheckpoint(b)
		if err != nil {
			return
		}
		again, err := decodeCheckpoint(c.encode())
		if err != nil || again.offset != c.offset || len(again.producers) != len(c.producers) {
			t.Fatalf("%+v, %v", again, err)
		}
	})
}
