package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/bench/internal/bare"
	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/peer"
	"github.com/databus-suite/databus/bench/internal/report"
	"github.com/databus-suite/databus/bench/internal/suite"
)

// target is one thing that takes events, with its figures of all rounds.
type target struct {
	name, url, contentType string
	stream                 string // address of a gRPC port, instead of url
	per                    int    // messages in a request; 0 is 1
	bodies                 [][]byte
	server                 int // process that answers
	// start starts a peer for one turn only, so that what it has left to do (a queue to drain, pages to write back) costs no
	// other its turn. Nil: the target runs all the while.
	start                         func() (peer.Spec, string, error)
	rps, mps, p50, p99, p999, cpu []float64
}

// throughput measures every target in turns: as many requests as it answers.
func throughput(ctx context.Context, o *options) error {
	s, err := suite.Start(ctx, o.root)
	if err != nil {
		return err
	}
	defer s.Stop()
	bareAddr, barePID, stopBare, err := bare.Start(ctx)
	if err != nil {
		return err
	}
	defer stopBare()
	// Adaptive: producers that wait for each answer can do no more than one publish a linger otherwise.
	if err := s.CreateChannel(ctx, "bench", `{"batch":{"adaptive":true}}`); err != nil {
		return err
	}
	all := []*target{
		{name: "bare net/http", url: "http://" + bareAddr + "/", bodies: o.events, server: barePID},
		{name: "databus REST, one message, DURABLE", url: eventsURL(s, "bench"), bodies: o.events, server: s.PID()},
		{name: "databus NDJSON, DURABLE", url: eventsURL(s, "bench"), contentType: "application/x-ndjson", per: o.lines,
			bodies: ndjson(o.events, o.lines), server: s.PID()},
		{name: "databus gRPC PublishStream, one stream, DURABLE", stream: s.Addr(8081), per: o.lines, server: s.PID()},
		{name: "Dapr 1.14 → in-memory pub/sub, stores nothing", start: peer.Dapr, bodies: o.events},
		{name: "Benthos 4 http_server → file, no sync", start: peer.Benthos, bodies: o.events},
		{name: "OTel collector, persistent queue, no sync", start: func() (peer.Spec, string, error) { return peer.Otelcol(bareAddr) }, bodies: otlpLogs(o.events)},
	}
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "throughput, round %d of %d\n", round+1, o.rounds)
		for _, t := range all {
			if !o.only.MatchString(t.name) {
				continue
			}
			err := t.turn(ctx, o)
			if errors.Is(err, peer.ErrMissing) {
				fmt.Fprintln(os.Stderr, "left out:", err)
			} else if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	printThroughput(os.Stdout, o, all)
	return nil
}

// turn measures a target with nothing left over from the one before.
func (t *target) turn(ctx context.Context, o *options) error {
	unix.Sync()
	if t.start == nil {
		return t.measure(ctx, o)
	}
	spec, url, err := t.start()
	if err != nil {
		return err
	}
	p, err := peer.Start(ctx, o.root, spec)
	if err != nil {
		return err
	}
	defer p.Stop()
	t.url, t.server = url, p.PID()
	return t.measure(ctx, o)
}

func (t *target) measure(ctx context.Context, o *options) error {
	if t.stream != "" {
		return t.measureStream(ctx, o)
	}
	contentType := t.contentType
	if contentType == "" {
		contentType = "application/json"
	}
	r, err := load.Run(ctx, load.Config{URL: t.url, ContentType: contentType, Conns: o.conns, Duration: o.duration, Bodies: t.bodies,
		PerRequest: t.per, Server: t.server})
	if err != nil {
		return err
	}
	return t.add(r)
}

func (t *target) add(r load.Result) error {
	if r.Errors > 0 {
		return fmt.Errorf("%d of %d requests failed; first: %s", r.Errors, r.Errors+r.Requests, r.FirstError)
	}
	ms := func(q float64) float64 { return float64(r.Quantile(q).Microseconds()) / 1000 }
	t.rps, t.mps = append(t.rps, r.RPS()), append(t.mps, r.MPS())
	t.p50, t.p99, t.p999 = append(t.p50, ms(.5)), append(t.p99, ms(.99)), append(t.p999, ms(.999))
	t.cpu = append(t.cpu, r.Micros(r.ServerCPU))
	return nil
}

// ndjson makes bodies of n events, one a line.
func ndjson(events [][]byte, n int) [][]byte {
	bodies := make([][]byte, len(events))
	for i := range bodies {
		var b bytes.Buffer
		for k := range n {
			b.Write(bytes.ReplaceAll(events[(i+k)%len(events)], []byte("\n"), []byte(" ")))
			b.WriteByte('\n')
		}
		bodies[i] = b.Bytes()
	}
	return bodies
}

// otlpLogs wraps each event as the body of one OTLP log record.
func otlpLogs(events [][]byte) [][]byte {
	bodies := make([][]byte, len(events))
	for i, e := range events {
		bodies[i] = fmt.Appendf(nil, `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"%d","body":{"stringValue":%s}}]}]}]}`,
			time.Now().UnixNano(), strconv.QuoteToASCII(string(e)))
	}
	return bodies
}

func printThroughput(w io.Writer, o *options, targets []*target) {
	fmt.Fprintf(w, "\nEvents of about %d bytes (%s), %d connections, closed loop, medians of %d rounds:\n\n", o.eventBytes, o.corpus, o.conns, o.rounds)
	t := report.Table{Head: []string{"", "requests/s", "messages/s", "p50 ms", "p99 ms", "server CPU µs/request", "requests/s of bare", "messages/s of databus REST"}}
	for _, x := range targets {
		if len(x.rps) == 0 {
			continue
		}
		t.Row(x.name, report.Median(x.rps), report.Median(x.mps), report.Median(x.p50), report.Median(x.p99), report.Median(x.cpu),
			report.Ratio(x.rps, targets[0].rps), report.Ratio(x.mps, targets[1].mps))
	}
	t.Print(w)
}
