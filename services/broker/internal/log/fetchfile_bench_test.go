package log

import (
	"io"
	"os"
	"testing"
	"time"
)

// BenchmarkFetchFile sends a partition's files over loopback TCP by FetchFile and SendTo, and the same file by a bare sendfile, all
// from the system's cache. One iteration is the whole file by each; what is reported is the median of all.
func BenchmarkFetchFile(b *testing.B) {
	p := benchPartitions(b, 1)[0]
	raw := benchBatch(b, 1000, 64<<10)
	for p.Stats().Bytes < 512<<20 {
		if _, err := p.Append(b.Context(), append([]byte(nil), raw...), AppendOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	forget(p)
	in, out := pipe(b)
	go func() {
		buf := make([]byte, 1<<20)
		for {
			if _, err := out.Read(buf); err != nil {
				return
			}
		}
	}()
	ours := func() (sent int64) {
		for at, high := int64(0), p.high.offset; at < high; {
			s, ok, err := p.FetchFile(FetchOptions{Offset: at})
			if !ok || err != nil {
				b.Fatal(ok, err)
			}
			n, err := s.SendTo(in)
			if err != nil {
				b.Fatal(err)
			}
			at, sent = s.NextOffset, sent+n
			s.Close()
		}
		return sent
	}
	bare := func() int64 {
		f, err := os.Open(activePath(p))
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		n, err := in.ReadFrom(io.LimitReader(f, p.Stats().Bytes)) // which is sendfile
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	rate := func(send func() int64) float64 {
		start := time.Now()
		return float64(send()) / 1e6 / time.Since(start).Seconds()
	}
	var all, plain, ratio []float64
	for range b.N {
		all, plain = append(all, rate(ours)), append(plain, rate(bare))
		ratio = append(ratio, 100*all[len(all)-1]/plain[len(plain)-1])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(all), "log-MB/s")
	b.ReportMetric(median(plain), "sendfile-MB/s")
	b.ReportMetric(median(ratio), "%-of-sendfile")
}
