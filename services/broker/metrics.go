package broker

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/broker/internal/log"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

// metrics turns what the log tells into instruments. docs/metrics.md says what each means.
type metrics struct {
	meter metric.Meter
	err   error // the first that making an instrument met

	appendedMessages, appendedBytes, fetchedBytes, slowSyncs, dirErrors metric.Int64Counter
	appendSeconds, fetchSeconds, syncSeconds                            metric.Float64Histogram
	appendBytes, syncBytes                                              metric.Int64Histogram

	sets sync.Map // a label set's values → metric.MeasurementOption, so that the data path builds none
}

func newMetrics(t *telemetry.Telemetry) (*metrics, error) {
	m := &metrics{meter: t.Meter("databus/broker")}
	m.appendedMessages = m.counter("databus_broker_appended_messages_total", "Messages appended")
	m.appendedBytes = m.counter("databus_broker_appended_bytes_total", "Bytes of record batches appended")
	m.fetchedBytes = m.counter("databus_broker_fetched_bytes_total", "Bytes of record batches read, by whether memory had them")
	m.slowSyncs = m.counter("databus_broker_slow_syncs_total", "Syncs that took longer than a second")
	m.dirErrors = m.counter("databus_broker_directory_errors_total", "Errors that fenced a data directory")
	m.appendSeconds = m.seconds("databus_broker_append_seconds", "Time from an append's arrival to its answer, by ack level")
	m.fetchSeconds = m.seconds("databus_broker_fetch_seconds", "Time that a fetch took, its wait included")
	m.syncSeconds = m.seconds("databus_broker_sync_seconds", "Time that a flush to disk took")
	m.appendBytes = m.sizes("databus_broker_append_bytes", "Size of appends")
	m.syncBytes = m.sizes("databus_broker_sync_bytes", "Bytes that one flush made durable")
	if m.err != nil {
		return nil, fmt.Errorf("register metrics: %w", m.err)
	}
	return m, nil
}

func (m *metrics) keep(err error) {
	if m.err == nil {
		m.err = err
	}
}

func (m *metrics) counter(name, help string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithDescription(help))
	m.keep(err)
	return c
}

func (m *metrics) seconds(name, help string) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10))
	m.keep(err)
	return h
}

func (m *metrics) sizes(name, help string) metric.Int64Histogram {
	h, err := m.meter.Int64Histogram(name, metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(256, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20, 64<<20))
	m.keep(err)
	return h
}

func (m *metrics) gauge(all *[]metric.Observable, name, help string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithDescription(help))
	m.keep(err)
	*all = append(*all, g)
	return g
}

// labels returns the option for a label with a value, and for a second one where it has a name.
func (m *metrics) labels(name, value, name2, value2 string) metric.MeasurementOption {
	key := [4]string{name, value, name2, value2}
	if o, ok := m.sets.Load(key); ok {
		return o.(metric.MeasurementOption)
	}
	attrs := []attribute.KeyValue{attribute.String(name, value)}
	if name2 != "" {
		attrs = append(attrs, attribute.String(name2, value2))
	}
	o := metric.WithAttributeSet(attribute.NewSet(attrs...))
	m.sets.Store(key, o)
	return o
}

// observer is what the log calls.
func (m *metrics) observer() log.Observer {
	ctx := context.Background()
	return log.Observer{
		Appended: func(topic string, _ int32, records, bytes int, level log.Level, took time.Duration) {
			o := m.labels("topic", topic, "ack", level.String())
			m.appendedMessages.Add(ctx, int64(records), o)
			m.appendedBytes.Add(ctx, int64(bytes), o)
			m.appendSeconds.Record(ctx, took.Seconds(), o)
			m.appendBytes.Record(ctx, int64(bytes), o)
		},
		Fetched: func(topic string, _ int32, bytes int, cached bool, took time.Duration) {
			source := "disk"
			if cached {
				source = "memory"
			}
			o := m.labels("topic", topic, "source", source)
			m.fetchedBytes.Add(ctx, int64(bytes), o)
			m.fetchSeconds.Record(ctx, took.Seconds(), o)
		},
		Synced: func(dir string, kind log.SyncKind, _, bytes int, took time.Duration) {
			o := m.labels("directory", dir, "kind", string(kind))
			m.syncSeconds.Record(ctx, took.Seconds(), o)
			m.syncBytes.Record(ctx, int64(bytes), o)
		},
		SlowSync: func(dir string, _ time.Duration) { m.slowSyncs.Add(ctx, 1, m.labels("directory", dir, "", "")) },
		DirError: func(dir string, _ error) { m.dirErrors.Add(ctx, 1, m.labels("directory", dir, "", "")) },
	}
}

// observe registers the gauges, which are read when somebody asks.
func (m *metrics) observe(topics *topic.Registry, l *log.Log) error {
	var all []metric.Observable
	start := m.gauge(&all, "databus_broker_log_start_offset", "First offset of a partition that can be read")
	high := m.gauge(&all, "databus_broker_high_watermark", "One past a partition's last offset that can be read")
	size := m.gauge(&all, "databus_broker_partition_bytes", "Bytes of a partition's segments")
	segments := m.gauge(&all, "databus_broker_partition_segments", "Segments of a partition")
	pending := m.gauge(&all, "databus_broker_partition_pending_bytes", "Bytes accepted and not yet written")
	free := m.gauge(&all, "databus_broker_directory_free_bytes", "Free bytes of a data directory's file system")
	healthy := m.gauge(&all, "databus_broker_directory_healthy", "1 where a data directory takes writes, else 0")
	if m.err != nil {
		return fmt.Errorf("register metrics: %w", m.err)
	}
	_, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		topics.Each(func(name string, index int32, p *log.Partition) {
			s, at := p.Stats(), m.labels("topic", name, "partition", strconv.Itoa(int(index)))
			o.ObserveInt64(start, s.LogStart, at)
			o.ObserveInt64(high, s.HighWatermark, at)
			o.ObserveInt64(size, s.Bytes, at)
			o.ObserveInt64(segments, int64(s.Segments), at)
			o.ObserveInt64(pending, s.PendingBytes, at)
		})
		for _, d := range l.Dirs() {
			at, ok := m.labels("directory", d.Path, "", ""), int64(1)
			if d.Err != nil {
				ok = 0
			}
			o.ObserveInt64(free, int64(d.Free), at) //nolint:gosec // no disk has 2^63 bytes
			o.ObserveInt64(healthy, ok, at)
		}
		return nil
	}, all...)
	if err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
