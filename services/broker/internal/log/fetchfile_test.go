package log

import (
	"fmt"
	"testing"
)

func TestFetchFile(t *testing.T) {
	t.Parallel()
	l := testLog(t, Config{Dirs: []string{t.TempDir()}, MemoryBytes: 2 << 10})
	p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 1500})
	want := make(map[int64]string)
	for i := range 60 {
		v := fmt.Sprint("value ", i)
		want[mustAppend(t, p, AppendOptions{}, v).BaseOffset] = v
	}
	got := make(map[int64]string)
	at := int64(0)
	for {
		s, ok, err := p.FetchFile(FetchOptions{Offset: at, MaxBytes: 300})
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		b := make([]byte, s.Length)
		if _, err := s.File.ReadAt(b, s.Offset); err != nil {
			t.Fatal(err)
		}
		for o, v := range recordsOf(t, b) {
			got[o] = v
		}
		at = s.NextOffset
		s.Close()
	}
	if at < 20 {
		t.Errorf("files gave up at %d", at)
	}
	for o, v := range got {
		if want[o] != v {
			t.Errorf("offset %d: %q", o, v)
		}
	}
}
