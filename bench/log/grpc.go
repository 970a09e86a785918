package main

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"

	"github.com/databus-suite/databus/bench/internal/ports"
	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/rawcodec"
)

// bareLog is the least server that could stand in the broker's place: it answers each append and throws it away, and what is
// fetched from it is always the same bytes of its memory.
type bareLog struct {
	brokerv1.UnimplementedLogServiceServer
	chunk []byte
}

// serveGRPC serves a bareLog until ctx ends. It prints its address first.
func serveGRPC(ctx context.Context) error {
	addr, _, err := ports.Free()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	s := grpc.NewServer(grpc.ForceServerCodecV2(rawcodec.Codec{}), grpc.MaxRecvMsgSize(64<<20),
		grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20), grpc.ReadBufferSize(64<<10), grpc.WriteBufferSize(64<<10)) // as the broker has them
	brokerv1.RegisterLogServiceServer(s, &bareLog{chunk: make([]byte, fetchBytes)})
	go func() { <-ctx.Done(); s.Stop() }()
	return s.Serve(l)
}

func (*bareLog) AppendStream(stream grpc.BidiStreamingServer[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client is done
		}
		if err := stream.Send(&brokerv1.AppendStreamResponse{Sequence: req.GetSequence()}); err != nil {
			return err
		}
	}
}

// FetchStream sends until the client has enough.
func (b *bareLog) FetchStream(_ *brokerv1.FetchStreamRequest, stream grpc.ServerStreamingServer[brokerv1.FetchStreamResponse]) error {
	for n := int64(1); ; n++ {
		head := &brokerv1.FetchStreamResponse{NextOffset: n}
		if err := stream.SendMsg(&rawcodec.Parts{Message: head, Payload: [][]byte{b.chunk}}); err != nil {
			return err
		}
	}
}
