package api

import (
	"errors"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

const (
	parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	first  = "00-11111111111111111111111111111111-1111111111111111-01"
	second = "00-22222222222222222222222222222222-2222222222222222-01"
)

func traced(t testing.TB, codec recordbatch.Codec, parents ...string) []byte {
	t.Helper()
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{Codec: codec})
	for _, p := range parents {
		var headers []recordbatch.RecordHeader
		if p != "" {
			headers = append(headers, recordbatch.RecordHeader{Key: telemetry.Traceparent, Value: []byte(p)})
		}
		b.Append(1, nil, []byte("v"), headers)
	}
	out, err := b.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAppendSpanJoinsTheMessagesTraces: the span belongs to the caller's trace and links each message's once.
func TestAppendSpanJoinsTheMessagesTraces(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
	s := &spans{tracer: provider.Tracer("test")}
	batches := append(traced(t, recordbatch.Zstd, first, "", first, second), traced(t, recordbatch.None, second, "garbage")...)
	s.startFrom(t.Context(), parent, "orders", 3, batches).end(log.AppendResult{BaseOffset: 10, LastOffset: 15}, nil)
	s.startFrom(t.Context(), "", "orders", 3, []byte("no batch")).end(log.AppendResult{}, errors.New("refused"))
	got := exporter.GetSpans()
	if len(got) != 2 {
		t.Fatalf("%d spans", len(got))
	}
	ok, failed := got[0], got[1]
	if ok.Name != "append orders" || ok.Parent.TraceID().String() != parent[3:35] || len(ok.Links) != 2 ||
		ok.Links[0].SpanContext.TraceID().String() != first[3:35] || ok.Links[1].SpanContext.TraceID().String() != second[3:35] {
		t.Errorf("span %+v", ok)
	}
	if failed.Parent.IsValid() || len(failed.Links) != 0 || failed.Status.Description == "" {
		t.Errorf("failed span %+v", failed)
	}
}

func TestTracingOffCostsNothing(t *testing.T) {
	s := newSpans(telemetry.Off())
	batches := traced(t, recordbatch.Zstd, first)
	if n := testing.AllocsPerRun(100, func() { s.startFrom(t.Context(), parent, "t", 0, batches).end(log.AppendResult{}, nil) }); n > 0 {
		t.Errorf("tracing that is off allocates %v times", n)
	}
}
