package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// LogConfig says how a process logs.
type LogConfig struct {
	// Level is debug, info, warn or error; empty stands for info.
	Level string `yaml:"level"`
	// Format is text or json; empty stands for text.
	Format string `yaml:"format"`
}

// Validate reports a level or format that does not exist.
func (c LogConfig) Validate() error {
	if _, err := c.level(); err != nil {
		return err
	}
	switch c.Format {
	case "", "text", "json":
		return nil
	}
	return fmt.Errorf("format is %q: it must be text or json", c.Format)
}

func (c LogConfig) level() (slog.Level, error) {
	switch c.Level {
	case "debug":
		return slog.LevelDebug, nil
	case "", "info":
		return slog.LevelInfo, nil
	case "warn":
		return slog.LevelWarn, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("level is %q: it must be debug, info, warn or error", c.Level)
}

// NewLogger returns a logger that writes to w, and adds trace_id and span_id where the context of a line has them.
func NewLogger(w io.Writer, cfg LogConfig) (*slog.Logger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("set up logging: %w", err)
	}
	level, err := cfg.level()
	if err != nil {
		return nil, fmt.Errorf("set up logging: %w", err)
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(WithTrace(slog.NewJSONHandler(w, opts))), nil
	}
	return slog.New(WithTrace(slog.NewTextHandler(w, opts))), nil
}

// WithTrace returns a handler that adds the trace_id and span_id of a line's context, and passes it to next.
func WithTrace(next slog.Handler) slog.Handler { return traceHandler{next} }

type traceHandler struct{ next slog.Handler }

func (h traceHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h traceHandler) Handle(ctx context.Context, record slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		record = record.Clone()
		record.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return h.next.Handle(ctx, record)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.next.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.next.WithGroup(name)}
}
