package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/databus-suite/databus/cmd/databus/internal/dirlock"
	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/cmd/databus/internal/suite"
	"github.com/databus-suite/databus/gen"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/broker"
	"github.com/databus-suite/databus/services/databus"
)

type devCmd struct {
	Data       string `help:"Directory for everything that is kept." default:"data" type:"path" env:"DATABUS_DATA"`
	PortOffset int    `help:"Number that is added to every default port, so that several suites run on one machine."`
	Postgres   string `help:"Postgres to use instead of a private one. Only checked today: no service that needs it runs yet." placeholder:"URL"`
	Demo       bool   `help:"Create the sample channel hello, publish and read back a few events, and say what to try next."`
	LogLevel   string `help:"What goes to standard error: debug, info, warn or error." enum:"debug,info,warn,error" default:"warn"`
	LogFormat  string `help:"Log lines as text or json." enum:"text,json" default:"text"`
}

func (devCmd) Help() string {
	return `Runs the broker, with an embedded NATS server for its metadata, and an agent in this process, on 127.0.0.1. Once each of
them answers, a line that starts with "ready" is printed. Ctrl-C or SIGTERM stops cleanly: the agent hands over what it
holds, then the broker closes its log. Set OTEL_EXPORTER_OTLP_ENDPOINT to export traces.

Examples:

  databus dev
  databus dev --data /var/tmp/east --demo
  databus dev --data /var/tmp/west --port-offset 1000`
}

// endpoint is where a service listens.
type endpoint struct {
	service    string
	http, grpc string
}

func (c *devCmd) Run(ctx context.Context, term *terminal) (err error) {
	started := time.Now()
	tuneGC(broker.DefaultMemoryBytes, databus.DefaultMemoryBytes)
	endpoints, err := c.endpoints()
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger(term.err, telemetry.LogConfig{Level: c.LogLevel, Format: c.LogFormat})
	if err != nil {
		return err
	}
	lock, err := dirlock.Acquire(c.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	addresses := map[string]string{}
	for _, e := range endpoints {
		addresses[e.service+"Http"], addresses[e.service+"Grpc"] = e.http, e.grpc
	}
	if err := lock.Note(addresses); err != nil {
		return err
	}
	parts, shutdown, err := c.parts(ctx, log, endpoints)
	defer func() { err = errors.Join(err, shutdown()) }()
	if err != nil {
		return err
	}
	return suite.Run(ctx, log, parts, func(ctx context.Context) error {
		if err := printEndpoints(term, endpoints); err != nil {
			return err
		}
		fmt.Fprintf(term.out, "\nready after %s, data in %s, Ctrl-C stops\n", time.Since(started).Round(time.Millisecond), c.Data)
		d := demo{term: term, broker: endpoints[0], agent: endpoints[1], offset: c.PortOffset}
		if !c.Demo {
			return d.hint()
		}
		return d.run(ctx)
	})
}

// endpoints are the default addresses, moved by the offset.
func (c *devCmd) endpoints() ([]endpoint, error) {
	if c.Postgres != "" {
		if u, err := url.Parse(c.Postgres); err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "" {
			return nil, &usage{message: "--postgres is no URL of a Postgres", next: "write it as postgres://user@host:5432/database"}
		}
	}
	var list []endpoint
	for _, e := range []endpoint{
		{"broker", broker.DefaultHTTPAddr, broker.DefaultGRPCAddr},
		{"agent", databus.DefaultHTTPAddr, databus.DefaultGRPCAddr},
	} {
		for _, addr := range []*string{&e.http, &e.grpc} {
			moved, err := move(*addr, c.PortOffset)
			if err != nil {
				return nil, err
			}
			*addr = moved
		}
		list = append(list, e)
	}
	return list, nil
}

func move(addr string, offset int) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("default address %s: %w", addr, err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return "", fmt.Errorf("default address %s: %w", addr, err)
	}
	if n += offset; n < 1 || n > 65535 {
		return "", &usage{message: fmt.Sprintf("--port-offset %d moves port %s out of range", offset, port), next: "give one that keeps every port between 1 and 65535"}
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// parts wires the services, in the order in which they start. shutdown flushes their telemetry; it may be called in any case.
func (c *devCmd) parts(ctx context.Context, log *slog.Logger, endpoints []endpoint) (parts []suite.Part, shutdown func() error, err error) {
	var all []*telemetry.Telemetry
	shutdown = func() error { return shutdownTelemetry(ctx, all) }
	setup := func(e endpoint) (*telemetry.Telemetry, *slog.Logger, error) {
		own := log.With(slog.String("service", e.service))
		t, err := telemetry.Setup(ctx, telemetry.Config{Service: "databus-" + e.service, Version: version(), Logger: own})
		if err == nil {
			all = append(all, t)
		}
		return t, own, err
	}
	b, a := endpoints[0], endpoints[1]
	configuredBy := fmt.Sprintf("databus dev --port-offset N (now %d)", c.PortOffset)

	t, own, err := setup(b)
	if err != nil {
		return nil, shutdown, err
	}
	theBroker, err := broker.New(ctx, broker.Config{
		HTTPAddr: b.http, GRPCAddr: b.grpc,
		DataDirs: []string{filepath.Join(c.Data, "broker")},
		NATS:     broker.NATSConfig{StoreDir: filepath.Join(c.Data, "nats")},
	}, broker.Deps{Logger: own, Telemetry: t, OpenAPI: gen.OpenAPI, HTTPConfiguredBy: configuredBy, GRPCConfiguredBy: configuredBy})
	if err != nil {
		return nil, shutdown, err
	}
	parts = append(parts, part(b.service, theBroker))

	if t, own, err = setup(a); err != nil {
		return nil, shutdown, errors.Join(err, theBroker.Close()) //nolint:contextcheck // Close bounds itself
	}
	theAgent, err := databus.New(databus.Config{ //nolint:contextcheck // an agent makes no calls before Run
		HTTPAddr: a.http, GRPCAddr: a.grpc,
		Broker:  databus.BrokerConfig{GRPCAddr: b.grpc},
		DataDir: filepath.Join(c.Data, "agent"),
	}, databus.Deps{Logger: own, Telemetry: t, Version: version(), OpenAPI: gen.OpenAPI, HTTPConfiguredBy: configuredBy, GRPCConfiguredBy: configuredBy})
	if err != nil {
		return nil, shutdown, errors.Join(err, theBroker.Close()) //nolint:contextcheck // Close bounds itself
	}
	return append(parts, part(a.service, theAgent)), shutdown, nil
}

// service is the public face that every service has.
type service interface {
	Listen() error
	Run(ctx context.Context) error
	HTTPAddr() string
	GRPCAddr() string
	Close() error
}

func part(name string, s service) suite.Part {
	return suite.Part{Name: name, Listen: s.Listen, Run: s.Run, Close: s.Close,
		ReadyURL: func() string { return "http://" + s.HTTPAddr() + "/readyz" }}
}

// flushTimeout bounds how long the last spans may take.
const flushTimeout = 3 * time.Second

// shutdownTelemetry exports what is left, also after ctx has ended.
func shutdownTelemetry(ctx context.Context, all []*telemetry.Telemetry) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	var err error
	for _, t := range all {
		err = errors.Join(err, t.Shutdown(ctx))
	}
	if err != nil {
		return errs.New(errs.Unavailable, "TELEMETRY", "export the last traces").Wrap(err)
	}
	return nil
}

func printEndpoints(term *terminal, endpoints []endpoint) error {
	rows := render.Rows{Header: []string{"SERVICE", "HTTP (REST, CONNECT, GRPC)", "GRPC STREAMS", "TRY IT", "METRICS"}}
	for _, e := range endpoints {
		base := "http://" + e.http
		rows.Add(e.service, base, e.grpc, base+"/docs", base+"/metrics")
	}
	return render.NewPrinter(term.out, render.Table, render.Screen{Color: term.screen().Color}).Print(nil, rows)
}
