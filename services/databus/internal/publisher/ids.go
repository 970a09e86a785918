package publisher

import (
	"errors"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/wirejson"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/dedup"
)

// claimWait bounds how long a repeat waits for the first message with its id where the channel has no delivery timeout.
const claimWait = 10 * time.Second

// claim looks a message's id up. mine is a claim of this message. Otherwise, unless there is an error, the slot has the first
// message's result, or waits for it.
func (a *active) claim(m *wirejson.Message, s *slot) (mine *dedup.Claim, err *errs.Error) {
	mine, theirs, first, failed := a.live.ids.Claim(dedup.KeyOf(m.ID), bodySum(m))
	switch {
	case errors.Is(failed, dedup.ErrReused):
		return nil, errs.New(errs.KeyReused, "IDEMPOTENCY_KEY_REUSED", "id %q was used for another message of channel %q", m.ID, a.live.name).
			WithField("id").WithNext("give each message an id of its own; a repeat has the same key, value and headers")
	case failed != nil:
		return nil, errs.New(errs.Unavailable, "IDS_UNREADABLE", "the agent can not look id %q up", m.ID).WithRetryAfter(time.Second).
			WithNext("look at the disk of the agent's data directory").Wrap(failed)
	case theirs != nil:
		s.claim = theirs
	case first != nil:
		s.first = first
	}
	return mine, nil
}

// patience is how long a request waits for the first messages of its repeats, all together.
func (a *active) patience() time.Duration {
	if d := a.plan.Batch.Deadline; d > 0 {
		return d
	}
	return claimWait
}

// bodySum is of everything that a repeat must have in common with the first.
func bodySum(m *wirejson.Message) dedup.Sum {
	pieces := make([][]byte, 0, 2+2*len(m.Headers))
	pieces = append(pieces, m.Key, m.Value)
	for i := range m.Headers {
		pieces = append(pieces, []byte(m.Headers[i].Key), m.Headers[i].Value)
	}
	return dedup.SumOf(pieces...)
}

// repeat is the result of a message whose id was seen before.
func (s *slot) repeat(buffered bool) wirejson.Result {
	first := s.first
	if first == nil {
		select {
		case <-s.claim.Done():
		default:
			if buffered && !s.claim.Doubtful() {
				return wirejson.Result{TimestampMillis: s.timestamp, Duplicate: true}
			}
			why := "the first message with this id is not answered yet"
			if s.claim.Doubtful() {
				why = "the agent was restarted and does not know yet whether the first message with this id is in the log"
			}
			return wirejson.Result{Err: errs.New(errs.Unavailable, "ID_IN_FLIGHT", "%s", why).WithRetryAfter(time.Second).
				WithNext("try again with the same id")}
		}
		r, ok := s.claim.Result()
		if !ok {
			return wirejson.Result{Err: errs.New(errs.Unavailable, "FIRST_FAILED", "the first message with this id did not get into the log").
				WithRetryAfter(time.Second).WithNext("try again with the same id")}
		}
		first = &r
	}
	r := wirejson.Result{Topic: first.Topic, TimestampMillis: first.Timestamp, Duplicate: true}
	if first.Offset >= 0 {
		r.Placed, r.Partition, r.Offset = true, first.Partition, first.Offset
	}
	return r
}

// await waits for the first message with the slot's id until a time, or stop.
func (s *slot) await(until time.Time, stop <-chan struct{}) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-s.claim.Done():
	case <-timer.C:
	case <-stop:
	}
}

// Sending puts the ids of a batch on record before it goes out.
func (l *live) Sending(b *batcher.Batch, entry uint64) {
	if in, ok := b.Note().(*dedup.Intent); ok {
		in.Void() // under that identity the broker does not have it
	}
	t := dedup.Target{Topic: b.Topic(), Partition: b.Partition(), Entry: entry}
	if entry == 0 {
		t.ProducerID, t.Epoch, t.Sequence, t.From = b.Identity()
	}
	members := make([]dedup.Member, 0, len(b.Claims()))
	for _, c := range b.Claims() {
		if claim, ok := c.Claim.(*dedup.Claim); ok {
			members = append(members, dedup.Member{Claim: claim, Index: c.Index, Timestamp: c.Timestamp})
		}
	}
	b.SetNote(l.ids.Intend(t, members))
}

// Settled records what became of a batch's ids.
func (l *live) Settled(b *batcher.Batch, baseOffset, appendTime int64, ok bool) {
	in, sent := b.Note().(*dedup.Intent)
	if ok && sent {
		in.Done(dedup.Answer{BaseOffset: baseOffset, AppendTime: appendTime})
		return
	}
	if sent {
		in.Void()
	}
	claims := make([]*dedup.Claim, 0, len(b.Claims()))
	for _, c := range b.Claims() {
		if claim, ok := c.Claim.(*dedup.Claim); ok {
			claims = append(claims, claim)
		}
	}
	l.ids.Abandon(claims...)
}
