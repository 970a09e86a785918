package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/databus-suite/databus/bench/internal/load"
	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// partitions of the topic that the producers' messages go to.
const partitions = 4

// straightRun is the producers of one measurement, which send to the broker themselves.
type straightRun struct {
	o     *options
	start time.Time

	mu     sync.Mutex
	result load.Result
}

// straight has each producer connect to the broker and append a message at a time, compressed as an agent's default is. At the
// default rate messages of one producer are 20 ms apart: its own linger, unless it were longer than that, would gather none.
func straight(ctx context.Context, addr string, o *options) (load.Result, error) {
	r := straightRun{o: o, start: time.Now(), result: load.Result{PerRequest: 1, Latency: load.NewHistogram()}}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range o.producers {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{})))
		if err != nil {
			return r.result, err
		}
		defer func() { _ = conn.Close() }()
		all.Go(func() {
			if err := r.producer(ctx, i, brokerv1.NewLogServiceClient(conn)); err != nil {
				cancel(fmt.Errorf("producer %d: %w", i, err))
			}
		})
	}
	all.Wait()
	r.result.Elapsed = time.Since(r.start)
	return r.result, context.Cause(ctx)
}

// producer sends at its rate until the time is over, whether answers have come or not, and then waits for them.
func (r *straightRun) producer(ctx context.Context, i int, log brokerv1.LogServiceClient) error {
	stream, err := log.AppendStream(ctx)
	if err != nil {
		return err
	}
	due := make(chan time.Time, r.o.messages) // when each request whose answer has not come was due
	ended := make(chan error, 1)
	go func() { ended <- r.answers(stream, due) }()
	every := time.Duration(float64(time.Second) / r.o.each)
	// They begin one after the other, as the requests of load.Run do.
	at := r.start.Add(time.Duration(i) * every / time.Duration(r.o.producers))
	builder := recordbatch.NewBuilder(recordbatch.BuilderOptions{Codec: recordbatch.Zstd})
	for n := range r.o.messages {
		select {
		case <-time.After(time.Until(at)):
		case err := <-ended:
			return err
		}
		builder.Reset(recordbatch.BuilderOptions{Codec: recordbatch.Zstd})
		builder.Append(at.UnixMilli(), nil, r.o.events[(i+n)%len(r.o.events)], nil)
		batch, err := builder.Build(nil)
		if err != nil {
			return err
		}
		due <- at
		if err := stream.Send(&brokerv1.AppendStreamRequest{Topic: "bench", Partition: int32((i + n) % partitions),
			Ack: brokerv1.AckLevel_ACK_LEVEL_DURABLE, Sequence: int64(n + 1), Batches: batch}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		at = at.Add(every)
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	return <-ended
}

func (r *straightRun) answers(stream grpc.BidiStreamingClient[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse], due <-chan time.Time) error {
	for {
		resp, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && resp.GetError() != nil {
			err = fmt.Errorf("append %d: %s", resp.GetSequence(), resp.GetError().GetMessage())
		}
		if err != nil {
			return err
		}
		r.mu.Lock()
		r.result.Requests++
		err = r.result.Latency.RecordValue(max(1, time.Since(<-due).Microseconds()))
		r.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
