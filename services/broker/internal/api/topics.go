package api

import (
	"context"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

// topicService implements brokerv1.TopicServiceServer, and Connect's interface, which is the same.
type topicService struct {
	brokerv1.UnimplementedTopicServiceServer
	topics *topic.Registry
}

func (s *topicService) CreateTopic(ctx context.Context, req *brokerv1.CreateTopicRequest) (*brokerv1.CreateTopicResponse, error) {
	t, err := s.topics.Create(ctx, topic.Spec{
		Name: req.GetName(), Partitions: req.GetPartitions(), Config: req.GetConfig(), ValidateOnly: req.GetValidateOnly(),
	})
	if err != nil {
		return nil, coded(err)
	}
	return &brokerv1.CreateTopicResponse{Topic: t.Proto()}, nil
}

func (s *topicService) GetTopic(ctx context.Context, req *brokerv1.GetTopicRequest) (*brokerv1.GetTopicResponse, error) {
	t, err := s.topics.Get(req.GetTopic())
	if err != nil {
		return nil, err
	}
	out := t.Proto()
	for i := range t.Partitions {
		_, p, err := s.topics.Partition(ctx, t.Name, i)
		if err != nil {
			return nil, coded(err)
		}
		st := p.Stats()
		out.PartitionOffsets = append(out.PartitionOffsets, &brokerv1.PartitionOffsets{
			Partition: i, LogStartOffset: st.LogStart, HighWatermark: st.HighWatermark, SizeBytes: st.Bytes, LeaderEpoch: st.LeaderEpoch,
		})
	}
	return &brokerv1.GetTopicResponse{Topic: out}, nil
}

func (s *topicService) ListTopics(_ context.Context, req *brokerv1.ListTopicsRequest) (*brokerv1.ListTopicsResponse, error) {
	after, err := readPageToken(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	page, more := s.topics.List(after, pageSize(req.GetPageSize()))
	out := &brokerv1.ListTopicsResponse{Topics: make([]*brokerv1.Topic, len(page))}
	for i, t := range page {
		out.Topics[i] = t.Proto()
	}
	if more {
		out.NextPageToken = pageToken(page[len(page)-1].Name)
	}
	return out, nil
}

func (s *topicService) UpdateTopic(ctx context.Context, req *brokerv1.UpdateTopicRequest) (*brokerv1.UpdateTopicResponse, error) {
	t, err := s.topics.Update(ctx, req.GetTopic(), req.GetConfig(), req.GetUpdateMask(), req.GetPartitions())
	if err != nil {
		return nil, coded(err)
	}
	return &brokerv1.UpdateTopicResponse{Topic: t.Proto()}, nil
}

func (s *topicService) DeleteTopic(ctx context.Context, req *brokerv1.DeleteTopicRequest) (*brokerv1.DeleteTopicResponse, error) {
	if err := s.topics.Delete(ctx, req.GetTopic()); err != nil {
		return nil, coded(err)
	}
	return &brokerv1.DeleteTopicResponse{}, nil
}

func (s *topicService) DeleteRecords(ctx context.Context, req *brokerv1.DeleteRecordsRequest) (*brokerv1.DeleteRecordsResponse, error) {
	_, p, err := s.topics.Partition(ctx, req.GetTopic(), req.GetPartition())
	if err != nil {
		return nil, coded(err)
	}
	before := req.GetBeforeOffset()
	start, end, _ := p.Bounds()
	if before == -1 {
		before = end
	}
	if before > end {
		return nil, errs.From(outOfRange(req.GetTopic(), req.GetPartition(), before, start, end)).WithField("beforeOffset")
	}
	start, err = p.DeleteRecords(ctx, before)
	if err != nil {
		return nil, fetchError(p, before, err)
	}
	return &brokerv1.DeleteRecordsResponse{LogStartOffset: start}, nil
}
