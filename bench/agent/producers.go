package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/peer"
	"github.com/databus-suite/databus/bench/internal/process"
	"github.com/databus-suite/databus/bench/internal/report"
	"github.com/databus-suite/databus/bench/internal/suite"
)

// outcome is what one way to the broker has cost it.
type outcome struct {
	result       load.Result
	appends      float64 // requests that the broker answered
	messages     float64
	bytes        float64 // of the partitions on disk
	broker, side time.Duration
}

// producers sends the same messages from the same number of producers straight to a broker, and through an agent, each with a
// broker of its own, and compares what it costs the broker.
func producers(ctx context.Context, o *options) error {
	ways := []struct {
		name   string
		direct bool
	}{
		{"straight to the broker, each a client of its own", true},
		{"through one agent", false},
	}
	rows := make([]outcome, len(ways))
	for i, way := range ways {
		fmt.Fprintf(os.Stderr, "%d producers × %.0f messages/s, %s\n", o.producers, o.each, way.name)
		var err error
		if rows[i], err = oneWay(ctx, o, way.direct); err != nil {
			return fmt.Errorf("%s: %w", way.name, err)
		}
	}
	fmt.Printf("\n%d producers × %.0f messages/s of about %d bytes for %v, DURABLE, linger 5 ms:\n\n", o.producers, o.each, o.eventBytes, 2*o.duration)
	t := report.Table{Head: []string{"", "messages/s", "broker requests/s", "messages/request", "broker CPU µs/message", "agent CPU µs/message", "bytes/message on disk", "p50 ms", "p99 ms"}}
	for i, way := range ways {
		r := rows[i]
		ms := func(q float64) float64 { return float64(r.result.Quantile(q).Microseconds()) / 1000 }
		each := func(d time.Duration) float64 { return float64(d.Microseconds()) / r.messages }
		t.Row(way.name, r.result.RPS(), r.appends/r.result.Elapsed.Seconds(), r.messages/r.appends, each(r.broker), each(r.side), r.bytes/r.messages, ms(.5), ms(.99))
	}
	t.Print(os.Stdout)
	direct, through := rows[0], rows[1]
	fmt.Printf("\nThrough the agent: 1/%.0f of the broker's requests, 1/%.1f of its CPU, 1/%.1f of its bytes a message.\n",
		direct.appends/direct.messages/(through.appends/through.messages),
		direct.broker.Seconds()/direct.messages/(through.broker.Seconds()/through.messages),
		direct.bytes/direct.messages/(through.bytes/through.messages))
	return nil
}

// oneWay measures a broker, and an agent where there is one, that have nothing else to do.
func oneWay(ctx context.Context, o *options, direct bool) (out outcome, err error) {
	broker, httpAddr, grpcAddr, err := peer.Databus(ctx, o.root, "", "broker", "data_dirs: [data]\n")
	if err != nil {
		return out, err
	}
	defer broker.Stop()
	if err := suite.CreateTopic(ctx, httpAddr, "bench", partitions); err != nil {
		return out, err
	}
	if err := suite.CreateChannel(ctx, httpAddr, "bench", `{}`); err != nil {
		return out, err
	}
	var agent *peer.Process
	var agentAddr string
	if !direct {
		if agent, agentAddr, _, err = peer.Databus(ctx, o.root, "", "agent", "data_dir: data\nbroker: {grpc_addr: "+grpcAddr+"}\n"); err != nil {
			return out, err
		}
		defer agent.Stop()
	}
	before, err := cost(ctx, httpAddr, broker, agent)
	if err != nil {
		return out, err
	}
	if direct {
		out.result, err = straight(ctx, grpcAddr, o)
	} else {
		out.result, err = load.Run(ctx, load.Config{URL: "http://" + agentAddr + "/v1/channels/bench/events", ContentType: "application/json",
			Bodies: o.events, Conns: o.producers, Duration: 2 * o.duration, Rate: float64(o.producers) * o.each})
	}
	if err == nil && out.result.Errors > 0 {
		err = fmt.Errorf("%d messages failed; first: %s", out.result.Errors, out.result.FirstError)
	}
	if err != nil {
		return out, err
	}
	after, err := cost(ctx, httpAddr, broker, agent)
	if err != nil {
		return out, err
	}
	out.appends, out.messages, out.bytes = after.appends-before.appends, after.messages-before.messages, after.bytes-before.bytes
	out.broker, out.side = after.broker-before.broker, after.side-before.side
	if uint64(out.messages) != out.result.Requests {
		return out, fmt.Errorf("%d messages were acknowledged, and the broker has counted %.0f", out.result.Requests, out.messages)
	}
	return out, nil
}

// cost reads what the broker has done so far from its metrics, and what CPU time it and the agent have used.
func cost(ctx context.Context, addr string, broker, agent *peer.Process) (out outcome, err error) {
	resp, err := peer.Get(ctx, "http://"+addr+"/metrics")
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	sums := map[string]*float64{"databus_broker_append_seconds_count": &out.appends,
		"databus_broker_appended_messages_total": &out.messages, "databus_broker_partition_bytes": &out.bytes}
	sc := bufio.NewScanner(resp.Body)
	for sc.Scan() {
		name, rest, _ := strings.Cut(sc.Text(), "{")
		sum := sums[name]
		if sum == nil || !strings.Contains(rest, `topic="bench"`) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return out, fmt.Errorf("metric %q: %w", sc.Text(), err)
		}
		*sum += v
	}
	if err := sc.Err(); err != nil {
		return out, err
	}
	if out.broker, err = process.CPU(broker.PID()); err == nil && agent != nil {
		out.side, err = process.CPU(agent.PID())
	}
	return out, err
}
