package log

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

var (
	rounds = flag.Int("rounds", 12, "crash rounds")
	seed   = flag.Uint64("seed", 1, "seed of the crash rounds")
)

// history is what was acknowledged, and what may have been.
type history struct {
	mu    sync.Mutex
	acked map[int32]map[int64]string
	sent  map[string]bool
}

func newHistory() *history {
	return &history{acked: make(map[int32]map[int64]string), sent: make(map[string]bool)}
}

func (h *history) ack(partition int32, base int64, values []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.acked[partition] == nil {
		h.acked[partition] = make(map[int64]string)
	}
	for i, v := range values {
		h.acked[partition][base+int64(i)] = v
	}
}

func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, m := range h.acked {
		n += len(m)
	}
	return n
}

// snapshot copies what is acknowledged until now.
func (h *history) snapshot() map[int32]map[int64]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[int32]map[int64]string)
	for p, m := range h.acked {
		out[p] = make(map[int64]string)
		for o, v := range m {
			out[p][o] = v
		}
	}
	return out
}

// verify checks a log after a crash: everything acknowledged is there, nothing is there twice, offsets have no gap.
func verify(t *testing.T, l *Log, acked map[int32]map[int64]string, partitions int32, cfg PartitionConfig) {
	t.Helper()
	for n := range partitions {
		p := testPartition(t, l, n, cfg)
		start, high, end := p.Bounds()
		if high != end {
			t.Errorf("partition %d: high watermark %d, end %d after recovery", n, high, end)
		}
		got := readAll(t, p)
		if int64(len(got)) != high-start {
			t.Fatalf("partition %d: %d records between %d and %d", n, len(got), start, high)
		}
		seen := make(map[string]bool, len(got))
		for o, v := range got {
			if seen[v] {
				t.Fatalf("partition %d: %q is there twice, once at %d", n, v, o)
			}
			seen[v] = true
		}
		for o, v := range acked[n] {
			if o >= start && got[o] != v {
				t.Fatalf("partition %d: acknowledged %q at %d, found %q (log %d..%d)", n, v, o, got[o], start, high)
			}
		}
	}
}

func TestPowerLoss(t *testing.T) {
	t.Parallel()
	const partitions = 5
	rng := rand.New(rand.NewPCG(*seed, 0))
	pcfg := PartitionConfig{SegmentBytes: 3000, IndexIntervalBytes: 200}
	for round := range *rounds {
		fs := vfstest.NewMem()
		h := newHistory()
		serial := 0
		for life := range 4 {
			dirs := []string{"/a", "/b"}[:1+round%2]
			cfg := Config{Dirs: dirs, FS: fs, JournalBytes: 128 << 10, CheckpointBytes: 2000 + int64(rng.IntN(6000)), MaxOpenFiles: 6, journalGroup: []int64{0, 200, 600}[round%3]}
			if round%5 == 4 {
				cfg.JournalBytes = -1
			}
			l, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatalf("round %d life %d (seed %d): %v", round, life, *seed, err)
			}
			verify(t, l, h.snapshot(), partitions, pcfg)
			target := h.count() + 20 + rng.IntN(150)
			acked, crashed := loadUntilCrash(t, l, fs, h, partitions, target, serial, rng)
			serial += 1 << 20
			_ = l.Close(context.Background())
			fs = crashed
			h = newHistory()
			h.acked = acked
			// What was sent and not acknowledged may be there: it is found by reading on.
		}
	}
}

// loadUntilCrash appends from several goroutines until enough is acknowledged, then crashes the file system below them.
func loadUntilCrash(t *testing.T, l *Log, fs *vfstest.Mem, h *history, partitions int32, target, serial int, rng *rand.Rand) (map[int32]map[int64]string, *vfstest.Mem) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for w := range 4 {
		r := rand.New(rand.NewPCG(uint64(serial), uint64(w)))
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				n := r.Int32N(partitions)
				p, _ := l.Partition("orders", n)
				values := make([]string, 1+r.IntN(3))
				for j := range values {
					values[j] = fmt.Sprintf("%d/%d/%d/%d %0*d", serial, w, i, j, r.IntN(200), 0)
				}
				o := AppendOptions{Level: Level(r.IntN(6) / 4)} // one in three is BUFFERED
				res, err := p.Append(ctx, batch(int64(i), values...), o)
				if err == nil && o.Level == Durable {
					h.ack(n, res.BaseOffset, values)
				}
				if r.IntN(40) == 0 {
					_, high, _ := p.Bounds()
					_, _ = p.DeleteRecords(ctx, high-int64(r.IntN(20)))
				}
			}
		})
	}
	for h.count() < target {
		runtime.Gosched()
	}
	for range rng.IntN(200) {
		runtime.Gosched()
	}
	acked := h.snapshot()
	var crashed *vfstest.Mem
	if rng.IntN(3) == 0 {
		crashed = fs.Clone()
	} else {
		crashed = fs.Crash(rng)
	}
	cancel()
	wg.Wait()
	return acked, crashed
}

// TestPowerLossOfProducers crashes below idempotent producers that send again what was not acknowledged: nothing may be
// lost, and nothing may be there twice.
func TestPowerLossOfProducers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(*seed, 1))
	pcfg := PartitionConfig{SegmentBytes: 2000}
	for round := range max(*rounds/2, 1) {
		fs := vfstest.NewMem()
		var next [3]int // of each producer: acknowledged sequence numbers end here
		for life := range 5 {
			cfg := Config{Dirs: []string{"/a"}, FS: fs, JournalBytes: 64 << 10, CheckpointBytes: 700, journalGroup: []int64{0, 100}[round%2]}
			l, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatalf("round %d life %d (seed %d): %v", round, life, *seed, err)
			}
			p := testPartition(t, l, 0, pcfg)
			var mu sync.Mutex
			var wg sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for id := range next {
				from := next[id]
				wg.Go(func() {
					slots := make(chan struct{}, 4) // in flight
					for seq := from; ctx.Err() == nil; seq++ {
						b := batch(1, fmt.Sprintf("%d/%d", id, seq))
						recordbatch.SetProducer(b, int64(id), 0, int32(seq))
						slots <- struct{}{}
						p.AppendAsync(ctx, b, AppendOptions{}, func(_ AppendResult, err error) {
							if err == nil {
								mu.Lock()
								next[id] = seq + 1
								mu.Unlock()
							} else if ctx.Err() == nil {
								t.Errorf("round %d life %d producer %d sequence %d: %v", round, life, id, seq, err)
							}
							<-slots
						})
					}
				})
			}
			for range 200 + rng.IntN(3000) {
				runtime.Gosched()
			}
			mu.Lock()
			acked := next
			crashed := fs.Crash(rng)
			mu.Unlock()
			cancel()
			wg.Wait()
			_ = l.Close(context.Background())
			next, fs = acked, crashed
		}
		l := testLog(t, Config{Dirs: []string{"/a"}, FS: fs})
		seen := make(map[string]bool)
		for _, v := range readAll(t, testPartition(t, l, 0, pcfg)) {
			if seen[v] {
				t.Fatalf("round %d: %s is there twice", round, v)
			}
			seen[v] = true
		}
		for id, n := range next {
			for seq := range n {
				if !seen[fmt.Sprintf("%d/%d", id, seq)] {
					t.Fatalf("round %d: acknowledged %d/%d is lost", round, id, seq)
				}
			}
		}
	}
}

// nothingLeft makes Crash drop everything that was not synced.
func nothingLeft() *rand.Rand { return rand.New(zeroSource{}) }

type zeroSource struct{}

func (zeroSource) Uint64() uint64 { return 0 }
