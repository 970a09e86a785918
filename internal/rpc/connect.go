package rpc

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/otelconnect"
)

// compressMinBytes is where compressing an answer begins to pay.
const compressMinBytes = 1 << 10

// connectOptions makes the options of every Connect handler, once a server.
func (s *Server) connectOptions() ([]connect.HandlerOption, error) {
	var interceptors []connect.Interceptor
	if t := s.cfg.Telemetry; t.Tracing() {
		tracing, err := otelconnect.NewInterceptor(
			otelconnect.WithTracerProvider(t.TracerProvider()),
			otelconnect.WithMeterProvider(t.MeterProvider()),
			otelconnect.WithPropagator(t.Propagator()),
			otelconnect.WithTrustRemote(),
		)
		if err != nil {
			return nil, fmt.Errorf("set up tracing of Connect calls: %w", err)
		}
		interceptors = append(interceptors, tracing)
	}
	interceptors = append(interceptors, connectInterceptor{s})
	opts := []connect.HandlerOption{
		connect.WithInterceptors(interceptors...),
		connect.WithReadMaxBytes(int(min(s.cfg.MaxRequestBytes, MaxMessageBytes))),
		connect.WithSendMaxBytes(MaxMessageBytes),
		connect.WithCompressMinBytes(compressMinBytes),
		connect.WithRecover(func(ctx context.Context, spec connect.Spec, _ http.Header, p any) error {
			return s.translate(ctx, spec.Procedure, s.recovered(ctx, spec.Procedure, p)).Connect()
		}),
	}
	return append(opts, s.opts.connect...), nil
}

// ConnectOptions returns the options that every generated Connect handler of this server is made with.
func (s *Server) ConnectOptions() []connect.HandlerOption { return slices.Clone(s.connectOpts) }

// Connect serves a generated Connect handler, and the path that came with it, on the HTTP port.
func (s *Server) Connect(path string, h http.Handler) {
	s.mux.Handle(path, h) // Connect recovers by itself
	service := strings.Trim(path, "/")
	s.names = append(s.names, service)
	s.ready.add(service)
}

// registerConnect serves health and reflection on the HTTP port.
func (s *Server) registerConnect() {
	s.mux.Handle(grpchealth.NewHandler(connectHealth{s.health}))
	reflector := grpcreflect.NewReflector(grpcreflect.NamerFunc(func() []string {
		return append([]string{grpchealth.HealthV1ServiceName}, s.names...)
	}))
	s.mux.Handle(grpcreflect.NewHandlerV1(reflector))
	s.mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector))
}

// connectInterceptor validates requests and translates errors, as the gRPC interceptors do.
type connectInterceptor struct{ s *Server }

func (c connectInterceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		method := req.Spec().Procedure
		if err := c.s.validator.check(method, req.Any()); err != nil {
			return nil, c.s.translate(ctx, method, err).Connect()
		}
		res, err := next(ctx, req)
		if err != nil {
			return nil, c.s.translate(ctx, method, err).Connect()
		}
		return res, nil
	}
}

func (c connectInterceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (c connectInterceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		method := conn.Spec().Procedure
		if !c.s.validator.skips(method) {
			conn = checkedConn{conn, c.s.validator}
		}
		if err := next(ctx, conn); err != nil {
			return c.s.translate(ctx, method, err).Connect()
		}
		return nil
	}
}

// checkedConn validates each message of a stream.
type checkedConn struct {
	connect.StreamingHandlerConn
	validator *validator
}

func (c checkedConn) Receive(msg any) error {
	if err := c.StreamingHandlerConn.Receive(msg); err != nil {
		return err
	}
	return c.validator.check(c.Spec().Procedure, msg)
}
