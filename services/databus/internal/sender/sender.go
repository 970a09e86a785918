package sender

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/databus-suite/databus/services/databus/internal/batcher"
)

// idleAfter is how long a topic without traffic keeps its stream.
const idleAfter = time.Minute

// Config of a Sender.
type Config struct {
	Conns     *Conns
	Topics    *Topics
	Logger    *slog.Logger
	Tracer    trace.Tracer  // nil: appends are not traced
	IdleAfter time.Duration // how long a topic without traffic keeps its stream; 0: a minute
}

// Sender is the batcher's sink. Ready may be called concurrently; Close ends every stream and is idempotent.
type Sender struct {
	cfg    Config
	ids    producers
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.RWMutex // taken before a stream's lock
	streams map[string]*stream
	closed  bool
}

// New returns a Sender without streams; each topic's is opened by its first batch.
func New(cfg Config) *Sender {
	if cfg.IdleAfter <= 0 {
		cfg.IdleAfter = idleAfter
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Sender{cfg: cfg, ids: producers{log: cfg.Conns.log()}, ctx: ctx, cancel: cancel, streams: make(map[string]*stream)}
}

// Ready puts the batcher's lane in its topic's line.
func (s *Sender) Ready(l *batcher.Lane) { s.Push(batched{l}) }

// Push puts a lane in its topic's line. The lane is not pushed again before its Next has returned nothing.
func (s *Sender) Push(l Lane) {
	s.mu.RLock()
	t := s.streams[l.Topic()]
	if t != nil {
		t.push(l) // under the lock, so that retire sees it
	}
	s.mu.RUnlock()
	if t == nil {
		s.start(l)
	}
}

// start puts a lane in the line of a topic that may have no stream yet.
func (s *Sender) start(l Lane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.streams[l.Topic()]
	if t == nil {
		if s.closed {
			return
		}
		t = newStream(s, l.Topic())
		s.streams[l.Topic()] = t
		s.work.Go(func() { t.run(s.ctx) })
	}
	t.push(l)
}

// Forget ends a topic's stream now, unless it has something to send.
func (s *Sender) Forget(topic string) {
	s.mu.RLock()
	t := s.streams[topic]
	s.mu.RUnlock()
	if t != nil {
		t.hasty.Store(true)
		t.wake()
	}
}

// retire ends a stream that has nothing to send; false where something came in between.
func (s *Sender) retire(t *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.waiting() {
		return false
	}
	delete(s.streams, t.topic)
	return true
}

// Streams is how many topics have a stream.
func (s *Sender) Streams() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.streams)
}

// Close ends the streams. What is in flight stays unanswered.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}
