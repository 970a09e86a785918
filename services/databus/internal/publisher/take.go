package publisher

import (
	"context"
	"iter"
	"slices"
	"time"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/murmur2"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/routing"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/lane"
)

// take hands each message to its batch, or notes why not. The request's bytes are reserved; those of refused messages go back.
func (a *active) take(ctx context.Context, r *Request, out *Pending, now time.Time) {
	out.buffered = a.plan.Durability == databusv1.Durability_DURABILITY_BUFFERED
	nowMillis := now.UnixMilli()
	accepted := 0
	for i := range r.Messages {
		m := &r.Messages[i]
		s := &out.slots[i]
		bytes := held(int64(m.Size()), 1)
		if s.timestamp = nowMillis; m.HasTimestamp {
			s.timestamp = m.TimestampMillis
		}
		err := a.one(ctx, r, m, s, out, now, bytes)
		if err == nil && s.batch != nil {
			accepted++
			continue
		}
		a.release(bytes)
		if err != nil {
			s.err = err
			a.live.stats.refuse(err, 1)
		} else {
			a.live.stats.repeated.Add(1)
		}
	}
	a.live.stats.accepted.Add(int64(accepted))
}

// one takes one message, unless its id was seen before.
func (a *active) one(ctx context.Context, r *Request, m *wirejson.Message, s *slot, out *Pending, now time.Time, bytes int64) *errs.Error {
	if err := a.check(m); err != nil {
		return err
	}
	record := batcher.Record{Timestamp: s.timestamp, Trace: r.Trace, Bytes: bytes}
	if m.ID == "" || a.live.ids == nil || a.plan.Idempotency <= 0 {
		return a.direct(ctx, r, m, s, out, now, &record)
	}
	mine, err := a.claim(m, s)
	if s.claim != nil {
		out.until = now.Add(a.patience())
	}
	if err != nil || mine == nil {
		return err
	}
	record.Claim = mine
	if err := a.direct(ctx, r, m, s, out, now, &record); err != nil {
		a.live.ids.Abandon(mine)
		return err
	}
	return nil
}

// direct sends a message the channel's way, or its lane's.
func (a *active) direct(ctx context.Context, r *Request, m *wirejson.Message, s *slot, out *Pending, now time.Time, record *batcher.Record) *errs.Error {
	name, tagged := laneOf(m, r)
	if name == "" {
		return a.place(ctx, r, m, s, out, now, record, "")
	}
	if err := lane.Check(name); err != nil {
		return errs.New(errs.Invalid, "BAD_LANE", "channel %q", a.live.name).WithField("headers").
			WithNext("name a lane by 1 to 64 of letters, digits, '_' and '-'").Wrap(err)
	}
	if !tagged { // from here on the message itself says so, to consumers too
		m.Headers = append(slices.Clip(m.Headers), recordbatch.RecordHeader{Key: lane.Header, Value: []byte(name)})
	}
	if !a.plan.LaneTopics {
		return a.place(ctx, r, m, s, out, now, record, name)
	}
	return a.aside(ctx, r, m, s, out, now, record, name)
}

// laneOf is a message's lane: its own, or that of the request's baggage. tagged says that its header names it.
func laneOf(m *wirejson.Message, r *Request) (name string, tagged bool) {
	if len(m.Headers) > 0 {
		if name, inBaggage := lane.Of(m.Headers); name != "" {
			return name, !inBaggage
		}
	}
	if len(r.Headers) > 0 {
		name, _ = lane.Of(r.Headers)
	}
	return name, false
}

// place routes a message and adds it to its batch. With a lane that is not the channel's own way, the topic is the lane's.
func (a *active) place(ctx context.Context, r *Request, m *wirejson.Message, s *slot, out *Pending, now time.Time, record *batcher.Record, ln string) *errs.Error {
	key := m.Key
	if key == nil && a.plan.KeyPath != nil && m.Value != nil && (r.JSON || wirejson.ValidJSON(m.Value) == nil) {
		key, _ = a.plan.KeyPath.Key(m.Value)
	}
	if key == nil && m.Value == nil {
		return errs.New(errs.Invalid, "TOMBSTONE_WITHOUT_KEY", "a message without value needs a key").
			WithField("value").WithNext("give a value, or the key of what the tombstone removes")
	}
	topic, err := a.route(ctx, m, key, now, ln)
	if err != nil {
		return err
	}
	partition, err := a.partition(topic, m, key)
	if err != nil {
		return err
	}
	if cause := topic.Lane(partition).Broken(now, a.plan.Batch.Deadline); cause != nil {
		return errs.New(errs.Unavailable, "BROKER_UNAVAILABLE", "the broker takes no appends to %s/%d", topic.Name(), partition).
			WithRetryAfter(time.Second).Wrap(cause)
	}
	record.Key, record.Value, record.Headers = key, m.Value, out.headers(m.Headers, r.Headers)
	s.topic = topic.Name()
	s.batch, s.index = topic.Append(now, partition, record)
	return nil
}

// check looks at what holds for the message alone.
func (a *active) check(m *wirejson.Message) *errs.Error {
	if err := m.Check(); err != nil {
		return err
	}
	if size := m.Size(); size > a.plan.MaxMessageBytes {
		return errs.New(errs.TooLarge, "MESSAGE_TOO_LARGE", "a message of %d bytes is past the limit of channel %q, %d bytes",
			size, a.live.name, a.plan.MaxMessageBytes).WithNext("send less, or raise limits.maxMessageBytes")
	}
	return nil
}

// route finds the message's topic.
func (a *active) route(ctx context.Context, m *wirejson.Message, key []byte, now time.Time, ln string) (*batcher.Topic, *errs.Error) {
	if t := a.fixed.Load(); t != nil {
		return t, nil
	}
	name, fixed := a.plan.Routes.Fixed()
	if !fixed {
		msg := routing.Message{Headers: pairs(m.Headers), Key: key, Lane: ln, Channel: a.live.root().name, JSON: m.Value}
		var ok bool
		var failed error
		if name, ok, failed = a.plan.Routes.Pick(&msg); !ok {
			err := errs.New(errs.Invalid, "NO_ROUTE", "no route of channel %q takes this message", a.live.name).
				WithNext("add a route without a rule, which takes what no other does")
			if failed != nil {
				return nil, err.Wrap(failed)
			}
			return nil, err
		}
	}
	if a.live.main != nil {
		return a.laneTopic(ctx, name, ln, now)
	}
	info, err := a.live.publisher.cfg.Topics.Resolve(ctx, name)
	if err != nil {
		return nil, errs.From(err)
	}
	t := a.gen.Topic(name, info.Partitions)
	if again, _ := a.live.publisher.cfg.Topics.Known(name); again.Partitions != t.Partitions() {
		a.live.publisher.TopicChanged(name) // the change was told before the generation knew the topic
	}
	if fixed {
		a.fixed.Store(t)
	}
	return t, nil
}

func pairs(headers []recordbatch.RecordHeader) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for i := range headers {
			if !yield(headers[i].Key, headers[i].Value) {
				return
			}
		}
	}
}

// partition picks the message's partition.
func (a *active) partition(t *batcher.Topic, m *wirejson.Message, key []byte) (int32, *errs.Error) {
	n := t.Partitions()
	switch a.plan.Strategy {
	case databusv1.PartitionStrategy_PARTITION_STRATEGY_STICKY:
		return t.Sticky(), nil
	case databusv1.PartitionStrategy_PARTITION_STRATEGY_EXPLICIT:
		if m.HasPartition {
			if m.Partition < 0 || m.Partition >= n {
				return 0, errs.New(errs.Invalid, "NO_SUCH_PARTITION", "topic %q has partitions 0 to %d, not %d", t.Name(), n-1, m.Partition).
					WithField("partition")
			}
			return m.Partition, nil
		}
	}
	if key == nil {
		return t.Sticky(), nil
	}
	return murmur2.Partition(key, n), nil
}

// broken is why none of the plan's lanes gets anything through, or nil where one does.
func (a *active) broken() error {
	var cause error
	for _, t := range a.gen.Topics() {
		for _, l := range t.Lanes() {
			s := l.State()
			if s.Waiting > 0 && s.Failing.IsZero() {
				return nil
			}
			if s.Cause != nil {
				cause = s.Cause
			}
		}
	}
	return cause
}

// circuit sums up how the plan's lanes fare: open while one fails, half open while it is being tried.
func (a *active) circuit() databusv1.CircuitState {
	state := databusv1.CircuitState_CIRCUIT_STATE_UNSPECIFIED
	for _, t := range a.gen.Topics() {
		if f := a.live.publisher.cfg.Relayed; f != nil && a.plan.Spooled() {
			if !f(t.Name()).Failing.IsZero() {
				return databusv1.CircuitState_CIRCUIT_STATE_OPEN
			}
		}
		for _, l := range t.Lanes() {
			s := l.State()
			switch {
			case !s.Failing.IsZero() && !s.Probing:
				return databusv1.CircuitState_CIRCUIT_STATE_OPEN
			case !s.Failing.IsZero():
				state = databusv1.CircuitState_CIRCUIT_STATE_HALF_OPEN
			case s.Used && state == databusv1.CircuitState_CIRCUIT_STATE_UNSPECIFIED:
				state = databusv1.CircuitState_CIRCUIT_STATE_CLOSED
			}
		}
	}
	return state
}
