package brokertest

import (
	"context"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// fetchAtOnce is how many batches an answer holds, so that readers must go on.
const fetchAtOnce = 3

func (s logService) Fetch(_ context.Context, req *brokerv1.FetchRequest) (*brokerv1.FetchResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	p, err := s.b.find(req.Topic, req.Partition)
	if err != nil {
		return nil, err
	}
	end := int64(len(p.records))
	res := &brokerv1.FetchResponse{HighWatermark: end, NextOffset: req.Offset}
	n := 0
	for _, b := range p.batches {
		h, err := recordbatch.ParseHeader(b)
		if err != nil {
			return nil, err
		}
		if h.NextOffset() <= req.Offset || n == fetchAtOnce {
			continue
		}
		n++
		res.Batches = append(res.Batches, b...)
		res.NextOffset = h.NextOffset()
	}
	return res, nil
}

func (s logService) ListOffsets(_ context.Context, req *brokerv1.ListOffsetsRequest) (*brokerv1.ListOffsetsResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	t := s.b.topics[req.Topic]
	if t == nil {
		return nil, errs.New(errs.NotFound, "TOPIC_NOT_FOUND", "topic %q does not exist", req.Topic)
	}
	out := &brokerv1.ListOffsetsResponse{TopicId: t.id}
	for i, p := range t.partitions {
		if len(req.Partitions) > 0 && req.Partitions[0] != int32(i) {
			continue
		}
		o := &brokerv1.PartitionOffset{Partition: int32(i)}
		if req.GetLatest() {
			o.Offset = int64(len(p.records))
		}
		out.Offsets = append(out.Offsets, o)
	}
	return out, nil
}

func (b *Broker) find(name string, index int32) (*partition, error) {
	t := b.topics[name]
	if t == nil || int(index) >= len(t.partitions) {
		return nil, errs.New(errs.NotFound, "TOPIC_NOT_FOUND", "topic %q with partition %d does not exist", name, index)
	}
	return t.partitions[index], nil
}

// Config is what a topic was made with; nil where there is none.
func (b *Broker) Config(name string) *brokerv1.TopicConfig {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.topics[name]; t != nil {
		return t.config
	}
	return nil
}
