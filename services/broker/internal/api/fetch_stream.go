package api

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

const defaultHeartbeat = 10 * time.Second

// FetchStream sends batches as the log holds them, without joining or copying them.
func (s *logService) FetchStream(req *brokerv1.FetchStreamRequest, stream grpc.ServerStreamingServer[brokerv1.FetchStreamResponse]) error {
	return s.fetchStream(stream.Context(), req, func(head *brokerv1.FetchStreamResponse, res log.FetchResult) error {
		return stream.SendMsg(&rawcodec.Parts{Message: head, Payload: res.Batches, Release: res.Release})
	})
}

func (s logConnect) FetchStream(ctx context.Context, req *brokerv1.FetchStreamRequest, stream *connect.ServerStream[brokerv1.FetchStreamResponse]) error {
	return s.fetchStream(ctx, req, func(head *brokerv1.FetchStreamResponse, res log.FetchResult) error {
		defer res.Release() // Send has encoded it
		head.Batches = res.Bytes()
		return stream.Send(head)
	})
}

func (s *logService) fetchStream(ctx context.Context, req *brokerv1.FetchStreamRequest, send func(*brokerv1.FetchStreamResponse, log.FetchResult) error) error {
	_, p, err := s.topics.Partition(ctx, req.GetTopic(), req.GetPartition())
	if err != nil {
		return coded(err)
	}
	ctx, stop := s.calls.bound(ctx)
	defer stop()
	o := log.FetchOptions{Offset: req.GetOffset(), MaxBytes: fetchBytes(req.GetMaxBytes()), MaxWait: defaultHeartbeat}
	if d := req.GetHeartbeat(); d != nil {
		o.MaxWait = max(d.AsDuration(), 10*time.Millisecond)
	}
	r := p.NewReader(o)
	defer r.Close()
	for {
		res, err := r.Next(ctx)
		if err != nil {
			return s.followError(p, r.Offset(), err)
		}
		head := &brokerv1.FetchStreamResponse{HighWatermark: res.HighWatermark, LogStartOffset: res.LogStartOffset, NextOffset: res.NextOffset}
		if err := send(head, res); err != nil {
			return err
		}
	}
}

// followError says that the topic is gone where that is why its partition closed.
func (s *logService) followError(p *log.Partition, offset int64, err error) error {
	if now, gone := s.topics.Get(p.Topic()); gone != nil || now.ID != p.ID() {
		return errTopicGone(p.Topic())
	}
	return fetchError(p, offset, err)
}
