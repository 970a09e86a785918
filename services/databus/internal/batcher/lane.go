package batcher

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Lane is the way into one partition of one topic: what waits, and what is in flight. All methods may run concurrently; the
// sink takes and reports from any goroutine. It is closed with its Batcher.
type Lane struct {
	batcher *Batcher
	topic   string
	users   int          // sources; under the batcher's lock
	home    int32        // the partition that it is for
	at      atomic.Int32 // the one that it sends to: another one where its own is gone

	mu     sync.Mutex
	open   []*source // sources whose open batch is not due yet
	held   queue     // due batches of sources whose generation waits for the one before
	due    queue     // batches to send, in order; the last of each source may still grow
	flight []*Batch  // taken and not resolved, in the order of their sequences

	queued atomic.Int64 // bytes in due and flight, for the sticky partitioner
	end    atomic.Int64 // offset after the last batch known to be in the log, plus one; 0: not known
	broken atomic.Int64 // Unix nanoseconds since when nothing got through; 0 while all is well

	want        int32 // the partition to send to once flight does not stand in the way
	gone        bool  // the broker has no such partition
	outstanding int   // batches of flight whose answer is awaited
	signalled   bool  // the sink knows
	recovering  bool  // wait for every outstanding answer, then send flight again from its start
	backingOff  bool  // until the timer fires

	producer bool // the three below are in force
	id       int64
	epoch    int16
	next     int32
	taken    int64 // batches that were given a sequence so far

	failures int   // in a row
	cause    error // the last failure
}

// SetEnd tells where the partition ends, so that a batch of doubtful fate need not be looked for from its begin.
func (l *Lane) SetEnd(offset int64) { l.end.CompareAndSwap(0, offset+1) }

// Topic by name.
func (l *Lane) Topic() string { return l.topic }

// Partition that it sends to, by number.
func (l *Lane) Partition() int32 { return l.at.Load() }

// Resize tells how many partitions the topic has, and reports whether the lane sends to another one from now on. Where its own is
// gone, since the topic was made again with fewer, it takes the place of that number modulo the new one: all of it, so that its keys
// keep their order, and where the key's hash leads now if the new number divides the old. It moves only while nothing of it can be in
// the log: nothing is in flight, or the broker said that there is no such partition.
func (l *Lane) Resize(partitions int32) (moved bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.want = l.home; l.home >= partitions {
		l.want = l.home % partitions
	}
	if l.want == l.at.Load() || l.outstanding > 0 || len(l.flight) > 0 && !l.gone {
		return false
	}
	l.at.Store(l.want)
	l.end.Store(0)
	l.gone, l.producer = false, false
	return true
}

// State is how a lane fares.
type State struct {
	Waiting int       // batches that wait or are in flight
	Probing bool      // a batch is in flight
	Failing time.Time // since when nothing got through; zero while all is well
	Used    bool      // something was sent, ever
	Cause   error     // the last failure
}

// State reads how the lane fares.
func (l *Lane) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{Waiting: l.due.len() + l.held.len() + len(l.flight), Probing: l.outstanding > 0,
		Used: l.producer || l.cause != nil, Cause: l.cause}
	if ns := l.broken.Load(); ns != 0 {
		s.Failing = time.Unix(0, ns)
	}
	return s
}

// empty says that nothing is under way.
func (l *Lane) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)+l.held.len()+l.due.len()+len(l.flight) == 0
}

// enqueue makes a batch due. The caller holds the lock.
func (l *Lane) enqueue(b *Batch) {
	b.queued = true
	l.queued.Add(b.bytes)
	l.due.push(b)
}

// ready reports whether the sink must be told, and notes that it was. The caller holds the lock and tells it after unlocking.
func (l *Lane) ready() bool {
	if l.signalled || l.recovering || l.backingOff {
		return false
	}
	resend := len(l.flight) > l.outstanding
	if !resend && (l.due.len() == 0 || l.full()) {
		return false
	}
	l.signalled = true
	return true
}

// Take returns the next batch to send, or nil when there is nothing to send now; then Ready is called again once there is.
// needProducer asks the sink to call SetProducer and to take again.
func (l *Lane) Take() (b *Batch, needProducer bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.recovering || l.backingOff {
		l.signalled = false
		return nil, false
	}
	b = l.unsent()
	if b == nil && (l.due.len() == 0 || l.full()) {
		l.signalled = false
		return nil, false
	}
	if !l.producer {
		return nil, true // nothing is outstanding: the identity is dropped only then
	}
	if b == nil {
		b = l.due.pop()
		b.close(FillLinger)
		b.producerID, b.epoch, b.sequence, b.stamped = l.id, l.epoch, l.next, false
		l.next = after(l.next, b.count)
		l.taken++
		b.ordinal = l.taken
		l.flight = append(l.flight, b)
	}
	b.outstanding = true
	b.sends++
	l.outstanding++
	return b, false
}

// full tells that nothing may follow what is in flight. The window counts from the oldest batch without an answer, whatever
// was answered after it: that one may be in the log already, and the broker recognises a repeat only among its last few. A lane
// that is to send to another partition waits for all of it.
// The caller holds the lock.
func (l *Lane) full() bool {
	return len(l.flight) > 0 && (l.taken-l.flight[0].ordinal >= Window-1 || l.want != l.at.Load())
}

// unsent is the first batch in flight that must be sent again. The caller holds the lock.
func (l *Lane) unsent() *Batch {
	if len(l.flight) == l.outstanding {
		return nil
	}
	for _, b := range l.flight {
		if !b.outstanding {
			return b
		}
	}
	return nil
}

// SetProducer gives the lane a producer id that nobody else has. What is in flight gets new sequences from 0: the broker has
// said of all of it that it is not in the log.
func (l *Lane) SetProducer(id int64, epoch int16) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.id, l.epoch, l.next, l.producer = id, epoch, 0, true
	for _, b := range l.flight {
		b.producerID, b.epoch, b.sequence, b.stamped = id, epoch, l.next, false
		l.next = after(l.next, b.count)
	}
}

// after is the sequence that follows count records from seq on; like Kafka's it wraps to 0.
func after(seq int32, count int) int32 {
	return int32((int64(seq) + int64(count)) & math.MaxInt32)
}

// queue is a FIFO of batches that reuses its memory.
type queue struct {
	items []*Batch
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(b *Batch) {
	if q.head > 32 && q.head*2 >= len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, b)
}

func (q *queue) pop() *Batch {
	b := q.items[q.head]
	q.items[q.head] = nil
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return b
}

// filter keeps the batches that keep says, in order.
func (q *queue) filter(keep func(*Batch) bool) {
	kept := q.items[:0]
	for _, b := range q.items[q.head:] {
		if keep(b) {
			kept = append(kept, b)
		}
	}
	clear(q.items[len(kept):])
	q.items, q.head = kept, 0
}
