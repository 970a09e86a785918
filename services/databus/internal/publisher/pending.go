package publisher

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/dedup"
)

// Pending is a request's messages on their way. It belongs to one goroutine; Get and Put reuse it.
type Pending struct {
	slots    []slot
	buffered bool // its results do not wait for the broker
	scratch  []recordbatch.RecordHeader
	results  []wirejson.Result
	until    time.Time // how long the first messages of repeats are waited for
}

// slot is one message: in a batch, or refused.
type slot struct {
	topic     string
	batch     *batcher.Batch
	index     int
	timestamp int64
	err       *errs.Error
	first     *dedup.Result // of the first message with the same id
	claim     *dedup.Claim  // of that message, while it is not answered
}

var pool = sync.Pool{New: func() any { return new(Pending) }}

// Get returns an empty Pending.
func Get() *Pending { return pool.Get().(*Pending) }

// Put takes a Pending back. Its results must not be looked at any more.
func (p *Pending) Put() {
	p.Reset()
	if cap(p.slots) <= 4096 {
		pool.Put(p)
	}
}

// Reset forgets what the Pending held and keeps its memory.
func (p *Pending) Reset() {
	clear(p.slots)
	clear(p.results)
	clear(p.scratch[:cap(p.scratch)])
	p.slots, p.results, p.scratch = p.slots[:0], p.results[:0], p.scratch[:0]
}

func (p *Pending) reset(n int) {
	p.slots = slices.Grow(p.slots[:0], n)[:n]
	clear(p.slots)
	p.results = p.results[:0]
	p.buffered = false
}

// Buffered tells that the channel promises less than the broker's word, so that the results have no offsets.
func (p *Pending) Buffered() bool { return p.buffered }

// headers joins a message's headers with those of the request that it does not have itself.
func (p *Pending) headers(own, more []recordbatch.RecordHeader) []recordbatch.RecordHeader {
	if len(more) == 0 {
		return own
	}
	p.scratch = append(p.scratch[:0], own...)
	for _, h := range more {
		if !slices.ContainsFunc(own, func(o recordbatch.RecordHeader) bool { return o.Key == h.Key }) {
			p.scratch = append(p.scratch, h)
		}
	}
	return p.scratch
}

// Wait returns once every message has its result. The error is the context's: messages may still get into the log.
func (p *Pending) Wait(ctx context.Context) error {
	if p.buffered {
		return nil
	}
	var last *batcher.Batch
	for i := range p.slots {
		s := &p.slots[i]
		if s.claim != nil {
			s.await(p.until, ctx.Done())
			if ctx.Err() != nil {
				return errs.From(context.Cause(ctx))
			}
			continue
		}
		b := s.batch
		if b == nil || b == last {
			continue
		}
		last = b
		select {
		case <-b.Done():
		case <-ctx.Done():
			return errs.From(context.Cause(ctx))
		}
	}
	return nil
}

// Notify is Wait for those who have no goroutine to spare: it calls fn once every message has its result, perhaps at once,
// from any goroutine. fn must not block.
func (p *Pending) Notify(fn func()) {
	if p.buffered {
		fn()
		return
	}
	until := p.until
	left := new(atomic.Int64)
	left.Store(1)
	done := func() {
		if left.Add(-1) == 0 {
			fn()
		}
	}
	var last *batcher.Batch
	for i := range p.slots {
		s := &p.slots[i]
		if s.claim != nil {
			left.Add(1)
			go func() { // rare: a repeat of what is still in flight
				s.await(until, nil)
				done()
			}()
		}
		if b := s.batch; b != nil && b != last {
			last = b
			left.Add(1)
			b.Notify(done)
		}
	}
	done()
}

// Results are one for each message, in order. They stay valid until Put.
func (p *Pending) Results() []wirejson.Result {
	if len(p.results) > 0 {
		return p.results
	}
	for i := range p.slots {
		s := &p.slots[i]
		r := wirejson.Result{Topic: s.topic, TimestampMillis: s.timestamp}
		switch {
		case s.err != nil:
			r = wirejson.Result{Err: at(s.err, i)}
		case s.first != nil || s.claim != nil:
			r = s.repeat(p.buffered)
		case !p.buffered:
			base, appendTime, err := s.batch.Result()
			if err != nil {
				r = wirejson.Result{Err: failure(s.batch, err)}
				break
			}
			if base < 0 {
				break // spooled
			}
			r.Placed, r.Partition, r.Offset = true, s.batch.Partition(), base+int64(s.index)
			if appendTime > 0 {
				r.TimestampMillis = appendTime
			}
		}
		p.results = append(p.results, r)
	}
	return p.results
}

// at makes a message's field path one of the request.
func at(err *errs.Error, i int) *errs.Error {
	if err.Field == "" {
		return err
	}
	return err.WithField("messages[" + strconv.Itoa(i) + "]." + err.Field)
}

// failure says why a batch is not in the log.
func failure(b *batcher.Batch, err error) *errs.Error {
	var known *errs.Error
	switch {
	case errors.Is(err, batcher.ErrExpired):
		return errs.New(errs.Unavailable, "BROKER_UNAVAILABLE", "append to %s/%d", b.Topic(), b.Partition()).
			WithRetryAfter(time.Second).WithNext("try again; with the same id the message is not appended twice").Wrap(err)
	case errors.Is(err, batcher.ErrClosed):
		return errs.New(errs.Unavailable, "AGENT_STOPPING", "append to %s/%d", b.Topic(), b.Partition()).
			WithRetryAfter(time.Second).Wrap(err)
	case errors.As(err, &known):
		return known
	}
	return errs.From(err)
}
