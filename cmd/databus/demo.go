package main

import (
	"context"
	"fmt"
	"time"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/internal/errs"
)

// demo shows a suite that just started: it creates a sample channel, publishes and reads back, and says what to try next.
type demo struct {
	term          *terminal
	broker, agent endpoint
	offset        int
}

const (
	demoChannel = "hello"
	demoTimeout = 10 * time.Second
)

var demoEvents = []string{
	`{"user":"ada","text":"hello, databus","n":12345678901234567890}`,
	`{"user":"grace","text":"kept byte for byte","price":1.0}`,
	`{"user":"ada","text":"same key, same partition, in order"}`,
}

func (d demo) run(ctx context.Context) error {
	brokers, agents := brokerAt(d.broker.http, demoTimeout), agentAt(d.agent.http, demoTimeout)
	defer brokers.hangUp()
	defer agents.hangUp()
	if err := d.createChannel(ctx, brokers); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	results, err := d.publish(ctx, agents)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	fmt.Fprintf(d.term.out, "\nchannel %s: published %s, read back from topic %s:\n\n", demoChannel,
		render.Plural(int64(len(results)), "event"), results[0].GetTopic())
	if err := d.readBack(ctx, brokers, results); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d.next(results[0])
	return nil
}

// createChannel makes the sample channel, or finds the one of an earlier start.
func (d demo) createChannel(ctx context.Context, s server) error {
	client, err := s.channels()
	if err != nil {
		return err
	}
	_, err = client.CreateChannel(ctx, &databusv1.CreateChannelRequest{Name: demoChannel, Config: &databusv1.ChannelConfig{KeyPath: "$.user"}})
	if errs.CodeOf(err) == errs.AlreadyExists {
		return nil
	}
	return err
}

func (d demo) publish(ctx context.Context, s server) ([]*databusv1.PublishResult, error) {
	client, err := s.publish()
	if err != nil {
		return nil, err
	}
	req := &databusv1.PublishRequest{Channel: demoChannel}
	for _, e := range demoEvents {
		req.Messages = append(req.Messages, &databusv1.Message{Value: []byte(e)})
	}
	res, err := client.Publish(ctx, req)
	if err != nil {
		return nil, err
	}
	for _, r := range res.GetResults() {
		if r.GetError() != nil {
			return nil, errs.FromProto(r.GetError())
		}
	}
	return res.GetResults(), nil
}

// readBack reads exactly the messages that were published, by their places.
func (d demo) readBack(ctx context.Context, s server, results []*databusv1.PublishResult) error {
	topics, err := s.topics()
	if err != nil {
		return err
	}
	reads, err := s.reads()
	if err != nil {
		return err
	}
	out, err := render.NewMessages(d.term.out, render.MessageFormat(render.Table), "", d.term.screen())
	if err != nil {
		return err
	}
	r := &reader{server: s, topic: results[0].GetTopic(), topics: topics, reads: reads, out: out, left: -1, term: d.term}
	cursors := map[int32]*cursor{}
	var list []*cursor
	for _, result := range results {
		at := cursors[result.GetPartition()]
		if at == nil {
			at = &cursor{partition: result.GetPartition(), next: result.GetOffset()}
			cursors[result.GetPartition()] = at
			list = append(list, at)
		}
		at.next, at.end = min(at.next, result.GetOffset()), max(at.end, result.GetOffset()+1)
	}
	return r.backlog(ctx, list)
}

// next prints commands that work as they stand.
func (d demo) next(result *databusv1.PublishResult) {
	fmt.Fprintf(d.term.out, `
try next, from another terminal:

  # publish by curl: the key is taken from the payload, the answer says where the event is
  curl -s http://%[1]s/v1/channels/%[3]s/events -H 'Content-Type: application/json' -d '{"user":"ada","text":"by curl"}'

  # read it back by curl
  curl -s 'http://%[2]s/v1/topics/%[4]s/partitions/%[5]d/messages?offset=earliest'

  # a channel of your own, and an event with key and headers
  curl -s http://%[2]s/v1/channels -H 'Content-Type: application/json' \
    -d '{"name":"orders","config":{"keyPath":"$.user.id","batch":{"linger":"5ms"}}}'
  curl -s http://%[1]s/v1/channels/orders/messages -H 'Content-Type: application/json' \
    -d '{"messages":[{"value":{"user":{"id":"u1"},"total":9.50},"headers":{"source":"shop"}}]}'

  # the same from the command line, and every event as it comes
%[6]s  bin/databus publish %[3]s '{"user":"grace","text":"by cli"}'
  bin/databus read %[4]s --follow --offset earliest -o pretty
  bin/databus channel update %[3]s --codec lz4 --linger 10ms && bin/databus channel history %[3]s
`, d.agent.http, d.broker.http, demoChannel, result.GetTopic(), result.GetPartition(), d.exports())
}

// exports point the client commands at ports that are not the default ones.
func (d demo) exports() string {
	if d.offset == 0 {
		return ""
	}
	return fmt.Sprintf("  export DATABUS_AGENT=%s DATABUS_BROKER=%s\n", d.agent.http, d.broker.http)
}

// hint is the first thing to try where no demo was asked for.
func (d demo) hint() error {
	_, err := fmt.Fprintf(d.term.out, `
try, from another terminal:

%[1]s  databus channel create %[2]s && databus publish %[2]s '{"text":"hi"}' && databus read %[2]s
`, d.exports(), demoChannel)
	return err
}
