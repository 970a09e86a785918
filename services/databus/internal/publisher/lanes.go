package publisher

import (
	"context"
	"errors"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/channel"
	"github.com/databus-suite/databus/services/databus/internal/lane"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

const (
	// lanesSuffix makes the name of a channel's lanes' part; no channel has a '/' in its name.
	lanesSuffix = "/lanes"
	// lanesPart is the part of a channel's bounds that its lanes have for themselves.
	lanesPart = 4
	// laneWait bounds how long a lane's first message waits for its topic, and with it those of its request.
	laneWait = 2 * time.Second
)

// root is the channel of a channel or of its lanes' part.
func (l *live) root() *live {
	if l.main != nil {
		return l.main
	}
	return l
}

// side is the lanes' part of a channel: with generations, memory and room in the spool of its own, so that lanes which get nothing
// through hold up nobody else. It is made when it is first needed.
func (l *live) side() *live {
	if s := l.lanes.Load(); s != nil {
		return s
	}
	p := l.publisher
	p.retired.mu.Lock()
	defer p.retired.mu.Unlock()
	if s := l.lanes.Load(); s != nil {
		return s
	}
	plan := l.active.Load().plan
	s := &live{publisher: p, name: l.name + lanesSuffix, main: l, share: p.cfg.Memory.NewShare(0)}
	s.apply(plan)
	s.active.Store(&active{live: s, plan: plan, gen: s.generation(p.retired.gens[s.name], plan)})
	l.lanes.Store(s)
	return s
}

// applyLanes is apply for the lanes' part.
func (l *live) applyLanes(plan *channel.Plan) {
	cfg := &l.publisher.cfg
	l.share.SetLimit(l.main.share.Limit() / lanesPart)
	if cfg.Spool != nil {
		l.spool = cfg.Spool.Channel(l.name)
		// Never blocking: a lane must not hold up the other messages of its request.
		l.spool.SetLimit(spool.Limit{Bytes: plan.Spool.Bytes / lanesPart, Policy: spool.Reject})
	}
	l.ids = l.main.ids
}

// aside sends a message to its lane's own topic. On success the channel's own reservation is given back.
func (a *active) aside(ctx context.Context, r *Request, m *wirejson.Message, s *slot, out *Pending, now time.Time, record *batcher.Record, name string) *errs.Error {
	l := a.live.side()
	b := l.active.Load()
	for !b.gen.Enter() {
		next := l.active.Load()
		if next == b {
			return errs.New(errs.Unavailable, "CHANNEL_CHANGED", "channel %q was removed", a.live.name).WithRetryAfter(time.Second)
		}
		b = next
	}
	defer b.gen.Leave()
	if err := l.share.Reserve(record.Bytes); err != nil {
		return errs.New(errs.Exhausted, "LANES_FULL", "the lanes of channel %q hold as much of the agent's memory as they may", a.live.name).
			WithRetryAfter(time.Second).Wrap(err)
	}
	if b.plan.Spooled() && l.spool != nil {
		if err := l.reserveSpool(ctx, record.Bytes); err != nil {
			return errs.From(err)
		}
	}
	if err := b.place(ctx, r, m, s, out, now, record, name); err != nil {
		b.release(record.Bytes)
		return err
	}
	a.release(record.Bytes)
	return nil
}

// laneTopic is the generation's way into a lane's topic, which is made where it is missing.
func (a *active) laneTopic(ctx context.Context, base, name string, now time.Time) (*batcher.Topic, *errs.Error) {
	full, err := lane.Topic(base, name)
	if err != nil {
		return nil, errs.New(errs.Invalid, "BAD_LANE", "channel %q", a.live.main.name).WithField("headers").
			WithNext("use a shorter lane").Wrap(err)
	}
	err = a.live.used.Use(full, now, a.plan.MaxLanes, a.plan.LaneExpiry, a.forget)
	if errors.Is(err, lane.ErrTooMany) {
		return nil, errs.New(errs.Exhausted, "TOO_MANY_LANES", "channel %q", a.live.main.name).WithRetryAfter(time.Minute).
			WithNext("reuse lanes, or raise lanes.maxTopics").Wrap(err)
	}
	ctx, cancel := context.WithTimeout(ctx, laneWait)
	defer cancel()
	info, err := a.live.publisher.cfg.Topics.ResolveExpiring(ctx, full, a.plan.LaneExpiry)
	if err != nil {
		return nil, errs.New(errs.Unavailable, "LANE_TOPIC", "topic %s of lane %q", full, name).WithRetryAfter(time.Second).Wrap(err)
	}
	return a.gen.Topic(full, info.Partitions), nil
}

// forget drops what is known of an idle lane's topic, unless something is on its way there.
func (a *active) forget(topic string) bool {
	if !a.gen.Forget(topic) {
		return false
	}
	a.live.publisher.cfg.Topics.Forget(topic)
	return true
}
