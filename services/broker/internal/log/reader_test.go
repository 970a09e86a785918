package log

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

// readerPartition has n records, "value 0" and so on, in batches of one, none of them in memory.
func readerPartition(t testing.TB, l *Log, n int, cfg PartitionConfig) (*Partition, map[int64]string) {
	t.Helper()
	p := testPartition(t, l, 0, cfg)
	want := make(map[int64]string)
	for i := range n {
		v := fmt.Sprint("value ", i)
		want[mustAppend(t, p, AppendOptions{}, v).BaseOffset] = v
	}
	quiesce(l)
	forget(p)
	return p, want
}

// forget drops what is in memory for readers.
func forget(p *Partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropTail(1 << 30)
}

func testReader(t testing.TB, p *Partition, o FetchOptions) *Reader {
	t.Helper()
	r := p.NewReader(o)
	t.Cleanup(r.Close)
	return r
}

func next(t testing.TB, r *Reader) FetchResult {
	t.Helper()
	res, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func TestReaderReadsAheadFromFilesOnly(t *testing.T) {
	t.Parallel()
	p, want := readerPartition(t, testLog(t, Config{Dirs: []string{t.TempDir()}}), 100, PartitionConfig{SegmentBytes: 1500})
	r := testReader(t, p, FetchOptions{MaxBytes: 300})
	got, unread := make(map[int64]string), 0
	var kept []FetchResult
	for r.Offset() < 100 {
		res := next(t, r)
		if (r.ahead != nil) != (res.NextOffset < 100) {
			t.Errorf("next is %d, reading ahead: %v", res.NextOffset, r.ahead != nil)
		}
		if res.Size > 300 || res.HighWatermark != 100 {
			t.Errorf("answer %+v", res)
		}
		if kept = append(kept, res); len(kept)%3 == 0 { // the others keep their memory
			maps.Copy(got, recordsOf(t, res.Bytes()))
			res.Release()
			kept, unread = kept[:len(kept)-1], unread+1
		}
	}
	for _, res := range kept {
		maps.Copy(got, recordsOf(t, res.Bytes()))
	}
	compare(t, want, got)
	if unread == 0 {
		t.Error("nothing was released")
	}
	mustAppend(t, p, AppendOptions{}, "in memory")
	if res := next(t, r); res.NextOffset != 101 || r.ahead != nil {
		t.Errorf("at the end: %+v, reading ahead: %v", res, r.ahead != nil)
	}
	if res := next(t, r); res.Size != 0 || r.ahead != nil {
		t.Errorf("past the end: %+v, reading ahead: %v", res, r.ahead != nil)
	}
}

// TestReaderSeesWhatHappenedSince changes the partition while the next answer is read already.
func TestReaderSeesWhatHappenedSince(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Log, *Partition) error
		want   error
	}{
		"close": {func(l *Log, _ *Partition) error { return l.Close(context.Background()) }, ErrClosed},
		"topic deleted": {func(l *Log, p *Partition) error {
			return l.Delete(context.Background(), p.Topic(), p.ID())
		}, ErrClosed},
		"records deleted": {func(_ *Log, p *Partition) error {
			_, err := p.DeleteRecords(context.Background(), 90)
			return err
		}, ErrOffsetOutOfRange},
		"retention": {func(l *Log, p *Partition) error {
			p.SetConfig(PartitionConfig{SegmentBytes: 1500, RetentionBytes: 1500})
			return l.CheckRetention(context.Background())
		}, ErrOffsetOutOfRange},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := testLog(t, Config{Dirs: []string{t.TempDir()}})
			p, _ := readerPartition(t, l, 100, PartitionConfig{SegmentBytes: 1500})
			r := testReader(t, p, FetchOptions{MaxBytes: 300})
			next(t, r)
			if r.ahead == nil {
				t.Fatal("nothing is read ahead")
			}
			if err := c.change(l, p); err != nil {
				t.Fatal(err)
			}
			if res, err := r.Next(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

func TestReaderThroughCompactions(t *testing.T) {
	t.Parallel()
	p, _ := readerPartition(t, testLog(t, Config{Dirs: []string{t.TempDir()}}), 100, PartitionConfig{SegmentBytes: 1500, Compact: true})
	r := testReader(t, p, FetchOptions{MaxBytes: 300})
	last := int64(-1)
	for r.Offset() < 100 {
		res := next(t, r)
		for o, v := range recordsOf(t, res.Bytes()) {
			if o <= last || v != fmt.Sprint("value ", o) {
				t.Errorf("offset %d after %d: %q", o, last, v)
			}
		}
		last = res.NextOffset - 1
		res.Release()
		if _, err := p.Compact(t.Context()); err != nil { // all records have one key
			t.Fatal(err)
		}
		forget(p)
	}
	if last < 99 {
		t.Errorf("ended at %d", last)
	}
}

func TestReaderDeliversWhatIsBeforeDamage(t *testing.T) {
	t.Parallel()
	p, want := readerPartition(t, testLog(t, Config{Dirs: []string{t.TempDir()}}), 40, PartitionConfig{})
	f, err := os.OpenFile(activePath(p), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, p.Stats().Bytes)
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	size := len(batch(1000, want[0]))
	bad := int64(20) // the offset of a batch that a read reaches in its middle
	at := int64(10*size + 10*len(batch(1000, want[10])))
	if _, err := f.WriteAt([]byte{b[at+70] ^ 1}, at+70); err != nil {
		t.Fatal(err)
	}
	r := testReader(t, p, FetchOptions{MaxBytes: 7 * size})
	got := make(map[int64]string)
	for r.Offset() < bad {
		maps.Copy(got, recordsOf(t, next(t, r).Bytes()))
	}
	maps.DeleteFunc(want, func(o int64, _ string) bool { return o >= bad })
	compare(t, want, got)
	for range 2 {
		if res, err := r.Next(t.Context()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("got %+v, %v", res, err)
		}
	}
}

// TestReadersBoundMemory opens more readers than may read ahead, none of which takes its second answer.
func TestReadersBoundMemory(t *testing.T) {
	t.Parallel()
	l := testLog(t, Config{Dirs: []string{t.TempDir()}, MemoryBytes: 8 << 10})
	p, want := readerPartition(t, l, 100, PartitionConfig{})
	var readers []*Reader
	ahead := 0
	for range 10 {
		r := testReader(t, p, FetchOptions{MaxBytes: 300})
		next(t, r)
		if readers = append(readers, r); r.ahead != nil {
			ahead++
		}
	}
	if n := l.readAhead.Load(); ahead != 3 || n != 900 {
		t.Errorf("%d read ahead %d bytes", ahead, n)
	}
	for _, r := range readers {
		for r.Offset() < 100 {
			next(t, r).Release()
		}
		r.Close()
	}
	if n := l.readAhead.Load(); n != 0 {
		t.Errorf("%d bytes stay accounted for", n)
	}
	compare(t, want, readAll(t, p))
}

func TestReaderIsCancelledWhileTheDiskHangs(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewFault(vfs.OS{})
	l := testLog(t, Config{Dirs: []string{t.TempDir()}, FS: fs})
	p, _ := readerPartition(t, l, 100, PartitionConfig{})
	r := p.NewReader(FetchOptions{MaxBytes: 300})
	next(t, r)
	next(t, r).Release()
	<-r.ahead // so that what hangs below is a read ahead that has begun
	r.ahead = nil
	l.readAhead.Add(-r.chunk())
	hanging, heal := make(chan struct{}, 1), make(chan struct{})
	fs.Set(func(op vfstest.Op, _ string) error {
		if op == vfstest.OpRead {
			select {
			case hanging <- struct{}{}:
			default:
			}
			<-heal
		}
		return nil
	})
	r.readAhead()
	<-hanging
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if res, err := r.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v", res, err)
	}
	close(heal)
	r.Close()
	if n := l.readAhead.Load(); n != 0 {
		t.Errorf("%d bytes stay accounted for", n)
	}
}
