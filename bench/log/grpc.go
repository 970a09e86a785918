package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

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

// FetchStream sends until the client has enough: the same chunk, or the file that the topic names, as it is.
func (b *bareLog) FetchStream(req *brokerv1.FetchStreamRequest, stream grpc.ServerStreamingServer[brokerv1.FetchStreamResponse]) error {
	if filepath.IsAbs(req.GetTopic()) {
		return sendFile(req.GetTopic(), stream)
	}
	for n := int64(1); ; n++ {
		head := &brokerv1.FetchStreamResponse{NextOffset: n}
		if err := stream.SendMsg(&rawcodec.Parts{Message: head, Payload: [][]byte{b.chunk}}); err != nil {
			return err
		}
	}
}

// sendFile sends a file once, from recycled buffers.
func sendFile(name string, stream grpc.ServerStream) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for n := int64(1); ; n++ {
		buf := chunks.Get().(*[fetchBytes]byte)
		k, err := io.ReadFull(f, buf[:])
		if k == 0 {
			return err
		}
		head := &brokerv1.FetchStreamResponse{NextOffset: n}
		if err := stream.SendMsg(&rawcodec.Parts{Message: head, Payload: [][]byte{buf[:k]}, Release: func() { chunks.Put(buf) }}); err != nil {
			return err
		}
	}
}

var chunks = sync.Pool{New: func() any { return new([fetchBytes]byte) }}
