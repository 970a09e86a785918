package intake

import (
	"context"
	"net/http"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/memory"
	"github.com/databus-suite/databus/services/databus/internal/publisher"
)

// Config of an Intake.
type Config struct {
	Publisher    *publisher.Publisher
	Memory       *memory.Pool
	MaxBodyBytes int64        // of a request, packed and unpacked
	Tracer       trace.Tracer // nil: publishes are not traced
	// Draining is closed when the agent begins to stop, so that streams end; never nil.
	Draining <-chan struct{}
}

// Intake takes requests. All methods may run concurrently; it has nothing to close.
type Intake struct {
	cfg    Config
	bodies bodies
	pool   sync.Pool
}

// New returns an Intake.
func New(cfg Config) *Intake {
	return &Intake{cfg: cfg, bodies: bodies{memory: cfg.Memory, limit: cfg.MaxBodyBytes}, pool: sync.Pool{New: func() any { return new(request) }}}
}

// request is what handling a request needs; it is reused.
type request struct {
	body    body
	batch   wirejson.Batch
	headers []recordbatch.RecordHeader
	publish publisher.Request
	out     []byte
	pending publisher.Pending
}

// maxKept bounds the buffers that are kept for the next request.
const maxKept = 64 << 10

func (in *Intake) get() *request { return in.pool.Get().(*request) }

func (in *Intake) put(q *request) {
	in.bodies.release(&q.body)
	if cap(q.out) > maxKept || cap(q.batch.Messages) > 1024 {
		return
	}
	q.batch.Reset()
	clear(q.headers)
	q.headers, q.out = q.headers[:0], q.out[:0]
	q.publish = publisher.Request{}
	q.pending.Reset()
	in.pool.Put(q)
}

// Messages serves POST /v1/channels/{channel}/messages.
func (in *Intake) Messages() http.Handler { return in.handler((*request).decodeMessages) }

// Events serves POST /v1/channels/{channel}/events.
func (in *Intake) Events() http.Handler { return in.handler((*request).decodeEvents) }

// handler reads the body, decodes it, publishes, and answers.
func (in *Intake) handler(decode func(*request, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := in.get()
		defer in.put(q)
		err := in.bodies.read(w, r, &q.body)
		if err == nil {
			q.publish.Channel = r.PathValue("channel")
			err = decode(q, r)
		}
		if err == nil {
			err = in.publish(r.Context(), q)
		}
		if err != nil {
			errs.WriteHTTP(w, err)
			return
		}
		q.answer(w)
	})
}

// publish hands the request's messages on and waits for what becomes of them. Nothing of the body is needed once the messages
// have been copied into their batches.
func (in *Intake) publish(ctx context.Context, q *request) error {
	ctx, span := in.span(ctx, q.publish.Channel, len(q.batch.Messages))
	q.headers = telemetry.AppendHeaders(ctx, q.headers[:0])
	q.publish.Messages, q.publish.Headers, q.publish.Trace = q.batch.Messages, q.headers, traceOf(q.headers)
	err := in.cfg.Publisher.Enqueue(ctx, &q.publish, &q.pending)
	in.bodies.release(&q.body)
	if err == nil {
		err = q.pending.Wait(ctx)
	}
	end(span, err)
	return err
}

// span begins the producer span of a publish, where publishes are traced.
func (in *Intake) span(ctx context.Context, channel string, messages int) (context.Context, trace.Span) {
	if in.cfg.Tracer == nil {
		return ctx, nil
	}
	return in.cfg.Tracer.Start(ctx, "publish "+channel, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("messaging.system", "databus"), attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.operation.name", "publish"), attribute.String("messaging.destination.name", channel),
		attribute.Int("messaging.batch.message_count", messages)))
}

func end(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, errs.From(err).Reason)
	}
	span.End()
}

func traceOf(headers []recordbatch.RecordHeader) string {
	for i := range headers {
		if headers[i].Key == telemetry.Traceparent {
			return string(headers[i].Value)
		}
	}
	return ""
}
