package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/bench/internal/child"
	"github.com/databus-suite/databus/bench/internal/report"
	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// inFlight are the batches that one stream of the stream part has under way.
const inFlight = 32

// makeBatch builds one batch of at least so many bytes from the events, and says how many records it has.
func makeBatch(o *options, size int) (batch []byte, records int, err error) {
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	for i := 0; b.Size() < size; i++ {
		b.Append(time.Now().UnixMilli(), nil, o.events[i%len(o.events)], nil)
	}
	records = b.Count()
	batch, err = b.Build(nil)
	return batch, records, err
}

// streams measures one append stream of large batches to one partition beside grpc-go alone and beside the disk alone.
func streams(ctx context.Context, o *options) error {
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
	fmt.Printf("\nOne append stream, one partition, events of about %d bytes (%s), %d batches in flight, medians of %d rounds:\n\n", o.eventBytes, o.corpus, inFlight, o.rounds)
	t := report.Table{Head: []string{"batches of", "bare grpc-go, thrown away, MB/s", "databus BUFFERED, MB/s", "databus DURABLE, MB/s", "write + fdatasync, MB/s",
		"BUFFERED / bare grpc-go", "DURABLE / bare grpc-go", "DURABLE / the slower of grpc-go and disk"}}
	for _, size := range []int{64 << 10, 256 << 10, 1000 << 10} {
		batch, _, err := makeBatch(o, size)
		if err != nil {
			return err
		}
		var discard, buffered, durable, disk, least []float64
		for range o.rounds {
			for _, x := range []struct {
				to  *[]float64
				run func() (float64, error)
			}{
				{&discard, func() (float64, error) {
					return appendFor(ctx, o, bare, brokerv1.AckLevel_ACK_LEVEL_DURABLE, batch)
				}},
				{&buffered, func() (float64, error) {
					return appendFor(ctx, o, s.grpc, brokerv1.AckLevel_ACK_LEVEL_BUFFERED, batch)
				}},
				{&durable, func() (float64, error) {
					return appendFor(ctx, o, s.grpc, brokerv1.AckLevel_ACK_LEVEL_DURABLE, batch)
				}},
				{&disk, func() (float64, error) { return writeSync(o, batch) }},
			} {
				unix.Sync() // no turn pays for what the one before has left in the cache
				mbs, err := x.run()
				if err != nil {
					return err
				}
				*x.to = append(*x.to, mbs)
			}
			least = append(least, min(discard[len(discard)-1], disk[len(disk)-1]))
		}
		t.Row(fmt.Sprintf("%d KiB", size>>10), report.Median(discard), report.Median(buffered), report.Median(durable), report.Median(disk),
			report.Ratio(buffered, discard), report.Ratio(durable, discard), report.Ratio(durable, least))
	}
	t.Print(os.Stdout)
	return nil
}

// appendFor appends the same batch again and again and gives MB/s.
func appendFor(ctx context.Context, o *options, addr string, ack brokerv1.AckLevel, batch []byte) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, err := openAppender(ctx, addr, ack, 0, inFlight, func() {})
	if err != nil {
		return 0, err
	}
	start := time.Now()
	var n int
	for ; time.Since(start) < o.duration; n++ {
		if err := a.send(batch); err != nil {
			return 0, err
		}
	}
	if err := a.finish(); err != nil {
		return 0, err
	}
	return float64(n) * float64(len(batch)) / 1e6 / time.Since(start).Seconds(), nil
}

// writeSync writes as many batches at a time as a stream has in flight to a new file, and syncs: MB/s.
func writeSync(o *options, batch []byte) (float64, error) {
	f, err := os.CreateTemp(o.root, ".bench-bare-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close(); _ = os.Remove(f.Name()) }()
	group := make([]byte, 0, len(batch)*inFlight)
	for range inFlight {
		group = append(group, batch...)
	}
	start := time.Now()
	var n int
	for ; time.Since(start) < o.duration; n += len(group) {
		if _, err := f.Write(group); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, fmt.Errorf("fdatasync %s: %w", filepath.Base(f.Name()), err)
		}
	}
	return float64(n) / 1e6 / time.Since(start).Seconds(), nil
}
