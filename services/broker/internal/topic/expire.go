package topic

import (
	"context"
	"log/slog"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

// expireEvery is how exact an idle expiry is.
const expireEvery = time.Second

// idle is when a topic was last seen to grow.
type idle struct {
	id    [16]byte
	end   int64 // sum of its partitions' log ends
	since time.Time
}

// RunExpiry deletes the topics that nobody wrote to for as long as their config's idle expiry says, until ctx ends. How long a
// topic was idle is not stored: a restart of the broker begins to count anew.
func (r *Registry) RunExpiry(ctx context.Context) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	seen := map[string]idle{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.expire(ctx, time.Now(), seen)
		}
	}
}

// expire looks once; seen is what it knew the last time.
func (r *Registry) expire(ctx context.Context, now time.Time, seen map[string]idle) {
	expiring := map[string]*Topic{}
	r.mu.RLock()
	for name, t := range r.topics {
		if t.Config.GetIdleExpiry().AsDuration() > 0 && !t.deleting {
			expiring[name] = t
		}
	}
	r.mu.RUnlock()
	for name := range seen {
		if expiring[name] == nil {
			delete(seen, name)
		}
	}
	for name, t := range expiring {
		was, known := seen[name]
		end := t.end()
		if !known || was.id != t.ID || was.end != end {
			seen[name] = idle{t.ID, end, now}
			continue
		}
		after := t.Config.GetIdleExpiry().AsDuration()
		if now.Sub(was.since) < after {
			continue
		}
		deleted, err := r.deleteIdle(ctx, t, end)
		if err != nil {
			r.cfg.Logger.WarnContext(ctx, "an idle topic cannot be deleted yet", slog.String("topic", name), slog.Any("error", err))
		}
		if !deleted || err != nil {
			continue
		}
		r.cfg.Logger.InfoContext(ctx, "deleted an idle topic", slog.String("topic", name), slog.Duration("idle_expiry", after))
	}
}

// deleteIdle deletes a topic unless something was appended past end: an append that comes meanwhile is refused, retryably, or keeps
// the topic. It is never accepted and then deleted.
func (r *Registry) deleteIdle(ctx context.Context, t *Topic, end int64) (deleted bool, err error) {
	going, err := r.markIdle(ctx, t, end)
	if going == nil {
		return false, err
	}
	return true, r.finishDelete(ctx, going)
}

// markIdle marks a topic as one that is being deleted, while no partition of it can be opened or grow. Nil: it has grown.
func (r *Registry) markIdle(ctx context.Context, t *Topic, end int64) (going *Topic, err error) {
	t.opening.Lock()
	defer t.opening.Unlock()
	var sealed []*log.Partition
	defer func() {
		if going == nil {
			for _, p := range sealed {
				p.Unseal()
			}
		}
	}()
	for i := range t.open {
		p := t.open[i].Load()
		if p == nil {
			continue
		}
		_, _, own := p.Bounds()
		if !p.Seal(own) {
			return nil, nil
		}
		sealed = append(sealed, p)
		end -= own
	}
	if end != 0 {
		return nil, nil
	}
	return r.edit(ctx, "delete idle", t.Name, func(now *Topic) error {
		if now.ID != t.ID || now.Partitions != t.Partitions {
			return errs.New(errs.Conflict, "TOPIC_CONTENDED", "topic %q was changed", t.Name).WithRetryAfter(time.Second)
		}
		now.deleting = true
		return nil
	})
}

// end is the sum of the log ends of the topic's partitions.
func (t *Topic) end() (sum int64) {
	for i := range t.open {
		if p := t.open[i].Load(); p != nil {
			_, _, end := p.Bounds()
			sum += end
		}
	}
	return sum
}
