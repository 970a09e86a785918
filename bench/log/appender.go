package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/rawcodec"
)

// dial connects as Databus' own services do: record batches are not copied on their way.
func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(4<<20),
		grpc.WithInitialConnWindowSize(8<<20), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{}), grpc.MaxCallRecvMsgSize(64<<20)))
}

// appender is one client's stream of appends to one partition. It belongs to one goroutine.
type appender struct {
	request brokerv1.AppendStreamRequest // what all requests have in common
	conn    *grpc.ClientConn
	stream  grpc.BidiStreamingClient[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]
	slots   chan struct{} // in flight
	ended   chan error
}

// openAppender opens a stream with so many requests in flight at most. answered is called for each answer, in order.
func openAppender(ctx context.Context, addr string, ack brokerv1.AckLevel, partition, inFlight int, answered func()) (*appender, error) {
	conn, err := dial(addr)
	if err != nil {
		return nil, err
	}
	stream, err := brokerv1.NewLogServiceClient(conn).AppendStream(ctx)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	a := &appender{conn: conn, stream: stream, slots: make(chan struct{}, inFlight), ended: make(chan error, 1)}
	a.request.Topic, a.request.Ack, a.request.Partition = topic, ack, int32(partition)
	go func() { a.ended <- a.answers(answered) }()
	return a, nil
}

func (a *appender) answers(answered func()) error {
	for {
		resp, err := a.stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && resp.GetError() != nil {
			err = fmt.Errorf("append %d: %s", resp.GetSequence(), resp.GetError().GetMessage())
		}
		if err != nil {
			return err
		}
		answered()
		<-a.slots
	}
}

// send sends a batch, once there is room in the window. The batch must stay as it is for good.
func (a *appender) send(batch []byte) error {
	select {
	case a.slots <- struct{}{}:
	case err := <-a.ended:
		a.ended <- err
		return errors.Join(errors.New("append stream ended"), err)
	}
	a.request.Sequence++
	a.request.Batches = batch
	if err := a.stream.Send(&a.request); err != nil && !errors.Is(err, io.EOF) { // io.EOF: answers has the cause
		return fmt.Errorf("append %d: %w", a.request.Sequence, err)
	}
	return nil
}

// finish waits for the answers that are still to come.
func (a *appender) finish() error {
	err := a.stream.CloseSend()
	return errors.Join(err, <-a.ended, a.conn.Close())
}
