package databus

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/memory"
	"github.com/databus-suite/databus/services/databus/internal/publisher"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// meter records what happens to batches. Counters are kept by the publisher and read when somebody asks, so that a message
// costs no more than an atomic addition. docs/metrics.md says what each means.
type meter struct {
	err      error
	size     metric.Int64Histogram
	messages metric.Int64Histogram
	ratio    metric.Float64Histogram
	queue    metric.Float64Histogram
	latency  metric.Float64Histogram
	commit   metric.Float64Histogram
	dropped  metric.Int64Counter
	forgot   metric.Int64Counter
	failures metric.Int64Counter
	attrs    sync.Map // channel → metric.MeasurementOption
}

func newMeter(t *telemetry.Telemetry) *meter {
	m := t.Meter("databus/agent")
	out := &meter{}
	keep := func(err error) {
		if out.err == nil {
			out.err = err
		}
	}
	var err error
	seconds := metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60)
	out.size, err = m.Int64Histogram("databus_agent_batch_bytes", metric.WithDescription("Size of record batches as they are sent"),
		metric.WithExplicitBucketBoundaries(256, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20))
	keep(err)
	out.messages, err = m.Int64Histogram("databus_agent_batch_messages", metric.WithDescription("Messages in a record batch"),
		metric.WithExplicitBucketBoundaries(1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000))
	keep(err)
	out.ratio, err = m.Float64Histogram("databus_agent_compression_ratio", metric.WithDescription("Bytes before compression to bytes after, by batch"),
		metric.WithExplicitBucketBoundaries(1, 1.5, 2, 3, 4, 6, 8, 12, 16, 32))
	keep(err)
	out.queue, err = m.Float64Histogram("databus_agent_queue_seconds", seconds,
		metric.WithDescription("Time from a batch's first message until it was closed and sent"))
	keep(err)
	out.latency, err = m.Float64Histogram("databus_agent_append_seconds", seconds,
		metric.WithDescription("Time from a batch's first message until the broker's answer"))
	keep(err)
	out.commit, err = m.Float64Histogram("databus_agent_spool_commit_seconds", seconds,
		metric.WithDescription("Time that writing and syncing a group of spooled batches took"))
	keep(err)
	out.dropped, err = m.Int64Counter("databus_agent_spool_dropped_messages_total",
		metric.WithDescription("Spooled messages that will never be sent, by reason"))
	keep(err)
	out.failures, err = m.Int64Counter("databus_agent_spool_failures_total",
		metric.WithDescription("Writes and syncs of the spool that failed"))
	keep(err)
	out.forgot, err = m.Int64Counter("databus_agent_ids_forgotten_total",
		metric.WithDescription("Message ids forgotten before their window ended, because there were too many"))
	keep(err)
	return out
}

// spool records what the spool does.
func (m *meter) spool() spool.Observer {
	return spool.Observer{
		Committed: func(_, _ int, took time.Duration) { m.commit.Record(context.Background(), took.Seconds()) },
		Failed:    func(error) { m.failures.Add(context.Background(), 1) },
		Dropped: func(channel, reason string, n int) {
			m.dropped.Add(context.Background(), int64(n), metric.WithAttributes(attribute.String("channel", channel), attribute.String("reason", reason)))
		},
	}
}

func (m *meter) forgotten(channel string, ids int) {
	m.forgot.Add(context.Background(), int64(ids), m.of(channel))
}

func (m *meter) of(channel string) metric.MeasurementOption {
	if o, ok := m.attrs.Load(channel); ok {
		return o.(metric.MeasurementOption)
	}
	o := metric.WithAttributeSet(attribute.NewSet(attribute.String("channel", channel)))
	m.attrs.Store(channel, o)
	return o
}

// Sealed records a batch on its way.
func (m *meter) Sealed(channel string, s batcher.Stats) {
	o := m.of(channel)
	m.size.Record(context.Background(), int64(s.Bytes), o)
	m.messages.Record(context.Background(), int64(s.Messages), o)
	m.ratio.Record(context.Background(), float64(s.RawBytes)/float64(max(s.Bytes, 1)), o)
	m.queue.Record(context.Background(), s.QueueTime.Seconds(), o)
}

// Answered records how long the answer took.
func (m *meter) Answered(channel string, _ int, waited time.Duration, err error) {
	if err == nil {
		m.latency.Record(context.Background(), waited.Seconds(), m.of(channel))
	}
}

// circuits names the states of a circuit. A channel that has sent nothing has none.
var circuits = map[databusv1.CircuitState]string{
	databusv1.CircuitState_CIRCUIT_STATE_CLOSED:    "closed",
	databusv1.CircuitState_CIRCUIT_STATE_HALF_OPEN: "half_open",
	databusv1.CircuitState_CIRCUIT_STATE_OPEN:      "open",
}

// figure is one number of each channel that is read on demand.
type figure struct {
	name, meaning string
	counts        bool // a counter, else a gauge
	of            func(publisher.Totals) int64
}

func figures() []figure {
	return []figure{
		{"databus_agent_accepted_messages_total", "Messages taken", true, func(c publisher.Totals) int64 { return c.Accepted }},
		{"databus_agent_acknowledged_messages_total", "Messages that the broker has", true, func(c publisher.Totals) int64 { return c.Acknowledged }},
		{"databus_agent_failed_messages_total", "Messages taken and answered with an error", true, func(c publisher.Totals) int64 { return c.Failed }},
		{"databus_agent_repeated_messages_total", "Messages answered with the result of an earlier one with the same id", true,
			func(c publisher.Totals) int64 { return c.Repeated }},
		{"databus_agent_raw_bytes_total", "Bytes of record batches before compression", true, func(c publisher.Totals) int64 { return c.RawBytes }},
		{"databus_agent_sent_bytes_total", "Bytes of record batches after compression", true, func(c publisher.Totals) int64 { return c.Bytes }},
		{"databus_agent_spool_bytes", "Bytes of a channel's batches in the spool", false, func(c publisher.Totals) int64 { return c.Spool.Bytes }},
		{"databus_agent_spool_messages", "A channel's messages in the spool", false, func(c publisher.Totals) int64 { return c.Spool.Messages }},
		{"databus_agent_spool_oldest_milliseconds", "Age of a channel's oldest message in the spool", false,
			func(c publisher.Totals) int64 { return c.Spool.Oldest.Milliseconds() }},
		{"databus_agent_pending_bytes", "Bytes of messages held for a channel", false, func(c publisher.Totals) int64 { return c.PendingBytes }},
		{"databus_agent_config_revision", "Revision of the config that a channel runs", false, func(c publisher.Totals) int64 { return c.Revision }},
	}
}

// observe registers the numbers that are read on demand.
func (m *meter) observe(t *telemetry.Telemetry, p *publisher.Publisher, pool *memory.Pool, b *batcher.Batcher) error {
	if m.err != nil {
		return fmt.Errorf("register metrics: %w", m.err)
	}
	x := &observer{Meter: t.Meter("databus/agent")}
	channels, agent := x.channels(), x.agent(pool, b)
	if x.err != nil {
		return fmt.Errorf("register metrics: %w", x.err)
	}
	_, err := x.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		agent(o)
		p.Totals(func(c publisher.Totals) { channels(o, c) })
		return nil
	}, x.all...)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// channels makes the instruments of channels and returns what reads them.
func (x *observer) channels() func(metric.Observer, publisher.Totals) {
	list := figures()
	instruments := make([]metric.Int64Observable, len(list))
	for i, f := range list {
		if f.counts {
			instruments[i] = x.counter(f.name, f.meaning)
		} else {
			instruments[i] = x.gauge(f.name, f.meaning)
		}
	}
	rejected := x.counter("databus_agent_rejected_messages_total", "Messages refused, by reason")
	batches := x.counter("databus_agent_batches_total", "Record batches, by why they were closed")
	circuit := x.gauge("databus_agent_circuit_state", "1 for the state that a channel's circuit to the broker is in: closed, half_open or open")
	return func(o metric.Observer, c publisher.Totals) {
		ch := attribute.String("channel", c.Channel)
		with := metric.WithAttributes(ch)
		for i, f := range list {
			o.ObserveInt64(instruments[i], f.of(c), with)
		}
		if state := circuits[c.Circuit]; state != "" {
			o.ObserveInt64(circuit, 1, metric.WithAttributes(ch, attribute.String("state", state)))
		}
		for reason, n := range c.Rejected {
			o.ObserveInt64(rejected, n, metric.WithAttributes(ch, attribute.String("reason", reason)))
		}
		for i, n := range c.Batches {
			o.ObserveInt64(batches, n, metric.WithAttributes(ch, attribute.String("fill", batcher.Fill(i).String())))
		}
	}
}

// agent makes the instruments of the whole agent and returns what reads them.
func (x *observer) agent(pool *memory.Pool, b *batcher.Batcher) func(metric.Observer) {
	used := x.gauge("databus_agent_memory_bytes", "Bytes of messages and bodies held")
	limit := x.gauge("databus_agent_memory_limit_bytes", "Most that may be held")
	waiting := x.gauge("databus_agent_waiting_batches", "Batches that wait for the broker")
	failing := x.gauge("databus_agent_failing_partitions", "Partitions to which nothing gets through")
	return func(o metric.Observer) {
		o.ObserveInt64(used, pool.Used())
		o.ObserveInt64(limit, pool.Limit())
		n, bad := 0, 0
		for _, l := range b.Lanes() {
			s := l.State()
			n += s.Waiting
			if !s.Failing.IsZero() {
				bad++
			}
		}
		o.ObserveInt64(waiting, int64(n))
		o.ObserveInt64(failing, int64(bad))
	}
}

// observer makes instruments that are read on demand, and keeps the first error.
type observer struct {
	metric.Meter
	all []metric.Observable
	err error
}

func (x *observer) counter(name, description string) metric.Int64ObservableCounter {
	c, err := x.Int64ObservableCounter(name, metric.WithDescription(description))
	x.note(c, err)
	return c
}

func (x *observer) gauge(name, description string) metric.Int64ObservableGauge {
	g, err := x.Int64ObservableGauge(name, metric.WithDescription(description))
	x.note(g, err)
	return g
}

func (x *observer) note(o metric.Observable, err error) {
	x.all = append(x.all, o)
	if x.err == nil {
		x.err = err
	}
}
