package publisher

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/channel"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// apply takes over what of a plan has force at once. The channel's spool and ids are found before it is published to, and stay.
func (l *live) apply(plan *channel.Plan) {
	cfg := &l.publisher.cfg
	if l.main != nil {
		l.applyLanes(plan)
		return
	}
	l.share.SetLimit(plan.MaxPendingBytes)
	l.limits.set(plan)
	if cfg.Spool != nil {
		if l.spool == nil {
			l.spool = cfg.Spool.Channel(plan.Name)
		}
		l.spool.SetLimit(plan.Spool)
	}
	if cfg.IDs != nil {
		ids := cfg.IDs.Channel(plan.Name, plan.Idempotency)
		if l.ids == nil {
			l.ids = ids
		}
	}
}

// generation begins the generation of a plan after those that came before, so that a key keeps its order when the level changes.
//
// What goes to the broker directly waits for all that came before, also for what is in the spool by then. What is spooled waits
// only for spooled batches that came before; it is answered once it is on disk, and the spool keeps it until the broker has
// answered for all that came before and went there directly.
func (l *live) generation(before []*batcher.Generation, plan *channel.Plan) *batcher.Generation {
	cfg := &l.publisher.cfg
	var direct, spooled *batcher.Generation // the last of each
	for _, g := range before {
		if g.Spooled() {
			spooled = g
		} else {
			direct = g
		}
	}
	o := l.publisher.options(plan)
	o.Layout = rand.Int32() // so that the spool tells it from the one before, also after a restart
	if !o.Spooled || l.spool == nil {
		last := direct
		var then func() <-chan struct{}
		if n := len(before); n > 0 {
			last = before[n-1]
		}
		if l.spool != nil && (spooled != nil || l.spool.Stats().Bytes > 0) {
			stage := l.spool.Stage()
			then = func() <-chan struct{} { return l.spool.Drained(stage) }
		}
		return cfg.Batcher.NewGeneration(last, l, o, then)
	}
	o.Stage = l.spool.NextStage()
	if direct != nil {
		stage := o.Stage
		l.spool.Hold(stage)
		go func() {
			<-direct.Drained()
			l.spool.Unhold(stage)
		}()
	}
	return cfg.Spooled.NewGeneration(spooled, l, o, nil)
}

// reserveSpool takes room in the spool. Where there is none, the memory is given back.
func (l *live) reserveSpool(ctx context.Context, n int64) error {
	err := l.spool.Reserve(ctx, n)
	if err == nil {
		return nil
	}
	l.share.Release(n)
	switch {
	case errors.Is(err, spool.ErrFull):
		return errs.New(errs.Unavailable, "SPOOL_FULL", "channel %q has as much in this agent's spool as it may", l.name).
			WithRetryAfter(time.Second).WithNext("wait until the broker takes appends, or raise spool.maxBytes").Wrap(err)
	case errors.Is(err, spool.ErrTooLarge):
		return errs.New(errs.TooLarge, "REQUEST_TOO_LARGE", "channel %q: the request does not fit its spool", l.name).
			WithNext("send fewer messages in one request, or raise spool.maxBytes").Wrap(err)
	case errors.Is(err, spool.ErrClosed):
		return errs.New(errs.Unavailable, "AGENT_STOPPING", "the agent is stopping").WithRetryAfter(time.Second)
	}
	return errs.From(err)
}

// release gives back what admit reserved for messages that were not taken.
func (a *active) release(n int64) {
	a.live.share.Release(n)
	if a.plan.Spooled() && a.live.spool != nil {
		a.live.spool.Release(n)
	}
}

func (l *live) spooled() spool.Stats {
	if l.spool == nil {
		return spool.Stats{}
	}
	return l.spool.Stats()
}
