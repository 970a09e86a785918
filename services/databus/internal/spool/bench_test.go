package spool

import (
	"strings"
	"sync"
	"testing"
)

// BenchmarkAppend spools batches of 16 KiB from many goroutines; the figure includes the sync.
func BenchmarkAppend(b *testing.B) {
	s := open(b, Config{Dir: b.TempDir()})
	batch := batchOf(b, strings.Repeat("x", 16<<10))
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		var wg sync.WaitGroup
		for pb.Next() {
			wg.Add(1)
			e := Entry{Channel: "c", Topic: "orders", Layout: 1, Batch: batch}
			if err := s.Append(e, func(err error) {
				if err != nil {
					b.Error(err)
				}
				wg.Done()
			}); err != nil {
				b.Error(err)
			}
			wg.Wait()
		}
	})
}
