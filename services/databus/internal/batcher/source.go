package batcher

import (
	"slices"
	"time"
)

// source is one channel's batches on one lane. The lane's lock guards it.
type source struct {
	gen   *Generation
	lane  *Lane
	topic *Topic
	open  *Batch // grows; nil where none does
	held  bool   // the generation before is not drained
	gone  bool   // the generation has forgotten its topic
}

// append adds a record and returns its batch and its place there; nil where the generation has forgotten the topic.
func (s *source) append(now time.Time, r *Record) (*Batch, int) {
	l := s.lane
	l.mu.Lock()
	if s.gone {
		l.mu.Unlock()
		return nil, 0
	}
	var full *Batch
	b := s.open
	if b != nil && b.builder.SizeAfter(r.Key, r.Value, r.Headers) > b.opts.MaxBytes {
		b.close(FillBytes)
		full, b = b, nil
	}
	fresh := b == nil
	if fresh {
		b = s.start(now)
	}
	i := b.count
	b.builder.Append(r.Timestamp, r.Key, r.Value, r.Headers)
	if r.Claim != nil {
		b.claims = append(b.claims, Claimed{Index: i, Timestamp: r.Timestamp, Claim: r.Claim})
	}
	b.count++
	b.bytes += r.Bytes
	if b.queued {
		l.queued.Add(r.Bytes)
	}
	if r.Trace != "" && len(b.traces) < MaxTraces && !slices.Contains(b.traces, r.Trace) {
		b.traces = append(b.traces, r.Trace)
	}
	if b.count >= b.opts.MaxMessages || b.builder.Size() >= b.opts.MaxBytes {
		fill := FillBytes
		if b.count >= b.opts.MaxMessages {
			fill = FillCount
		}
		b.close(fill)
		full = b
	} else if !b.due {
		s.schedule(b, fresh)
	}
	ready := l.ready()
	l.mu.Unlock()

	if ready {
		l.batcher.sink.Ready(l)
	}
	if full != nil {
		full.seal()
	}
	return b, i
}

// start opens a batch. The caller holds the lane's lock.
func (s *source) start(now time.Time) *Batch {
	o := s.gen.opts.Load()
	b := &Batch{lane: s.lane, source: s, opts: o, opened: now, done: make(chan struct{}), builder: s.lane.batcher.builder(o)}
	s.gen.hold()
	s.open = b
	s.lane.open = append(s.lane.open, s)
	return b
}

// schedule makes a batch due now, or sets its timer. The caller holds the lane's lock.
func (s *source) schedule(b *Batch, fresh bool) {
	l := s.lane
	switch {
	case b.opts.Linger <= 0:
		b.markDue(FillLinger)
	case s.gen.retired.Load() || l.batcher.flushing.Load():
		b.markDue(FillFlush)
	case b.opts.Adaptive && s.topic.idle(s, fresh):
		b.markDue(FillIdle)
	case fresh:
		l.batcher.timers.add(timer{at: b.opened.Add(b.opts.Linger), batch: b})
	}
}

// leave makes the source take nothing more, unless a batch of it is open.
func (s *source) leave() bool {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.gone = s.open == nil
	return s.gone
}

// rejoin undoes leave.
func (s *source) rejoin() {
	s.lane.mu.Lock()
	defer s.lane.mu.Unlock()
	s.gone = false
}

// markDue puts the batch in line; it goes on growing until it is full or taken. The caller holds the lane's lock.
func (b *Batch) markDue(fill Fill) {
	if b.due {
		return
	}
	b.due, b.fill = true, fill
	s := b.source
	s.topic.underWay.Add(1)
	if i := slices.Index(s.lane.open, s); i >= 0 {
		s.lane.open = slices.Delete(s.lane.open, i, i+1)
	}
	if s.held {
		s.lane.held.push(b)
		return
	}
	s.lane.enqueue(b)
}

// close ends the batch's growth. The caller holds the lane's lock.
func (b *Batch) close(fill Fill) {
	if b.sealed {
		return
	}
	b.sealed = true
	if b.due && fill != FillLinger {
		b.fill = fill // it filled up while it waited
	}
	b.markDue(fill)
	b.source.open = nil
	b.source.topic.filled(b.lane.home)
}

// lingered is the timer's call.
func (b *Batch) lingered(fill Fill) {
	l := b.lane
	l.mu.Lock()
	b.markDue(fill)
	ready := l.ready()
	l.mu.Unlock()
	if ready {
		l.batcher.sink.Ready(l)
	}
}

// flush makes the source's open batch due.
func (s *source) flush(fill Fill) {
	s.lane.mu.Lock()
	b := s.open
	if b == nil {
		s.lane.mu.Unlock()
		return
	}
	b.markDue(fill)
	ready := s.lane.ready()
	s.lane.mu.Unlock()
	if ready {
		s.lane.batcher.sink.Ready(s.lane)
	}
}

// release lets go what was held.
func (s *source) release() {
	l := s.lane
	l.mu.Lock()
	s.held = false
	l.held.filter(func(b *Batch) bool {
		if b.source == s {
			l.enqueue(b)
		}
		return b.source != s
	})
	ready := l.ready()
	l.mu.Unlock()
	if ready {
		l.batcher.sink.Ready(l)
	}
}
