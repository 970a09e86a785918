package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"

	"github.com/databus-suite/databus/internal/handover"
	"github.com/databus-suite/databus/internal/plainhttp"
	"github.com/databus-suite/databus/internal/telemetry"
)

// Defaults of Config.
const (
	DefaultDrainTimeout    = 15 * time.Second
	DefaultMaxRequestBytes = 32 << 20
	// MaxMessageBytes bounds one gRPC message on either port.
	MaxMessageBytes = 64 << 20
)

// Config says where a server listens and within which bounds it works.
type Config struct {
	HTTPAddr string // host:port of the HTTP port; empty: none
	GRPCAddr string // host:port of the grpc-go port; empty: none
	// HTTPConfiguredBy and GRPCConfiguredBy say who sets the addresses, for the message about a port in use:
	// "http_addr in agent.yaml, --http-addr or --port-offset".
	HTTPConfiguredBy string
	GRPCConfiguredBy string
	UnixSocket       string // path on which HTTP is served as well; empty: none
	Logger           *slog.Logger
	Telemetry        *telemetry.Telemetry
	DrainTimeout     time.Duration // how long calls under way may take once Run's context ends
	MaxRequestBytes  int64         // bound of a REST body and of one Connect message
	OpenAPI          []byte        // the document at /openapi.json; empty: none, and no /docs
	// Sockets are what the program before left open, and are kept for the next one. Nil: neither.
	Sockets *handover.Sockets
}

func (c *Config) setDefaults() {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Telemetry == nil {
		c.Telemetry = telemetry.Off()
	}
	if c.DrainTimeout <= 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.MaxRequestBytes <= 0 {
		c.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if c.HTTPConfiguredBy == "" {
		c.HTTPConfiguredBy = "http_addr in the service's config"
	}
	if c.GRPCConfiguredBy == "" {
		c.GRPCConfiguredBy = "grpc_addr in the service's config"
	}
}

// Option adds what not every server has.
type Option func(*options)

type options struct {
	gateway     []runtime.ServeMuxOption
	connect     []connect.HandlerOption
	grpc        []grpc.ServerOption
	unvalidated []string
}

// WithGatewayOptions adds options for the REST gateway, such as its marshalers. They win over the server's own.
func WithGatewayOptions(opts ...runtime.ServeMuxOption) Option {
	return func(o *options) { o.gateway = append(o.gateway, opts...) }
}

// WithConnectOptions adds options for every Connect handler, such as a codec.
func WithConnectOptions(opts ...connect.HandlerOption) Option {
	return func(o *options) { o.connect = append(o.connect, opts...) }
}

// WithGRPCOptions adds options for the gRPC servers, such as a codec.
func WithGRPCOptions(opts ...grpc.ServerOption) Option {
	return func(o *options) { o.grpc = append(o.grpc, opts...) }
}

// WithUnvalidated names methods whose requests are handed on unchecked, since their service checks what it must on
// its own hot path: "/databus.broker.v1.LogService/AppendStream".
func WithUnvalidated(methods ...string) Option {
	return func(o *options) { o.unvalidated = append(o.unvalidated, methods...) }
}

// Server serves one service. Register everything (GRPC, Connect, Gateway, Handle) before Run, from one goroutine;
// SetServing, Draining and the address methods may run concurrently with anything. Run closes what the server
// opened; a server that is never run is closed by Close.
type Server struct {
	cfg       Config
	opts      options
	validator *validator

	public *grpc.Server // behind the gRPC port
	inner  *grpc.Server // behind the gateway, so that it can outlive the public one while HTTP drains
	health *health.Server
	ready  readiness

	mux     *http.ServeMux
	gateway http.Handler     // nil until Gateway is called
	conn    *grpc.ClientConn // the gateway's way to inner
	pipe    net.Listener     // where inner listens
	http    *http.Server
	plain   *plainhttp.Server // nil without HandlePlain
	names   []string          // services behind Connect, for reflection

	connectOpts []connect.HandlerOption

	mu        sync.Mutex
	listeners listeners
	running   atomic.Bool
	draining  chan struct{}
	closeOnce sync.Once
	conns     conns
	leaving   atomic.Bool // answers are the last of their connections
}

// NewServer returns a server that listens nowhere yet.
func NewServer(cfg Config, opts ...Option) (*Server, error) {
	cfg.setDefaults()
	s := &Server{cfg: cfg, mux: http.NewServeMux(), health: health.NewServer(), draining: make(chan struct{})}
	for _, o := range opts {
		o(&s.opts)
	}
	v, err := newValidator(s.opts.unvalidated)
	if err != nil {
		return nil, fmt.Errorf("set up validation: %w", err)
	}
	s.validator = v
	if s.connectOpts, err = s.connectOptions(); err != nil {
		return nil, err
	}
	s.public = grpc.NewServer(s.grpcOptions()...)
	s.inner = grpc.NewServer(s.grpcOptions()...)
	s.ready.init(s.health)
	s.registerHealth()
	s.registerRoutes()
	s.http = s.newHTTPServer()
	return s, nil
}

// GRPC returns the registrar for generated gRPC services.
func (s *Server) GRPC() grpc.ServiceRegistrar { return registrar{s} }

// registrar registers with both gRPC servers.
type registrar struct{ s *Server }

func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	r.s.public.RegisterService(desc, impl)
	r.s.inner.RegisterService(desc, impl)
	r.s.ready.add(desc.ServiceName)
}

// Handle serves pattern, in net/http's syntax, by h on the HTTP port. It comes before the gateway.
func (s *Server) Handle(pattern string, h http.Handler) { s.mux.Handle(pattern, s.recovering(h)) }

// HandlePlain is Handle for a path that is called very often: its plain requests do not go through net/http. See plainhttp.Server.Handle
// for the pattern and for what h may do.
func (s *Server) HandlePlain(pattern string, h http.Handler) {
	s.Handle(pattern, h)
	if s.plain == nil {
		s.plain = plainhttp.New(s.cfg.Logger, s.conns.note)
	}
	s.plain.Handle(pattern, s.entry(s.recovering(h)))
}

// SetServing says whether a service, by its full protobuf name, answers calls. A registered service does as soon
// as the server runs, unless it was said otherwise before. The server is ready while all of them do.
func (s *Server) SetServing(service string, serving bool) { s.ready.set(service, serving) }

// Draining returns a channel that is closed when the server begins to drain, so that streams without an end of
// their own can end.
func (s *Server) Draining() <-chan struct{} { return s.draining }

// Close closes a server that was listening but never ran. After Run it has nothing to do.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		close(s.draining)
		s.health.Shutdown()
		s.public.Stop()
		s.inner.Stop()
	})
	if s.plain != nil {
		s.plain.Close()
	}
	err := s.http.Close()
	if s.conn != nil {
		if cerr := s.conn.Close(); cerr != nil && status.Code(cerr) != codes.Canceled {
			err = errors.Join(err, cerr)
		}
	}
	if s.pipe != nil {
		err = errors.Join(err, s.pipe.Close())
	}
	return errors.Join(err, s.closeListeners())
}

var errRunTwice = errors.New("serve: the server runs or ran already; make a new one")

// Run serves until ctx ends, then drains: it reports not ready, takes nothing new, and lets calls under way end
// within the drain timeout, after which it cuts them. It listens first where Listen was not called. It returns
// nil after a drain, in time or not, and an error where a port could not be served. A server runs once.
func (s *Server) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return errRunTwice
	}
	if err := s.Listen(); err != nil {
		return errors.Join(err, s.Close())
	}
	s.registerReflection()
	failed := s.serve(ctx)
	s.ready.start()
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	s.drain(context.WithoutCancel(ctx))
	return errors.Join(err, s.Close())
}
