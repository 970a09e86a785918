package log

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

var topicID = TopicID{1, 2, 3}

// testLog opens a log that is closed with the test.
func testLog(t testing.TB, cfg Config) *Log {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l
}

// quiesce waits until the committers have done what was asked of them before.
func quiesce(l *Log) {
	for range 2 {
		for _, c := range l.committers {
			c.call(func() {})
		}
	}
}

// activePath is the file that the partition writes to.
func activePath(p *Partition) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active().Path()
}

func testPartition(t testing.TB, l *Log, n int32, cfg PartitionConfig) *Partition {
	t.Helper()
	p, err := l.Ensure(t.Context(), "orders", topicID, n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// batch builds a batch of records with the values, all at time ts.
func batch(ts int64, values ...string) []byte {
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	for _, v := range values {
		b.Append(ts, []byte("key"), []byte(v), nil)
	}
	out, err := b.Build(nil)
	if err != nil {
		panic(err)
	}
	return out
}

func mustAppend(t testing.TB, p *Partition, o AppendOptions, values ...string) AppendResult {
	t.Helper()
	r, err := p.Append(t.Context(), batch(1000, values...), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readAll reads every record from the log start to the high watermark and checks that offsets ascend.
func readAll(t testing.TB, p *Partition) map[int64]string {
	t.Helper()
	out := make(map[int64]string)
	start, high, _ := p.Bounds()
	for at := start; at < high; {
		r, err := p.Fetch(context.Background(), FetchOptions{Offset: at, MaxBytes: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		if r.NextOffset <= at {
			t.Fatalf("fetch at %d does not go on: next %d, high watermark %d", at, r.NextOffset, high)
		}
		for rest := r.Bytes(); len(rest) > 0; {
			b, more, err := recordbatch.Split(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = more
			for rec, err := range recordbatch.Records(b, 0) {
				if err != nil {
					t.Fatal(err)
				}
				if rec.Offset < at {
					continue
				}
				out[rec.Offset] = string(rec.Value)
			}
		}
		at = r.NextOffset
	}
	return out
}

func TestAppendFetchReopen(t *testing.T) {
	t.Parallel()
	cfg := Config{Dirs: []string{t.TempDir()}}
	l := testLog(t, cfg)
	p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 2000})
	want := make(map[int64]string)
	for i := range 100 {
		o := AppendOptions{Level: Level(i % 3)}
		r := mustAppend(t, p, o, fmt.Sprint("a", i), fmt.Sprint("b", i))
		if r.BaseOffset != int64(2*i) || r.LastOffset != int64(2*i+1) {
			t.Fatalf("append %d: %+v", i, r)
		}
		want[r.BaseOffset], want[r.LastOffset] = fmt.Sprint("a", i), fmt.Sprint("b", i)
	}
	mustAppend(t, p, AppendOptions{}, "end")
	want[200] = "end"
	compare(t, want, readAll(t, p))
	if s := p.Stats(); s.Segments < 3 {
		t.Errorf("no roll: %+v", s)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = testLog(t, cfg)
	p, ok := l.Partition("orders", 0)
	if !ok {
		t.Fatal("partition is gone")
	}
	compare(t, want, readAll(t, p))
	if r := mustAppend(t, p, AppendOptions{}, "more"); r.BaseOffset != 201 {
		t.Errorf("append after reopen: %+v", r)
	}
}

func compare(t testing.TB, want, got map[int64]string) {
	t.Helper()
	for o, v := range want {
		if got[o] != v {
			t.Fatalf("offset %d: got %q, want %q", o, got[o], v)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d records, want %d", len(got), len(want))
	}
}

func TestFetchWaits(t *testing.T) {
	t.Parallel()
	l := testLog(t, Config{Dirs: []string{t.TempDir()}})
	p := testPartition(t, l, 0, PartitionConfig{})
	got := make(chan FetchResult, 1)
	go func() {
		r, err := p.Fetch(t.Context(), FetchOptions{MinBytes: 1, MaxWait: time.Hour})
		if err != nil {
			t.Error(err)
		}
		got <- r
	}()
	b := batch(1, "x")
	if _, err := p.Append(t.Context(), bytes.Clone(b), AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	r := <-got
	if r.NextOffset != 1 || r.Size != len(b) {
		t.Errorf("fetched %+v", r)
	}
}

func TestOffsetForTime(t *testing.T) {
	t.Parallel()
	l := testLog(t, Config{Dirs: []string{t.TempDir()}})
	p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 4000, IndexIntervalBytes: 100})
	for i := range 200 {
		b := recordbatch.NewBuilder(recordbatch.BuilderOptions{Codec: recordbatch.Zstd})
		for j := range 5 {
			b.Append(int64(1000+i*10+j*2), nil, []byte("v"), nil)
		}
		raw, err := b.Build(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Append(t.Context(), raw, AppendOptions{Level: Buffered}); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, p, AppendOptions{}, "old")
	for ms := int64(990); ms < 3000; ms++ {
		offset, ts, err := p.OffsetForTime(ms)
		if err != nil {
			t.Fatal(err)
		}
		want := max(0, (ms-1000+1)/2)
		if ms < 1000 {
			want = 0
		}
		if offset != want || ts != 1000+2*want {
			if ms > 2998 && offset == 1001 && ts == -1 {
				continue
			}
			t.Fatalf("time %d: offset %d at %d, want %d", ms, offset, ts, want)
		}
	}
}

func TestRetention(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(10_000)
	cfg := Config{Dirs: []string{t.TempDir()}, Now: func() time.Time { return now }}
	l := testLog(t, cfg)
	p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 500, RetentionBytes: 1500})
	for i := range 100 {
		mustAppend(t, p, AppendOptions{}, fmt.Sprint("value ", i))
	}
	if err := l.CheckRetention(t.Context()); err != nil {
		t.Fatal(err)
	}
	start, high, _ := p.Bounds()
	if s := p.Stats(); s.Bytes < 1500 || s.Bytes > 2100 || start == 0 || high != 100 {
		t.Fatalf("by bytes: start %d, high %d, %+v", start, high, s)
	}
	if _, err := p.Fetch(t.Context(), FetchOptions{Offset: start - 1}); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("fetch below the log start: %v", err)
	}
	got, err := p.DeleteRecords(t.Context(), 95)
	if err != nil || got != 95 {
		t.Fatalf("delete records: %d, %v", got, err)
	}
	if n := len(readAll(t, p)); n != 5 {
		t.Errorf("%d records are left", n)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = testLog(t, cfg)
	p = testPartition(t, l, 0, PartitionConfig{SegmentBytes: 500, RetentionAge: time.Second})
	if start, high, _ := p.Bounds(); start != 95 || high != 100 {
		t.Errorf("after reopen: start %d, high %d", start, high)
	}
	for range 2 { // the first ends the active segment
		if err := l.CheckRetention(t.Context()); err != nil {
			t.Fatal(err)
		}
		quiesce(l)
	}
	if err := l.CheckRetention(t.Context()); err != nil {
		t.Fatal(err)
	}
	if start, high, _ := p.Bounds(); start != 100 || high != 100 {
		t.Errorf("by age: start %d, high %d", start, high)
	}
	if r := mustAppend(t, p, AppendOptions{}, "x"); r.BaseOffset != 100 || r.LogStartOffset != 100 {
		t.Errorf("append to what retention emptied: %+v", r)
	}
}

func TestProducers(t *testing.T) {
	t.Parallel()
	cfg := Config{Dirs: []string{t.TempDir()}}
	l := testLog(t, cfg)
	p := testPartition(t, l, 0, PartitionConfig{})
	send := func(p *Partition, epoch int16, seq int32, n int) (AppendResult, error) {
		b := batch(1, make([]string, n)...)
		recordbatch.SetProducer(b, 7, epoch, seq)
		return p.Append(t.Context(), b, AppendOptions{})
	}
	steps := []struct {
		epoch int16
		seq   int32
		n     int
		base  int64
		dup   bool
		err   error
	}{
		{epoch: 0, seq: 2147483640, n: 5, base: 0},
		{epoch: 0, seq: 2147483645, n: 5, base: 5}, // wraps: next is 2
		{epoch: 0, seq: 2, n: 1, base: 10},
		{epoch: 0, seq: 2147483645, n: 5, base: 5, dup: true},
		{epoch: 0, seq: 4, n: 1, err: ErrOutOfOrderSequence},
		{epoch: 1, seq: 3, n: 1, err: ErrOutOfOrderSequence},
		{epoch: 1, seq: 0, n: 1, base: 11},
		{epoch: 0, seq: 3, n: 1, err: ErrProducerFenced},
		{epoch: 1, seq: 0, n: 1, base: 11, dup: true},
	}
	for i, s := range steps {
		r, err := send(p, s.epoch, s.seq, s.n)
		if !errors.Is(err, s.err) || err == nil && (r.BaseOffset != s.base || r.Duplicate != s.dup) {
			t.Errorf("step %d: %+v, %v", i, r, err)
		}
	}
	if _, err := p.DeleteRecords(t.Context(), -1); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	p = testPartition(t, testLog(t, cfg), 0, PartitionConfig{})
	if r, err := send(p, 1, 0, 1); err != nil || !r.Duplicate || r.BaseOffset != 11 {
		t.Errorf("duplicate after restart and retention: %+v, %v", r, err)
	}
	if r, err := send(p, 1, 1, 1); err != nil || r.BaseOffset != 12 {
		t.Errorf("next after restart: %+v, %v", r, err)
	}
}

func TestDeleteAndRecreate(t *testing.T) {
	t.Parallel()
	cfg := Config{Dirs: []string{t.TempDir(), t.TempDir()}}
	l := testLog(t, cfg)
	for n := range int32(4) {
		mustAppend(t, testPartition(t, l, n, PartitionConfig{}), AppendOptions{}, "x")
	}
	old, _ := l.Partition("orders", 0)
	if err := l.Delete(t.Context(), "orders", topicID); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Append(t.Context(), batch(1, "x"), AppendOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("append to a deleted topic: %v", err)
	}
	p := testPartition(t, l, 0, PartitionConfig{})
	if _, high, _ := p.Bounds(); high != 0 {
		t.Errorf("recreated topic begins at %d", high)
	}
	mustAppend(t, p, AppendOptions{}, "y")
	other, err := l.Ensure(t.Context(), "orders", TopicID{9}, 0, PartitionConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, high, _ := other.Bounds(); high != 0 {
		t.Errorf("topic of another id begins at %d", high)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = testLog(t, cfg)
	if ts := l.Topics(); len(ts) != 1 || ts[0].ID != (TopicID{9}) {
		t.Errorf("topics after reopen: %+v", ts)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	t.Parallel()
	cfg := Config{Dirs: []string{t.TempDir()}}
	testLog(t, cfg)
	if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("second open: %v", err)
	}
}

func TestKeepOffsetsWithGaps(t *testing.T) {
	t.Parallel()
	mem := vfstest.NewMem()
	l := testLog(t, Config{Dirs: []string{"/a"}, FS: mem})
	p := testPartition(t, l, 0, PartitionConfig{})
	want := make(map[int64]string)
	for i, at := range []int64{5, 6, 20, 21, 100} {
		b := batch(1, fmt.Sprint(i))
		recordbatch.SetOffset(b, at, 0)
		r, err := p.Append(t.Context(), b, AppendOptions{KeepOffsets: true})
		if err != nil || r.BaseOffset != at {
			t.Fatalf("append at %d: %+v, %v", at, r, err)
		}
		want[at] = fmt.Sprint(i)
	}
	b := batch(1, "late")
	recordbatch.SetOffset(b, 50, 0)
	if _, err := p.Append(t.Context(), b, AppendOptions{KeepOffsets: true}); !errors.Is(err, ErrInvalidBatch) {
		t.Errorf("append below the end: %v", err)
	}
	compare(t, want, readAll(t, p))
	l2 := testLog(t, Config{Dirs: []string{"/a"}, FS: mem.Crash(nothingLeft())})
	compare(t, want, readAll(t, testPartition(t, l2, 0, PartitionConfig{})))
}
