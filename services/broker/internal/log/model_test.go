package log

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"pgregory.net/rapid"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

func stubOf(base int64) store.Stub { return store.Stub{Base: base, Size: 10} }

// recordsOf decodes whole batches.
func recordsOf(t testing.TB, b []byte) map[int64]string {
	t.Helper()
	out := make(map[int64]string)
	for len(b) > 0 {
		one, rest, err := recordbatch.Split(b)
		if err != nil {
			t.Fatal(err)
		}
		b = rest
		for r, err := range recordbatch.Records(one, 0) {
			if err != nil {
				t.Fatal(err)
			}
			out[r.Offset] = string(r.Value)
		}
	}
	return out
}

// TestModel runs random operations on a partition and on a model of it.
func TestModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		fs := vfstest.NewMem()
		cfg := Config{Dirs: []string{"/a", "/b"}, FS: fs, MemoryBytes: 8 << 10, JournalBytes: 48 << 10, CheckpointBytes: 1000, MaxOpenFiles: 4}
		pcfg := PartitionConfig{SegmentBytes: int64(rapid.IntRange(300, 3000).Draw(rt, "segment bytes")), IndexIntervalBytes: 150}
		open := func() (*Log, *Partition) {
			l, err := Open(t.Context(), cfg)
			if err != nil {
				rt.Fatal(err)
			}
			p, err := l.Ensure(t.Context(), "orders", topicID, 0, pcfg)
			if err != nil {
				rt.Fatal(err)
			}
			return l, p
		}
		l, p := open()
		defer func() { _ = l.Close(context.Background()) }()
		var model []string // by offset
		var times []int64
		start := int64(0)
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				values := rapid.SliceOfN(rapid.StringN(0, 40, 120), 1, 4).Draw(rt, "values")
				ts := rapid.Int64Range(0, 50).Draw(rt, "timestamp")
				r, err := p.Append(t.Context(), batch(ts, values...), AppendOptions{Level: Level(rapid.IntRange(0, 2).Draw(rt, "level"))})
				if err != nil || r.BaseOffset != int64(len(model)) {
					rt.Fatalf("append: %+v, %v", r, err)
				}
				for range values {
					times = append(times, ts)
				}
				model = append(model, values...)
			},
			"fetch": func(rt *rapid.T) {
				mustAppendModel(t, p, &model, &times) // what is buffered is readable once a durable append is
				at := rapid.Int64Range(0, int64(len(model))+1).Draw(rt, "offset")
				r, err := p.Fetch(t.Context(), FetchOptions{Offset: at, MaxBytes: rapid.IntRange(1, 2000).Draw(rt, "bytes")})
				if at < start || at > int64(len(model)) {
					if !errors.Is(err, ErrOffsetOutOfRange) {
						rt.Fatalf("fetch at %d of %d..%d: %v", at, start, len(model), err)
					}
					return
				}
				if err != nil || at < int64(len(model)) && r.NextOffset <= at {
					rt.Fatalf("fetch at %d: %+v, %v", at, r, err)
				}
				for o, v := range recordsOf(t, r.Bytes()) {
					if model[o] != v {
						rt.Fatalf("offset %d: %q, want %q", o, v, model[o])
					}
				}
			},
			"time": func(rt *rapid.T) {
				mustAppendModel(t, p, &model, &times)
				ms := rapid.Int64Range(0, 51).Draw(rt, "time")
				want := start
				for want < int64(len(times)) && times[want] < ms {
					want++
				}
				got, _, err := p.OffsetForTime(ms)
				if err != nil || got != want {
					rt.Fatalf("offset for time %d: %d, %v; want %d", ms, got, err, want)
				}
			},
			"delete": func(rt *rapid.T) {
				mustAppendModel(t, p, &model, &times)
				at := rapid.Int64Range(0, int64(len(model))).Draw(rt, "before")
				got, err := p.DeleteRecords(t.Context(), at)
				start = max(start, at)
				if err != nil || got != start {
					rt.Fatalf("delete before %d: %d, %v", at, got, err)
				}
			},
			"reopen": func(rt *rapid.T) {
				if err := l.Close(t.Context()); err != nil {
					rt.Fatal(err)
				}
				l, p = open()
			},
			"kill": func(rt *rapid.T) {
				mustAppendModel(t, p, &model, &times)
				image := fs.Clone()
				_ = l.Close(t.Context())
				cfg.FS, fs = image, image
				l, p = open()
			},
			"": func(rt *rapid.T) {
				if s, _, end := p.Bounds(); s != start || end != int64(len(model)) {
					rt.Fatalf("bounds %d..%d, want %d..%d", s, end, start, len(model))
				}
			},
		})
	})
}

func mustAppendModel(t testing.TB, p *Partition, model *[]string, times *[]int64) {
	mustAppend(t, p, AppendOptions{}, "durable")
	*model, *times = append(*model, "durable"), append(*times, 1000)
}

// operation of the linearizability check: an append of a value, or a read of all there is from an offset on.
type operation struct {
	read  bool
	value string
	from  int64
}

type outcome struct {
	offset int64 // of an append
	values map[int64]string
	end    int64
}

// TestLinearizable checks histories of concurrent appends and fetches, across restarts, against a list.
func TestLinearizable(t *testing.T) {
	t.Parallel()
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, in, out any) (bool, any) {
			list := state.(string) // each value is eight characters
			op, res := in.(operation), out.(outcome)
			n := int64(len(list) / 8)
			if !op.read {
				return res.offset == n, list + op.value
			}
			for o, v := range res.values {
				if o >= n || list[o*8:o*8+8] != v {
					return false, state
				}
			}
			return res.end <= n && int64(len(res.values)) == res.end-op.from, state
		},
	}
	rng := rand.New(rand.NewPCG(*seed, 9))
	fs := vfstest.NewMem()
	var events []porcupine.Operation
	var mu sync.Mutex
	began := time.Now()
	for life := range 3 {
		l, err := Open(t.Context(), Config{Dirs: []string{"/a"}, FS: fs, journalGroup: []int64{0, 100}[life%2]})
		if err != nil {
			t.Fatal(err)
		}
		p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 1000})
		var wg sync.WaitGroup
		for client := range 4 {
			r := rand.New(rand.NewPCG(rng.Uint64(), uint64(client)))
			wg.Go(func() {
				for i := range 12 {
					op := operation{read: r.IntN(3) == 0, value: fmt.Sprintf("%02d%02d%04d", life, client, i)}
					call := time.Since(began).Nanoseconds()
					var res outcome
					if op.read {
						fetched, err := p.Fetch(t.Context(), FetchOptions{})
						if err != nil {
							t.Error(err)
							return
						}
						res = outcome{values: recordsOf(t, fetched.Bytes()), end: fetched.NextOffset}
					} else {
						a, err := p.Append(t.Context(), batch(1, op.value), AppendOptions{})
						if err != nil {
							t.Error(err)
							return
						}
						res.offset = a.BaseOffset
					}
					mu.Lock()
					events = append(events, porcupine.Operation{ClientId: life*4 + client, Input: op, Output: res, Call: call, Return: time.Since(began).Nanoseconds()})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		crashed := fs.Crash(rng)
		_ = l.Close(context.Background())
		fs = crashed
	}
	if res := porcupine.CheckOperationsTimeout(model, events, 20*time.Second); res != porcupine.Ok {
		t.Errorf("the history of %d operations is %v", len(events), res)
	}
}
