package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/report"
	"github.com/databus-suite/databus/bench/internal/suite"
)

// linger is that of the latency measurement's channel, which is not adaptive.
const linger = 5 * time.Millisecond

// latency measures how long an answer takes at a fixed rate, over enough connections that none has to wait for another.
func latency(ctx context.Context, o *options) error {
	s, err := suite.Start(ctx, o.root)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.CreateChannel(ctx, "bench", fmt.Sprintf(`{"batch":{"linger":%q}}`, linger)); err != nil {
		return err
	}
	var t target
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "latency, round %d of %d\n", round+1, o.rounds)
		r, err := load.Run(ctx, load.Config{URL: eventsURL(s, "bench"), ContentType: "application/json", Conns: o.conns, Duration: o.duration,
			Bodies: o.events, Rate: o.rate, Server: s.PID()})
		if err == nil {
			err = t.add(r)
		}
		if err != nil {
			return err
		}
	}
	fmt.Printf("\ndatabus REST, one message, DURABLE, linger %v, open loop at %.0f requests/s, medians of %d rounds:\n\n", linger, o.rate, o.rounds)
	table := report.Table{Head: []string{"requests/s", "p50 ms", "p99 ms", "p99.9 ms", "server CPU µs/request", "p99 / linger"}}
	p99 := report.Median(t.p99)
	table.Row(report.Median(t.rps), report.Median(t.p50), p99, report.Median(t.p999), report.Median(t.cpu), p99/(linger.Seconds()*1000))
	table.Print(os.Stdout)
	return nil
}
