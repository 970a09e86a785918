package channel

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

const (
	askWithin   = 2 * time.Second        // longest that a publish waits to learn whether its channel exists
	forgetAfter = 500 * time.Millisecond // how long an unknown name is not asked for again
	maxUnknown  = 10_000                 // names remembered as unknown
)

// Config of a Store.
type Config struct {
	Client databusv1.ChannelServiceClient
	Agent  *databusv1.AgentInfo
	Path   string // file of the last good config; empty: none
	Logger *slog.Logger
	// Apply takes a plan into use, Remove a channel out of it. They are called one at a time.
	Apply  func(*Plan)
	Remove func(name string)
	// Report says how the channels fare.
	Report func() []*databusv1.ChannelReport
}

// Store knows the channels. All methods may run concurrently; Run keeps it up to date until its context ends.
type Store struct {
	cfg      Config
	compiler *Compiler
	group    singleflight.Group
	changed  chan struct{} // a plan changed: save and report

	mu       sync.Mutex
	channels map[string]*entry
	deletes  int64 // grows with each deletion, so that an answer from before one is not taken for news
	watches  int64 // grows with each watch
	unknown  map[string]time.Time
	synced   chan struct{}
	once     sync.Once
}

// entry is a channel as the control plane gave it.
type entry struct {
	channel *databusv1.Channel
	watch   int64  // the watch that last confirmed it
	err     string // why its revision does not run
	running int64  // the revision that does
}

// NewStore returns a store that runs the last good config, if there is a file of it.
func NewStore(cfg Config) (*Store, error) {
	compiler, err := NewCompiler()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, compiler: compiler, channels: make(map[string]*entry), unknown: make(map[string]time.Time),
		changed: make(chan struct{}, 1), synced: make(chan struct{})}
	for _, ch := range s.load() {
		s.put(ch)
	}
	return s, nil
}

// Synced is closed once the control plane has sent every channel.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Size is how many channels are known.
func (s *Store) Size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.channels)
}

// put takes a channel into use. The caller holds the lock, or is alone.
func (s *Store) put(ch *databusv1.Channel) {
	name := ch.GetName()
	e := s.channels[name]
	if e == nil {
		e = &entry{}
		s.channels[name] = e
	}
	delete(s.unknown, name)
	e.watch = s.watches
	if e.channel != nil && e.channel.GetRevision() == ch.GetRevision() && e.err == "" {
		e.channel = ch
		return
	}
	e.channel = ch
	plan, err := s.compiler.Compile(ch)
	if err != nil {
		e.err = err.Error()
		s.cfg.Logger.Error("channel config does not run here; the one before stays in force", slog.String("channel", name),
			slog.Int64("revision", ch.GetRevision()), slog.Int64("running", e.running), slog.Any("error", err))
	} else {
		e.err, e.running = "", ch.GetRevision()
		s.cfg.Apply(plan)
	}
	s.notify()
}

// remove takes a channel out of use. The caller holds the lock.
func (s *Store) remove(name string) {
	s.deletes++
	if s.channels[name] == nil {
		return
	}
	delete(s.channels, name)
	s.cfg.Remove(name)
	s.notify()
}

func (s *Store) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Find asks the control plane for a channel that no watch has brought yet, so that one that was made a moment ago can be
// published to. Concurrent callers share one question, and an unknown name is not asked for again at once.
// Errors: CHANNEL_NOT_FOUND; CONTROL_PLANE_UNAVAILABLE where nobody can tell.
func (s *Store) Find(ctx context.Context, name string) error {
	s.mu.Lock()
	at, unknown := s.unknown[name]
	s.mu.Unlock()
	if unknown && time.Since(at) < forgetAfter {
		return notFound(name)
	}
	answer := s.group.DoChan(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWithin)
		defer cancel()
		return nil, s.ask(ctx, name)
	})
	select {
	case r := <-answer:
		return r.Err
	case <-ctx.Done():
		return errs.From(context.Cause(ctx))
	}
}

func (s *Store) ask(ctx context.Context, name string) error {
	s.mu.Lock()
	deletes := s.deletes
	s.mu.Unlock()
	res, err := s.cfg.Client.GetChannel(ctx, &databusv1.GetChannelRequest{Channel: name})
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.channels[name]; ok {
		return nil // the watch was faster
	}
	switch errs.CodeOf(err) {
	case 0:
		if s.deletes == deletes {
			s.put(s.mine(res.GetChannel()))
			return nil
		}
		return notFound(name)
	case errs.NotFound, errs.Invalid:
		if len(s.unknown) >= maxUnknown {
			clear(s.unknown)
		}
		s.unknown[name] = time.Now()
		return notFound(name)
	}
	return errs.New(errs.Unavailable, "CONTROL_PLANE_UNAVAILABLE", "channel %q is not known here and the broker cannot be asked", name).
		WithRetryAfter(time.Second).WithNext("wait for the broker to come back, or check broker.grpc_addr in the agent's config").Wrap(err)
}

func notFound(name string) error {
	return errs.New(errs.NotFound, "CHANNEL_NOT_FOUND", "channel %q does not exist", name).
		WithNext("create it: databus channel create %s", name)
}

// mine is the channel as this agent runs it: the canary where its labels say so.
func (s *Store) mine(ch *databusv1.Channel) *databusv1.Channel {
	canary := ch.GetCanary()
	if canary == nil || len(canary.GetLabels()) == 0 {
		return ch
	}
	for k, v := range canary.GetLabels() {
		if s.cfg.Agent.GetLabels()[k] != v {
			return ch
		}
	}
	return &databusv1.Channel{Name: ch.GetName(), Config: canary.GetConfig(), Revision: canary.GetRevision(),
		CreateTime: ch.GetCreateTime(), UpdateTime: ch.GetUpdateTime()}
}

// Run watches, saves and reports until ctx ends.
func (s *Store) Run(ctx context.Context) {
	var work sync.WaitGroup
	work.Go(func() { s.watch(ctx) })
	work.Go(func() { s.follow(ctx) })
	work.Wait()
}
