package sender

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/protobuf/types/known/durationpb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/keep"
)

const (
	topicsEvery   = time.Second     // how soon a topic's new partitions are used
	resolveWithin = 5 * time.Second // longest that a first publish waits for its topic
)

// Topic is what the agent needs to know of a topic.
type Topic struct {
	ID            string `json:"id"`
	Partitions    int32  `json:"partitions"`
	MaxBatchBytes int32  `json:"max_batch_bytes,omitempty"` // 0: the broker's default
	// IdleExpiry after which the broker deletes the topic; 0: never. Where the topic is made again it gets that again.
	IdleExpiry time.Duration `json:"idle_expiry,omitempty"`
}

// TopicsConfig configures Topics.
type TopicsConfig struct {
	Client  brokerv1.TopicServiceClient
	Path    string // file that keeps what is known across restarts; empty: none
	Changed func(name string)
	Logger  *slog.Logger
}

// Topics knows the topics that the agent sends to. All methods may run concurrently; Run keeps it up to date.
type Topics struct {
	cfg    TopicsConfig
	group  singleflight.Group
	kick   chan struct{}
	mu     sync.RWMutex
	topics map[string]Topic
	absent map[string]bool // topics that the broker lacks although they are in use
}

// NewTopics reads what an earlier run knew, so that the agent can start while the broker is away.
func NewTopics(cfg TopicsConfig) *Topics {
	t := &Topics{cfg: cfg, topics: make(map[string]Topic), absent: make(map[string]bool), kick: make(chan struct{}, 1)}
	if cfg.Path == "" {
		return t
	}
	data, err := os.ReadFile(cfg.Path)
	if err == nil {
		err = json.Unmarshal(data, &t.topics)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		cfg.Logger.Warn("topic cache not read; the broker is asked instead", slog.String("file", cfg.Path), slog.Any("error", err))
	}
	for name, topic := range t.topics {
		if topic.Partitions < 1 {
			delete(t.topics, name)
		}
	}
	return t
}

// Known returns what is known of a topic without asking.
func (t *Topics) Known(name string) (Topic, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	topic, ok := t.topics[name]
	return topic, ok
}

// Resolve returns a topic, and makes it with the broker's defaults where it does not exist. Concurrent callers share one
// question to the broker.
func (t *Topics) Resolve(ctx context.Context, name string) (Topic, error) {
	return t.ResolveExpiring(ctx, name, 0)
}

// ResolveExpiring is Resolve; where it makes the topic, that is to go once nobody wrote to it for so long.
func (t *Topics) ResolveExpiring(ctx context.Context, name string, idle time.Duration) (Topic, error) {
	if topic, ok := t.Known(name); ok {
		return topic, nil
	}
	answer := t.group.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveWithin)
		defer cancel()
		return t.ask(ctx, name, idle)
	})
	select {
	case r := <-answer:
		if r.Err != nil {
			return Topic{}, r.Err
		}
		return r.Val.(Topic), nil
	case <-ctx.Done():
		return Topic{}, errs.From(context.Cause(ctx))
	}
}

func (t *Topics) ask(ctx context.Context, name string, idle time.Duration) (Topic, error) {
	for {
		got, err := t.cfg.Client.GetTopic(ctx, &brokerv1.GetTopicRequest{Topic: name})
		if err == nil {
			return t.learn(got.Topic), nil
		}
		if errs.CodeOf(err) != errs.NotFound {
			return Topic{}, errs.From(err)
		}
		req := &brokerv1.CreateTopicRequest{Name: name}
		if idle > 0 {
			req.Config = &brokerv1.TopicConfig{IdleExpiry: durationpb.New(idle)}
		}
		made, err := t.cfg.Client.CreateTopic(ctx, req)
		if err == nil {
			t.cfg.Logger.Info("topic created", slog.String("topic", name), slog.Any("partitions", made.Topic.GetPartitions()))
			return t.learn(made.Topic), nil
		}
		if errs.CodeOf(err) != errs.AlreadyExists {
			return Topic{}, errs.From(err)
		}
		// Somebody else made it in between: look again.
	}
}

func (t *Topics) learn(p *brokerv1.Topic) Topic {
	topic := Topic{ID: p.GetId(), Partitions: max(p.GetPartitions(), 1), MaxBatchBytes: p.GetConfig().GetMaxBatchBytes(),
		IdleExpiry: p.GetConfig().GetIdleExpiry().AsDuration()}
	t.mu.Lock()
	old, known := t.topics[p.GetName()]
	t.topics[p.GetName()] = topic
	delete(t.absent, p.GetName())
	t.mu.Unlock()
	if old == topic {
		return topic
	}
	t.save()
	if known && t.cfg.Changed != nil {
		t.cfg.Changed(p.GetName())
	}
	return topic
}

// save keeps what is known. A failure costs no more than a question after a restart.
func (t *Topics) save() {
	if t.cfg.Path == "" {
		return
	}
	t.mu.RLock()
	data, err := json.MarshalIndent(maps.Clone(t.topics), "", "  ")
	t.mu.RUnlock()
	if err == nil {
		err = keep.File(t.cfg.Path, data)
	}
	if err != nil {
		t.cfg.Logger.Warn("topic cache not written", slog.String("file", t.cfg.Path), slog.Any("error", err))
	}
}

// Forget drops what is known of a topic. It is asked for again when it is needed; on disk it goes with the next one that changes.
func (t *Topics) Forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.topics, name)
	delete(t.absent, name)
}

// Missing reports that the broker lacks a topic in use, or one of its partitions: Run makes it again, or learns what it is like now.
func (t *Topics) Missing(name string) {
	t.mu.Lock()
	t.absent[name] = true
	t.mu.Unlock()
	select {
	case t.kick <- struct{}{}:
	default:
	}
}

// Run looks for changed topics until ctx ends.
func (t *Topics) Run(ctx context.Context) {
	tick := time.NewTicker(topicsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.kick:
			t.remake(ctx)
		case <-tick.C:
			t.refresh(ctx)
		}
	}
}

// remake makes the topics again that were deleted while channels send to them.
func (t *Topics) remake(ctx context.Context) {
	t.mu.RLock()
	names := make([]string, 0, len(t.absent))
	for name := range t.absent {
		names = append(names, name)
	}
	t.mu.RUnlock()
	for _, name := range names {
		ctx, cancel := context.WithTimeout(ctx, resolveWithin)
		topic, _ := t.Known(name)
		if _, err := t.ask(ctx, name, topic.IdleExpiry); err != nil {
			t.cfg.Logger.Warn("topic not made again", slog.String("topic", name), slog.Any("error", err))
		}
		cancel()
	}
}

// refresh asks for all topics, page by page, and learns what changed of those in use.
func (t *Topics) refresh(ctx context.Context) {
	t.mu.RLock()
	inUse := len(t.topics)
	t.mu.RUnlock()
	if inUse == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	for token := ""; ; {
		page, err := t.cfg.Client.ListTopics(ctx, &brokerv1.ListTopicsRequest{PageToken: token})
		if err != nil {
			return // the broker is away: appends tell, and this tries again
		}
		for _, p := range page.Topics {
			if _, ok := t.Known(p.GetName()); ok {
				t.learn(p)
			}
		}
		if token = page.NextPageToken; token == "" {
			return
		}
	}
}
