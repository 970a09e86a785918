package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/databus-suite/databus/bench/internal/corpus"
	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/report"
	"github.com/databus-suite/databus/bench/internal/suite"
)

// restFigures are the REST measurements of all rounds.
type restFigures struct {
	corpus                                   string
	bare, databus                            []float64
	bareP50, bareP99, databusP50, databusP99 []float64
}

func (f *restFigures) measure(ctx context.Context, root string, s *suite.Suite, bareAddr string, o options) error {
	events, name, err := corpus.Small(root, o.eventBytes)
	if err != nil {
		return err
	}
	f.corpus = name
	c := load.Config{
		URL: "http://" + bareAddr + "/v1/channels/bench-rest/events", ContentType: "application/json",
		Conns: o.conns, Duration: o.duration, Bodies: events,
	}
	bare, err := load.Run(ctx, c)
	if err != nil {
		return err
	}
	c.URL = "http://" + s.Addr(8080) + "/v1/channels/bench-rest/events"
	databus, err := load.Run(ctx, c)
	if err != nil {
		return err
	}
	if n := bare.Errors + databus.Errors; n > 0 {
		return fmt.Errorf("REST load: %d requests failed; first: %s%s", n, bare.FirstError, databus.FirstError)
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	f.bare, f.databus = append(f.bare, bare.RPS()), append(f.databus, databus.RPS())
	f.bareP50, f.bareP99 = append(f.bareP50, ms(bare.Quantile(.5))), append(f.bareP99, ms(bare.Quantile(.99)))
	f.databusP50, f.databusP99 = append(f.databusP50, ms(databus.Quantile(.5))), append(f.databusP99, ms(databus.Quantile(.99)))
	return nil
}

func (f *restFigures) print(w io.Writer, o options) {
	fmt.Fprintf(w, "\nREST, one message a request, about %d bytes (%s), %d connections, medians of %d rounds:\n\n", o.eventBytes, f.corpus, o.conns, o.rounds)
	t := report.Table{Head: []string{"", "requests/s", "p50 ms", "p99 ms"}}
	t.Row("bare net/http", report.Median(f.bare), report.Median(f.bareP50), report.Median(f.bareP99))
	t.Row("databus, DURABLE", report.Median(f.databus), report.Median(f.databusP50), report.Median(f.databusP99))
	t.Print(w)
	fmt.Fprintf(w, "\ndatabus / bare: %s of requests/s\n", report.Ratio(f.databus, f.bare))
}
