package spool

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Policy is what a full channel does with a new message.
type Policy uint8

// The policies.
const (
	Reject     Policy = iota // ErrFull at once
	Block                    // wait for room, then ErrFull
	ShedOldest               // drop the oldest batches that were never sent
)

// Limit bounds a channel.
type Limit struct {
	Bytes   int64 // on disk; 0: no bound
	Policy  Policy
	Timeout time.Duration // of Block
}

// Channel is the account of what one channel holds in the spool. All methods may run concurrently.
type Channel struct {
	spool *Spool
	name  string
	limit atomic.Pointer[Limit]
	used  atomic.Int64 // on disk, pending, and reserved

	// Guarded by the spool's lock.
	items    []*item // oldest first; done ones may still be among them
	done     int     // of items
	stage    int32
	live     map[int32]int // batches on disk, by stage
	eras     []*era        // that have batches, in order; the first is being sent
	holds    []int32
	drains   []waitDrained
	messages int64 // on disk
	bytes    int64 // on disk
	shed     int64
	freed    chan struct{} // closed when room appears; nil while nobody waits
}

// waitDrained is someone who waits in Drained.
type waitDrained struct {
	stage int32
	done  chan struct{}
}

func newChannel(s *Spool, name string) *Channel {
	ch := &Channel{spool: s, name: name, live: make(map[int32]int)}
	ch.limit.Store(&Limit{})
	return ch
}

// SetLimit changes the bound; what is held beyond it stays until it is sent.
func (ch *Channel) SetLimit(l Limit) {
	ch.limit.Store(&l)
	ch.spool.mu.Lock()
	ch.wakeLocked()
	ch.spool.mu.Unlock()
}

// Reserve takes n bytes of the channel's bound for a message that will be spooled, as the channel's policy says. The
// reservation goes into Entry.Reserved or back by Release. Errors: ErrFull, ErrTooLarge, ErrClosed, or the context's.
func (ch *Channel) Reserve(ctx context.Context, n int64) error {
	l := ch.limit.Load()
	if l.Bytes <= 0 || ch.used.Add(n) <= l.Bytes {
		if l.Bytes <= 0 {
			ch.used.Add(n)
		}
		return nil
	}
	ch.used.Add(-n)
	if n > l.Bytes {
		return fmt.Errorf("%d bytes, the bound is %d: %w", n, l.Bytes, ErrTooLarge)
	}
	switch l.Policy {
	case Block:
		return ch.await(ctx, n, l.Timeout)
	case ShedOldest:
		return ch.makeRoom(n)
	default:
		return ErrFull
	}
}

// await waits until n bytes fit.
func (ch *Channel) await(ctx context.Context, n int64, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		ch.spool.mu.Lock()
		if ch.spool.closed {
			ch.spool.mu.Unlock()
			return ErrClosed
		}
		l := ch.limit.Load()
		if ch.used.Add(n) <= l.Bytes || l.Bytes <= 0 {
			ch.spool.mu.Unlock()
			return nil
		}
		ch.used.Add(-n)
		if ch.freed == nil {
			ch.freed = make(chan struct{})
		}
		freed := ch.freed
		ch.spool.mu.Unlock()
		select {
		case <-freed:
		case <-timer.C:
			return fmt.Errorf("no room within %v: %w", timeout, ErrFull)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// makeRoom sheds the channel's oldest batches that no broker can have seen until n bytes fit.
func (ch *Channel) makeRoom(n int64) error {
	s := ch.spool
	var shed int
	var woken []*Queue
	s.mu.Lock()
	limit := ch.limit.Load().Bytes
	for i := 0; i < len(ch.items) && ch.used.Load()+n > limit; i++ {
		if it := ch.items[i]; it.state == stateQueued {
			shed += int(it.count)
			woken = append(woken, it.queue.dropLocked(it)...)
		}
	}
	fits := ch.used.Add(n) <= limit
	if !fits {
		ch.used.Add(-n)
	}
	ch.shed += int64(shed)
	ch.compactLocked()
	s.mu.Unlock()
	if shed > 0 {
		s.wake() // the batches behind them wait until this is on disk
		s.dropped(ch.name, "shed", shed)
		s.ready(woken)
	}
	if !fits {
		return ErrFull
	}
	return nil
}

// Release gives a reservation back.
func (ch *Channel) Release(n int64) {
	if n == 0 {
		return
	}
	ch.settle(n, 0)
}

// settle turns a reservation into what is really used.
func (ch *Channel) settle(reserved, used int64) {
	if ch.used.Add(used - reserved); used < reserved {
		ch.spool.mu.Lock()
		ch.wakeLocked()
		ch.spool.mu.Unlock()
	}
}

// Stats of a channel.
type Stats struct {
	Bytes    int64         // on disk, not yet acknowledged
	Reserved int64         // bytes that wait to be written
	Messages int64         // on disk, not yet acknowledged
	Shed     int64         // messages dropped by ShedOldest since the spool was opened
	Oldest   time.Duration // age of the oldest; 0 where there is none
}

// Stats says what the channel holds.
func (ch *Channel) Stats() Stats {
	ch.spool.mu.Lock()
	defer ch.spool.mu.Unlock()
	ch.compactLocked()
	st := Stats{Bytes: ch.bytes, Reserved: ch.used.Load() - ch.bytes, Messages: ch.messages, Shed: ch.shed}
	if len(ch.items) > 0 {
		st.Oldest = max(0, ch.spool.cfg.Now().Sub(time.UnixMilli(ch.items[0].created)))
	}
	return st
}

// NextStage begins a stage: a run of entries that Hold and Drained can tell from those before. What was found on disk is of stage 0.
func (ch *Channel) NextStage() int32 {
	ch.spool.mu.Lock()
	defer ch.spool.mu.Unlock()
	ch.stage++
	return ch.stage
}

// Stage is the newest stage.
func (ch *Channel) Stage() int32 {
	ch.spool.mu.Lock()
	defer ch.spool.mu.Unlock()
	return ch.stage
}

// Drained is closed once nothing on disk is of the stage or one before. It is for what must reach the broker after that. Batches that
// are still to be written do not count.
func (ch *Channel) Drained(stage int32) <-chan struct{} {
	ch.spool.mu.Lock()
	defer ch.spool.mu.Unlock()
	c := make(chan struct{})
	if ch.emptyLocked(stage) {
		close(c)
	} else {
		ch.drains = append(ch.drains, waitDrained{stage, c})
	}
	return c
}

func (ch *Channel) emptyLocked(stage int32) bool {
	for s := range ch.live {
		if s <= stage {
			return false
		}
	}
	return true
}

// Hold keeps the batches of a stage and later ones in the spool until Unhold, because something else of the channel must reach the
// broker first. New ones are taken all the same.
func (ch *Channel) Hold(stage int32) {
	ch.spool.mu.Lock()
	ch.holds = append(ch.holds, stage)
	ch.spool.mu.Unlock()
}

// Unhold ends a Hold.
func (ch *Channel) Unhold(stage int32) {
	s := ch.spool
	s.mu.Lock()
	if i := slices.Index(ch.holds, stage); i >= 0 {
		ch.holds = slices.Delete(ch.holds, i, i+1)
	}
	var woken []*Queue
	for _, q := range s.queues {
		if q.readyLocked() {
			woken = append(woken, q)
		}
	}
	s.mu.Unlock()
	s.ready(woken)
}

// heldLocked says whether a batch of the stage must stay.
func (ch *Channel) heldLocked(stage int32) bool {
	return slices.ContainsFunc(ch.holds, func(from int32) bool { return stage >= from })
}

// addLocked notes a batch that is on disk now. Its bytes are in used already.
func (ch *Channel) addLocked(it *item) {
	ch.items = append(ch.items, it)
	ch.live[it.stage]++
	ch.messages += int64(it.count)
	ch.bytes += int64(it.size)
}

// removeLocked notes that a batch is done. The caller compacts.
func (ch *Channel) removeLocked(it *item) {
	if ch.live[it.stage]--; ch.live[it.stage] == 0 {
		delete(ch.live, it.stage)
	}
	ch.messages -= int64(it.count)
	ch.bytes -= int64(it.size)
	ch.done++
	ch.used.Add(-int64(it.size))
	ch.wakeLocked()
}

// compactLocked drops what is done: from the front, and everywhere once that is most of it, as behind a stuck partition.
func (ch *Channel) compactLocked() {
	n := 0
	for n < len(ch.items) && ch.items[n].state.done() {
		ch.items[n] = nil
		n++
	}
	ch.items = ch.items[n:]
	ch.done -= n
	if ch.done > 64 && ch.done > len(ch.items)/2 {
		ch.items = slices.DeleteFunc(ch.items, func(it *item) bool { return it.state.done() })
		ch.done = 0
	}
	if len(ch.items) == 0 {
		ch.items = nil
	}
}

func (ch *Channel) wakeLocked() {
	if ch.freed != nil {
		close(ch.freed)
		ch.freed = nil
	}
	ch.drains = slices.DeleteFunc(ch.drains, func(d waitDrained) bool {
		empty := ch.emptyLocked(d.stage)
		if empty {
			close(d.done)
		}
		return empty
	})
}
