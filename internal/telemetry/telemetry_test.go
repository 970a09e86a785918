package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/databus-suite/databus/internal/recordbatch"
)

const (
	parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	bag    = "tenant=acme"
)

func setup(t *testing.T, cfg Config) *Telemetry {
	t.Helper()
	tel, err := Setup(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 { // the second finds nothing to do
			if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	})
	return tel
}

func TestTracingIsOffWithoutAnEndpoint(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
	tel := setup(t, Config{Service: "databus-test"})
	if tel.Tracing() {
		t.Error("tracing is on")
	}
	// A caller's trace still passes through.
	ctx := FromHeaders(t.Context(), []recordbatch.RecordHeader{{Key: Traceparent, Value: []byte(parent)}})
	ctx, span := tel.Tracer("x").Start(ctx, "publish")
	defer span.End()
	want := []recordbatch.RecordHeader{{Key: Traceparent, Value: []byte(parent)}}
	if diff := cmp.Diff(want, AppendHeaders(ctx, nil)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestStandardEnvironmentTurnsTracingOn(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	if tel := setup(t, Config{Service: "databus-test"}); !tel.Tracing() {
		t.Error("tracing is off")
	}
	t.Setenv("OTEL_SDK_DISABLED", "true")
	if tel := setup(t, Config{Service: "databus-test"}); tel.Tracing() {
		t.Error("tracing is on although the SDK is disabled")
	}
}

func TestSpansReachTheExporter(t *testing.T) {
	t.Parallel()
	exporter := tracetest.NewInMemoryExporter()
	tel := setup(t, Config{Service: "databus-test", Version: "1.2.3", exporter: exporter})
	_, span := tel.Tracer("x").Start(t.Context(), "publish orders")
	span.End()
	if err := tel.sdk.ForceFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	spans := exporter.GetSpans()
	if len(spans) != 1 || spans[0].Name != "publish orders" {
		t.Fatalf("spans %v", spans)
	}
	if got, _ := spans[0].Resource.Set().Value("service.name"); got.AsString() != "databus-test" {
		t.Errorf("service.name is %v", got)
	}
}

type brokenExporter struct{ sdktrace.SpanExporter }

func (brokenExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("collector is away")
}

func TestExportFailureIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	e := &loggingExporter{SpanExporter: brokenExporter{}, logger: slog.New(slog.NewTextHandler(&out, nil))}
	for range 3 {
		if err := e.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(out.String(), "collector is away"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, out.String())
	}
}

func TestMetricsHandler(t *testing.T) {
	t.Parallel()
	tel := setup(t, Config{Service: "databus-test"})
	counter, err := tel.Meter("x").Int64Counter("databus_test_messages")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	rec := httptest.NewRecorder()
	tel.MetricsHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"databus_test_messages_total 3", "go_goroutines", "process_open_fds", `service_name="databus-test"`} {
		if !strings.Contains(rec.Body.String(), want) {
			t.Errorf("no %s in\n%s", want, rec.Body.String())
		}
	}
}

func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"ratio":    {SampleRatio: 1.5},
		"scheme":   {OTLPEndpoint: "ftp://collector:4317"},
		"no port":  {OTLPEndpoint: "collector"},
		"no host":  {OTLPEndpoint: "http://"},
		"negative": {SampleRatio: -0.1},
	} {
		if _, err := Setup(t.Context(), cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestHeadersRoundTrip(t *testing.T) {
	t.Parallel()
	in := propagation.MapCarrier{Traceparent: parent, Tracestate: "vendor=1", Baggage: bag}
	ctx := Extract(t.Context(), in.Get)
	headers := AppendHeaders(ctx, []recordbatch.RecordHeader{{Key: "a", Value: []byte("b")}})
	out := propagation.MapCarrier{}
	Inject(FromHeaders(t.Context(), headers), out.Set)
	if diff := cmp.Diff(in, out); diff != "" {
		t.Errorf("(-in +out):\n%s", diff)
	}
	own := []recordbatch.RecordHeader{{Key: Baggage, Value: []byte("mine=1")}}
	for _, h := range AppendHeaders(ctx, own)[1:] {
		if h.Key == Baggage {
			t.Error("the application's own baggage header was doubled")
		}
	}
	if ctx := Extract(t.Context(), func(string) string { return "" }); ctx != t.Context() {
		t.Error("a context was made for nothing")
	}
}

func TestNothingToCarryAllocatesNothing(t *testing.T) {
	headers := []recordbatch.RecordHeader{{Key: "a", Value: []byte("b")}}
	ctx := t.Context()
	allocs := testing.AllocsPerRun(100, func() {
		headers = AppendHeaders(ctx, headers)
		if FromHeaders(ctx, headers) != ctx {
			t.Error("a context was made for nothing")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestLogCarriesTraceIDs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	logger, err := NewLogger(&out, LogConfig{Format: "json", Level: "debug"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := FromHeaders(t.Context(), []recordbatch.RecordHeader{{Key: Traceparent, Value: []byte(parent)}})
	logger.With(slog.String("service", "test")).DebugContext(ctx, "hello")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	sc := trace.SpanContextFromContext(ctx)
	if line["trace_id"] != sc.TraceID().String() || line["span_id"] != sc.SpanID().String() || line["service"] != "test" {
		t.Errorf("line %v", line)
	}
	for _, bad := range []LogConfig{{Level: "loud"}, {Format: "xml"}} {
		if _, err := NewLogger(&out, bad); err == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
}
