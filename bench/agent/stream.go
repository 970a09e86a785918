package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/process"
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
func (t *target) measureStream(ctx context.Context, o *options) error {
	conn, err := grpc.NewClient(t.stream, grpc.WithTransportCredentials(insecure.NewCredentials()))
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
	messages := repeated(o.events, o.lines)
	res := load.Result{PerRequest: o.lines, Latency: load.NewHistogram()}
	sent := make(chan time.Time, inFlight)
	ended := make(chan error, 1)
	go func() { ended <- answers(stream, &res, sent) }()
	before, err := process.CPU(t.server)
	if err != nil {
		return err
	}
	start := time.Now()
	for seq := int64(0); time.Since(start) < o.duration; seq++ {
		select {
		case sent <- time.Now():
		case err := <-ended:
			return err
		}
		if err := stream.Send(&databusv1.PublishStreamRequest{Sequence: seq, Channel: "bench", Messages: messages}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := <-ended; err != nil {
		return err
	}
	res.Elapsed = time.Since(start)
	after, err := process.CPU(t.server)
	if err != nil {
		return err
	}
	res.ServerCPU = after - before
	return t.add(res)
}

// answers counts what the stream answers until it ends. sent has the time of each request, in order.
func answers(stream grpc.BidiStreamingClient[databusv1.PublishStreamRequest, databusv1.PublishStreamResponse], res *load.Result, sent <-chan time.Time) error {
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && resp.GetError() != nil {
			err = fmt.Errorf("request %d: %s", resp.GetSequence(), resp.GetError().GetMessage())
		}
		for _, r := range resp.GetResults() {
			if err == nil && r.GetError() != nil {
				err = fmt.Errorf("request %d: %s", resp.GetSequence(), r.GetError().GetMessage())
			}
		}
		if err != nil {
			return err
		}
		res.Requests++
		_ = res.Latency.RecordValue(max(1, time.Since(<-sent).Microseconds()))
	}
}
