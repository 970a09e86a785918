package spool

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// Window is how many batches of a queue may be unanswered, or answered without that being on disk: as many as a broker
// remembers of a producer.
const Window = 5

// state of a batch in its queue.
type state uint8

const (
	stateQueued state = iota // no broker has seen it
	stateSent                // handed out at least once
	stateAcked
	stateDropped
)

func (s state) done() bool { return s >= stateAcked }

// item is one batch in a queue. Guarded by the spool's lock.
type item struct {
	id      uint64
	created int64
	file    *file
	pos     int64
	size    int32 // in the file, with padding
	count   int32
	seq     int32 // set when it is handed out
	state   state
	stage   int32
	queue   *Queue
	channel *Channel
	era     *era
}

// era is a run of a channel's batches of the same layout. A key may have another topic or partition in the next era, so none of
// that is handed out before all of this one is acknowledged.
type era struct {
	layout int32
	live   int
	queues []*Queue // that have batches of it
}

// Queue is what the spool has for one partition, in order. One that Config.Ready or Spool.Waiting told of is valid while it has
// batches, and then until the next Ready; Spool.Queue's is for good. Next, Rewind, Forget
// and SetProducer must not run concurrently with each other; everything else may.
type Queue struct {
	spool *Spool
	place place

	// Guarded by the spool's lock.
	items    []*item // by id; a done one stays only while one before it is not
	next     int     // index in items of the next to hand out
	live     int     // not done
	state    mark    // as of the front of items
	nextSeq  int32   // for items[next]
	inFlight int     // handed out and not answered
	unsaved  int     // acknowledged since the newest mark on disk
	version  uint64  // changes by SetProducer and drops
	durable  uint64  // version on disk
	dropped  []span  // ids after through that are not to be sent, in order, a live batch between any two
	doneAt   uint64  // state.through when the spool was opened
	newest   uint32  // number of the newest file that holds one of its batches
	queued   bool    // in spool.dirty
	pinned   bool    // someone may hold it while it is empty
}

// Item is a batch that was handed out.
type Item struct {
	ID       uint64
	Channel  string
	Count    int32
	Sequence int32
	Batch    []byte // the caller's own, stamped with producer and sequence
}

// ErrProducer means that the queue needs a producer id before it can hand out anything; see SetProducer.
var ErrProducer = errors.New("no producer id yet")

// Topic by name.
func (q *Queue) Topic() string { return q.place.topic }

// Partition by number.
func (q *Queue) Partition() int32 { return q.place.partition }

// disposableLocked says whether the spool may forget an empty queue: nothing on disk needs its state, and a new producer is as good.
func (q *Queue) disposableLocked(oldest uint32) bool {
	return !q.spool.revenant && q.live == 0 && q.newest < oldest && !q.queued && q.inFlight == 0 && q.version == q.durable && q.unsaved == 0 && !q.pinned
}

// Len is how many batches are not done.
func (q *Queue) Len() int {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	return q.live
}

// Next hands out the next batch. ok is false where there is none now; Config.Ready is called when that may have changed. The
// error is ErrProducer, or why the batch could not be read: ErrDamaged, after which the next one can be asked for, or one of the
// file system, after which the same one is tried again.
func (q *Queue) Next() (it Item, ok bool, err error) {
	s := q.spool
	s.mu.Lock()
	x := q.peekLocked()
	if x == nil {
		s.mu.Unlock()
		return Item{}, false, nil
	}
	if q.state.producerID < 0 {
		flying := q.inFlight > 0
		s.mu.Unlock()
		if flying {
			return Item{}, false, nil // until it is answered
		}
		return Item{}, false, fmt.Errorf("send what is spooled for %s/%d: %w", q.place.topic, q.place.partition, ErrProducer)
	}
	m, seq, f, pos := q.state, q.nextSeq, x.file, x.pos
	sentBefore := x.state == stateSent
	x.state = stateSent // before the lock is given up, so that it can not be shed while it is read
	f.refs++
	s.mu.Unlock()

	batch, err := f.readBatch(pos, int(x.size))

	s.mu.Lock()
	s.releaseLocked(f)
	if errors.Is(err, ErrDamaged) {
		if sentBefore {
			// The broker may have it under a sequence that must not be used for another one.
			q.state.producerID = -1
		}
		woken := q.dropLocked(x)
		x.channel.compactLocked()
		s.mu.Unlock()
		s.wake()
		s.dropped(x.channel.name, "damaged", int(x.count))
		s.ready(woken)
		return Item{}, false, fmt.Errorf("read batch %d of %s/%d: %w", x.id, q.place.topic, q.place.partition, err)
	}
	if err != nil {
		s.mu.Unlock()
		return Item{}, false, fmt.Errorf("read batch %d of %s/%d: %w", x.id, q.place.topic, q.place.partition, err)
	}
	x.seq = seq
	q.next++
	q.inFlight++
	q.nextSeq = nextSequence(seq, x.count)
	s.mu.Unlock()
	recordbatch.SetProducer(batch, m.producerID, m.epoch, seq)
	return Item{ID: x.id, Channel: x.channel.name, Count: x.count, Sequence: seq, Batch: batch}, true, nil
}

// peekLocked is the next batch that may be handed out.
func (q *Queue) peekLocked() *item {
	for ; q.next < len(q.items) && q.items[q.next].state.done(); q.next++ {
		q.nextSeq = nextSequence(q.items[q.next].seq, q.items[q.next].count)
	}
	if q.next == len(q.items) {
		return nil
	}
	if q.version != q.durable {
		// Batches that were dropped, or a new producer: what follows from that must not be seen before that is on disk.
		q.dirtyLocked(true)
		return nil
	}
	if q.inFlight+q.unsaved >= Window {
		if q.unsaved > 0 {
			q.dirtyLocked(true)
		}
		return nil
	}
	if x := q.items[q.next]; x.era == x.channel.eras[0] && !x.channel.heldLocked(x.stage) {
		return x
	}
	return nil
}

// readyLocked says whether Config.Ready is due.
func (q *Queue) readyLocked() bool {
	return q.live > 0 && q.next < len(q.items)
}

// Acked says that the broker has made a batch that was handed out durable.
func (q *Queue) Acked(id uint64) {
	s := q.spool
	s.mu.Lock()
	x := q.find(id)
	if x == nil || x.state.done() {
		s.mu.Unlock()
		return
	}
	q.inFlight = max(0, q.inFlight-1)
	q.unsaved++
	woken := q.finishLocked(x, stateAcked)
	x.channel.compactLocked()
	q.dirtyLocked(q.unsaved >= Window/2 && q.live > 0)
	ready := q.readyLocked()
	s.mu.Unlock()
	if ready {
		s.cfg.Ready(q)
	}
	s.ready(woken)
}

// Refused says that the broker will never take a batch. It is dropped and counted; those behind it are kept. The sender lets
// what is in flight be answered and then calls Rewind.
func (q *Queue) Refused(id uint64) {
	s := q.spool
	s.mu.Lock()
	x := q.find(id)
	if x == nil || x.state.done() {
		s.mu.Unlock()
		return
	}
	q.inFlight = max(0, q.inFlight-1)
	woken := q.dropLocked(x)
	x.channel.compactLocked()
	s.mu.Unlock()
	s.wake()
	s.dropped(x.channel.name, "refused", int(x.count))
	s.ready(woken)
}

// Rewind makes Next begin again at the oldest batch that is not done, with the sequences of the first time.
func (q *Queue) Rewind() {
	q.spool.mu.Lock()
	q.rewindLocked()
	ready := q.readyLocked()
	q.spool.mu.Unlock()
	if ready {
		q.spool.cfg.Ready(q)
	}
}

func (q *Queue) rewindLocked() {
	q.next, q.inFlight, q.nextSeq = 0, 0, q.state.seq
}

// SetProducer gives the queue a producer whose sequences start at 0, and rewinds it. It is for a queue that has none, and for one
// whose producer the broker does not know any more. Nothing may be in flight.
func (q *Queue) SetProducer(id int64, epoch int16) {
	s := q.spool
	s.mu.Lock()
	q.state.producerID, q.state.epoch, q.state.seq = id, epoch, 0
	q.rewindLocked()
	q.version++
	q.dirtyLocked(true)
	s.mu.Unlock()
}

// Forget makes the queue ask for a new producer, because the broker does not know the one it has. Nothing may be in flight.
func (q *Queue) Forget() {
	q.spool.mu.Lock()
	q.state.producerID = -1
	q.rewindLocked()
	ready := q.readyLocked()
	q.spool.mu.Unlock()
	if ready {
		q.spool.cfg.Ready(q)
	}
}

// Producer is the producer that the queue sends as; -1: none yet.
func (q *Queue) Producer() (id int64, epoch int16) {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	return q.state.producerID, q.state.epoch
}

// index is where the batch with this id is in items, or where it would be.
func (q *Queue) index(id uint64) (int, bool) {
	return slices.BinarySearchFunc(q.items, id, func(x *item, id uint64) int { return cmp.Compare(x.id, id) })
}

func (q *Queue) find(id uint64) *item {
	if i, ok := q.index(id); ok {
		return q.items[i]
	}
	return nil
}

// pushLocked appends a batch that is durable now.
func (q *Queue) pushLocked(x *item, layout int32) {
	ch := x.channel
	if n := len(ch.eras); n == 0 || ch.eras[n-1].layout != layout {
		ch.eras = append(ch.eras, &era{layout: layout})
	}
	x.era = ch.eras[len(ch.eras)-1]
	x.era.live++
	if !slices.Contains(x.era.queues, q) {
		x.era.queues = append(x.era.queues, q)
	}
	x.queue = q
	x.file.live += int64(x.size)
	q.items = append(q.items, x)
	q.live++
	q.newest = max(q.newest, x.file.number)
	x.channel.addLocked(x)
}

// dropLocked takes a batch out that will not be sent, and returns the queues that may go on because of it. The caller wakes the
// committer.
func (q *Queue) dropLocked(x *item) []*Queue {
	i, _ := q.index(x.id)
	var before, after uint64
	if i > 0 {
		before = q.items[i-1].id
	}
	if after = math.MaxUint64; i+1 < len(q.items) {
		after = q.items[i+1].id
	}
	q.dropped = addSpan(q.dropped, x.id, before, after)
	q.items = removeAt(q.items, i)
	if i < q.next {
		q.next--
	}
	q.version++
	woken := q.finishLocked(x, stateDropped)
	q.dirtyLocked(false)
	return woken
}

// addSpan adds id to spans, widening those that no live batch (before and after are the next ones) parts from it.
func addSpan(spans []span, id, before, after uint64) []span {
	n := span{id, id}
	lo := 0
	for lo < len(spans) && spans[lo].to < before {
		lo++
	}
	hi := lo
	for hi < len(spans) && spans[hi].from < after {
		n.from, n.to = min(n.from, spans[hi].from), max(n.to, spans[hi].to)
		hi++
	}
	return slices.Replace(spans, lo, hi, n)
}

// removeAt removes one element, moving the shorter side: what is shed is near the front of a long queue.
func removeAt(items []*item, i int) []*item {
	if i < len(items)/2 {
		copy(items[1:], items[:i])
		items[0] = nil
		return items[1:]
	}
	return slices.Delete(items, i, i+1)
}

// finishLocked ends a batch's life and returns the queues that may go on because of it.
func (q *Queue) finishLocked(x *item, to state) (woken []*Queue) {
	x.state = to
	q.live--
	x.file.live -= int64(x.size)
	x.channel.removeLocked(x)
	for len(q.items) > 0 && q.items[0].state.done() {
		first := q.items[0]
		q.state.seq = nextSequence(first.seq, first.count)
		q.state.through = first.id
		q.items[0] = nil
		q.items = q.items[1:]
		q.next = max(0, q.next-1)
	}
	if len(q.items) == 0 {
		q.items = nil
	}
	for len(q.dropped) > 0 && q.dropped[0].to < q.state.through {
		q.dropped = q.dropped[1:]
	}
	if x.era.live--; x.era.live > 0 {
		return nil
	}
	ch := x.channel
	for len(ch.eras) > 0 && ch.eras[0].live == 0 {
		ch.eras[0] = nil
		if ch.eras = ch.eras[1:]; len(ch.eras) > 0 {
			woken = ch.eras[0].queues
		}
	}
	return woken
}

// dirtyLocked has the queue's state written with the next commit; now where someone waits for it.
func (q *Queue) dirtyLocked(now bool) {
	s := q.spool
	if !q.queued {
		q.queued = true
		s.dirty = append(s.dirty, q)
	}
	if now {
		s.wake()
	} else {
		s.lazy.Reset(s.cfg.MarkDelay)
	}
}

// Oldest is the id of the oldest batch that is not done; 0: none.
func (q *Queue) Oldest() uint64 {
	q.spool.mu.Lock()
	defer q.spool.mu.Unlock()
	if len(q.items) == 0 {
		return 0
	}
	return q.items[0].id
}
