// Command agent measures the Databus agent beside a bare net/http handler and
// beside other systems that take events over HTTP, in one run, in turns. Peers
// that are not built are left out with a line that says so. Every server is a
// process of its own; the load generator shares the machine with them. Read the
// ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/databus-suite/databus/bench/internal/bare"
	"github.com/databus-suite/databus/bench/internal/corpus"
	"github.com/databus-suite/databus/bench/internal/peer"
	"github.com/databus-suite/databus/bench/internal/suite"
)

type options struct {
	conns, rounds, eventBytes, lines int
	rate                             float64
	duration                         time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.conns, "conns", 64, "keep-alive connections of the load")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds; each measures everything once, medians are printed")
	flag.IntVar(&o.eventBytes, "event", 1024, "bytes of a JSON event, about")
	flag.IntVar(&o.lines, "lines", 100, "messages in one NDJSON request or one gRPC stream request")
	flag.Float64Var(&o.rate, "rate", 5000, "requests/s of the latency measurement")
	flag.DurationVar(&o.duration, "duration", 4*time.Second, "of each measurement")
	beBare := flag.Bool("bare-http", false, "internal: be the bare HTTP server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *beBare {
		err = bare.Serve(ctx)
	} else {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	root, err := suite.Root()
	if err != nil {
		return err
	}
	s, err := suite.Start(ctx, root)
	if err != nil {
		return err
	}
	defer s.Stop()
	bareAddr, stopBare, err := bare.Start(ctx)
	if err != nil {
		return err
	}
	defer stopBare()
	// Adaptive: producers that wait for each answer can do no more than one publish a linger otherwise.
	if err := s.CreateChannel(ctx, "bench", `{"batch":{"adaptive":true}}`); err != nil {
		return err
	}
	if err := s.CreateChannel(ctx, "bench-linger", `{"batch":{"linger":"5ms"}}`); err != nil {
		return err
	}
	events, name, err := corpus.Small(root, o.eventBytes)
	if err != nil {
		return err
	}
	targets := []*target{
		{name: "bare net/http", url: "http://" + bareAddr + "/", body: single(events)},
		{name: "databus REST, one message, DURABLE", url: "http://" + s.Addr(8080) + "/v1/channels/bench/events", body: single(events)},
		{name: "databus NDJSON, DURABLE", url: "http://" + s.Addr(8080) + "/v1/channels/bench/events", contentType: "application/x-ndjson", per: o.lines, body: ndjson(events, o.lines)},
	}
	peers, stopPeers, err := startPeers(ctx, root, bareAddr, events)
	if err != nil {
		return err
	}
	defer stopPeers()
	targets = append(targets, peers...)
	stream := &target{name: "databus gRPC PublishStream, DURABLE", per: o.lines}
	lingering := &target{url: "http://" + s.Addr(8080) + "/v1/channels/bench-linger/events", body: single(events)}
	var lat latency
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		for _, t := range targets {
			if err := t.measure(ctx, o); err != nil {
				return err
			}
		}
		if err := stream.measureStream(ctx, s.Addr(8081), events, o); err != nil {
			return err
		}
		if err := lat.measure(ctx, lingering, o); err != nil {
			return err
		}
	}
	printTable(os.Stdout, o, name, append(targets, stream))
	lat.print(os.Stdout, o)
	return nil
}

// startPeers starts every peer that is built.
func startPeers(ctx context.Context, root, sink string, events [][]byte) (targets []*target, stop func(), err error) {
	var running []*peer.Process
	stop = func() {
		for _, p := range running {
			p.Stop()
		}
	}
	start := func(spec peer.Spec, t *target) error {
		p, err := peer.Start(ctx, root, spec)
		if errors.Is(err, peer.ErrMissing) {
			fmt.Fprintln(os.Stderr, "left out:", err)
			return nil
		}
		if err != nil {
			return err
		}
		running, targets = append(running, p), append(targets, t)
		return nil
	}
	spec, url := peer.Dapr()
	err = start(spec, &target{name: "Dapr 1.14 → in-memory pub/sub, stores nothing", url: url, body: single(events)})
	if err == nil {
		spec, url = peer.Benthos()
		err = start(spec, &target{name: "Benthos 4 http_server → file, no sync", url: url, body: single(events)})
	}
	if err == nil {
		spec, url = peer.Otelcol(sink)
		err = start(spec, &target{name: "OTel collector, persistent queue, no sync", url: url, body: otlpLogs(events)})
	}
	if err != nil {
		stop()
	}
	return targets, stop, err
}
