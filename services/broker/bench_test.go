package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker"
)

// bare answers each append and throws it away: what grpc-go itself costs.
type bare struct {
	brokerv1.UnimplementedLogServiceServer
}

func (bare) AppendStream(stream grpc.BidiStreamingServer[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]) error {
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

func dialBare(b *testing.B) brokerv1.LogServiceClient {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(rawcodec.Codec{}), grpc.InitialWindowSize(1<<20), grpc.InitialConnWindowSize(4<<20), grpc.MaxRecvMsgSize(64<<20))
	brokerv1.RegisterLogServiceServer(s, bare{})
	go func() { _ = s.Serve(l) }()
	b.Cleanup(s.Stop)
	return dialLog(b, l.Addr().String())
}

func dialLog(b *testing.B, addr string) brokerv1.LogServiceClient {
	b.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{})))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return brokerv1.NewLogServiceClient(conn)
}

func dialBroker(b *testing.B) brokerv1.LogServiceClient {
	b.Helper()
	s, err := broker.New(b.Context(), config(b.TempDir()), broker.Deps{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.Listen(); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	client := dialLog(b, s.GRPCAddr())
	conn, err := grpc.NewClient(s.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	if _, err := brokerv1.NewTopicServiceClient(conn).CreateTopic(b.Context(), &brokerv1.CreateTopicRequest{Name: "t", Partitions: 4}); err != nil {
		b.Fatal(err)
	}
	return client
}

// BenchmarkAppendStream appends over one stream to four partitions, beside a server that throws the same bytes away.
func BenchmarkAppendStream(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
		builder := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
		for n := 0; n < size; n += 1000 {
			builder.Append(1000, []byte("key"), make([]byte, 960), nil)
		}
		one, err := builder.Build(nil)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("bare/%d", size), func(b *testing.B) { appendAll(b, dialBare(b), brokerv1.AckLevel_ACK_LEVEL_DURABLE, one) })
		b.Run(fmt.Sprintf("buffered/%d", size), func(b *testing.B) { appendAll(b, dialBroker(b), brokerv1.AckLevel_ACK_LEVEL_BUFFERED, one) })
		b.Run(fmt.Sprintf("durable/%d", size), func(b *testing.B) { appendAll(b, dialBroker(b), brokerv1.AckLevel_ACK_LEVEL_DURABLE, one) })
	}
}

func appendAll(b *testing.B, client brokerv1.LogServiceClient, ack brokerv1.AckLevel, one []byte) {
	stream, err := client.AppendStream(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(one)))
	b.ReportAllocs()
	b.ResetTimer()
	window := make(chan struct{}, 64)
	go func() {
		for n := range b.N {
			window <- struct{}{}
			if stream.Send(&brokerv1.AppendStreamRequest{Topic: "t", Partition: int32(n % 4), Ack: ack, Batches: one}) != nil {
				return
			}
		}
		_ = stream.CloseSend()
	}()
	for {
		res, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil || res.GetError() != nil {
			b.Fatal(res, err)
		}
		<-window
	}
}
