package log

import (
	"fmt"
	"maps"
	"math"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// window is how many batches of a producer are remembered, as Kafka's: more than a producer may have in flight.
const window = 5

// producerBatch is what is remembered of one batch of an idempotent producer.
type producerBatch struct {
	firstSeq, lastSeq int32
	base, last        int64 // offsets
}

// producer is the state of one producer id. A value is never changed once it is in a table, so that a snapshot
// of a table is a copy of its pointers and taking an append back is putting the old pointer there again.
type producer struct {
	epoch   int16
	n       int8
	batches [window]producerBatch // the last n, oldest first
	seen    int64                 // milliseconds
}

// producers is the table of one partition.
type producers map[int64]*producer

// undo is what takes one change back.
type undo struct {
	id  int64
	old *producer
}

func lastSequence(first, count int32) int32 {
	if first > math.MaxInt32-(count-1) {
		return count - 1 - (math.MaxInt32 - first) - 1
	}
	return first + count - 1
}

func nextSequence(last int32) int32 {
	if last == math.MaxInt32 {
		return 0
	}
	return last + 1
}

// check applies Kafka's rules to a batch. dup is the batch that it repeats, if it repeats one.
func (t producers) check(h recordbatch.Header) (dup *producerBatch, err error) {
	if h.ProducerID < 0 {
		return nil, nil
	}
	p := t[h.ProducerID]
	if p == nil {
		return nil, nil // unknown, or forgotten: its first batch is taken as it comes
	}
	switch {
	case h.ProducerEpoch < p.epoch:
		return nil, fmt.Errorf("%w: producer %d has epoch %d, the batch %d", ErrProducerFenced, h.ProducerID, p.epoch, h.ProducerEpoch)
	case h.ProducerEpoch > p.epoch:
		if h.BaseSequence != 0 {
			return nil, fmt.Errorf("%w: producer %d begins epoch %d with %d", ErrOutOfOrderSequence, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
		}
		return nil, nil
	}
	last := lastSequence(h.BaseSequence, h.Count)
	for i := range p.batches[:p.n] {
		if b := &p.batches[i]; b.firstSeq == h.BaseSequence && b.lastSeq == last {
			return b, nil
		}
	}
	if p.n == 0 {
		return nil, nil
	}
	if want := nextSequence(p.batches[p.n-1].lastSeq); h.BaseSequence != want {
		return nil, fmt.Errorf("%w: producer %d sent %d where %d is next", ErrOutOfOrderSequence, h.ProducerID, h.BaseSequence, want)
	}
	return nil, nil
}

// apply remembers a batch that has its offset and returns how to take that back.
func (t producers) apply(h recordbatch.Header, now int64) (undo, bool) {
	if h.ProducerID < 0 || h.IsControl() {
		return undo{}, false
	}
	old := t[h.ProducerID]
	p := &producer{epoch: h.ProducerEpoch, seen: now}
	if old != nil && old.epoch == h.ProducerEpoch {
		*p = *old
		p.seen = now
	}
	if p.n == window {
		copy(p.batches[:], p.batches[1:])
		p.n--
	}
	p.batches[p.n] = producerBatch{firstSeq: h.BaseSequence, lastSeq: lastSequence(h.BaseSequence, max(h.Count, 1)),
		base: h.BaseOffset, last: h.LastOffset()}
	p.n++
	t[h.ProducerID] = p
	return undo{id: h.ProducerID, old: old}, true
}

func (t producers) takeBack(u undo) {
	if u.old == nil {
		delete(t, u.id)
		return
	}
	t[u.id] = u.old
}

// knows says whether the batch at this offset was applied before, as happens when a recovery reads what a
// checkpoint already covers.
func (t producers) knows(h recordbatch.Header) bool {
	p := t[h.ProducerID]
	if p == nil || p.n == 0 {
		return false
	}
	return p.batches[p.n-1].last >= h.LastOffset()
}

// expire forgets producers that were silent since before.
func (t producers) expire(before int64) {
	maps.DeleteFunc(t, func(_ int64, p *producer) bool { return p.seen < before })
}
