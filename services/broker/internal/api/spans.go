package api

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

const (
	// maxLinks bounds how many messages' traces one append's span names.
	maxLinks = 64
	// maxScanBytes bounds what is decompressed to find them.
	maxScanBytes = 4 << 20
)

// spans makes the span `append <topic>` of each append, linked to the traces of the messages in it. With tracing off it is
// one comparison.
type spans struct {
	tracer trace.Tracer // nil: off
}

func newSpans(t *telemetry.Telemetry) *spans {
	if t == nil || !t.Tracing() {
		return &spans{}
	}
	return &spans{tracer: t.Tracer("databus/broker")}
}

// appendSpan is the span of one append; the zero value is none.
type appendSpan struct{ span trace.Span }

// startFrom is start for a request on a stream, whose caller is not the stream's.
func (s *spans) startFrom(ctx context.Context, traceparent, topic string, partition int32, batches []byte) appendSpan {
	if s.tracer == nil {
		return appendSpan{}
	}
	if traceparent != "" {
		ctx = telemetry.Extract(ctx, func(key string) string {
			if key == telemetry.Traceparent {
				return traceparent
			}
			return ""
		})
	}
	return s.start(ctx, topic, partition, batches)
}

func (s *spans) start(ctx context.Context, topic string, partition int32, batches []byte) appendSpan {
	if s.tracer == nil {
		return appendSpan{}
	}
	_, span := s.tracer.Start(ctx, "append "+topic, trace.WithSpanKind(trace.SpanKindServer), trace.WithLinks(links(batches)...), //nolint:contextcheck // the caller's trace must not count as a message's
		trace.WithAttributes(
			attribute.String("messaging.system", "databus"), attribute.String("messaging.operation.type", "send"),
			attribute.String("messaging.operation.name", "append"), attribute.String("messaging.destination.name", topic),
			attribute.String("messaging.destination.partition.id", strconv.Itoa(int(partition))),
			attribute.Int("messaging.message.body.size", len(batches)),
		))
	return appendSpan{span}
}

func (s appendSpan) end(res log.AppendResult, err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.RecordError(err)
		s.span.SetStatus(codes.Error, "append failed")
	} else {
		s.span.SetAttributes(attribute.Int64("messaging.databus.base_offset", res.BaseOffset),
			attribute.Int64("messaging.batch.message_count", res.LastOffset-res.BaseOffset+1))
	}
	s.span.End()
}

// links finds the traces of the messages in batches. What does not parse is the log's to refuse.
func links(batches []byte) (list []trace.Link) {
	seen := map[trace.SpanID]bool{}
	for len(batches) > 0 {
		batch, rest, err := recordbatch.Split(batches)
		if err != nil {
			return list
		}
		for record, err := range recordbatch.Records(batch, maxScanBytes) {
			if err != nil || len(list) == maxLinks {
				return list
			}
			sc := trace.SpanContextFromContext(telemetry.FromHeaders(context.Background(), record.Headers))
			if sc.IsValid() && !seen[sc.SpanID()] {
				seen[sc.SpanID()] = true
				list = append(list, trace.Link{SpanContext: sc})
			}
		}
		batches = rest
	}
	return list
}
