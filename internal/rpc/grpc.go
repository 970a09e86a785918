package rpc

import (
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// Flow-control windows: one stream may have this much under way before it waits for the receiver. A batch is up
// to a few MiB and several are in flight on a connection.
const (
	streamWindow = 1 << 20
	connWindow   = 4 << 20
)

func (s *Server) grpcOptions() []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.MaxSendMsgSize(MaxMessageBytes),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(64 << 10),
		grpc.WriteBufferSize(64 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.unaryInterceptor),
		grpc.ChainStreamInterceptor(s.streamInterceptor),
	}
	if t := s.cfg.Telemetry; t.Tracing() {
		opts = append(opts, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(t.TracerProvider()),
			otelgrpc.WithMeterProvider(t.MeterProvider()),
			otelgrpc.WithPropagators(t.Propagator()),
		)))
	}
	return append(opts, s.opts.grpc...)
}

// registerReflection runs last, when everything else is registered.
func (s *Server) registerReflection() { reflection.Register(s.public) }
