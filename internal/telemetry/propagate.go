package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// The W3C headers, in the case that they have in HTTP/2, gRPC metadata and record headers.
const (
	Traceparent = "traceparent"
	Tracestate  = "tracestate"
	Baggage     = "baggage"
)

// w3c is stateless, so all share it.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

func newPropagator() propagation.TextMapPropagator { return w3c }

// Carries reports whether ctx has a trace or baggage to hand on.
func Carries(ctx context.Context) bool {
	return trace.SpanContextFromContext(ctx).IsValid() || baggage.FromContext(ctx).Len() > 0
}

// Inject calls set with each W3C header that carries ctx's trace and baggage. Where there is neither it calls
// nothing and allocates nothing.
func Inject(ctx context.Context, set func(key, value string)) {
	if Carries(ctx) {
		w3c.Inject(ctx, setter(set))
	}
}

// Extract returns ctx with the trace and baggage that get returns by W3C header name. Where there is neither it
// returns ctx itself.
func Extract(ctx context.Context, get func(key string) string) context.Context {
	if get(Traceparent) == "" && get(Baggage) == "" {
		return ctx
	}
	return w3c.Extract(ctx, getter(get))
}

// AppendHeaders appends ctx's trace and baggage to the headers of a record. A header of that name that is there
// already is left alone: it is the application's. Without trace or baggage it returns headers and allocates nothing.
func AppendHeaders(ctx context.Context, headers []recordbatch.RecordHeader) []recordbatch.RecordHeader {
	if !Carries(ctx) {
		return headers
	}
	c := recordCarrier{headers: headers, given: len(headers)}
	w3c.Inject(ctx, &c)
	return c.headers
}

// FromHeaders returns ctx with the trace and baggage in the headers of a record, and ctx itself where there are none.
func FromHeaders(ctx context.Context, headers []recordbatch.RecordHeader) context.Context {
	for _, h := range headers {
		if h.Key == Traceparent || h.Key == Baggage {
			return w3c.Extract(ctx, &recordCarrier{headers: headers, given: len(headers)})
		}
	}
	return ctx
}

type recordCarrier struct {
	headers []recordbatch.RecordHeader
	given   int
}

// Get returns the last value, as Kafka's lastHeader does.
func (c *recordCarrier) Get(key string) string {
	for i := len(c.headers) - 1; i >= 0; i-- {
		if c.headers[i].Key == key {
			return string(c.headers[i].Value)
		}
	}
	return ""
}

func (c *recordCarrier) Set(key, value string) {
	for _, h := range c.headers[:c.given] {
		if h.Key == key {
			return
		}
	}
	c.headers = append(c.headers, recordbatch.RecordHeader{Key: key, Value: []byte(value)})
}

func (c *recordCarrier) Keys() []string {
	keys := make([]string, len(c.headers))
	for i, h := range c.headers {
		keys[i] = h.Key
	}
	return keys
}

type setter func(key, value string)

func (setter) Get(string) string       { return "" }
func (setter) Keys() []string          { return nil }
func (s setter) Set(key, value string) { s(key, value) }

type getter func(key string) string

func (g getter) Get(key string) string { return g(key) }
func (getter) Keys() []string          { return []string{Traceparent, Tracestate, Baggage} }
func (getter) Set(string, string)      {}
