package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/report"
)

// target is one thing that takes events, with its figures of all rounds.
type target struct {
	name, url, contentType   string
	per                      int // messages in a request; 0 is 1
	body                     func(i uint64) []byte
	rps, mps, p50, p99, p999 []float64
}

func (t *target) measure(ctx context.Context, o options) error {
	contentType := t.contentType
	if contentType == "" {
		contentType = "application/json"
	}
	r, err := load.Run(ctx, load.Config{URL: t.url, ContentType: contentType, Conns: o.conns, Duration: o.duration, Body: t.body, PerRequest: t.per})
	if err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	if r.Errors > 0 {
		return fmt.Errorf("%s: %d of %d requests failed; first: %s", t.name, r.Errors, r.Errors+r.Requests, r.FirstError)
	}
	t.add(r)
	return nil
}

func (t *target) add(r load.Result) {
	ms := func(q float64) float64 { return float64(r.Quantile(q).Microseconds()) / 1000 }
	t.rps, t.mps = append(t.rps, r.RPS()), append(t.mps, r.MPS())
	t.p50, t.p99, t.p999 = append(t.p50, ms(.5)), append(t.p99, ms(.99)), append(t.p999, ms(.999))
}

// single sends one event a request.
func single(events [][]byte) func(uint64) []byte {
	return func(i uint64) []byte { return events[i%uint64(len(events))] }
}

// ndjson sends n events a request, one a line.
func ndjson(events [][]byte, n int) func(uint64) []byte {
	bodies := make([][]byte, len(events))
	for i := range bodies {
		var b bytes.Buffer
		for k := range n {
			b.Write(bytes.ReplaceAll(events[(i+k)%len(events)], []byte("\n"), []byte(" ")))
			b.WriteByte('\n')
		}
		bodies[i] = b.Bytes()
	}
	return single(bodies)
}

// otlpLogs wraps each event as the body of one OTLP log record.
func otlpLogs(events [][]byte) func(uint64) []byte {
	bodies := make([][]byte, len(events))
	for i, e := range events {
		bodies[i] = fmt.Appendf(nil, `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"%d","body":{"stringValue":%s}}]}]}]}`,
			time.Now().UnixNano(), strconv.QuoteToASCII(string(e)))
	}
	return single(bodies)
}

func printTable(w io.Writer, o options, corpus string, targets []*target) {
	fmt.Fprintf(w, "\nEvents of about %d bytes (%s), %d connections, closed loop, medians of %d rounds:\n\n", o.eventBytes, corpus, o.conns, o.rounds)
	t := report.Table{Head: []string{"", "requests/s", "messages/s", "p50 ms", "p99 ms", "requests/s of bare", "messages/s of databus REST"}}
	for _, x := range targets {
		t.Row(x.name, report.Median(x.rps), report.Median(x.mps), report.Median(x.p50), report.Median(x.p99),
			report.Ratio(x.rps, targets[0].rps), report.Ratio(x.mps, targets[1].mps))
	}
	t.Print(w)
}

// latency is the open-loop measurement at a fixed rate, over enough connections that none has to wait for another.
type latency struct{ t target }

func (l *latency) measure(ctx context.Context, t *target, o options) error {
	r, err := load.Run(ctx, load.Config{URL: t.url, ContentType: "application/json", Conns: 4 * o.conns, Duration: o.duration, Body: t.body, Rate: o.rate})
	if err != nil {
		return err
	}
	if r.Errors > 0 {
		return fmt.Errorf("at %.0f requests/s: %d failed; first: %s", o.rate, r.Errors, r.FirstError)
	}
	l.t.add(r)
	return nil
}

func (l *latency) print(w io.Writer, o options) {
	fmt.Fprintf(w, "\ndatabus REST, one message, DURABLE, linger 5 ms, open loop at %.0f requests/s:\n\n", o.rate)
	t := report.Table{Head: []string{"requests/s", "p50 ms", "p99 ms", "p99.9 ms"}}
	t.Row(report.Median(l.t.rps), report.Median(l.t.p50), report.Median(l.t.p99), report.Median(l.t.p999))
	t.Print(w)
}
