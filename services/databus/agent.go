package databus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/internal/handover"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/internal/rpc"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/channel"
	"github.com/databus-suite/databus/services/databus/internal/dedup"
	"github.com/databus-suite/databus/services/databus/internal/intake"
	"github.com/databus-suite/databus/services/databus/internal/memory"
	"github.com/databus-suite/databus/services/databus/internal/publisher"
	"github.com/databus-suite/databus/services/databus/internal/relay"
	"github.com/databus-suite/databus/services/databus/internal/sender"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// Deps are what an agent is given by its process.
type Deps struct {
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	Version   string
	OpenAPI   []byte // served at /openapi.json; empty: none
	// HTTPConfiguredBy and GRPCConfiguredBy say who sets the addresses, for the message about a port in use.
	HTTPConfiguredBy string
	GRPCConfiguredBy string
	// Sockets are what the program before left open, and are kept for the next one. Nil: neither.
	Sockets *handover.Sockets
}

// Agent is one agent. Listen and Run are called once; the addresses may be read once Listen returned. Run closes everything,
// Close an agent that never ran.
type Agent struct {
	cfg    Config
	log    *slog.Logger
	server *rpc.Server
	conns  *sender.Conns
	// sockets outlive the agent; its process ends them.
	sockets *handover.Sockets

	batcher   *batcher.Batcher
	sender    *sender.Sender
	topics    *sender.Topics
	channels  *channel.Store
	publisher *publisher.Publisher
	memory    *memory.Pool

	// Of spooled channels, and of ids; the first three are nil without a data directory.
	spool     *spool.Spool
	in        *relay.In
	spooled   *batcher.Batcher
	out       *relay.Out
	ids       *dedup.Store
	doubts    []*dedup.Doubt
	temporary string // directory that goes when the agent is closed; empty: none

	once sync.Once
}

// New wires an agent. It reads the data directory and binds nothing yet.
func New(cfg Config, deps Deps) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("agent config: %w", err)
	}
	cfg = cfg.withDefaults()
	if deps.Telemetry == nil {
		deps.Telemetry = telemetry.Off()
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Agent{cfg: cfg, log: deps.Logger, sockets: deps.Sockets}
	info, err := identity(cfg, deps.Version)
	if err != nil {
		return nil, err
	}
	if a.conns, err = sender.DialAll(cfg.Broker.GRPCAddr, tracing(deps.Telemetry)...); err != nil {
		return nil, fmt.Errorf("agent: dial broker %s: %w", cfg.Broker.GRPCAddr, err)
	}
	a.topics = sender.NewTopics(sender.TopicsConfig{Client: brokerv1.NewTopicServiceClient(a.conns.Control()), Path: a.file("topics.json"),
		Logger: a.log, Changed: func(name string) { a.publisher.TopicChanged(name) },
		Forgotten: func(name string) { a.sender.Forget(name) }})
	a.sender = sender.New(sender.Config{Conns: a.conns, Topics: a.topics, Logger: a.log, Tracer: tracer(deps.Telemetry)})
	a.batcher = batcher.New(a.sender)
	a.memory = memory.NewPool(int64(cfg.MemoryBytes))
	meter := newMeter(deps.Telemetry)
	if err := a.openDisk(meter, deps.Telemetry.Tracing()); err != nil {
		return nil, errors.Join(fmt.Errorf("agent: %w", err), a.Close())
	}
	a.publisher = publisher.New(publisher.Config{Batcher: a.batcher, Spooled: a.spooled, Spool: a.spool, Relayed: a.out.State, IDs: a.ids,
		Topics: a.topics, Memory: a.memory, Logger: a.log, Measure: meter,
		Find: func(ctx context.Context, name string) error { return a.channels.Find(ctx, name) }})
	a.channels, err = channel.NewStore(channel.Config{Client: databusv1.NewChannelServiceClient(a.conns.Control()), Agent: info,
		Path: a.file("channels.json"), Logger: a.log, Apply: a.publisher.Apply, Remove: a.publisher.Remove, Report: a.publisher.Reports})
	if err == nil {
		err = meter.observe(deps.Telemetry, a.publisher, a.memory, a.batcher)
	}
	if err == nil {
		err = a.serve(deps)
	}
	if err != nil {
		_ = a.Close()
		return nil, fmt.Errorf("agent: %w", err)
	}
	return a, nil
}

// file is a file of the data directory; empty where there is none.
func (a *Agent) file(name string) string {
	if a.cfg.DataDir == "" {
		return ""
	}
	return filepath.Join(a.cfg.DataDir, name)
}

func tracing(t *telemetry.Telemetry) []grpc.DialOption {
	if !t.Tracing() {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(t.TracerProvider()),
		otelgrpc.WithMeterProvider(t.MeterProvider()), otelgrpc.WithPropagators(t.Propagator())))}
}

// tracer makes the agent's own spans; nil: there are none.
func tracer(t *telemetry.Telemetry) trace.Tracer {
	if !t.Tracing() {
		return nil
	}
	return t.Tracer("databus/agent")
}

// serve registers every way in. The two hot paths come before the gateway, which serves the rest of the API.
func (a *Agent) serve(deps Deps) error {
	var err error
	a.server, err = rpc.NewServer(rpc.Config{HTTPAddr: a.cfg.HTTPAddr, GRPCAddr: a.cfg.GRPCAddr, UnixSocket: a.cfg.UnixSocket,
		HTTPConfiguredBy: deps.HTTPConfiguredBy, GRPCConfiguredBy: deps.GRPCConfiguredBy, Logger: a.log, Telemetry: deps.Telemetry,
		DrainTimeout: a.cfg.DrainTimeout, MaxRequestBytes: int64(a.cfg.MaxRequestBytes), OpenAPI: deps.OpenAPI, Sockets: deps.Sockets},
		rpc.WithConnectOptions(wirejson.ConnectCodec()),
		rpc.WithGRPCOptions(grpc.ForceServerCodecV2(rawcodec.Codec{})),
		rpc.WithGatewayOptions(wirejson.GatewayOptions()...),
		rpc.WithUnvalidated(databusv1.PublishService_Publish_FullMethodName, databusv1.PublishService_PublishStream_FullMethodName))
	if err != nil {
		return err
	}
	in := intake.New(intake.Config{Publisher: a.publisher, Memory: a.memory, MaxBodyBytes: int64(a.cfg.MaxRequestBytes), Tracer: tracer(deps.Telemetry),
		Draining: a.server.Draining()})
	a.server.HandlePlain("POST /v1/channels/{channel}/messages", in.Messages())
	a.server.HandlePlain("POST /v1/channels/{channel}/events", in.Events())
	databusv1.RegisterPublishServiceServer(a.server.GRPC(), in.GRPC())
	a.server.Connect(databusv1connect.NewPublishServiceHandler(in.Service(), a.server.ConnectOptions()...))
	return a.server.Gateway(context.Background(), func(ctx context.Context, mux *runtime.ServeMux, conn *grpc.ClientConn) error {
		return databusv1.RegisterPublishServiceHandler(ctx, mux, conn)
	})
}

// Listen binds the ports, so that one in use is told before anything starts.
func (a *Agent) Listen() error {
	if err := a.server.Listen(); err != nil {
		return err
	}
	return a.sockets.Settle() // an address that the config no longer has
}

// HTTPAddr is where HTTP is served, once Listen returned.
func (a *Agent) HTTPAddr() string { return a.server.HTTPAddr() }

// GRPCAddr is where gRPC is served, once Listen returned.
func (a *Agent) GRPCAddr() string { return a.server.GRPCAddr() }

// Run serves until ctx ends. Then it takes nothing new, sends what it has, and closes, all within the drain timeout.
func (a *Agent) Run(ctx context.Context) error {
	defer a.Close() //nolint:contextcheck // what is closed must not end with ctx, which is over by then
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { a.channels.Run(background) })
	work.Go(func() { a.topics.Run(background) })
	work.Go(func() { a.expireIDs(background) })
	work.Go(func() { a.clearDoubts(background) })
	a.relayAll()
	defer work.Wait()
	defer stop()

	bound, cancel := context.WithCancelCause(background)
	defer cancel(nil)
	work.Go(func() {
		select {
		case <-a.server.Draining():
		case <-bound.Done():
			return
		}
		a.publisher.Hurry() // calls under way wait for their batches: no linger is worth it now
		timer := time.NewTimer(a.cfg.DrainTimeout)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(errDrainTimeout)
		case <-bound.Done():
		}
	})
	err := a.server.Run(ctx)
	if derr := a.publisher.Drain(bound); derr != nil {
		a.log.Error("stopped with messages that the broker has not taken", slog.Duration("drain_timeout", a.cfg.DrainTimeout), slog.Any("error", derr))
		err = errors.Join(err, fmt.Errorf("agent: drain: %w", derr))
	}
	return err
}

var errDrainTimeout = errors.New("the drain timeout is over")

// Close closes an agent. After Run it has nothing to do.
func (a *Agent) Close() error {
	var err error
	a.once.Do(func() {
		if a.server != nil {
			err = a.server.Close()
		}
		if a.sender != nil {
			a.sender.Close()
			a.batcher.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.DrainTimeout)
		defer cancel()
		err = errors.Join(err, a.closeDisk(ctx))
		err = errors.Join(err, a.conns.Close())
	})
	return err
}
