package channel

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/natskv"
	"github.com/databus-suite/databus/services/broker/internal/mask"
)

// Create makes a channel; config may be nil. validateOnly checks and changes nothing.
func (r *Registry) Create(ctx context.Context, name string, config *databusv1.ChannelConfig, validateOnly bool) (*databusv1.Channel, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	config = cloneOrNew(config)
	mask.Prune(config)
	if err := r.validate.check(name, config); err != nil {
		return nil, err
	}
	return r.edit(ctx, "create", name, validateOnly, func(now *state) (*state, error) {
		if now != nil && !now.deleted {
			return nil, errs.New(errs.AlreadyExists, "CHANNEL_EXISTS", "channel %q exists, at revision %d", name, now.base.revision).
				WithField("name").WithNext("change it with PATCH /v1/channels/%s, or choose another name", name)
		}
		next := &state{name: name, created: r.now()}
		if now != nil {
			next.last = now.last
		}
		next.advance(config, next.created)
		return next, nil
	})
}

// Change describes an update.
type Change struct {
	Config       *databusv1.ChannelConfig
	Mask         *fieldmaskpb.FieldMask // absent: every field that Config has
	Revision     int64                  // that the change builds on; 0: whatever is newest
	CanaryLabels map[string]string      // present: only for the agents that carry them all
	ValidateOnly bool
}

// Update makes a new revision of what the mask names over the config in force. With canary labels the revision goes to the
// agents that carry them; a canary that there was is replaced by it. Without, it goes to all agents and ends a canary: two
// changes never run side by side unnoticed. A change that changes nothing makes no revision.
func (r *Registry) Update(ctx context.Context, name string, c Change) (*databusv1.Channel, error) {
	if err := checkLabels(c.CanaryLabels); err != nil {
		return nil, err
	}
	return r.edit(ctx, "update", name, c.ValidateOnly, func(now *state) (*state, error) {
		if now == nil || now.deleted {
			return nil, errNotFound(name)
		}
		if c.Revision != 0 && c.Revision != now.base.revision {
			return nil, errs.New(errs.Conflict, "REVISION_CONFLICT", "channel %q is at revision %d, the change builds on %d", name, now.base.revision, c.Revision).
				WithField("revision").WithNext("read the channel again and decide")
		}
		config := proto.CloneOf(now.base.config)
		if err := mask.Apply(config, cloneOrNew(c.Config), c.Mask); err != nil {
			return nil, err
		}
		if err := r.validate.check(name, config); err != nil {
			return nil, err
		}
		next := now.copy()
		if len(c.CanaryLabels) > 0 {
			next.advanceCanary(config, c.CanaryLabels, r.now())
			return next, nil
		}
		if now.canary == nil && proto.Equal(config, now.base.config) {
			return now, nil
		}
		next.advance(config, r.now())
		return next, nil
	})
}

// Rollback makes an earlier revision's config the newest again, for every agent: a canary ends.
func (r *Registry) Rollback(ctx context.Context, name string, revision int64) (*databusv1.Channel, error) {
	history, err := r.history(ctx, name)
	if err != nil {
		return nil, err
	}
	var config *databusv1.ChannelConfig
	for _, v := range history {
		if v.revision == revision {
			config = v.config
		}
	}
	if config == nil {
		return nil, errs.New(errs.NotFound, "REVISION_NOT_FOUND", "channel %q has no revision %d in its history", name, revision).
			WithField("revision").WithNext("use one that GET /v1/channels/%s:history lists; the last %d are kept", name, historySize)
	}
	// What was valid once may not be by the rules of a newer version of the product.
	if err := r.validate.check(name, config); err != nil {
		return nil, err
	}
	return r.edit(ctx, "roll back", name, false, func(now *state) (*state, error) {
		if now == nil || now.deleted {
			return nil, errNotFound(name)
		}
		next := now.copy()
		next.advance(config, r.now())
		return next, nil
	})
}

// Promote makes the canary's config that of every agent. It keeps the canary's revision, so that the agents which run it
// already notice nothing.
func (r *Registry) Promote(ctx context.Context, name string) (*databusv1.Channel, error) {
	return r.edit(ctx, "promote", name, false, func(now *state) (*state, error) {
		if now == nil || now.deleted {
			return nil, errNotFound(name)
		}
		if now.canary == nil {
			return nil, errs.New(errs.Precondition, "NO_CANARY", "channel %q has no canary", name).
				WithNext("make one: update the channel with canaryLabels")
		}
		next := now.copy()
		next.base, next.canary = now.canary.version, nil
		return next, nil
	})
}

// Delete removes a channel; its topics stay. Its last revision number stays too, for a channel made again by that name.
func (r *Registry) Delete(ctx context.Context, name string) error {
	_, err := r.edit(ctx, "delete", name, false, func(now *state) (*state, error) {
		if now == nil || now.deleted {
			return nil, errNotFound(name)
		}
		return &state{name: name, deleted: true, last: now.last}, nil
	})
	return err
}

func (s *state) copy() *state {
	next := *s
	return &next
}

func (s *state) advance(config *databusv1.ChannelConfig, at time.Time) {
	s.last++
	s.base, s.canary = version{revision: s.last, config: config, time: at}, nil
}

func (s *state) advanceCanary(config *databusv1.ChannelConfig, labels map[string]string, at time.Time) {
	s.last++
	s.canary = &canary{version: version{revision: s.last, config: config, time: at}, labels: labels}
}

// retries bounds a compare-and-set loop: past it somebody writes without pause, and the caller should know.
const retries = 16

// edit writes what change makes of a channel's state, by compare-and-set; a state returned as it was is not written.
func (r *Registry) edit(ctx context.Context, op, name string, validateOnly bool, change func(now *state) (*state, error)) (*databusv1.Channel, error) {
	for range retries {
		now := r.lookup(name)
		next, err := change(now)
		if err != nil {
			return nil, err
		}
		if next == now || validateOnly {
			return next.proto(), nil
		}
		next.written, err = r.write(ctx, next, now)
		if err == nil {
			r.apply(next)
			return next.proto(), nil
		}
		if reason := errs.From(err).Reason; reason != natskv.ReasonConflict && reason != natskv.ReasonExists {
			return nil, err
		}
		if err := r.refresh(ctx, name); err != nil {
			return nil, err
		}
	}
	return nil, errs.New(errs.Conflict, "CHANNEL_CONTENDED", "%s channel %q: others change it all the time", op, name).WithRetryAfter(time.Second)
}

func (r *Registry) write(ctx context.Context, next, now *state) (uint64, error) {
	value, err := next.store()
	if err != nil {
		return 0, err
	}
	if now == nil {
		return r.bucket.Create(ctx, next.name, value)
	}
	return r.bucket.Update(ctx, next.name, value, now.written)
}

// refresh reads a channel that another process changed.
func (r *Registry) refresh(ctx context.Context, name string) error {
	e, err := r.bucket.Get(ctx, name)
	if err != nil {
		return err
	}
	s, err := load(e.Value, e.Revision)
	if err != nil {
		return err
	}
	r.apply(s)
	return nil
}

func (r *Registry) now() time.Time { return r.cfg.Now().UTC().Truncate(time.Millisecond) }

func cloneOrNew(c *databusv1.ChannelConfig) *databusv1.ChannelConfig {
	if c == nil {
		return &databusv1.ChannelConfig{}
	}
	return proto.CloneOf(c)
}
