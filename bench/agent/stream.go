package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/databus-suite/databus/bench/internal/load"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

// inFlight is how many requests one stream keeps unanswered.
const inFlight = 16

// repeated makes n messages of the events, from the first again where they end.
func repeated(events [][]byte, n int) []*databusv1.Message {
	messages := make([]*databusv1.Message, n)
	for i := range messages {
		messages[i] = &databusv1.Message{Value: events[i%len(events)]}
	}
	return messages
}

// measureStream publishes over one gRPC stream as fast as answers come.
func (t *target) measureStream(ctx context.Context, addr string, events [][]byte, o options) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := databusv1.NewPublishServiceClient(conn).PublishStream(ctx)
	if err != nil {
		return err
	}
	messages := repeated(events, o.lines)
	res := load.Result{PerRequest: o.lines, Latency: hdrhistogram.New(1, 60_000_000, 3)}
	sent := make(chan time.Time, inFlight)
	ended := make(chan error, 1)
	go func() {
		for {
			resp, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				ended <- nil
				return
			}
			if err == nil && resp.GetError() != nil {
				err = fmt.Errorf("%s: request %d: %s", t.name, resp.GetSequence(), resp.GetError().GetMessage())
			}
			for _, r := range resp.GetResults() {
				if err == nil && r.GetError() != nil {
					err = fmt.Errorf("%s: request %d: %s", t.name, resp.GetSequence(), r.GetError().GetMessage())
				}
			}
			if err != nil {
				ended <- err
				return
			}
			res.Requests++
			_ = res.Latency.RecordValue(max(1, time.Since(<-sent).Microseconds()))
		}
	}()
	start := time.Now()
	for seq := int64(0); time.Since(start) < o.duration; seq++ {
		select {
		case sent <- time.Now():
		case err := <-ended:
			return err
		}
		if err := stream.Send(&databusv1.PublishStreamRequest{Sequence: seq, Channel: "bench", Messages: messages}); err != nil {
			return fmt.Errorf("%s: send: %w", t.name, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	res.Elapsed = time.Since(start)
	t.add(res)
	return nil
}
