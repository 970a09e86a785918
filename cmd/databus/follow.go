package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"

	"github.com/databus-suite/databus/internal/errs"
)

// follow prints messages as they come, from the offset next of each partition on. A lost connection is made again, and
// reading goes on after the last message that was printed, so nothing is missed or printed twice.
func (r *reader) follow(ctx context.Context, next map[int32]int64) error {
	wait := newBackOff()
	for {
		got, err := r.streams(ctx, next)
		if ctx.Err() != nil || errors.Is(err, errEnough) || !errs.Retryable(err) {
			return err
		}
		if got {
			wait.Reset()
		}
		pause := wait.NextBackOff()
		fmt.Fprintf(r.term.err, "databus: %s; trying again in %s\n", firstLine(err), pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// streams follows every partition, each on a stream of its own, until one of them fails. It reports whether anything came.
func (r *reader) streams(ctx context.Context, next map[int32]int64) (got bool, err error) {
	if err := r.grown(ctx, next); err != nil {
		return false, err
	}
	group, ctx := errgroup.WithContext(ctx)
	arrived := make(chan *brokerv1.FollowMessagesResponse)
	for partition, offset := range next {
		group.Go(func() error { return r.stream(ctx, partition, offset, arrived) })
	}
	group.Go(func() error {
		grow := time.NewTicker(morePartitions)
		defer grow.Stop()
		for {
			select {
			case res := <-arrived:
				got = true
				if err := r.arrived(res, next); err != nil {
					return err
				}
			case <-grow.C:
				before := len(next)
				if err := r.grown(ctx, next); err != nil {
					return err
				}
				for p := before; p < len(next) && len(r.only) == 0; p++ {
					group.Go(func() error { return r.stream(ctx, int32(p), next[int32(p)], arrived) })
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	err = group.Wait()
	return got, err
}

// grown adds the partitions that the topic has got since, from their start.
func (r *reader) grown(ctx context.Context, next map[int32]int64) error {
	if len(r.only) > 0 {
		return nil
	}
	offsets, err := r.partitions(ctx)
	if err != nil {
		return err
	}
	for _, p := range offsets {
		if _, known := next[p.GetPartition()]; !known {
			next[p.GetPartition()] = p.GetLogStartOffset()
		}
	}
	return nil
}

func (r *reader) stream(ctx context.Context, partition int32, offset int64, arrived chan<- *brokerv1.FollowMessagesResponse) error {
	stream, err := r.reads.FollowMessages(ctx, &brokerv1.FollowMessagesRequest{
		Topic: r.topic, Partitions: []int32{partition}, Offset: strconv.FormatInt(offset, 10),
	})
	if err != nil {
		return r.server.translate(err)
	}
	defer stream.Close()
	for stream.Receive() {
		select {
		case arrived <- stream.Msg():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := stream.Err(); err != nil && !errors.Is(err, io.EOF) {
		return r.server.translate(err)
	}
	return errs.New(errs.Unavailable, reasonConnectionLost, "the %s at %s ended the stream", r.server.kind, r.server.addr)
}

// arrived prints what a stream brought and moves its partition on.
func (r *reader) arrived(res *brokerv1.FollowMessagesResponse, next map[int32]int64) error {
	for _, m := range res.GetMessages() {
		if m.GetOffset() < next[res.GetPartition()] {
			continue
		}
		if err := r.print(res.GetPartition(), m); err != nil {
			return err
		}
		next[res.GetPartition()] = m.GetOffset() + 1
	}
	return r.out.Flush()
}
