package batcher

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"
)

// Refusal says what a broker's refusal of a batch means.
type Refusal uint8

const (
	// Retry later: the batch is not in the log and may get there.
	Retry Refusal = iota
	// OutOfOrder means that the sequence does not follow the broker's last one, or the producer's epoch is not the newest.
	OutOfOrder
	// Gone means that the topic has no such partition any more: retry later, in another one where Lane.Resize says so.
	Gone
	// Fatal means that the batch can never get into the log.
	Fatal
)

// Acked reports that the batch is in the log.
func (l *Lane) Acked(b *Batch, baseOffset, appendTime int64) {
	l.mu.Lock()
	l.settle(b)
	l.drop(b)
	l.failures, l.cause, l.gone = 0, nil, false
	l.broken.Store(0)
	first := b.answer(baseOffset, appendTime, nil)
	ready := l.advance()
	l.mu.Unlock()

	if baseOffset >= 0 {
		l.end.Store(baseOffset + int64(b.count) + 1)
	}
	b.settled(baseOffset, appendTime, true)
	if first {
		b.wake()
	}
	b.resolve(true)
	if ready {
		l.batcher.sink.Ready(l)
	}
}

// Refused reports that the broker said no to the batch, and what that means.
//
// After a refusal nothing more is sent until every batch in flight has its answer; then flight is sent again from its start.
// The broker refuses whatever followed the refused batch as out of order, so the order holds. Only when the first in flight
// is itself out of order has the broker forgotten the producer (a recreated topic, or a fatal refusal before), and the rest
// goes out under a new identity. Nothing can be appended twice by that, since the broker said no to the first, and the
// others would have had to follow it.
func (l *Lane) Refused(b *Batch, r Refusal, cause error) {
	l.mu.Lock()
	l.settle(b)
	var first bool
	if r == Fatal {
		l.drop(b)
		first = b.answer(0, 0, cause)
	} else {
		l.recovering = true
		head := l.flight[0] == b
		if r == OutOfOrder && head {
			l.producer = false
		}
		if r == Gone {
			l.gone = true
		}
		if r != OutOfOrder || head {
			l.fail(cause)
			l.backOff(b.opts)
		}
	}
	ready := l.advance()
	l.mu.Unlock()

	if r == Fatal {
		b.settled(0, 0, false)
	}
	if first {
		b.wake()
	}
	if r == Fatal {
		b.resolve(false)
	}
	if ready {
		l.batcher.sink.Ready(l)
	}
}

// Lost reports that the stream broke before an answer came: the batch is in the log or it is not. It is sent again with the
// same sequence, and the broker tells.
func (l *Lane) Lost(b *Batch, cause error) {
	l.mu.Lock()
	l.settle(b)
	l.recovering = true
	l.fail(cause)
	ready := l.advance()
	l.mu.Unlock()
	if ready {
		l.batcher.sink.Ready(l)
	}
}

// Stalled reports that the sink cannot send at all now, such as when the broker is away. It keeps the lane's signal.
func (l *Lane) Stalled(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail(cause)
}

// settle notes that an answer came. The caller holds the lock.
func (l *Lane) settle(b *Batch) {
	b.outstanding = false
	l.outstanding--
}

// drop takes a batch out of flight. The caller holds the lock.
func (l *Lane) drop(b *Batch) {
	if i := slices.Index(l.flight, b); i >= 0 {
		l.flight = slices.Delete(l.flight, i, i+1)
		l.queued.Add(-b.bytes)
	}
}

// fail notes why nothing gets through. The caller holds the lock.
func (l *Lane) fail(cause error) {
	l.cause = cause
	if l.broken.Load() == 0 {
		l.broken.Store(time.Now().UnixNano())
	}
}

// backOff keeps the lane still for a while that doubles by each failure. The caller holds the lock.
func (l *Lane) backOff(o *Options) {
	if l.backingOff {
		return
	}
	d := o.MinBackoff << min(l.failures, 16)
	l.failures++
	if d > o.MaxBackoff || d < o.MinBackoff {
		d = o.MaxBackoff
	}
	if d <= 0 {
		return
	}
	d = d/2 + rand.N(d/2+1) // so that lanes do not come back all at once
	l.backingOff = true
	l.batcher.timers.add(timer{at: time.Now().Add(d), lane: l})
}

// resume ends a back-off.
func (l *Lane) resume() {
	l.mu.Lock()
	l.backingOff = false
	ready := l.advance()
	l.mu.Unlock()
	if ready {
		l.batcher.sink.Ready(l)
	}
}

// advance moves on after an answer: it ends a recovery once nothing is outstanding, and says whether the sink must be told.
// The caller holds the lock.
func (l *Lane) advance() bool {
	if l.outstanding == 0 {
		l.recovering = false
	}
	return l.ready()
}

// Broken says what keeps the lane from sending, once that has lasted for so long that a new message would not make its
// deadline either, and while something else is there to find out when it is over. Otherwise nil.
func (l *Lane) Broken(now time.Time, deadline time.Duration) error {
	ns := l.broken.Load()
	if ns == 0 || deadline <= 0 || now.UnixNano()-ns < int64(deadline) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flight) == 0 && l.due.len() == 0 {
		return nil
	}
	return l.cause
}

// expire answers for every batch past its deadline, and drops those that were never sent. With stop it does so for all.
func (l *Lane) expire(now time.Time, stop error) {
	var answered, dropped []*Batch
	l.mu.Lock()
	cause := stop
	if stop == nil {
		cause = &expiredError{l.cause}
	} else {
		for len(l.open) > 0 {
			l.open[0].open.close(FillFlush)
		}
	}
	late := func(b *Batch) bool {
		return stop != nil || b.opts.Deadline > 0 && now.Sub(b.opened) >= b.opts.Deadline
	}
	for _, b := range l.flight {
		if late(b) && b.answer(0, 0, cause) {
			answered = append(answered, b)
			if b.outstanding && l.cause == nil && stop == nil {
				l.fail(errNoAnswer)
			}
		}
	}
	keep := func(b *Batch) bool {
		if !late(b) {
			return true
		}
		b.close(FillLinger)
		b.answer(0, 0, cause)
		if b.queued {
			l.queued.Add(-b.bytes)
		}
		dropped = append(dropped, b)
		return false
	}
	l.due.filter(keep)
	l.held.filter(keep)
	l.mu.Unlock()

	for _, b := range answered {
		b.wake()
	}
	for _, b := range dropped {
		b.settled(0, 0, false)
		b.wake()
		b.resolve(false)
	}
}

// errNoAnswer is what is wrong with a partition that takes batches and says nothing.
var errNoAnswer = errors.New("the broker does not answer")

// expiredError is ErrExpired with what kept the batch from the log.
type expiredError struct{ cause error }

func (e *expiredError) Error() string {
	if e.cause == nil {
		return ErrExpired.Error()
	}
	return ErrExpired.Error() + ": " + e.cause.Error()
}

func (e *expiredError) Unwrap() []error { return []error{ErrExpired, e.cause} }
