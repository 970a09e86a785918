package intake

import (
	"context"
	"strings"

	"connectrpc.com/connect"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/metadata"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/publisher"
)

// Service is PublishService. The same one serves gRPC and Connect but for the stream; see GRPC.
type Service struct{ in *Intake }

// Service returns the implementation for Connect.
func (in *Intake) Service() *Service { return &Service{in} }

// Publish hands in messages for one channel.
func (s *Service) Publish(ctx context.Context, req *databusv1.PublishRequest) (*databusv1.PublishResponse, error) {
	if len(req.GetMessages()) == 0 {
		return nil, noMessages()
	}
	q := s.in.get()
	defer s.in.put(q)
	q.publish.Channel = req.GetChannel()
	q.batch.Messages = wirejson.AppendProtos(q.batch.Messages[:0], req.GetMessages())
	if err := s.in.publish(ctx, q); err != nil {
		return nil, err
	}
	return &databusv1.PublishResponse{Results: protos(&q.pending)}, nil
}

func protos(p *publisher.Pending) []*databusv1.PublishResult {
	return wirejson.ResultProtos(p.Results())
}

// PublishEvents hands in a payload as it is.
func (s *Service) PublishEvents(ctx context.Context, req *databusv1.PublishEventsRequest) (*databusv1.PublishEventsResponse, error) {
	e := events{contentType: req.GetBody().GetContentType(), body: req.GetBody().GetData()}
	if req.Key != nil {
		e.key = []byte(req.GetKey())
	}
	for _, h := range req.GetHeaders() {
		e.headers = append(e.headers, recordbatch.RecordHeader{Key: h.GetKey(), Value: h.Value})
	}
	e.attributesOf(ctx)
	q := s.in.get()
	defer s.in.put(q)
	if err := e.decode(&q.batch); err != nil {
		return nil, err
	}
	q.publish.Channel, q.publish.JSON = req.GetChannel(), e.json
	if err := s.in.publish(ctx, q); err != nil {
		return nil, err
	}
	return &databusv1.PublishEventsResponse{Results: protos(&q.pending)}, nil
}

// attributesOf finds the attributes of a CloudEvent in binary mode beside the body, which is the call's metadata.
func (e *events) attributesOf(ctx context.Context) {
	values := make(map[string]string)
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		for name, v := range md {
			if attr, ok := strings.CutPrefix(name, "ce-"); ok {
				values[attr] = first(v)
			}
		}
	}
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		for name, v := range info.RequestHeader() {
			if attr, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
				values[attr] = first(v)
			}
		}
	}
	for name := range values {
		e.binary = append(e.binary, name)
	}
	e.attribute = func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

// PublishBulk hands in messages for several channels; each part answers for itself. All are on their way before the first is
// waited for.
func (s *Service) PublishBulk(ctx context.Context, req *databusv1.PublishBulkRequest) (*databusv1.PublishBulkResponse, error) {
	out := &databusv1.PublishBulkResponse{Responses: make([]*databusv1.PublishBulkPart, len(req.GetRequests()))}
	pendings := make([]*publisher.Pending, len(req.GetRequests()))
	for i, part := range req.GetRequests() {
		p, err := s.enqueue(ctx, part.GetChannel(), part.GetMessages())
		if err != nil {
			out.Responses[i] = &databusv1.PublishBulkPart{Error: status(err)}
			continue
		}
		pendings[i] = p
	}
	for i, p := range pendings {
		if p == nil {
			continue
		}
		if err := p.Wait(ctx); err != nil {
			out.Responses[i] = &databusv1.PublishBulkPart{Error: status(err)}
		} else {
			out.Responses[i] = &databusv1.PublishBulkPart{Results: protos(p)}
		}
		p.Put()
	}
	return out, nil
}

func status(err error) *rpcstatus.Status { return errs.From(err).Proto() }

// enqueue hands messages on without waiting.
func (s *Service) enqueue(ctx context.Context, channel string, messages []*databusv1.Message) (*publisher.Pending, error) {
	if len(messages) == 0 {
		return nil, noMessages()
	}
	ctx, span := s.in.span(ctx, channel, len(messages))
	q := s.in.get()
	defer s.in.put(q)
	q.headers = telemetry.AppendHeaders(ctx, q.headers[:0])
	q.batch.Messages = wirejson.AppendProtos(q.batch.Messages[:0], messages)
	q.publish = publisher.Request{Channel: channel, Messages: q.batch.Messages, Headers: q.headers, Trace: traceOf(q.headers)}
	p := publisher.Get()
	err := s.in.cfg.Publisher.Enqueue(ctx, &q.publish, p)
	end(span, err)
	if err != nil {
		p.Put()
		return nil, err
	}
	return p, nil
}
