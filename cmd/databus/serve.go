package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/databus-suite/databus/gen"
	"github.com/databus-suite/databus/internal/config"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/broker"
	"github.com/databus-suite/databus/services/databus"
)

// serveFlags are the flags of every command that runs one service.
type serveFlags struct {
	Config      string   `help:"Config file (YAML). Left out: every default." type:"path" placeholder:"FILE"`
	Set         []string `help:"Setting that overrides file and environment, such as --set http_addr=0.0.0.0:8080 (repeatable)." sep:"none" placeholder:"KEY=VALUE"`
	CheckConfig bool     `help:"Check the config and exit."`
}

func (f serveFlags) overrides() ([]config.Override, error) {
	var list []config.Override
	for _, s := range f.Set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, &usage{message: fmt.Sprintf("--set %s has no value", s), next: "write it as KEY=VALUE, such as http_addr=127.0.0.1:8080"}
		}
		list = append(list, config.Override{Key: key, Value: value, Source: "--set"})
	}
	return list, nil
}

// checked says that a config is good.
func (f serveFlags) checked(term *terminal) error {
	name := f.Config
	if name == "" {
		name = "the default config"
	}
	_, err := fmt.Fprintf(term.out, "%s is valid\n", name)
	return err
}

type brokerCmd struct{ serveFlags }

func (brokerCmd) Help() string {
	return `Every setting of the file may also be given as an environment variable: DATABUS_BROKER_HTTP_ADDR for http_addr.

Examples:

  databus broker --config broker.yaml
  databus broker --config broker.yaml --check-config
  databus broker --set http_addr=0.0.0.0:8090`
}

func (c *brokerCmd) Run(ctx context.Context, term *terminal) error {
	overrides, err := c.overrides()
	if err != nil {
		return err
	}
	cfg, err := broker.LoadConfig(c.Config, overrides...)
	if err != nil {
		return err
	}
	if c.CheckConfig {
		return c.checked(term)
	}
	tuneGC(int64(cfg.MemoryBytes))
	return serve(ctx, term, "broker", cfg.Telemetry, cfg.Log, func(log *slog.Logger, t *telemetry.Telemetry) (service, error) {
		return broker.New(ctx, cfg, broker.Deps{Logger: log, Telemetry: t, OpenAPI: gen.OpenAPI,
			HTTPConfiguredBy: "http_addr in the broker's config or DATABUS_BROKER_HTTP_ADDR",
			GRPCConfiguredBy: "grpc_addr in the broker's config or DATABUS_BROKER_GRPC_ADDR"})
	})
}

type agentCmd struct{ serveFlags }

func (agentCmd) Help() string {
	return `Every setting of the file may also be given as an environment variable: DATABUS_AGENT_BROKER_GRPC_ADDR for broker.grpc_addr.

SIGUSR2 replaces the running program by the one that is at its path now, with the config that is in its file now, in the same
process and without refusing a connection. A program that does not take its config is not started.

Examples:

  databus agent --config agent.yaml
  databus agent --config agent.yaml --check-config
  databus agent --set broker.grpc_addr=broker-1:8091`
}

func (c *agentCmd) Run(ctx context.Context, term *terminal) error {
	overrides, err := c.overrides()
	if err != nil {
		return err
	}
	cfg, err := databus.LoadConfig(c.Config, overrides...)
	if err != nil {
		return err
	}
	if c.CheckConfig {
		return c.checked(term)
	}
	tuneGC(int64(cfg.MemoryBytes))
	r, err := newRestart(term, cfg.Log)
	if err != nil {
		return err
	}
	ctx, stop := r.watch(ctx)
	defer stop()
	//nolint:contextcheck // an agent makes no calls before Run
	err = serve(ctx, term, "agent", cfg.Telemetry, cfg.Log, func(log *slog.Logger, t *telemetry.Telemetry) (service, error) {
		return databus.New(cfg, databus.Deps{Logger: log, Telemetry: t, Version: version(), OpenAPI: gen.OpenAPI, Sockets: r.sockets,
			HTTPConfiguredBy: "http_addr in the agent's config or DATABUS_AGENT_HTTP_ADDR",
			GRPCConfiguredBy: "grpc_addr in the agent's config or DATABUS_AGENT_GRPC_ADDR"})
	})
	return errors.Join(err, r.finish())
}

// serve runs one service until ctx ends.
func serve(ctx context.Context, term *terminal, name string, t telemetry.Config, l telemetry.LogConfig,
	wire func(*slog.Logger, *telemetry.Telemetry) (service, error),
) (err error) {
	log, err := telemetry.NewLogger(term.err, l)
	if err != nil {
		return err
	}
	t.Service, t.Version, t.Logger = "databus-"+name, version(), log
	tel, err := telemetry.Setup(ctx, t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shutdownTelemetry(ctx, []*telemetry.Telemetry{tel})) }()
	s, err := wire(log, tel)
	if err != nil {
		return err
	}
	if err := s.Listen(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", name, err), s.Close())
	}
	log.Info("serving", slog.String("service", name), slog.String("http", s.HTTPAddr()), slog.String("grpc", s.GRPCAddr()), slog.String("version", version()))
	return s.Run(ctx)
}
