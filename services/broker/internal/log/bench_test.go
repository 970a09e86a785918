package log

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// benchBatch is a batch of about 64 KiB of records of the given size.
func benchBatch(record int) []byte {
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	value := make([]byte, record)
	for i := range value {
		value[i] = byte(i * 7)
	}
	for b.Size() < 64<<10 {
		b.Append(1, nil, value, nil)
	}
	out, err := b.Build(nil)
	if err != nil {
		panic(err)
	}
	return out
}

// BenchmarkAppend appends durable 64 KiB batches from clients that each wait for their answer. BenchmarkBare writes and
// syncs the same bytes without a log.
func BenchmarkAppend(b *testing.B) {
	for _, record := range []int{100, 1000, 10000} {
		for _, partitions := range []int{1, 16, 1000} {
			for _, clients := range []int{1, 16, 64} {
				b.Run(fmt.Sprintf("record=%d/partitions=%d/clients=%d", record, partitions, clients), func(b *testing.B) {
					benchAppend(b, benchBatch(record), partitions, clients)
				})
			}
		}
	}
}

func benchAppend(b *testing.B, raw []byte, partitions, clients int) {
	l, err := Open(b.Context(), Config{Dirs: []string{b.TempDir()}})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close(context.Background())
	parts := make([]*Partition, partitions)
	for i := range parts {
		parts[i] = testPartition(b, l, int32(i), PartitionConfig{})
	}
	b.SetBytes(int64(len(raw)))
	b.ResetTimer()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(b.N) {
					return
				}
				if _, err := parts[i%int64(partitions)].Append(b.Context(), append([]byte(nil), raw...), AppendOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkBare writes as many batches at a time as there are clients to one file and syncs it.
func BenchmarkBare(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			raw := benchBatch(1000)
			f, err := vfs.OS{}.OpenFile(filepath.Join(b.TempDir(), "bare"), os.O_RDWR|os.O_CREATE)
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			b.SetBytes(int64(len(raw)))
			var at int64
			for n := 0; n < b.N; {
				bufs := make([][]byte, 0, clients)
				for range min(clients, b.N-n) {
					bufs = append(bufs, raw)
				}
				w, err := f.WriteV(bufs, at)
				if err == nil {
					err = f.Sync()
				}
				if err != nil {
					b.Fatal(err)
				}
				at += int64(w)
				n += len(bufs)
			}
		})
	}
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
