package brokertest

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
)

type logService struct {
	brokerv1.UnimplementedLogServiceServer
	b *Broker
}

func (s logService) InitProducer(_ context.Context, req *brokerv1.InitProducerRequest) (*brokerv1.InitProducerResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	id := s.b.producer
	s.b.producer += int64(max(req.Count, 1))
	return &brokerv1.InitProducerResponse{ProducerId: id}, nil
}

func (s logService) AppendStream(stream grpc.BidiStreamingServer[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.b.mu.Lock()
		gate := s.b.gates[req.Topic]
		s.b.mu.Unlock()
		if gate != nil {
			select {
			case <-gate:
			case <-stream.Context().Done():
				return nil
			}
		}
		if s.b.Trace != nil {
			s.b.Trace(req.Traceparent)
		}
		base, err := s.b.append(req.Topic, req.Partition, req.Batches)
		if s.b.Drop != nil && s.b.Drop(req.Topic, req.Partition) {
			return errs.New(errs.Unavailable, "BROKEN", "the stream breaks")
		}
		res := &brokerv1.AppendStreamResponse{Sequence: req.Sequence, BaseOffset: base}
		if err != nil {
			res.Error = errs.From(err).Proto()
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
}

func (b *Broker) append(name string, index int32, batch []byte) (int64, error) {
	if b.Refuse != nil {
		if err := b.Refuse(name, index, batch); err != nil {
			return 0, err
		}
	}
	h, err := recordbatch.Check(batch)
	if err != nil {
		return 0, errs.New(errs.Invalid, "BAD_BATCH", "append").Wrap(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil {
		return 0, errs.New(errs.NotFound, "TOPIC_NOT_FOUND", "topic %q does not exist", name)
	}
	if int(index) >= len(t.partitions) {
		return 0, errs.New(errs.NotFound, "PARTITION_NOT_FOUND", "topic %q has no partition %d", name, index)
	}
	return b.place(t.partitions[index], h, batch)
}

// place checks the producer's sequence and stores the records.
func (b *Broker) place(p *partition, h recordbatch.Header, batch []byte) (int64, error) {
	next := int32((int64(h.BaseSequence) + int64(h.Count)) & math.MaxInt32)
	who := p.producers[h.ProducerID]
	if who == nil || who.epoch < h.ProducerEpoch {
		who = &producer{epoch: h.ProducerEpoch}
	}
	if i := slices.IndexFunc(who.last, func(a appended) bool { return a.first == h.BaseSequence && a.next == next }); i >= 0 {
		return who.last[i].base, nil
	}
	want := int32(0)
	if n := len(who.last); n > 0 {
		want = who.last[n-1].next
	}
	if h.BaseSequence != want {
		return 0, errs.New(errs.Conflict, "OUT_OF_ORDER_SEQUENCE", "producer %d: sequence %d, want %d", h.ProducerID, h.BaseSequence, want)
	}
	base := p.end
	p.end += int64(h.Count)
	if !b.Discard {
		if err := p.store(h, batch); err != nil {
			return 0, err
		}
	}
	stored := slices.Clone(batch)
	recordbatch.SetOffset(stored, base, 0)
	p.batches = append(p.batches, stored)
	who.last = append(who.last, appended{h.BaseSequence, next, base})
	if len(who.last) > 5 {
		who.last = who.last[1:]
	}
	p.producers[h.ProducerID] = who
	b.appends++
	b.cond.Broadcast()
	return base, nil
}

func (p *partition) store(h recordbatch.Header, batch []byte) error {
	number := 0
	if n := len(p.records); n > 0 {
		number = p.records[n-1].Batch + 1
	}
	for r, err := range recordbatch.Records(batch, 64<<20) {
		if err != nil {
			return errs.New(errs.Invalid, "BAD_BATCH", "append").Wrap(err)
		}
		r.Offset = int64(len(p.records))
		p.records = append(p.records, Record{Record: clone(r), Producer: h.ProducerID, Codec: h.Codec(), Batch: number})
	}
	return nil
}

func clone(r recordbatch.Record) recordbatch.Record {
	r.Key, r.Value = slices.Clone(r.Key), slices.Clone(r.Value)
	r.Headers = slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = slices.Clone(r.Headers[i].Value)
	}
	return r
}

type topicService struct {
	brokerv1.UnimplementedTopicServiceServer
	b *Broker
}

func (s topicService) GetTopic(_ context.Context, req *brokerv1.GetTopicRequest) (*brokerv1.GetTopicResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	t := s.b.topics[req.Topic]
	if t == nil {
		return nil, errs.New(errs.NotFound, "TOPIC_NOT_FOUND", "topic %q does not exist", req.Topic)
	}
	return &brokerv1.GetTopicResponse{Topic: t.proto(req.Topic)}, nil
}

func (s topicService) ListTopics(context.Context, *brokerv1.ListTopicsRequest) (*brokerv1.ListTopicsResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	out := &brokerv1.ListTopicsResponse{}
	for name, t := range s.b.topics {
		out.Topics = append(out.Topics, t.proto(name))
	}
	return out, nil
}

func (s topicService) CreateTopic(_ context.Context, req *brokerv1.CreateTopicRequest) (*brokerv1.CreateTopicResponse, error) {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.b.topics[req.Name] != nil {
		return nil, errs.New(errs.AlreadyExists, "TOPIC_EXISTS", "topic %q exists", req.Name)
	}
	n := req.Partitions
	if n == 0 {
		n = s.b.DefaultPartitions
	}
	t := &topic{id: strconv.FormatInt(time.Now().UnixNano(), 16), config: req.Config}
	t.grow(n)
	s.b.topics[req.Name] = t
	return &brokerv1.CreateTopicResponse{Topic: t.proto(req.Name)}, nil
}

func (t *topic) proto(name string) *brokerv1.Topic {
	return &brokerv1.Topic{Name: name, Id: t.id, Partitions: int32(len(t.partitions)), Config: t.config}
}
