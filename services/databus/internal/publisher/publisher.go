package publisher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/dedup"
	"github.com/databus-suite/databus/services/databus/internal/memory"
	"github.com/databus-suite/databus/services/databus/internal/relay"
	"github.com/databus-suite/databus/services/databus/internal/sender"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// recordOverhead is what a message costs in memory besides its bytes.
const recordOverhead = 64

// Topics tells how many partitions a topic has.
type Topics interface {
	Known(name string) (sender.Topic, bool)
	Resolve(ctx context.Context, name string) (sender.Topic, error)
	ResolveExpiring(ctx context.Context, name string, idle time.Duration) (sender.Topic, error)
	Forget(name string)
}

// Config of a Publisher.
type Config struct {
	Batcher *batcher.Batcher
	// Spooled is the batcher of channels whose level is SPOOLED, and Spool what is behind it. Nil: the agent has none.
	Spooled *batcher.Batcher
	Spool   *spool.Spool
	// Relayed tells how the sending of a topic's spooled batches fares.
	Relayed func(topic string) relay.State
	// IDs are remembered for idempotency. Nil: none are.
	IDs    *dedup.Store
	Topics Topics
	Memory *memory.Pool
	Logger *slog.Logger
	// Find looks for a channel that has no plan yet, and applies it, or says that there is none.
	Find func(ctx context.Context, name string) error
	// Measure gets every channel's events. Nil: nobody looks.
	Measure Measure
}

// Measure records what happens to batches; see the methods of batcher.Owner.
type Measure interface {
	Sealed(channel string, s batcher.Stats)
	Answered(channel string, messages int, waited time.Duration, err error)
}

// Publisher takes messages. All methods may run concurrently. Drain ends it.
type Publisher struct {
	cfg      Config
	channels sync.Map // name → *live
	closing  atomic.Bool
	retired  retired
}

// New returns a Publisher without channels.
func New(cfg Config) *Publisher { return &Publisher{cfg: cfg} }

// Request is messages for one channel.
type Request struct {
	Channel  string
	Messages []wirejson.Message
	// Headers are added to each message that has none of that name: trace context and baggage.
	Headers []recordbatch.RecordHeader
	// Trace is the W3C traceparent of the publish; empty where it is not traced.
	Trace string
	// JSON says that every value is known to be valid JSON.
	JSON bool
}

// Publish hands in messages and waits until each has reached the durability that its channel promises. The error is for the
// request as a whole: no message was taken. Otherwise the results of out are in the messages' order.
func (p *Publisher) Publish(ctx context.Context, r *Request, out *Pending) error {
	if err := p.Enqueue(ctx, r, out); err != nil {
		return err
	}
	return out.Wait(ctx)
}

// Enqueue is Publish without the wait. When it returns, the messages were copied and have their place in line: what is
// enqueued later comes later within a key.
func (p *Publisher) Enqueue(ctx context.Context, r *Request, out *Pending) error {
	out.reset(len(r.Messages))
	now := time.Now()
	size := int64(0)
	for i := range r.Messages {
		size += int64(r.Messages[i].Size())
	}
	for {
		l, err := p.live(ctx, r.Channel)
		if err != nil {
			return err
		}
		a := l.active.Load()
		if err := p.admit(ctx, l, a, now, len(r.Messages), size); err != nil {
			l.stats.refuse(err, len(r.Messages))
			return err
		}
		if a.gen.Enter() {
			a.take(ctx, r, out, now)
			a.gen.Leave()
			return nil
		}
		// A newer plan came in between, or the channel went away.
		a.release(held(size, len(r.Messages)))
	}
}

// live finds a channel, if need be by asking.
func (p *Publisher) live(ctx context.Context, name string) (*live, error) {
	if l, ok := p.channels.Load(name); ok {
		return l.(*live), nil
	}
	if err := p.cfg.Find(ctx, name); err != nil {
		return nil, err
	}
	if l, ok := p.channels.Load(name); ok {
		return l.(*live), nil
	}
	return nil, errs.New(errs.Unavailable, "CHANNEL_NOT_READY", "channel %q exists, but this agent cannot run its config", name).
		WithRetryAfter(time.Second).WithNext("see databus channel status %s", name)
}

// held is what a request counts for in memory.
func held(size int64, messages int) int64 { return size + int64(messages)*recordOverhead }

// admit decides about the request as a whole. After nil its bytes are reserved.
func (p *Publisher) admit(ctx context.Context, l *live, a *active, now time.Time, messages int, size int64) error {
	plan := a.plan
	if p.closing.Load() {
		return errs.New(errs.Unavailable, "AGENT_STOPPING", "the agent is stopping").WithRetryAfter(time.Second)
	}
	if plan.Paused {
		return errs.New(errs.Unavailable, "CHANNEL_PAUSED", "channel %q is paused", l.name).WithRetryAfter(5*time.Second).
			WithNext("resume it: databus channel update %s --set paused=false", l.name)
	}
	if plan.Spooled() && l.spool == nil {
		return errs.New(errs.Precondition, "NO_SPOOL", "channel %q promises SPOOLED, and this agent has no spool", l.name).
			WithNext("give the agent a data_dir, or use durability DURABLE or BUFFERED")
	}
	if wait := l.limits.take(now, messages, size); wait > 0 {
		return errs.New(errs.Exhausted, "RATE_LIMITED", "channel %q is past its rate limit on this agent", l.name).WithRetryAfter(wait)
	}
	err := l.share.Reserve(held(size, messages))
	if err == nil && plan.Spooled() {
		return l.reserveSpool(ctx, held(size, messages))
	}
	if err == nil {
		return nil
	}
	return p.full(l, a, held(size, messages), err)
}

// full says why there is no room: the producer is too fast, or the broker is away.
func (p *Publisher) full(l *live, a *active, need int64, err error) error {
	if need > l.share.Limit() {
		return errs.New(errs.TooLarge, "REQUEST_TOO_LARGE", "channel %q: a request of %d bytes does not fit its bound of %d",
			l.name, need, l.share.Limit()).WithNext("send fewer messages in one request, or raise limits.maxPendingBytes")
	}
	if cause := a.broken(); cause != nil {
		return errs.New(errs.Unavailable, "BROKER_UNAVAILABLE", "channel %q: the broker does not take appends and the memory for them is full",
			l.name).WithRetryAfter(time.Second).Wrap(cause)
	}
	if errors.Is(err, memory.ErrFull) {
		return errs.New(errs.Exhausted, "MEMORY_FULL", "the agent holds as much as it may (%d bytes)", p.cfg.Memory.Limit()).
			WithRetryAfter(time.Second)
	}
	return errs.New(errs.Exhausted, "CHANNEL_FULL", "channel %q holds as much of the agent's memory as it may", l.name).
		WithRetryAfter(time.Second)
}
