package publisher

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/channel"
	"github.com/databus-suite/databus/services/databus/internal/dedup"
	"github.com/databus-suite/databus/services/databus/internal/lane"
	"github.com/databus-suite/databus/services/databus/internal/memory"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// live is a channel that runs: what stays across its revisions.
type live struct {
	publisher *Publisher
	name      string
	share     *memory.Share
	limits    limits
	stats     stats
	spool     *spool.Channel       // nil: the agent has none
	ids       *dedup.Channel       // nil: the agent remembers none
	main      *live                // of the lanes' part of a channel: the channel
	lanes     atomic.Pointer[live] // of a channel whose lanes have topics: their part
	used      lane.Set             // topics of the lanes
	active    atomic.Pointer[active]
}

// active is a channel under one plan and one generation.
type active struct {
	live  *live
	plan  *channel.Plan
	gen   *batcher.Generation
	fixed atomic.Pointer[batcher.Topic] // of a plan with one topic for all
}

// The batcher's owner of this channel's batches.

func (l *live) Sealed(s batcher.Stats) {
	l.root().stats.sealed(s)
	if m := l.publisher.cfg.Measure; m != nil {
		m.Sealed(l.root().name, s)
	}
}

func (l *live) Answered(messages int, waited time.Duration, err error) {
	l.root().stats.answered(messages, waited, err)
	if m := l.publisher.cfg.Measure; m != nil {
		m.Answered(l.root().name, messages, waited, err)
	}
}

func (l *live) Resolved(bytes int64) { l.share.Release(bytes) }

// Name of the channel, for the spool.
func (l *live) Name() string { return l.name }

// Apply takes a plan into use. Messages of the plan before go out as they were routed; where the new plan may route a key
// elsewhere, its messages wait until those are answered. Calls of Apply, Remove and TopicChanged are serialised here.
func (p *Publisher) Apply(plan *channel.Plan) {
	p.retired.mu.Lock()
	defer p.retired.mu.Unlock()
	x, ok := p.channels.Load(plan.Name)
	if !ok {
		l := &live{publisher: p, name: plan.Name, share: p.cfg.Memory.NewShare(plan.MaxPendingBytes)}
		l.apply(plan)
		// A channel that was deleted and made again goes on behind what its predecessor has not sent yet.
		gen := l.generation(p.retired.gens[plan.Name], plan)
		l.active.Store(&active{live: l, plan: plan, gen: gen})
		p.channels.Store(plan.Name, l)
		return
	}
	l := x.(*live)
	l.follow(plan)
	if side := l.lanes.Load(); side != nil {
		side.follow(plan)
	}
}

// follow takes a newer plan into use.
func (l *live) follow(plan *channel.Plan) {
	old := l.active.Load()
	l.apply(plan)
	if channel.SameRouting(old.plan, plan) {
		o := l.publisher.options(plan)
		o.Stage, o.Layout = old.gen.Options().Stage, old.gen.Options().Layout
		old.gen.SetOptions(o)
		next := &active{live: l, plan: plan, gen: old.gen}
		next.fixed.Store(old.fixed.Load())
		l.active.Store(next)
		return
	}
	l.roll(old, plan)
}

// roll begins a new generation.
func (l *live) roll(old *active, plan *channel.Plan) {
	p := l.publisher
	p.retired.add(l.name, old.gen)
	gen := l.generation(p.retired.gens[l.name], plan)
	l.active.Store(&active{live: l, plan: plan, gen: gen})
	old.gen.Retire()
}

// options are the plan's, within what the broker takes of its topics.
func (p *Publisher) options(plan *channel.Plan) *batcher.Options {
	o := plan.Batch
	for _, name := range plan.Routes.Topics() {
		if t, ok := p.cfg.Topics.Known(name); ok {
			capBatch(&o, t.MaxBatchBytes)
		}
	}
	return &o
}

// capBatch keeps a batch below what the broker takes; its header and incompressible records count too.
func capBatch(o *batcher.Options, limit int32) {
	if limit > 0 {
		o.MaxBytes = min(o.MaxBytes, max(int(limit)-1024, 1))
	}
}

// Remove ends a channel; what it has taken is still sent.
func (p *Publisher) Remove(name string) {
	p.retired.mu.Lock()
	defer p.retired.mu.Unlock()
	x, ok := p.channels.LoadAndDelete(name)
	if !ok {
		return
	}
	l := x.(*live)
	for _, part := range []*live{l, l.lanes.Load()} {
		if part != nil {
			gen := part.active.Load().gen
			p.retired.add(part.name, gen)
			gen.Retire()
		}
	}
}

// each calls fn for every channel, and for its lanes' part.
func (p *Publisher) each(fn func(*live)) {
	p.channels.Range(func(_, x any) bool {
		l := x.(*live)
		fn(l)
		if side := l.lanes.Load(); side != nil {
			fn(side)
		}
		return true
	})
}

// TopicChanged begins a new generation of every channel that sends to a topic whose partitions changed, and lets the others
// follow its limits.
func (p *Publisher) TopicChanged(name string) {
	p.retired.mu.Lock()
	defer p.retired.mu.Unlock()
	now, _ := p.cfg.Topics.Known(name)
	p.each(func(l *live) {
		a := l.active.Load()
		for _, t := range a.gen.Topics() {
			if t.Name() != name {
				continue
			}
			if t.Partitions() != now.Partitions {
				l.roll(a, a.plan)
			} else {
				o := p.options(a.plan)
				o.Stage, o.Layout = a.gen.Options().Stage, a.gen.Options().Layout
				a.gen.SetOptions(o)
			}
		}
	})
}

// retired is the generations that no longer take messages and may still send some.
type retired struct {
	mu   sync.Mutex
	gens map[string][]*batcher.Generation
}

func (r *retired) add(name string, g *batcher.Generation) {
	if r.gens == nil {
		r.gens = make(map[string][]*batcher.Generation)
	}
	r.prune()
	r.gens[name] = append(r.gens[name], g)
}

func (r *retired) prune() {
	for name, list := range r.gens {
		for len(list) > 0 && drained(list[0]) {
			list = list[1:]
		}
		if r.gens[name] = list; len(list) == 0 {
			delete(r.gens, name)
		}
	}
}

func drained(g *batcher.Generation) bool {
	select {
	case <-g.Drained():
		return true
	default:
		return false
	}
}

// Hurry sends everything that was taken, and from now on what is taken, without a linger.
func (p *Publisher) Hurry() {
	if p.cfg.Spooled != nil {
		p.cfg.Spooled.Hurry()
	}
	p.cfg.Batcher.Hurry()
	p.channels.Range(func(_, x any) bool {
		x.(*live).active.Load().gen.Flush()
		return true
	})
}

// Drain stops taking messages, sends all that was taken, and waits until it is answered, or ctx ends.
func (p *Publisher) Drain(ctx context.Context) error {
	p.closing.Store(true)
	p.retired.mu.Lock()
	var all []*batcher.Generation
	for _, list := range p.retired.gens {
		all = append(all, list...)
	}
	p.each(func(l *live) { all = append(all, l.active.Load().gen) })
	p.retired.mu.Unlock()
	var spooled, direct []*batcher.Generation
	for _, g := range all {
		if g.Spooled() {
			spooled = append(spooled, g)
		} else {
			direct = append(direct, g)
		}
	}
	if p.cfg.Spooled != nil {
		if err := p.cfg.Spooled.Drain(ctx, spooled); err != nil {
			return err
		}
	}
	return p.cfg.Batcher.Drain(ctx, direct)
}

// Reports tell how each channel fares.
func (p *Publisher) Reports() []*databusv1.ChannelReport {
	var out []*databusv1.ChannelReport
	now := time.Now()
	p.channels.Range(func(_, x any) bool {
		l := x.(*live)
		a := l.active.Load()
		r := l.stats.report(now)
		r.Channel, r.Revision, r.PendingBytes, r.SpoolBytes, r.Circuit = l.name, a.plan.Revision, l.share.Used(), l.spooled().Bytes, a.circuit()
		for _, t := range a.gen.Topics() {
			r.Topics = append(r.Topics, &databusv1.TopicReport{Topic: t.Name(), Partitions: t.Partitions()})
		}
		slices.SortFunc(r.Topics, func(x, y *databusv1.TopicReport) int { return cmp.Compare(x.Topic, y.Topic) })
		out = append(out, r)
		return true
	})
	return out
}
