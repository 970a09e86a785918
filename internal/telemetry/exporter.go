package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// newExporter returns nil where there is nowhere to send spans to.
func newExporter(ctx context.Context, cfg Config) (sdktrace.SpanExporter, error) {
	logger := cfg.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	if cfg.exporter != nil {
		return &loggingExporter{SpanExporter: cfg.exporter, logger: logger}, nil
	}
	if sdkDisabled() {
		return nil, nil
	}
	endpoint := cfg.OTLPEndpoint
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		if endpoint == "" {
			endpoint = os.Getenv(name)
		}
	}
	if endpoint == "" {
		return nil, nil
	}
	if err := checkEndpoint(endpoint); err != nil {
		return nil, err
	}
	opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpointURL(endpoint)}
	if !strings.Contains(endpoint, "://") {
		opts = []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure()}
	}
	exp, err := otlptracegrpc.New(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("export spans to %s: %w", endpoint, err)
	}
	return &loggingExporter{SpanExporter: exp, logger: logger.With(slog.String("otlp_endpoint", endpoint))}, nil
}

func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	const allowed = "it must be http://host:4317, https://host:4317 or host:4317 (OTLP over gRPC)"
	host := endpoint
	if strings.Contains(endpoint, "://") {
		u, err := url.Parse(endpoint)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return fmt.Errorf("otlp_endpoint is %q: %s", endpoint, allowed)
		}
		return nil
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		return fmt.Errorf("otlp_endpoint is %q: %s", endpoint, allowed)
	}
	return nil
}

// complainEvery bounds how often a collector that stays away is mentioned.
const complainEvery = time.Minute

// loggingExporter takes the exporter's errors to the log. The SDK would take them to a global handler.
type loggingExporter struct {
	sdktrace.SpanExporter
	logger *slog.Logger
	last   atomic.Int64 // when it last complained, in Unix nanoseconds
	lost   atomic.Int64 // spans lost since
}

func (e *loggingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	lost := e.lost.Add(int64(len(spans)))
	now, last := time.Now().UnixNano(), e.last.Load()
	if (last == 0 || now-last >= int64(complainEvery)) && e.last.CompareAndSwap(last, now) {
		e.lost.Add(-lost)
		e.logger.WarnContext(ctx, "spans could not be exported and are lost", slog.Int64("spans", lost), slog.Any("error", err))
	}
	return nil
}
