package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/bench/internal/child"
	"github.com/databus-suite/databus/bench/internal/report"
	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
)

const (
	fetchBytes = 1 << 20 // of one answer, at most
	// recentMiB is what is fetched of the broker's newest batches: it keeps half of its 256 MiB of memory for them.
	recentMiB = 100
)

// fetches measures one FetchStream: of what the broker has in memory, of what the system has cached, and of what is on the disk
// only, beside a bare grpc-go stream, of its own memory and of the same file, and beside cat.
func fetches(ctx context.Context, o *options) error {
	s, err := startBroker(ctx, o, "", 1)
	if err != nil {
		return err
	}
	defer s.Stop()
	bare, _, stop, err := child.Start(ctx, roleFlag, "grpc")
	if err != nil {
		return err
	}
	defer stop()
	records, err := fill(ctx, o, s.grpc, 64<<10, o.fetch)
	if err != nil {
		return err
	}
	segments, err := segmentsOf(s)
	if err != nil {
		return err
	}
	whole := int64(o.fetch) << 20
	recent := min(recentMiB<<20, whole/2)
	newest := records - records*recent/whole
	f := new(struct{ stream, file, memory, cached, cold, cat []float64 })
	for range o.rounds {
		for _, x := range []struct {
			to   *[]float64
			cold bool
			run  func() (float64, error)
		}{
			{&f.stream, false, func() (float64, error) { return fetchFrom(ctx, bare, topic, 0, whole) }},
			{&f.file, false, func() (float64, error) { return fetchFrom(ctx, bare, segments[0], 0, whole-2*recent) }},
			{&f.memory, false, func() (float64, error) { return fetchFrom(ctx, s.grpc, topic, newest, recent*9/10) }},
			{&f.cached, false, func() (float64, error) { return fetchFrom(ctx, s.grpc, topic, 0, whole-2*recent) }},
			{&f.cold, true, func() (float64, error) { return fetchFrom(ctx, s.grpc, topic, 0, whole-2*recent) }},
			{&f.cat, true, func() (float64, error) { return cat(ctx, segments) }},
		} {
			if x.cold {
				if err := evict(segments); err != nil {
					return err
				}
			} else if _, err := cat(ctx, segments); err != nil {
				return err
			}
			mbs, err := x.run()
			if err != nil {
				return err
			}
			*x.to = append(*x.to, mbs)
		}
	}
	fmt.Printf("\nOne FetchStream, answers of up to %d KiB, a partition of %d MiB in batches of 64 KiB, medians of %d rounds:\n\n", fetchBytes>>10, o.fetch, o.rounds)
	t := report.Table{Head: []string{"", "MB/s", "of bare grpc-go", "of it with the file", "of cat"}}
	t.Row("bare grpc-go stream, the same memory again and again", report.Median(f.stream), "100 %", "", "")
	t.Row("bare grpc-go stream of the same file, in the system's cache", report.Median(f.file), report.Ratio(f.file, f.stream), "100 %", "")
	t.Row("databus, the newest batches, in its memory", report.Median(f.memory), report.Ratio(f.memory, f.stream), report.Ratio(f.memory, f.file), "")
	t.Row("databus, in the system's cache", report.Median(f.cached), report.Ratio(f.cached, f.stream), report.Ratio(f.cached, f.file), "")
	t.Row("databus, not cached", report.Median(f.cold), report.Ratio(f.cold, f.stream), report.Ratio(f.cold, f.file), report.Ratio(f.cold, f.cat))
	t.Row("cat segments > /dev/null, not cached", report.Median(f.cat), "", "", "100 %")
	t.Print(os.Stdout)
	return nil
}

func segmentsOf(s *broker) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(s.Dir(), "data", "topics", topic+"*", "*", "*.log"))
	if err == nil && len(names) == 0 {
		err = errors.New("no segment files in the broker's data directory")
	}
	return names, err
}

// fill appends so many MiB in batches of a size, and gives how many records that is.
func fill(ctx context.Context, o *options, addr string, size, mib int) (records int64, err error) {
	batch, n, err := makeBatch(o, size)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, err := openAppender(ctx, addr, brokerv1.AckLevel_ACK_LEVEL_DURABLE, 0, inFlight, func() {})
	if err != nil {
		return 0, err
	}
	for sent := 0; sent < mib<<20; sent += len(batch) {
		if err := a.send(batch); err != nil {
			return 0, err
		}
		records += int64(n)
	}
	return records, a.finish()
}

// fetchFrom follows a partition from an offset on until it has so many bytes, and gives MB/s.
func fetchFrom(ctx context.Context, addr, name string, offset, bytes int64) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := dial(addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	start := time.Now()
	stream, err := brokerv1.NewLogServiceClient(conn).FetchStream(ctx, &brokerv1.FetchStreamRequest{Topic: name, Offset: offset, MaxBytes: fetchBytes})
	if err != nil {
		return 0, err
	}
	var got int64
	for got < bytes {
		r, err := stream.Recv()
		if err == nil && len(r.GetBatches()) == 0 {
			err = fmt.Errorf("the partition ended after %d of %d bytes", got, bytes)
		}
		if err != nil {
			return 0, fmt.Errorf("fetch from offset %d: %w", offset, err)
		}
		got += int64(len(r.GetBatches()))
	}
	return float64(got) / 1e6 / time.Since(start).Seconds(), nil
}

// cat reads the files and gives MB/s.
func cat(ctx context.Context, files []string) (float64, error) {
	var size int64
	for _, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return 0, err
		}
		size += info.Size()
	}
	start := time.Now()
	if err := exec.CommandContext(ctx, "cat", files...).Run(); err != nil { // its output goes to /dev/null
		return 0, fmt.Errorf("cat: %w", err)
	}
	return float64(size) / 1e6 / time.Since(start).Seconds(), nil
}

// evict has the system forget what it has cached of the files, and fails where it keeps much of it: a rate would not be the
// disk's then.
func evict(files []string) error {
	unix.Sync()
	for _, name := range files {
		if err := evictFile(name); err != nil {
			return fmt.Errorf("drop %s from the cache: %w", filepath.Base(name), err)
		}
	}
	return nil
}

func evictFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(b) }()
	pages, left := make([]byte, (len(b)+os.Getpagesize()-1)/os.Getpagesize()), 0
	if err := mincore(b, pages); err != nil {
		return err
	}
	for _, p := range pages {
		left += int(p & 1)
	}
	if left > len(pages)/20 {
		return fmt.Errorf("%d of %d pages stayed", left, len(pages))
	}
	return nil
}
