// Command agent measures the Databus agent beside a bare net/http handler and
// beside other systems that take events over HTTP, its latency at a fixed rate,
// and what it spares a broker, in one run. Peers that are not built are left
// out with a line that says so. Every server is a process of its own; the load
// generator shares the machine with them. Read the ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/databus-suite/databus/bench/internal/bare"
	"github.com/databus-suite/databus/bench/internal/corpus"
	"github.com/databus-suite/databus/bench/internal/suite"
)

type options struct {
	conns, rounds, eventBytes, lines int
	rate                             float64
	duration                         time.Duration
	only                             *regexp.Regexp
	producers                        int
	messages                         int // of each producer
	each                             float64
	root, corpus                     string
	events                           [][]byte
}

// parts are what there is to measure, in order.
var parts = []struct {
	name string
	run  func(context.Context, *options) error
}{
	{"throughput", throughput},
	{"latency", latency},
	{"producers", producers},
}

func main() {
	var o options
	flag.IntVar(&o.conns, "conns", 256, "keep-alive connections of the load")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each measures everything once, medians are printed")
	flag.IntVar(&o.eventBytes, "event", 1024, "bytes of a JSON event, about")
	flag.IntVar(&o.lines, "lines", 100, "messages in one NDJSON request or one gRPC stream request")
	flag.Float64Var(&o.rate, "rate", 5000, "requests/s of the latency measurement")
	flag.IntVar(&o.producers, "producers", 200, "producers of the last part")
	flag.Float64Var(&o.each, "each", 50, "messages/s of each producer")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "of each measurement; of the producers' twice that")
	chosen := flag.String("parts", "throughput,latency,producers", "what to measure")
	only := flag.String("only", "", "regular expression: measure the throughput of these rows only")
	beBare := flag.Bool("bare-http", false, "internal: be the bare HTTP server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *beBare {
		err = bare.Serve(ctx)
	} else {
		err = run(ctx, &o, strings.Split(*chosen, ","), *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options, chosen []string, only string) (err error) {
	if o.only, err = regexp.Compile(only); err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if o.root, err = suite.Root(); err != nil {
		return err
	}
	if o.events, o.corpus, err = corpus.Small(o.root, o.eventBytes); err != nil {
		return err
	}
	o.messages = int(2 * o.duration.Seconds() * o.each)
	ran := 0
	for _, p := range parts {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		ran++
		if err := p.run(ctx, o); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if ran == 0 {
		return errors.New("-parts names none of throughput, latency and producers")
	}
	return nil
}

// eventsURL is where a suite's agent takes a channel's events.
func eventsURL(s *suite.Suite, channel string) string {
	return "http://" + s.Addr(8080) + "/v1/channels/" + channel + "/events"
}
