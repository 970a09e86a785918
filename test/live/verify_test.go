package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/test/harness"
)

// record is one message of a key, where it was found.
type record struct {
	number    int
	topic     string
	partition int32
	offset    int64
	at        int64 // append time, milliseconds of the broker's clock
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// readBack reads all of some topics, by key.
func readBack(t *testing.T, broker *harness.Service, topics []string) map[string][]record {
	t.Helper()
	client := brokerv1.NewReadServiceClient(dial(t, broker.GRPCAddr()))
	found := make(map[string][]record)
	for _, topic := range topics {
		if err := readTopic(t.Context(), client, topic, found); err != nil {
			t.Fatalf("read topic %s: %v", topic, err)
		}
	}
	return found
}

func readTopic(ctx context.Context, client brokerv1.ReadServiceClient, topic string, found map[string][]record) error {
	stream, err := client.FollowMessages(ctx, &brokerv1.FollowMessagesRequest{Topic: topic, Offset: "earliest", StopAtEnd: true})
	if err != nil {
		return err
	}
	for {
		page, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range page.GetMessages() {
			n, err := numberOf(m.GetValue())
			if err != nil {
				return fmt.Errorf("partition %d offset %d: %w", page.GetPartition(), m.GetOffset(), err)
			}
			if m.GetTimestamp().AsTime().Year() == 2001 {
				return fmt.Errorf("partition %d offset %d: the timestamp is the producer's, not the append's", page.GetPartition(), m.GetOffset())
			}
			key := string(m.GetKey())
			found[key] = append(found[key], record{n, topic, page.GetPartition(), m.GetOffset(), m.GetTimestamp().AsTime().UnixMilli()})
		}
	}
}

// awaitMessages waits until a topic holds so many messages.
func awaitMessages(t *testing.T, broker *harness.Service, topic string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := brokerv1.NewReadServiceClient(dial(t, broker.GRPCAddr())).FollowMessages(ctx,
		&brokerv1.FollowMessagesRequest{Topic: topic, Offset: "earliest"})
	for have := 0; err == nil && have < n; {
		var page *brokerv1.FollowMessagesResponse
		page, err = stream.Recv()
		have += len(page.GetMessages())
	}
	if err != nil {
		t.Fatalf("wait for %d messages of topic %s: %v", n, topic, err)
	}
}

func numberOf(value []byte) (int, error) {
	rest, ok := bytes.CutPrefix(value, []byte(`{"n":`))
	text, _, more := bytes.Cut(rest, []byte(","))
	if !ok || !more {
		return 0, fmt.Errorf("value %q was not published", value)
	}
	return strconv.Atoi(string(text))
}

// checkKeys proves that each key's messages 0 to taken-1 are there once and in order: by offset within a partition, and by the
// broker's clock from one partition to another.
func checkKeys(t *testing.T, taken map[string]int, found map[string][]record) {
	t.Helper()
	faults := 0
	fault := func(format string, args ...any) {
		if faults++; faults <= 20 {
			t.Errorf(format, args...)
		}
	}
	for key, n := range taken {
		list := found[key]
		slices.SortStableFunc(list, func(a, b record) int { return cmp.Compare(a.number, b.number) })
		seen := make([]int, n)
		for i, r := range list {
			if r.number >= n {
				fault("key %s: message %d is in the log and was never acknowledged", key, r.number)
				continue
			}
			seen[r.number]++
			if i == 0 {
				continue
			}
			switch p := list[i-1]; {
			case p.topic == r.topic && p.partition == r.partition && p.offset >= r.offset:
				fault("key %s: message %d at %s/%d@%d lies behind %d at offset %d", key, p.number, p.topic, p.partition, p.offset, r.number, r.offset)
			case p.at > r.at:
				fault("key %s: message %d (%s/%d@%d) was appended %d ms after %d (%s/%d@%d)", key, p.number, p.topic, p.partition, p.offset,
					p.at-r.at, r.number, r.topic, r.partition, r.offset)
			}
		}
		for number, times := range seen {
			if times != 1 {
				fault("key %s: message %d of %d is in the log %d times", key, number, n, times)
			}
		}
	}
	if faults > 20 {
		t.Errorf("and %d faults more", faults-20)
	}
}
