package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of that name
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/process"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

// inFlight is how many requests one stream keeps unanswered.
const inFlight = 32

// repeated makes n messages of the events, from the first again where they end.
func repeated(events [][]byte, n int) []*databusv1.Message {
	messages := make([]*databusv1.Message, n)
	for i := range messages {
		messages[i] = &databusv1.Message{Value: events[i%len(events)]}
	}
	return messages
}

// prepared is a codec whose every request is the same, encoded beforehand, as load.Run's are: the generator does next to nothing.
type prepared struct {
	encoding.CodecV2 // of the answers
	request          []byte
}

func (p prepared) Marshal(any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(p.request)}, nil
}

// measureStream publishes over one gRPC stream as fast as answers come.
func (t *target) measureStream(ctx context.Context, o *options) error {
	request := &databusv1.PublishStreamRequest{Channel: "bench", Messages: repeated(o.events, o.lines)}
	raw, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(t.stream, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(prepared{encoding.GetCodecV2("proto"), raw})))
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
	res := load.Result{PerRequest: o.lines, Latency: load.NewHistogram()}
	sent := make(chan time.Time, inFlight)
	ended := make(chan error, 1)
	go func() { ended <- answers(stream, &res, sent) }()
	before, err := process.CPU(t.server)
	if err != nil {
		return err
	}
	start := time.Now()
	for time.Since(start) < o.duration {
		select {
		case sent <- time.Now():
		case err := <-ended:
			return err
		}
		if err := stream.Send(request); err != nil {
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
			err = fmt.Errorf("request %d: %s", res.Requests, resp.GetError().GetMessage())
		}
		for _, r := range resp.GetResults() {
			if err == nil && r.GetError() != nil {
				err = fmt.Errorf("request %d: %s", res.Requests, r.GetError().GetMessage())
			}
		}
		if err != nil {
			return err
		}
		res.Requests++
		_ = res.Latency.RecordValue(max(1, time.Since(<-sent).Microseconds()))
	}
}
