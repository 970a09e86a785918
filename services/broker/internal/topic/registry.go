package topic

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/natskv"
	"github.com/databus-suite/databus/services/broker/internal/log"
)

// Config of a Registry.
type Config struct {
	Conn              *natskv.Conn
	Log               *log.Log
	Logger            *slog.Logger
	DefaultPartitions int32 // of a topic that is made without a number; 0: 4
	Replicas          int   // of the metadata bucket
}

// DefaultPartitions is what a topic gets where neither its maker nor the broker's config says otherwise.
const DefaultPartitions = 4

// Registry knows every topic. All methods may run concurrently. It needs no Close: Run ends with its context, and the log
// and the connection belong to who made them.
//
// Errors are errs: NotFound TOPIC_NOT_FOUND, AlreadyExists TOPIC_EXISTS, Invalid with the field, Conflict, Unavailable
// while the metadata store is away.
type Registry struct {
	cfg    Config
	bucket *natskv.Bucket[stored]

	mu      sync.RWMutex
	topics  map[string]*Topic
	gone    map[string]uint64 // last revision of a topic that we deleted, until the watch has caught up with that
	changed chan struct{}     // closed at the next change
}

// Open reads the topics, finishes deletions that a crash cut short, and opens every partition.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	if cfg.DefaultPartitions == 0 {
		cfg.DefaultPartitions = DefaultPartitions
	}
	bucket, err := natskv.OpenBucket(ctx, cfg.Conn, natskv.BucketConfig{Name: "topics", Replicas: cfg.Replicas}, natskv.JSON[stored]())
	if err != nil {
		return nil, err
	}
	r := &Registry{cfg: cfg, bucket: bucket, topics: map[string]*Topic{}, gone: map[string]uint64{}, changed: make(chan struct{})}
	entries, err := bucket.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		t, err := load(e.Value, e.Revision)
		if err != nil {
			return nil, err
		}
		r.apply(t)
		if t.deleting {
			if err := r.finishDelete(ctx, t); err != nil {
				return nil, err
			}
			continue
		}
		r.openAll(ctx, t)
	}
	r.warnOrphans()
	return r, nil
}

// openAll opens a topic's partitions. One that cannot be opened does not stop the broker: it is tried again at each use, and
// its error is then the caller's.
func (r *Registry) openAll(ctx context.Context, t *Topic) {
	for i := range t.Partitions {
		if _, err := r.openPartition(ctx, t, i); err != nil {
			r.cfg.Logger.ErrorContext(ctx, "partition cannot be opened", slog.String("topic", t.Name), slog.Int("partition", int(i)), slog.Any("error", err))
		}
	}
}

// warnOrphans tells of data whose topic the metadata does not know. It is left alone: a metadata store that was lost is no
// reason to delete messages.
func (r *Registry) warnOrphans() {
	for _, found := range r.cfg.Log.Topics() {
		if t, ok := r.lookup(found.Name); !ok || t.ID != found.ID {
			r.cfg.Logger.Warn("the data directories hold a topic that the metadata does not know; it is left alone", slog.String("topic", found.Name))
		}
	}
}

// Run follows changes that other processes make until ctx ends.
func (r *Registry) Run(ctx context.Context) {
	for event := range r.bucket.Watch(ctx) {
		switch {
		case event.Err != nil:
			r.cfg.Logger.ErrorContext(ctx, "topic metadata", slog.Any("error", event.Err))
		case event.Synced:
		case event.Entry.Deleted:
			r.forget(event.Entry.Key, event.Entry.Revision, false)
		default:
			t, err := load(event.Entry.Value, event.Entry.Revision)
			if err != nil {
				r.cfg.Logger.ErrorContext(ctx, "topic metadata", slog.Any("error", err))
				continue
			}
			r.apply(t)
		}
	}
}

// apply takes a topic's newer revision and tells those who wait for changes.
func (r *Registry) apply(t *Topic) *Topic {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.topics[t.Name]
	if now != nil && now.revision >= t.revision {
		return now
	}
	if t.revision <= r.gone[t.Name] {
		return t // an echo from before the deletion
	}
	t.derive(now)
	r.topics[t.Name] = t
	for i := range t.open {
		if p := t.open[i].Load(); p != nil {
			p.SetConfig(t.settings)
		}
	}
	r.announce()
	return t
}

// forget drops a topic whose revision is below the one given. expectEcho: the watch has yet to tell of its last revisions,
// which must not bring it back.
func (r *Registry) forget(name string, revision uint64, expectEcho bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if expectEcho {
		r.gone[name] = revision - 1
	} else {
		delete(r.gone, name)
	}
	if now := r.topics[name]; now != nil && now.revision < revision {
		delete(r.topics, name)
		r.announce()
	}
}

func (r *Registry) announce() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// Changed returns a channel that is closed at the next change of any topic.
func (r *Registry) Changed() <-chan struct{} {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.changed
}

func (r *Registry) lookup(name string) (*Topic, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	t, ok := r.topics[name]
	return t, ok
}

// Get returns a topic.
func (r *Registry) Get(name string) (*Topic, error) {
	t, ok := r.lookup(name)
	if !ok || t.deleting {
		return nil, errNotFound(name)
	}
	return t, nil
}

// List returns at most limit topics whose names come after the one given, in the order of their names, and whether there
// are more.
func (r *Registry) List(after string, limit int) (page []*Topic, more bool) {
	r.mu.RLock()
	all := make([]*Topic, 0, len(r.topics))
	for _, t := range r.topics {
		if !t.deleting && t.Name > after {
			all = append(all, t)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
	if len(all) > limit {
		return all[:limit], true
	}
	return all, false
}

// Each calls f with every partition that is open.
func (r *Registry) Each(f func(name string, index int32, p *log.Partition)) {
	all, _ := r.List("", math.MaxInt)
	for _, t := range all {
		for i := range t.Partitions {
			if p := t.open[i].Load(); p != nil {
				f(t.Name, i, p)
			}
		}
	}
}

// Partition returns a topic and one of its partitions. It is on the data path: two map reads where the partition is open.
func (r *Registry) Partition(ctx context.Context, name string, index int32) (*Topic, *log.Partition, error) {
	t, err := r.Get(name)
	if err != nil {
		return nil, nil, err
	}
	if index < 0 || index >= t.Partitions {
		return nil, nil, errs.New(errs.NotFound, "PARTITION_NOT_FOUND", "topic %q has no partition %d", name, index).
			WithField("partition").WithNext("use 0 to %d", t.Partitions-1)
	}
	if p := t.open[index].Load(); p != nil {
		return t, p, nil
	}
	p, err := r.openPartition(ctx, t, index)
	return t, p, err
}

func (r *Registry) openPartition(ctx context.Context, t *Topic, index int32) (*log.Partition, error) {
	t.opening.Lock()
	defer t.opening.Unlock()
	if p := t.open[index].Load(); p != nil {
		return p, nil
	}
	// A deletion takes the same lock: a partition is never made again under a topic that is going.
	if now, ok := r.lookup(t.Name); !ok || now.deleting || now.ID != t.ID {
		return nil, errNotFound(t.Name)
	}
	p, err := r.cfg.Log.Ensure(ctx, t.Name, t.ID, index, t.settings)
	if err != nil {
		return nil, err
	}
	t.open[index].Store(p)
	return p, nil
}

// retries bounds a compare-and-set loop: past it somebody writes without pause, and the caller should know.
const retries = 16

func errContended(op, name string) *errs.Error {
	return errs.New(errs.Conflict, "TOPIC_CONTENDED", "%s topic %q: others change it all the time", op, name).WithRetryAfter(time.Second)
}
