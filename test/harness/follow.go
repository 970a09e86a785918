package harness

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

// Follow reads a topic from its begin, as messages come, until page answers false or ctx ends. Of one partition they come in order.
func (s *Suite) Follow(ctx context.Context, topic string, page func(partition int32, messages []*databusv1.StoredMessage) bool) (err error) {
	conn, err := grpc.NewClient("passthrough:///"+s.Addr(BrokerGRPC), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		return fmt.Errorf("follow topic %s: %w", topic, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		err = errors.Join(err, conn.Close())
	}()
	stream, err := brokerv1.NewReadServiceClient(conn).FollowMessages(ctx, &brokerv1.FollowMessagesRequest{Topic: topic, Offset: "earliest"})
	for more := true; err == nil && more; {
		var next *brokerv1.FollowMessagesResponse
		if next, err = stream.Recv(); err == nil {
			more = page(next.GetPartition(), next.GetMessages())
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("follow topic %s: %w", topic, err)
	}
	return nil
}
