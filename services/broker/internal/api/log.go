package api

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
	"github.com/databus-suite/databus/services/broker/internal/producerid"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

const (
	defaultFetchBytes = 1 << 20
	// maxFetchBytes leaves room for a last batch of the largest size in one gRPC message.
	maxFetchBytes = 16 << 20
)

// logService implements brokerv1.LogServiceServer; logConnect adapts its streams to Connect.
type logService struct {
	brokerv1.UnimplementedLogServiceServer
	topics    *topic.Registry
	producers *producerid.Allocator
	calls     calls
	spans     *spans
}

type logConnect struct{ *logService }

func (s *logService) Append(ctx context.Context, req *brokerv1.AppendRequest) (*brokerv1.AppendResponse, error) {
	t, p, err := s.topics.Partition(ctx, req.GetTopic(), req.GetPartition())
	if err != nil {
		return nil, coded(err)
	}
	if err := checkEpoch(p, req.GetLeaderEpoch(), req.GetKeepOffsets()); err != nil {
		return nil, err
	}
	span := s.spans.start(ctx, t.Name, req.GetPartition(), req.GetBatches())
	res, err := p.Append(ctx, req.GetBatches(), appendOptions(t, req.GetAck(), req.GetLeaderEpoch(), req.GetKeepOffsets()))
	span.end(res, err)
	if err != nil {
		return nil, coded(err)
	}
	return &brokerv1.AppendResponse{
		BaseOffset: res.BaseOffset, LastOffset: res.LastOffset, LogStartOffset: res.LogStartOffset,
		AppendTime: millis(res.AppendTime), Duplicate: res.Duplicate,
	}, nil
}

func appendOptions(t *topic.Topic, ack brokerv1.AckLevel, epoch int32, keepOffsets bool) log.AppendOptions {
	return log.AppendOptions{Level: topic.Level(ack, t.DefaultAck()), LeaderEpoch: epoch, KeepOffsets: keepOffsets}
}

// checkEpoch refuses a caller that believes in another leader than the one at work. A mirror's epochs are its source's, which
// the log checks by itself.
func checkEpoch(p *log.Partition, epoch int32, keepOffsets bool) error {
	if epoch == 0 || keepOffsets {
		return nil
	}
	if now := p.Stats().LeaderEpoch; now != epoch {
		return errs.New(errs.Conflict, "LEADER_EPOCH", "append to %s-%d: its leader epoch is %d, not %d", p.Topic(), p.Index(), now, epoch).
			WithField("leaderEpoch").WithNext("read the topic again: its leader has changed")
	}
	return nil
}

// millis is a time of the log, absent where it has none.
func millis(ms int64) *timestamppb.Timestamp {
	if ms < 0 {
		return nil
	}
	return timestamppb.New(time.UnixMilli(ms))
}

func (s *logService) Fetch(ctx context.Context, req *brokerv1.FetchRequest) (*brokerv1.FetchResponse, error) {
	_, p, err := s.topics.Partition(ctx, req.GetTopic(), req.GetPartition())
	if err != nil {
		return nil, coded(err)
	}
	ctx, stop := s.calls.bound(ctx)
	defer stop()
	o := log.FetchOptions{
		Offset: req.GetOffset(), MinBytes: int(req.GetMinBytes()), MaxBytes: fetchBytes(req.GetMaxBytes()), MaxWait: req.GetMaxWait().AsDuration(),
	}
	res, err := p.Fetch(ctx, o)
	if drained(err) { // answer with what there is
		o.MaxWait = 0
		res, err = p.Fetch(context.WithoutCancel(ctx), o)
	}
	if err != nil {
		return nil, fetchError(p, o.Offset, err)
	}
	return &brokerv1.FetchResponse{
		HighWatermark: res.HighWatermark, LogStartOffset: res.LogStartOffset, NextOffset: res.NextOffset, Batches: res.Bytes(),
	}, nil
}

func fetchBytes(n int32) int {
	if n <= 0 {
		return defaultFetchBytes
	}
	return min(int(n), maxFetchBytes)
}

func (s *logService) ListOffsets(ctx context.Context, req *brokerv1.ListOffsetsRequest) (*brokerv1.ListOffsetsResponse, error) {
	t, err := s.topics.Get(req.GetTopic())
	if err != nil {
		return nil, err
	}
	partitions, err := choosePartitions(t, req.GetPartitions())
	if err != nil {
		return nil, err
	}
	out := &brokerv1.ListOffsetsResponse{TopicId: t.UUID()}
	for _, i := range partitions {
		_, p, err := s.topics.Partition(ctx, t.Name, i)
		if err != nil {
			return nil, coded(err)
		}
		at := &brokerv1.PartitionOffset{Partition: i}
		start, end, _ := p.Bounds()
		switch by := req.GetAt().(type) {
		case *brokerv1.ListOffsetsRequest_Timestamp:
			var ms int64
			if at.Offset, ms, err = p.OffsetForTime(by.Timestamp.AsTime().UnixMilli()); err != nil {
				return nil, coded(err)
			}
			at.Timestamp = millis(ms)
		case *brokerv1.ListOffsetsRequest_Earliest:
			at.Offset = start
		default: // latest is what an empty request means, as in Kafka
			at.Offset = end
		}
		out.Offsets = append(out.Offsets, at)
	}
	return out, nil
}

// choosePartitions is what a request asks for, all where it names none.
func choosePartitions(t *topic.Topic, asked []int32) ([]int32, error) {
	if len(asked) == 0 {
		asked = make([]int32, t.Partitions)
		for i := range asked {
			asked[i] = int32(i) //nolint:gosec // at most 10,000
		}
		return asked, nil
	}
	seen := make(map[int32]bool, len(asked))
	for _, i := range asked {
		if i < 0 || i >= t.Partitions {
			return nil, errs.New(errs.NotFound, "PARTITION_NOT_FOUND", "topic %q has no partition %d", t.Name, i).
				WithField("partitions").WithNext("use 0 to %d", t.Partitions-1)
		}
		if seen[i] {
			return nil, invalid("partitions", "name each partition once", "partition %d is asked for twice", i)
		}
		seen[i] = true
	}
	return asked, nil
}

func (s *logService) InitProducer(ctx context.Context, req *brokerv1.InitProducerRequest) (*brokerv1.InitProducerResponse, error) {
	id, err := s.producers.Take(ctx, int64(max(req.GetCount(), 1)))
	if err != nil {
		return nil, err
	}
	return &brokerv1.InitProducerResponse{ProducerId: id}, nil
}

func (s *logService) AppendStream(stream grpc.BidiStreamingServer[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]) error {
	return s.appendStream(stream.Context(), stream.Recv, stream.Send)
}

func (s logConnect) AppendStream(ctx context.Context, stream *connect.BidiStream[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]) error {
	return s.appendStream(ctx, stream.Receive, stream.Send)
}
