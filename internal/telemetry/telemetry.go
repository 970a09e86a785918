package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Config says how to observe a process.
type Config struct {
	// Service names the service in traces and metrics: databus-agent, databus-broker, …
	Service string `yaml:"-"`
	// Version is the build's version.
	Version string `yaml:"-"`
	// OTLPEndpoint is where spans go, by OTLP over gRPC: http://host:4317, https://host:4317 or host:4317 (no TLS).
	// Empty takes OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT; without either tracing is off.
	OTLPEndpoint string `yaml:"otlp_endpoint"`
	// SampleRatio is the share of new traces to record, in (0, 1]; 0 stands for 1. A caller's decision is followed.
	SampleRatio float64 `yaml:"sample_ratio"`
	// Logger takes what the exporter has to complain about. Nil discards it.
	Logger *slog.Logger `yaml:"-"`

	// exporter stands in for OTLP in tests.
	exporter sdktrace.SpanExporter
}

// Validate reports settings that cannot work.
func (c Config) Validate() error {
	if c.SampleRatio < 0 || c.SampleRatio > 1 {
		return fmt.Errorf("sample_ratio is %v: it must be between 0 and 1", c.SampleRatio)
	}
	return checkEndpoint(c.OTLPEndpoint)
}

// Telemetry is what a process is observed through. All methods may run concurrently. Whoever called Setup calls
// Shutdown once nothing makes spans any more.
type Telemetry struct {
	tracers    trace.TracerProvider
	sdk        *sdktrace.TracerProvider // nil when tracing is off
	meters     *sdkmetric.MeterProvider
	registry   *prometheus.Registry
	propagator propagation.TextMapPropagator
}

// Setup starts observing. It does not wait for the collector, so a service starts while that is away.
func Setup(ctx context.Context, cfg Config) (*Telemetry, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("set up telemetry of %s: %w", cfg.Service, err)
	}
	res := resource.NewSchemaless(
		semconv.ServiceName(cfg.Service),
		semconv.ServiceVersion(cfg.Version),
	)
	t := &Telemetry{registry: prometheus.NewRegistry(), propagator: newPropagator(), tracers: noop.NewTracerProvider()}
	t.registry.MustRegister( // a fresh registry has no room for a conflict
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	reader, err := otelprom.New(otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return nil, fmt.Errorf("set up metrics of %s: %w", cfg.Service, err)
	}
	t.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(res))
	exporter, err := newExporter(ctx, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up tracing of %s: %w", cfg.Service, err), t.meters.Shutdown(ctx))
	}
	if exporter == nil {
		return t, nil
	}
	ratio := cfg.SampleRatio
	if ratio == 0 {
		ratio = 1
	}
	t.sdk = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(res),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio))),
	)
	t.tracers = t.sdk
	return t, nil
}

// Off returns telemetry that traces nothing and whose metrics nobody needs to read. It needs no Shutdown.
func Off() *Telemetry {
	return &Telemetry{
		tracers:    noop.NewTracerProvider(),
		meters:     sdkmetric.NewMeterProvider(), // no reader: instruments record nothing
		registry:   prometheus.NewRegistry(),
		propagator: newPropagator(),
	}
}

// Tracing reports whether spans go anywhere. Code that would only prepare spans can skip that when it is false.
func (t *Telemetry) Tracing() bool { return t.sdk != nil }

// Tracer returns the tracer of a room, named by its import path or a short name.
func (t *Telemetry) Tracer(name string) trace.Tracer { return t.tracers.Tracer(name) }

// Meter returns the meter of a room.
func (t *Telemetry) Meter(name string) metric.Meter { return t.meters.Meter(name) }

// TracerProvider returns the provider for libraries that take one.
func (t *Telemetry) TracerProvider() trace.TracerProvider { return t.tracers }

// MeterProvider returns the provider for libraries that take one.
func (t *Telemetry) MeterProvider() metric.MeterProvider { return t.meters }

// Propagator returns the W3C trace context and baggage propagator.
func (t *Telemetry) Propagator() propagation.TextMapPropagator { return t.propagator }

// Registry returns the registry behind MetricsHandler, for collectors that are not OpenTelemetry instruments.
func (t *Telemetry) Registry() *prometheus.Registry { return t.registry }

// MetricsHandler serves the metrics in the formats that Prometheus reads.
func (t *Telemetry) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Shutdown sends what spans are left, within ctx, and stops. It may be called again, to no effect.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var err error
	if t.sdk != nil {
		err = t.sdk.Shutdown(ctx)
	}
	if merr := t.meters.Shutdown(ctx); merr != nil && !errors.Is(merr, sdkmetric.ErrReaderShutdown) {
		err = errors.Join(err, merr)
	}
	if err != nil {
		return fmt.Errorf("shut telemetry down: %w", err)
	}
	return nil
}

// sdkDisabled honours the standard switch.
func sdkDisabled() bool { return os.Getenv("OTEL_SDK_DISABLED") == "true" }
