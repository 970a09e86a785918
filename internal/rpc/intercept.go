package rpc

import (
	"context"
	"log/slog"
	"runtime/debug"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/telemetry"
)

// unaryInterceptor does what every call needs in one frame: trace context, validation, the handler, recovery and
// the translation of its error.
func (s *Server) unaryInterceptor(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (res any, err error) {
	ctx = incomingTrace(ctx)
	defer func() {
		if p := recover(); p != nil {
			err = s.recovered(ctx, info.FullMethod, p)
		}
		if err != nil {
			res, err = nil, s.translate(ctx, info.FullMethod, err).GRPCStatus().Err()
		}
	}()
	if err := s.validator.check(info.FullMethod, req); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func (s *Server) streamInterceptor(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := incomingTrace(ss.Context())
	defer func() {
		if p := recover(); p != nil {
			err = s.recovered(ctx, info.FullMethod, p)
		}
		if err != nil {
			err = s.translate(ctx, info.FullMethod, err).GRPCStatus().Err()
		}
	}()
	checked := !s.validator.skips(info.FullMethod)
	if ctx != ss.Context() || checked {
		ss = &serverStream{ServerStream: ss, ctx: ctx, server: s, method: info.FullMethod, checked: checked}
	}
	return handler(srv, ss)
}

// serverStream checks what it receives and carries the caller's trace.
type serverStream struct {
	grpc.ServerStream
	ctx     context.Context
	server  *Server
	method  string
	checked bool
}

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if !s.checked {
		return nil
	}
	return s.server.validator.check(s.method, m)
}

// incomingTrace puts the caller's trace into the context where the tracing handler has not done so: with tracing
// off, the trace of an application must still reach the records.
func incomingTrace(ctx context.Context) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ctx
	}
	return telemetry.Extract(ctx, func(key string) string {
		if v := md.Get(key); len(v) > 0 {
			return v[0]
		}
		return ""
	})
}

// recovered turns a panic into an error, and logs it with its stack, which goes nowhere else.
func (s *Server) recovered(ctx context.Context, method string, p any) error {
	s.cfg.Logger.ErrorContext(ctx, "a handler panicked",
		slog.String("method", method), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	return errPanicked
}

var errPanicked = errs.New(errs.Internal, "PANIC", "the server hit a bug while it handled the call").
	WithNext("look in the log of the service for the stack, and report it")

// translate gives err its code. The cause of an internal error does not travel, so it is logged here.
func (s *Server) translate(ctx context.Context, method string, err error) *errs.Error {
	e := errs.From(err)
	if e.Code == errs.Internal && e != errPanicked {
		s.cfg.Logger.ErrorContext(ctx, "a call failed", slog.String("method", method), slog.Any("error", err))
	}
	return e
}

// check validates a request by the rules in its proto.
func (v *validator) check(method string, req any) error {
	msg, ok := req.(proto.Message)
	if !ok || v.skips(method) {
		return nil
	}
	return v.validate(msg)
}
