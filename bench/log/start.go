package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/bench/internal/process"
	"github.com/databus-suite/databus/bench/internal/report"
	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
)

// recovery measures how much longer a broker takes to be ready because of one large partition: after a clean stop, and after a
// SIGKILL. The time of a broker with an empty partition is taken off.
func recovery(ctx context.Context, o *options) error {
	empty, err := os.MkdirTemp(o.root, ".bench-empty-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(empty) }()
	large, err := os.MkdirTemp(o.root, ".bench-large-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(large) }()
	s, err := startBroker(ctx, o, empty, 1)
	if err != nil {
		return err
	}
	s.Stop()
	if s, err = startBroker(ctx, o, large, 1); err != nil {
		return err
	}
	// Killed right after the last answer: what lies past the last checkpoint is there to be recovered.
	records, err := fill(ctx, o, s.grpc, 1000<<10, o.recover)
	s.Kill()
	if err != nil {
		return err
	}
	t := report.Table{Head: []string{"", "ready after, ms", "more than with an empty partition, ms"}}
	base, err := medianStart(ctx, o, empty, 0)
	if err != nil {
		return err
	}
	t.Row("an empty partition, stopped cleanly", base, "")
	unix.Sync()
	killed, err := startTime(ctx, o, large, records) // and stopped cleanly afterwards
	if err != nil {
		return err
	}
	t.Row(fmt.Sprintf("%d MiB, after SIGKILL", o.recover), killed, killed-base)
	clean, err := medianStart(ctx, o, large, records)
	if err != nil {
		return err
	}
	t.Row(fmt.Sprintf("%d MiB, stopped cleanly", o.recover), clean, clean-base)
	fmt.Printf("\nFrom the start of bin/databus broker until /readyz answers; medians of %d rounds, of SIGKILL one:\n\n", o.rounds)
	t.Print(os.Stdout)
	return nil
}

// medianStart starts a broker in dir and stops it cleanly, each round: ms until it was ready.
func medianStart(ctx context.Context, o *options, dir string, records int64) (float64, error) {
	var took []float64
	for range o.rounds {
		ms, err := startTime(ctx, o, dir, records)
		if err != nil {
			return 0, err
		}
		took = append(took, ms)
	}
	return report.Median(took), nil
}

// startTime is one start, in ms. The last of the partition's records must be there.
func startTime(ctx context.Context, o *options, dir string, records int64) (float64, error) {
	start := time.Now()
	s, err := startBroker(ctx, o, dir, 0)
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	defer s.Stop()
	if records > 0 {
		if _, err := fetchFrom(ctx, s.grpc, topic, records-1, 1); err != nil {
			return 0, fmt.Errorf("the last record: %w", err)
		}
	}
	return float64(took.Microseconds()) / 1000, nil
}

// idle is how long a broker is left alone to see what it uses then.
const idle = 10 * time.Second

// manyPartitions measures a broker of many partitions, each with a batch in it: its start, its memory and what it does when
// there is nothing to do.
func manyPartitions(ctx context.Context, o *options) error {
	dir, err := os.MkdirTemp(o.root, ".bench-partitions-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s, err := startBroker(ctx, o, dir, o.partitions)
	if err != nil {
		return err
	}
	err = touchAll(ctx, o, s.grpc)
	s.Stop()
	if err != nil {
		return err
	}
	start := time.Now()
	if s, err = startBroker(ctx, o, dir, 0); err != nil {
		return err
	}
	defer s.Stop()
	took := time.Since(start)
	before, err := process.CPU(s.PID())
	if err != nil {
		return err
	}
	select {
	case <-time.After(idle):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := process.CPU(s.PID())
	if err != nil {
		return err
	}
	rss, err := process.RSS(s.PID())
	if err != nil {
		return err
	}
	fmt.Printf("\nbin/databus broker with %d partitions, a batch of %d KiB in each, stopped cleanly and started again, then idle for %v:\n\n", o.partitions, touchBytes>>10, idle)
	t := report.Table{Head: []string{"ready after, s", "resident, MiB", "CPU while idle"}}
	t.Row(took.Seconds(), float64(rss)/(1<<20), fmt.Sprintf("%.1f %% of a core", 100*(after-before).Seconds()/idle.Seconds()))
	t.Print(os.Stdout)
	return nil
}

const touchBytes = 1 << 10

// touchAll appends a batch to every partition.
func touchAll(ctx context.Context, o *options, addr string) error {
	batch, _, err := makeBatch(o, touchBytes)
	if err != nil {
		return err
	}
	a, err := openAppender(ctx, addr, brokerv1.AckLevel_ACK_LEVEL_DURABLE, 0, oneInFlight, func() {})
	if err != nil {
		return err
	}
	for i := range o.partitions {
		a.request.Partition = int32(i)
		if err := a.send(batch); err != nil {
			return fmt.Errorf("partition %d: %w", i, err)
		}
	}
	return a.finish()
}
