package topic

import (
	"context"
	"log/slog"
	"time"
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
		if err := r.Delete(ctx, name); err != nil {
			r.cfg.Logger.WarnContext(ctx, "an idle topic cannot be deleted yet", slog.String("topic", name), slog.Any("error", err))
			continue
		}
		r.cfg.Logger.InfoContext(ctx, "deleted an idle topic", slog.String("topic", name), slog.Duration("idle_expiry", after))
	}
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
