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

	"github.com/databus-suite/databus/bench/internal/bare"
	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/peer"
	"github.com/databus-suite/databus/bench/internal/report"
	"github.com/databus-suite/databus/bench/internal/suite"
)

// target is one thing that takes events, with its figures of all rounds.
type target struct {
	name, url, contentType        string
	stream                        string // address of a gRPC port, instead of url
	per                           int    // messages in a request; 0 is 1
	bodies                        [][]byte
	server                        int // process that answers
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
	peers, stopPeers, err := startPeers(ctx, o, bareAddr)
	if err != nil {
		return err
	}
	defer stopPeers()
	all := append([]*target{
		{name: "bare net/http", url: "http://" + bareAddr + "/", bodies: o.events, server: barePID},
		{name: "databus REST, one message, DURABLE", url: eventsURL(s, "bench"), bodies: o.events, server: s.PID()},
		{name: "databus NDJSON, DURABLE", url: eventsURL(s, "bench"), contentType: "application/x-ndjson", per: o.lines,
			bodies: ndjson(o.events, o.lines), server: s.PID()},
		{name: "databus gRPC PublishStream, one stream, DURABLE", stream: s.Addr(8081), per: o.lines, server: s.PID()},
	}, peers...)
	for round := range o.rounds {
		fmt.Fprintf(os.Stderr, "throughput, round %d of %d\n", round+1, o.rounds)
		for _, t := range all {
			if !o.only.MatchString(t.name) {
				continue
			}
			if err := t.measure(ctx, o); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	printThroughput(os.Stdout, o, all)
	return nil
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

// startPeers starts every peer that is built.
func startPeers(ctx context.Context, o *options, sink string) (targets []*target, stop func(), err error) {
	var running []*peer.Process
	stop = func() {
		for _, p := range running {
			p.Stop()
		}
	}
	for _, x := range []struct {
		name   string
		spec   func() (peer.Spec, string, error)
		bodies [][]byte
	}{
		{"Dapr 1.14 → in-memory pub/sub, stores nothing", peer.Dapr, o.events},
		{"Benthos 4 http_server → file, no sync", peer.Benthos, o.events},
		{"OTel collector, persistent queue, no sync", func() (peer.Spec, string, error) { return peer.Otelcol(sink) }, otlpLogs(o.events)},
	} {
		if !o.only.MatchString(x.name) {
			continue
		}
		spec, url, err := x.spec()
		var p *peer.Process
		if err == nil {
			p, err = peer.Start(ctx, o.root, spec)
		}
		if errors.Is(err, peer.ErrMissing) {
			fmt.Fprintln(os.Stderr, "left out:", err)
			continue
		}
		if err != nil {
			stop()
			return nil, nil, err
		}
		running = append(running, p)
		targets = append(targets, &target{name: x.name, url: url, bodies: x.bodies, server: p.PID()})
	}
	return targets, stop, nil
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
