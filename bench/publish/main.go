// Command publish measures the suite's two front doors against the barest thing
// that could stand in their place, in one run, in turns:
//
//   - REST single-message publish, DURABLE, against a net/http handler that reads
//     the body and answers;
//   - gRPC AppendStream of record batches, DURABLE, against write and fdatasync of
//     the same bytes to a file.
//
// Every server is a process of its own; the load generator shares the machine
// with it. Read the ratios, not the absolute figures.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/databus-suite/databus/bench/internal/bare"
	"github.com/databus-suite/databus/bench/internal/suite"
)

type options struct {
	conns, rounds, eventBytes, batchBytes, inFlight int
	duration                                        time.Duration
}

func main() {
	var o options
	flag.IntVar(&o.conns, "conns", 64, "keep-alive connections of the HTTP load")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds; each measures everything once, medians are printed")
	flag.IntVar(&o.eventBytes, "event", 1024, "bytes of a JSON event, about")
	flag.IntVar(&o.batchBytes, "batch", 64<<10, "bytes of a record batch, about")
	flag.IntVar(&o.inFlight, "in-flight", 32, "record batches in flight on the gRPC stream")
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
	bareAddr, _, stopBare, err := bare.Start(ctx)
	if err != nil {
		return err
	}
	defer stopBare()
	// Adaptive: producers that wait for each answer can do no more than one publish a linger otherwise.
	if err := s.CreateChannel(ctx, "bench-rest", `{"batch":{"adaptive":true}}`); err != nil {
		return err
	}
	if err := s.CreateTopic(ctx, "bench-append", 1); err != nil {
		return err
	}
	var rest restFigures
	var app appendFigures
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, o.rounds)
		if err := rest.measure(ctx, root, s, bareAddr, o); err != nil {
			return err
		}
		if err := app.measure(ctx, s, o); err != nil {
			return err
		}
	}
	rest.print(os.Stdout, o)
	app.print(os.Stdout, o)
	return nil
}
