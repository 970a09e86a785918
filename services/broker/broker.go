// Package broker is the broker service: partitioned, durable logs of record batches, the topics and channels that name them,
// and the APIs over both. This package owns config, wiring, start and stop; each part has a room under internal, and
// DESIGN.md has the map. Other services reach a broker over the wire alone.
package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/natskv"
	"github.com/databus-suite/databus/internal/rpc"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/broker/internal/api"
	"github.com/databus-suite/databus/services/broker/internal/channel"
	"github.com/databus-suite/databus/services/broker/internal/log"
	"github.com/databus-suite/databus/services/broker/internal/producerid"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

// Deps are what a broker is given by its process.
type Deps struct {
	Logger    *slog.Logger
	Telemetry *telemetry.Telemetry
	OpenAPI   []byte // served at /openapi.json; empty: none
	// HTTPConfiguredBy and GRPCConfiguredBy say who sets the addresses, for the message about a port in use.
	HTTPConfiguredBy string
	GRPCConfiguredBy string
}

// Broker is one broker. Listen and Run are called once; the addresses may be read once Listen returned. Run closes
// everything, Close a broker that never ran.
type Broker struct {
	cfg    Config
	logger *slog.Logger

	nats     *natskv.Server // nil where the servers run elsewhere
	conn     *natskv.Conn
	log      *log.Log
	topics   *topic.Registry
	channels *channel.Registry
	server   *rpc.Server

	closing sync.Once
	closed  error
}

// connectTimeout is how long metadata servers may take to answer at the start.
const connectTimeout = 30 * time.Second

// New opens what the broker stores and wires its services. It recovers what a crash left, so it may take a moment; it binds
// no port but the metadata server's.
func New(ctx context.Context, cfg Config, deps Deps) (*Broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("broker config: %w", err)
	}
	if deps.Telemetry == nil {
		deps.Telemetry = telemetry.Off()
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{cfg: cfg.withDefaults(), logger: deps.Logger}
	if err := b.open(ctx, deps); err != nil {
		return nil, errors.Join(fmt.Errorf("broker: %w", err), b.Close()) //nolint:contextcheck // closing has a bound of its own
	}
	return b, nil
}

func (b *Broker) open(ctx context.Context, deps Deps) error {
	m, err := newMetrics(deps.Telemetry)
	if err != nil {
		return err
	}
	// The log locks its directories first: a second broker on them stops here and touches nothing.
	if b.log, err = log.Open(ctx, log.Config{
		Dirs: b.cfg.DataDirs, Logger: b.logger, Observer: m.observer(), //nolint:contextcheck // appends outlive it
		MemoryBytes: int64(b.cfg.MemoryBytes), JournalBytes: int64(b.cfg.JournalBytes), CheckpointBytes: int64(b.cfg.CheckpointBytes),
	}); err != nil {
		return err
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	replicas := b.cfg.NATS.Replicas
	if b.topics, err = topic.Open(ctx, topic.Config{
		Conn: b.conn, Log: b.log, Logger: b.logger, DefaultPartitions: b.cfg.Defaults.Partitions, Replicas: replicas,
	}); err != nil {
		return err
	}
	if b.channels, err = channel.Open(ctx, channel.Config{Conn: b.conn, Logger: b.logger, Replicas: replicas}); err != nil {
		return err
	}
	producers, err := producerid.Open(ctx, b.conn, replicas)
	if err != nil {
		return err
	}
	if err := m.observe(b.topics, b.log); err != nil {
		return err
	}
	if b.server, err = rpc.NewServer(rpc.Config{
		HTTPAddr: b.cfg.HTTPAddr, GRPCAddr: b.cfg.GRPCAddr, HTTPConfiguredBy: deps.HTTPConfiguredBy, GRPCConfiguredBy: deps.GRPCConfiguredBy,
		Logger: b.logger, Telemetry: deps.Telemetry, DrainTimeout: b.cfg.DrainTimeout, MaxRequestBytes: int64(b.cfg.MaxRequestBytes), OpenAPI: deps.OpenAPI,
	}, api.Options()...); err != nil {
		return err
	}
	return api.Register(ctx, b.server, api.Config{
		Topics: b.topics, Channels: b.channels, Log: b.log, Producers: producers, Telemetry: deps.Telemetry, Logger: b.logger,
	})
}

// connect reaches the metadata store, which the broker runs itself unless it is told where one runs.
func (b *Broker) connect(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	n := b.cfg.NATS
	if n.URL != "" {
		b.conn, err = natskv.Dial(ctx, natskv.DialConfig{URL: n.URL, Name: "databus-broker", CredentialsFile: n.CredentialsFile, CAFile: n.CAFile, Logger: b.logger})
		return err
	}
	if b.nats, err = natskv.StartServer(ctx, natskv.ServerConfig{StoreDir: n.StoreDir, Port: n.Port, Logger: b.logger}); err != nil {
		return err
	}
	b.conn, err = b.nats.Connect(ctx, "databus-broker", b.logger)
	return err
}

// Listen binds the ports, so that one in use is told before anything starts.
func (b *Broker) Listen() error { return b.server.Listen() }

// HTTPAddr is where HTTP is served, once Listen returned.
func (b *Broker) HTTPAddr() string { return b.server.HTTPAddr() }

// GRPCAddr is where gRPC is served, once Listen returned.
func (b *Broker) GRPCAddr() string { return b.server.GRPCAddr() }

// NATSURL is where the metadata store is.
func (b *Broker) NATSURL() string {
	if b.nats == nil {
		return b.cfg.NATS.URL
	}
	return b.nats.URL()
}

// Run serves until ctx ends. Then it takes nothing new, answers what it took, and closes, within the drain timeout.
func (b *Broker) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { b.topics.Run(background) })
	work.Go(func() { b.topics.RunExpiry(background) })
	work.Go(func() { b.channels.Run(background) })
	work.Go(func() { b.log.RunMaintenance(background) })
	err := b.server.Run(ctx)
	stop()
	work.Wait()
	return errors.Join(err, b.Close()) //nolint:contextcheck // closing has a bound of its own
}

// Close closes a broker. After Run it has nothing to do.
func (b *Broker) Close() error {
	b.closing.Do(func() {
		if b.server != nil {
			b.closed = b.server.Close()
		}
		if b.log != nil {
			ctx, cancel := context.WithTimeout(context.Background(), b.cfg.DrainTimeout)
			defer cancel()
			b.closed = errors.Join(b.closed, b.log.Close(ctx))
		}
		if b.conn != nil {
			b.conn.Close()
		}
		if b.nats != nil {
			b.nats.Close()
		}
	})
	return b.closed
}
