package channel

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/natskv"
)

const (
	bucketName = "channels"
	// historySize is how many revisions of a channel are kept, the most that a NATS bucket keeps.
	historySize = 64
)

// Config of a Registry.
type Config struct {
	Conn     *natskv.Conn
	Logger   *slog.Logger
	Replicas int              // of the metadata bucket
	Now      func() time.Time // nil: time.Now
}

// Registry knows every channel. All methods may run concurrently. It needs no Close: Run and watches end with their contexts.
//
// What it returns is shared and must not be changed. Errors are errs: NotFound CHANNEL_NOT_FOUND or REVISION_NOT_FOUND,
// AlreadyExists CHANNEL_EXISTS, Invalid with the field, Conflict where another change came first, Precondition, Unavailable
// while the metadata store is away.
type Registry struct {
	cfg      Config
	bucket   *natskv.Bucket[storedState]
	validate *validator
	agents   *agents

	mu       sync.RWMutex
	channels map[string]*state // deleted ones too, for their last revision
	watchers map[*watcher]struct{}
}

// Open reads the channels.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	v, err := newValidator()
	if err != nil {
		return nil, err
	}
	bucket, err := natskv.OpenBucket(ctx, cfg.Conn, natskv.BucketConfig{Name: bucketName, History: historySize, Replicas: cfg.Replicas}, natskv.JSON[storedState]())
	if err != nil {
		return nil, err
	}
	r := &Registry{
		cfg: cfg, bucket: bucket, validate: v, agents: newAgents(cfg.Now),
		channels: map[string]*state{}, watchers: map[*watcher]struct{}{},
	}
	entries, err := bucket.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		s, err := load(e.Value, e.Revision)
		if err != nil {
			return nil, err
		}
		r.apply(s)
	}
	return r, nil
}

// Run follows changes that other processes make until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	for event := range r.bucket.Watch(ctx) {
		if event.Synced || event.Entry.Deleted && event.Err == nil {
			continue // we never delete a key: a deleted channel keeps its revision number
		}
		s, err := (*state)(nil), event.Err
		if err == nil {
			s, err = load(event.Entry.Value, event.Entry.Revision)
		}
		if err != nil {
			r.cfg.Logger.ErrorContext(ctx, "channel metadata", slog.Any("error", err))
			continue
		}
		r.apply(s)
	}
}

// apply takes a channel's newer state and tells the watchers.
func (r *Registry) apply(s *state) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.channels[s.name]; now != nil && now.written >= s.written {
		return
	}
	r.channels[s.name] = s
	for w := range r.watchers {
		w.mark(s.name)
	}
}

// lookup returns a channel's state, deleted or not; nil where there never was one.
func (r *Registry) lookup(name string) *state {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.channels[name]
}

func (r *Registry) get(name string) (*state, error) {
	s := r.lookup(name)
	if s == nil || s.deleted {
		return nil, errNotFound(name)
	}
	return s, nil
}

func errNotFound(name string) *errs.Error {
	return errs.New(errs.NotFound, "CHANNEL_NOT_FOUND", "channel %q does not exist", name).
		WithNext("create it: databus channel create %s, or POST /v1/channels", name)
}

// Get returns a channel.
func (r *Registry) Get(name string) (*databusv1.Channel, error) {
	s, err := r.get(name)
	if err != nil {
		return nil, err
	}
	return s.proto(), nil
}

// List returns at most limit channels whose names come after the one given, in the order of their names, and whether there
// are more.
func (r *Registry) List(after string, limit int) (page []*databusv1.Channel, more bool) {
	r.mu.RLock()
	all := make([]*state, 0, len(r.channels))
	for _, s := range r.channels {
		if !s.deleted && s.name > after {
			all = append(all, s)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(all, func(a, b *state) int { return strings.Compare(a.name, b.name) })
	if more = len(all) > limit; more {
		all = all[:limit]
	}
	for _, s := range all {
		page = append(page, s.proto())
	}
	return page, more
}
