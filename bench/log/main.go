// Command log measures the broker's log beside bare peers: append streams beside a bare grpc-go server that throws the same
// bytes away, messages and their latency beside NATS JetStream, fetches beside a bare stream and beside cat, and what a start
// costs. Every server is a process of its own; the load generator shares the machine with them. Read the ratios.
//
// `make bench-log` measures the log in process too, beside write and fdatasync.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/databus-suite/databus/bench/internal/corpus"
	"github.com/databus-suite/databus/bench/internal/suite"
)

type options struct {
	rounds, clients, eventBytes int
	fetch, recover              int // MiB
	partitions                  int
	rate                        float64
	duration                    time.Duration
	root, corpus                string
	events                      [][]byte
}

// parts are what there is to measure, in order.
var parts = []struct {
	name string
	run  func(context.Context, *options) error
}{
	{"stream", streams},
	{"jetstream", messages},
	{"fetch", fetches},
	{"recovery", recovery},
	{"partitions", manyPartitions},
}

// roles are the servers that a child process can be.
var roles = map[string]func(context.Context) error{
	"grpc":             serveGRPC,
	"jetstream":        func(ctx context.Context) error { return serveJetStream(ctx, false) },
	"jetstream-always": func(ctx context.Context) error { return serveJetStream(ctx, true) },
}

// roleFlag makes this binary be a server.
const roleFlag = "-be"

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 3, "rounds; each measures everything once, medians are printed")
	flag.DurationVar(&o.duration, "duration", time.Second, "of each measurement")
	flag.IntVar(&o.clients, "clients", 4, "clients of the messages beside JetStream, each with a connection and a partition, or a stream, of its own")
	flag.IntVar(&o.eventBytes, "event", 1024, "bytes of a JSON event, about")
	flag.Float64Var(&o.rate, "rate", 0, "messages/s of the latency measurement; 0: half of the slowest system's maximum")
	flag.IntVar(&o.fetch, "fetch", 1024, "MiB in the partition that is fetched")
	flag.IntVar(&o.recover, "recover", 10_000, "MiB in the partition that is recovered")
	flag.IntVar(&o.partitions, "partitions", 10_000, "partitions of the broker that is started")
	chosen := flag.String("parts", "stream,jetstream,fetch,recovery,partitions", "what to measure")
	role := flag.String(roleFlag[1:], "", "internal: be a server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if serve := roles[*role]; serve != nil {
		err = serve(ctx)
	} else {
		err = run(ctx, &o, strings.Split(*chosen, ","))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options, chosen []string) (err error) {
	if o.root, err = suite.Root(); err != nil {
		return err
	}
	if o.events, o.corpus, err = corpus.Small(o.root, o.eventBytes); err != nil {
		return err
	}
	ran := 0
	for _, p := range parts {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		ran++
		start := time.Now()
		if err := p.run(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s took %.0f s\n", p.name, time.Since(start).Seconds())
	}
	if ran == 0 {
		return errors.New("-parts names none of stream, jetstream, fetch, recovery and partitions")
	}
	return nil
}
