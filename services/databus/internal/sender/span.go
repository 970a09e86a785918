package sender

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/telemetry"
)

// span is that of one batch's way to the broker and back. Where appends are not traced only parent is set.
type span struct {
	span   trace.Span
	parent string // W3C traceparent for the broker
}

// span begins `append <topic>`: a child of the first publish whose messages the batch holds, with links to all of them.
func (s *Sender) span(ctx context.Context, topic string, partition int32, traces []string, size int) span {
	if s.cfg.Tracer == nil {
		if len(traces) == 0 {
			return span{}
		}
		return span{parent: traces[0]}
	}
	links := make([]trace.Link, 0, len(traces))
	begin := ctx
	for i, t := range traces {
		from := extract(ctx, t)
		if i == 0 {
			begin = from
		}
		if sc := trace.SpanContextFromContext(from); sc.IsValid() {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	begin, begun := s.cfg.Tracer.Start(begin, "append "+topic, trace.WithSpanKind(trace.SpanKindClient), trace.WithLinks(links...), trace.WithAttributes(
		attribute.String("messaging.system", "databus"), attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.operation.name", "append"), attribute.String("messaging.destination.name", topic),
		attribute.String("messaging.destination.partition.id", strconv.Itoa(int(partition))), attribute.Int("messaging.message.body.size", size)))
	out := span{span: begun}
	telemetry.Inject(begin, func(key, value string) {
		if key == telemetry.Traceparent {
			out.parent = value
		}
	})
	return out
}

// extract is ctx in the trace of a traceparent.
func extract(ctx context.Context, traceparent string) context.Context {
	return telemetry.Extract(ctx, func(key string) string {
		if key == telemetry.Traceparent {
			return traceparent
		}
		return ""
	})
}

func (s span) end(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, errs.From(err).Reason)
	}
	s.span.End()
}
