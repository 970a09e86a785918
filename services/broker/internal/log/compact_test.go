package log

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

// keyed builds a batch of one record a pair; a nil value is a tombstone.
func keyed(ts int64, codec recordbatch.Codec, pairs ...[2]string) []byte {
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{Codec: codec})
	for _, kv := range pairs {
		var v []byte
		if kv[1] != "" {
			v = []byte(kv[1])
		}
		b.Append(ts, []byte(kv[0]), v, nil)
	}
	out, err := b.Build(nil)
	if err != nil {
		panic(err)
	}
	return out
}

// readKeys reads the partition as a table: each key's last value.
func readKeys(t testing.TB, p *Partition) (table map[string]string, records int) {
	t.Helper()
	table = make(map[string]string)
	last := int64(-1)
	at, high, _ := p.Bounds()
	for at < high {
		r, err := p.Fetch(t.Context(), FetchOptions{Offset: at, MaxBytes: 4096})
		if err != nil {
			t.Fatal(err)
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
				if rec.Offset <= last {
					t.Fatalf("offset %d after %d", rec.Offset, last)
				}
				last = rec.Offset
				records++
				if rec.Value == nil {
					delete(table, string(rec.Key))
				} else {
					table[string(rec.Key)] = string(rec.Value)
				}
			}
		}
		if r.NextOffset <= at {
			t.Fatalf("fetch at %d does not go on", at)
		}
		at = r.NextOffset
	}
	return table, records
}

func TestCompactKeepsTheLastOfEachKey(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	now := time.UnixMilli(1_000_000)
	cfg := Config{Dirs: []string{t.TempDir()}, MemoryBytes: 1 << 20, Now: func() time.Time { return now }}
	l := testLog(t, cfg)
	pcfg := PartitionConfig{SegmentBytes: 4000, Compact: true, TombstoneRetention: time.Hour, IndexIntervalBytes: 100}
	p := testPartition(t, l, 0, pcfg)
	want := make(map[string]string)
	write := func(n int) {
		for i := range n {
			var pairs [][2]string
			for range 1 + rng.IntN(5) {
				k, v := fmt.Sprint("k", rng.IntN(30)), fmt.Sprint("v", i, rng.IntN(1000))
				if rng.IntN(10) == 0 {
					v = ""
					delete(want, k)
				} else {
					want[k] = v
				}
				pairs = append(pairs, [2]string{k, v})
			}
			if _, err := p.Append(t.Context(), keyed(now.UnixMilli(), recordbatch.Codec(rng.IntN(5)), pairs...), AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(what string) (records int) {
		t.Helper()
		got, n := readKeys(t, p)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s:\n got %v\nwant %v", what, got, want)
		}
		return n
	}
	for pass := range 4 {
		write(200)
		before := check("before")
		_, high, _ := p.Bounds()
		done, err := p.Compact(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.dropTail(1 << 30)
		after := check("after")
		if after >= before || done.Records == 0 {
			t.Errorf("pass %d: %d records before, %d after: %+v", pass, before, after, done)
		}
		if _, h, _ := p.Bounds(); h != high {
			t.Errorf("the high watermark moved from %d to %d", high, h)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = testLog(t, cfg)
		p = testPartition(t, l, 0, pcfg)
		check("after reopen")
		now = now.Add(2 * time.Hour)
	}
	if s := p.Stats(); s.Segments > 15 {
		t.Errorf("small segments were not merged: %+v", s)
	}
}

// TestCompactCrash loses power at random moments of a compaction under load.
func TestCompactCrash(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 3))
	for round := range *rounds {
		fs := vfstest.NewMem()
		pcfg := PartitionConfig{SegmentBytes: 1500, Compact: true, TombstoneRetention: time.Nanosecond}
		want := make(map[string]string)
		for life := range 4 {
			l, err := Open(t.Context(), Config{Dirs: []string{"/a"}, FS: fs, CheckpointBytes: 3000})
			if err != nil {
				t.Fatalf("round %d life %d (seed %d): %v", round, life, *seed, err)
			}
			p := testPartition(t, l, 0, pcfg)
			if got, _ := readKeys(t, p); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("round %d life %d (seed %d):\n got %v\nwant %v", round, life, *seed, got, want)
			}
			for i := range 60 {
				k, v := fmt.Sprint("k", rng.IntN(8)), fmt.Sprint(life, "-", i)
				if _, err := p.Append(t.Context(), keyed(1, 0, [2]string{k, v}), AppendOptions{}); err != nil {
					t.Fatal(err)
				}
				want[k] = v
			}
			start := fs.Syncs()
			stop := start + rng.IntN(30)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if _, err := p.Compact(context.Background()); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			}()
			finished := false
			for fs.Syncs() < stop && !finished {
				select {
				case <-done:
					finished = true
				default:
				}
			}
			crashed := fs.Crash(rng)
			if rng.IntN(3) == 0 {
				crashed = fs.Clone()
			}
			<-done
			_ = l.Close(t.Context())
			fs = crashed
		}
	}
}
