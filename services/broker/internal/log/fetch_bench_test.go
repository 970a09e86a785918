package log

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// benchFile is a partition with 512 MiB in batches of 64 KiB in one file, none of them in memory.
func benchFile(b *testing.B) *Partition {
	b.Helper()
	p := benchPartitions(b, 1)[0]
	raw := benchBatch(b, 1000, 64<<10)
	for p.Stats().Bytes < 512<<20 {
		if _, err := p.Append(b.Context(), append([]byte(nil), raw...), AppendOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	quiesce(p.log)
	forget(p)
	return p
}

// turns lets each side send or read a partition's bytes once an iteration, and reports the medians of all.
func turns(b *testing.B, p *Partition, before func(), bare string, ours, plain func() int64) {
	rate := func(run func() int64) float64 {
		before()
		start := time.Now()
		if n := run(); n != p.Stats().Bytes {
			b.Fatalf("%d of %d bytes", n, p.Stats().Bytes)
		}
		return float64(p.Stats().Bytes) / 1e6 / time.Since(start).Seconds()
	}
	var all, others, ratio []float64
	for range b.N {
		all, others = append(all, rate(ours)), append(others, rate(plain))
		ratio = append(ratio, 100*all[len(all)-1]/others[len(others)-1])
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(all), "log-MB/s")
	b.ReportMetric(median(others), bare+"-MB/s")
	b.ReportMetric(median(ratio), "%-of-"+bare)
}

// BenchmarkFetchFile sends a partition over loopback TCP by FetchFile and SendTo, beside a sendfile of the same file, all from the
// system's cache. What is checked was checked in a turn before the first.
func BenchmarkFetchFile(b *testing.B) {
	p := benchFile(b)
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
		_, high, _ := p.Bounds()
		for at := int64(0); at < high; {
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
		n, err := in.ReadFrom(io.LimitReader(f, p.Stats().Bytes)) // sendfile(2)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	start := time.Now()
	ours()
	b.Logf("the first time, checked on the way: %.0f MB/s", float64(p.Stats().Bytes)/1e6/time.Since(start).Seconds())
	turns(b, p, func() {}, "sendfile", ours, bare)
}

// BenchmarkFetchCold reads a partition that is not in the system's cache, beside cat.
func BenchmarkFetchCold(b *testing.B) {
	p := benchFile(b)
	name := activePath(p)
	evict := func() {
		f, err := os.Open(name)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		unix.Sync()
		var left unix.Cachestat_t
		err = errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &left, 0))
		if err != nil || left.Cache > 1000 {
			b.Fatal(left.Cache, "pages stay in the cache:", err)
		}
	}
	fetch := func() (read int64) {
		_, high, _ := p.Bounds()
		r := p.NewReader(FetchOptions{})
		defer r.Close()
		for r.Offset() < high {
			res, err := r.Next(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			read += int64(res.Size)
			res.Release()
		}
		return read
	}
	cat := func() int64 {
		if err := exec.CommandContext(b.Context(), "cat", name).Run(); err != nil { // to /dev/null
			b.Fatal(err)
		}
		return p.Stats().Bytes
	}
	turns(b, p, evict, "cat", fetch, cat)
}
