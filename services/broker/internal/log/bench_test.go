package log

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// benchBatch is a batch of at least so many bytes, of records of the given size that compress no better than about 2:1.
func benchBatch(b *testing.B, record, size int) []byte {
	b.Helper()
	builder := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	rng := rand.NewChaCha8([32]byte{1})
	value := make([]byte, record)
	for builder.Size() < size {
		_, _ = rng.Read(value[:record/2])
		builder.Append(1, nil, value, nil)
	}
	out, err := builder.Build(nil)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// turn is how long each side of BenchmarkBesideBare works before the other does.
const turn = 300 * time.Millisecond

// BenchmarkBesideBare appends durable batches from clients that each wait for their answer, and writes and syncs the same
// bytes to a file without a log, as many batches a sync as there are clients. One iteration is a turn of each; what is
// reported is the median of all: -benchtime 5x is five rounds.
func BenchmarkBesideBare(b *testing.B) {
	for _, partitions := range []int{1, 16, 1000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			parts := benchPartitions(b, partitions)
			for _, c := range []struct{ batch, record int }{{64 << 10, 100}, {64 << 10, 1000}, {64 << 10, 10000}, {512 << 10, 1000}} {
				for _, clients := range []int{16, 64} {
					b.Run(fmt.Sprintf("batch=%dKiB/record=%d/clients=%d", c.batch>>10, c.record, clients), func(b *testing.B) {
						besideBare(b, parts, benchBatch(b, c.record, c.batch), clients)
					})
				}
			}
		})
	}
}

func benchPartitions(b *testing.B, n int) []*Partition {
	b.Helper()
	l, err := Open(b.Context(), Config{Dirs: []string{b.TempDir()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	parts := make([]*Partition, n)
	for i := range parts {
		parts[i] = testPartition(b, l, int32(i), PartitionConfig{})
	}
	return parts
}

func besideBare(b *testing.B, parts []*Partition, raw []byte, clients int) {
	var ours, bare, ratio []float64
	for range b.N {
		unix.Sync() // neither side pays for what the other has left in the cache
		ours = append(ours, appendFor(b, parts, raw, clients))
		unix.Sync()
		bare = append(bare, bareFor(b, raw, clients))
		ratio = append(ratio, 100*ours[len(ours)-1]/bare[len(bare)-1])
	}
	b.ReportMetric(0, "ns/op") // a turn's length says nothing
	b.ReportMetric(median(ours), "log-MB/s")
	b.ReportMetric(median(bare), "bare-MB/s")
	b.ReportMetric(median(ratio), "%-of-bare")
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// appendFor appends for a turn and gives MB/s.
func appendFor(b *testing.B, parts []*Partition, raw []byte, clients int) float64 {
	var next atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range clients {
		all.Go(func() {
			for time.Since(start) < turn {
				i := next.Add(1)
				// The log owns what it is given: each append brings bytes of its own, as from a connection.
				if _, err := parts[i%int64(len(parts))].Append(b.Context(), bytes.Clone(raw), AppendOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return float64(next.Load()) * float64(len(raw)) / 1e6 / time.Since(start).Seconds()
}

// bareFor writes as many batches at a time as there are clients to a new file, and syncs, for a turn; it gives MB/s.
func bareFor(b *testing.B, raw []byte, clients int) float64 {
	f, err := vfs.OS{}.OpenFile(filepath.Join(b.TempDir(), "bare"), os.O_RDWR|os.O_CREATE)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	bufs := make([][]byte, clients)
	for i := range bufs {
		bufs[i] = raw
	}
	var at int64
	start := time.Now()
	for time.Since(start) < turn {
		w, err := f.WriteV(bufs, at)
		if err == nil {
			err = f.Sync()
		}
		if err != nil {
			b.Fatal(err)
		}
		at += int64(w)
	}
	return float64(at) / 1e6 / time.Since(start).Seconds()
}

// BenchmarkStart opens a log of many partitions, after a clean stop.
func BenchmarkStart(b *testing.B) {
	for _, partitions := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			cfg := Config{Dirs: []string{b.TempDir()}}
			l, err := Open(b.Context(), cfg)
			if err != nil {
				b.Fatal(err)
			}
			numbers := make([]int32, partitions)
			for i := range numbers {
				numbers[i] = int32(i)
			}
			parallel(numbers, func(n int32) {
				mustAppend(b, testPartition(b, l, n, PartitionConfig{}), AppendOptions{}, "x")
			})
			if err := l.Close(b.Context()); err != nil {
				b.Fatal(err)
			}
			runtime.GC()
			for b.Loop() {
				l, err := Open(b.Context(), cfg)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-heap")
				b.ReportMetric(float64(l.files.Len()), "open-files")
				if err := l.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
