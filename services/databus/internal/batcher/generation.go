package batcher

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Generation is a channel's batches under one routing: one set of routes, one key path, one partitioner, one number of
// partitions a topic. Within it a key always has the same lane, so lanes keep the key's order. The next generation may send
// the key elsewhere; it takes messages at once, but sends none before every batch of this one is answered.
//
// All methods may run concurrently. It is closed by its successor, or by Retire.
type Generation struct {
	batcher *Batcher
	owner   Owner
	opts    atomic.Pointer[Options]
	refs    atomic.Int64 // publishers inside, and batches not answered
	retired atomic.Bool

	mu      sync.Mutex
	topics  map[string]*Topic
	sources []*source
	held    bool
	drained chan struct{}
	once    sync.Once
}

// NewGeneration begins a generation after prev, which the caller retires once publishers find the new one. Nil prev: a
// channel's first. Where then is given, the generation also waits, after prev, until what that returns is closed.
func (b *Batcher) NewGeneration(prev *Generation, owner Owner, o *Options, then func() <-chan struct{}) *Generation {
	g := &Generation{batcher: b, owner: owner, topics: make(map[string]*Topic), drained: make(chan struct{})}
	g.opts.Store(o)
	if prev == nil && then == nil {
		return g
	}
	g.held = true
	g.hold() // it is not drained before it was let go
	go func() {
		if prev != nil {
			<-prev.drained
		}
		if then != nil {
			select {
			case <-then():
			case <-b.stop:
			}
		}
		g.release()
		g.Leave()
	}()
	return g
}

// Options of batches opened now.
func (g *Generation) Options() *Options { return g.opts.Load() }

// SetOptions changes what batches opened from now on are like.
func (g *Generation) SetOptions(o *Options) { g.opts.Store(o) }

// Spooled says whether its batches go to a spool. That never changes within a generation.
func (g *Generation) Spooled() bool { return g.opts.Load().Spooled }

// Enter lets a publisher in, or tells it that a newer generation is in force. Leave must follow.
func (g *Generation) Enter() bool {
	g.hold()
	if g.retired.Load() {
		g.Leave()
		return false
	}
	return true
}

// Leave lets a publisher out.
func (g *Generation) Leave() {
	if g.refs.Add(-1) == 0 && g.retired.Load() {
		g.once.Do(func() {
			close(g.drained)
			g.batcher.drop(g.all())
		})
	}
}

func (g *Generation) hold() { g.refs.Add(1) }

// Retire ends the generation: it takes no more messages and sends at once what it has.
func (g *Generation) Retire() {
	g.hold()
	g.retired.Store(true)
	g.Flush()
	g.Leave()
}

// Drained is closed once the generation is retired and every batch of it is answered.
func (g *Generation) Drained() <-chan struct{} { return g.drained }

// Flush makes every open batch due.
func (g *Generation) Flush() {
	for _, s := range g.all() {
		s.flush(FillFlush)
	}
}

func (g *Generation) all() []*source {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sources[:len(g.sources):len(g.sources)]
}

func (g *Generation) release() {
	g.mu.Lock()
	g.held = false
	sources := g.sources[:len(g.sources):len(g.sources)]
	g.mu.Unlock()
	for _, s := range sources {
		s.release()
	}
}

// Topic returns the generation's way into a topic. The number of partitions given first stays.
func (g *Generation) Topic(name string, partitions int32) *Topic {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.topics[name]
	if t == nil {
		t = &Topic{gen: g, name: name, sources: make([]atomic.Pointer[source], partitions)}
		t.sticky.Store(rand.Int32N(partitions))
		g.topics[name] = t
	}
	return t
}

// Topics lists the topics that the generation has been asked for.
func (g *Generation) Topics() []*Topic {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]*Topic, 0, len(g.topics))
	for _, t := range g.topics {
		out = append(out, t)
	}
	return out
}

// Forget drops what the generation knows of a topic, unless something of it is under way. A message that comes for it later finds it
// anew.
func (g *Generation) Forget(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.topics[name]
	if t == nil {
		return true
	}
	var left []*source
	idle := true
	for i := range t.sources {
		if s := t.sources[i].Load(); s != nil {
			idle = idle && s.leave()
			left = append(left, s)
		}
	}
	if !idle || t.underWay.Load() > 0 {
		for _, s := range left {
			s.rejoin()
		}
		return false
	}
	delete(g.topics, name)
	g.sources = slices.DeleteFunc(slices.Clone(g.sources), func(s *source) bool { return s.topic == t })
	g.batcher.drop(left)
	return true
}

// Topic is a generation's way into one topic. All methods may run concurrently; those that append need the caller to have
// entered the generation.
type Topic struct {
	gen     *Generation
	name    string
	sources []atomic.Pointer[source]
	sticky  atomic.Int32

	// For the adaptive mode.
	underWay atomic.Int64 // batches that are due and not resolved
	mu       sync.Mutex   // taken under a lane's lock, never the other way round
	waiting  []*source    // sources that opened a batch while others were under way
}

// Name of the topic.
func (t *Topic) Name() string { return t.name }

// Partitions is how many the generation counts.
func (t *Topic) Partitions() int32 { return int32(len(t.sources)) }

// Append adds a record to a partition's open batch and returns the batch and the record's place in it.
func (t *Topic) Append(now time.Time, partition int32, r *Record) (*Batch, int) {
	b, i := t.source(partition).append(now, r)
	for b == nil { // forgotten since the caller asked for it
		t = t.gen.Topic(t.name, t.Partitions())
		b, i = t.source(partition).append(now, r)
	}
	return b, i
}

// Lane is the way into one partition.
func (t *Topic) Lane(partition int32) *Lane { return t.source(partition).lane }

// Lanes lists the lanes that were used.
func (t *Topic) Lanes() []*Lane {
	var out []*Lane
	for i := range t.sources {
		if s := t.sources[i].Load(); s != nil {
			out = append(out, s.lane)
		}
	}
	return out
}

func (t *Topic) source(partition int32) *source {
	if s := t.sources[partition].Load(); s != nil {
		return s
	}
	g := t.gen
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := t.sources[partition].Load(); s != nil {
		return s
	}
	if g.topics[t.name] != t { // it was forgotten
		return &source{lane: &Lane{batcher: g.batcher, topic: t.name, home: partition}, gone: true}
	}
	s := &source{gen: g, topic: t, lane: g.batcher.lane(t.name, partition), held: g.held}
	t.sources[partition].Store(s)
	g.sources = append(g.sources, s)
	return s
}

// idle tells that no batch of the topic is under way, so that waiting for one would gain nothing. Otherwise it notes the
// source: its batch is due once that is so. One cycle for all partitions, rather than one for each, lets the broker make
// their batches durable with one flush. The caller holds the lane's lock.
func (t *Topic) idle(s *source, note bool) bool {
	if note && t.underWay.Load() > 0 {
		t.mu.Lock()
		t.waiting = append(t.waiting, s)
		t.mu.Unlock()
	}
	return t.underWay.Load() == 0 // looked at after the note, so that one of the two sees the other
}

// resolved notes that a batch is no longer under way; after the last one everything that gathered is due. No lock is held.
func (t *Topic) resolved() {
	if t.underWay.Add(-1) > 0 {
		return
	}
	t.mu.Lock()
	waiting := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	for _, s := range waiting {
		s.flush(FillIdle)
	}
}

// Sticky is the partition for messages without a key: the same until its batch is closed (KIP-480).
func (t *Topic) Sticky() int32 { return t.sticky.Load() }

// filled moves the sticky partition on: of two partitions picked by chance it takes the one with less waiting, so that a
// slow or dead partition gets little.
func (t *Topic) filled(partition int32) {
	n := int32(len(t.sources))
	if n == 1 || t.sticky.Load() != partition {
		return
	}
	a, b := rand.Int32N(n-1), rand.Int32N(n-1)
	if a >= partition {
		a++
	}
	if b >= partition {
		b++
	}
	if t.backlog(b) < t.backlog(a) {
		a = b
	}
	t.sticky.CompareAndSwap(partition, a)
}

func (t *Topic) backlog(partition int32) int64 {
	if s := t.sources[partition].Load(); s != nil {
		return s.lane.queued.Load()
	}
	return 0
}
