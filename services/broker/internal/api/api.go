// Package api is what the broker says on the wire: the gRPC, Connect and REST services over topics, channels and the log. It
// owns requests, answers, streams and the translation of the log's errors; it decides nothing that package topic, channel or
// log could decide, and keeps no state but that of open calls.
package api

import (
	"context"
	"log/slog"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/gen/go/databus/broker/v1/brokerv1connect"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/internal/rpc"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/broker/internal/channel"
	"github.com/databus-suite/databus/services/broker/internal/log"
	"github.com/databus-suite/databus/services/broker/internal/producerid"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

// Config is what the services work on.
type Config struct {
	Topics    *topic.Registry
	Channels  *channel.Registry
	Log       *log.Log
	Producers *producerid.Allocator
	Telemetry *telemetry.Telemetry
	Logger    *slog.Logger
}

// Options are what a server needs so that these services work on it: the codec that does not copy batches, the suite's JSON,
// and no validation of what the log checks anyway.
func Options() []rpc.Option {
	return []rpc.Option{
		rpc.WithGRPCOptions(grpc.ForceServerCodecV2(rawcodec.Codec{})),
		rpc.WithConnectOptions(wirejson.ConnectCodec()),
		rpc.WithGatewayOptions(wirejson.GatewayOptions()...),
		rpc.WithUnvalidated(brokerv1.LogService_Append_FullMethodName, brokerv1.LogService_AppendStream_FullMethodName),
	}
}

// Register serves every service of the broker on a server made with Options, by gRPC, Connect and REST. The group service
// comes with consumer groups.
func Register(ctx context.Context, s *rpc.Server, c Config) error {
	calls := newCalls(s.Draining())
	topics := &topicService{topics: c.Topics}
	logs := &logService{topics: c.Topics, producers: c.Producers, calls: calls, spans: newSpans(c.Telemetry)}
	reads := &readService{topics: c.Topics, calls: calls}
	storage := &storageService{log: c.Log}
	channels := &channelService{channels: c.Channels, calls: calls}

	brokerv1.RegisterTopicServiceServer(s.GRPC(), topics)
	brokerv1.RegisterLogServiceServer(s.GRPC(), logs)
	brokerv1.RegisterReadServiceServer(s.GRPC(), reads)
	brokerv1.RegisterStorageServiceServer(s.GRPC(), storage)
	databusv1.RegisterChannelServiceServer(s.GRPC(), channels)

	opts := s.ConnectOptions()
	s.Connect(brokerv1connect.NewTopicServiceHandler(topics, opts...))
	s.Connect(brokerv1connect.NewLogServiceHandler(logConnect{logs}, opts...))
	s.Connect(brokerv1connect.NewReadServiceHandler(readConnect{reads}, opts...))
	s.Connect(brokerv1connect.NewStorageServiceHandler(storage, opts...))
	s.Connect(databusv1connect.NewChannelServiceHandler(channelConnect{channels}, opts...))

	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		brokerv1.RegisterTopicServiceHandler, brokerv1.RegisterReadServiceHandler,
		brokerv1.RegisterStorageServiceHandler, databusv1.RegisterChannelServiceHandler,
	} {
		if err := s.Gateway(ctx, register); err != nil {
			return err
		}
	}
	return nil
}
