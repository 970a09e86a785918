package dedup

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// ErrReused means that the id was used within the window for a message with another body.
var ErrReused = errors.New("the id was used for another message")

// Result is what the first message with an id got.
type Result struct {
	Topic     string
	Partition int32
	Offset    int64 // -1: the message was spooled
	Timestamp int64 // that the message has in the log, milliseconds
}

// Claim is one id on its way: of a message that is being published, or of one from before a restart about which there is doubt.
// Its methods may run concurrently.
type Claim struct {
	key     Key
	sum     Sum
	doubt   bool
	created time.Time
	done    chan struct{}
	// Guarded by the channel until done is closed, then final.
	records int // that may still tell of it, where there is doubt
	result  Result
	ok      bool
	settled bool
}

// settleLocked ends a claim; only the first to tell counts.
func (c *Claim) settleLocked(r Result, ok bool) {
	if !c.settled {
		c.settled, c.result, c.ok = true, r, ok
		close(c.done)
	}
}

// Done is closed once it is known what became of the message.
func (c *Claim) Done() <-chan struct{} { return c.done }

// Result is what the message got; ok is false where it never got into the log, so that the id is free again. Only after Done.
func (c *Claim) Result() (r Result, ok bool) { return c.result, c.ok }

// Doubtful says that the claim is of an earlier run, and that the broker must be asked.
func (c *Claim) Doubtful() bool { return c.doubt }

// Channel is one channel's ids. All methods may run concurrently. The Store closes it.
type Channel struct {
	store *Store
	name  string
	dir   string

	mu     sync.Mutex
	window time.Duration
	flying map[Key]*Claim // not answered yet, or answered and not in a file because it could not be written
	gens   []*generation  // oldest first; the last is written to
	number int
}

// SetWindow changes how long ids are remembered.
func (c *Channel) SetWindow(w time.Duration) {
	c.mu.Lock()
	c.window = w
	c.mu.Unlock()
}

// Claim looks an id up. One of three comes back: mine, a claim that the caller settles by Intend and Intent.Done, or by Abandon;
// theirs, the claim of another publish to wait for; or the result of the first message. The error is ErrReused or one of the file
// system.
func (c *Channel) Claim(key Key, sum Sum) (mine, theirs *Claim, first *Result, err error) {
	now := c.store.cfg.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flying[key]; f != nil {
		switch {
		case f.sum != sum:
			return nil, nil, nil, ErrReused
		case f.ok: // one that could not be written
			r := f.result
			return nil, nil, &r, nil
		}
		return nil, f, nil, nil
	}
	f, ok, err := c.findLocked(key, now)
	switch {
	case err != nil:
		return nil, nil, nil, fmt.Errorf("look an id up: %w", err)
	case !ok:
		m := &Claim{key: key, sum: sum, created: now, done: make(chan struct{})}
		c.flying[key] = m
		return m, nil, nil, nil
	case f.slot.sum != sum:
		return nil, nil, nil, ErrReused
	}
	r := resultOf(&f.target, f.answer, f.slot.index, f.slot.timestamp)
	return nil, nil, &r, nil
}

func resultOf(t *Target, a Answer, index uint32, timestamp int64) Result {
	r := Result{Topic: t.Topic, Partition: t.Partition, Offset: -1, Timestamp: timestamp}
	if a.BaseOffset >= 0 {
		r.Offset = a.BaseOffset + int64(index)
	}
	if a.AppendTime > 0 {
		r.Timestamp = a.AppendTime
	}
	return r
}

// findLocked looks for an answered record of a key that is not past the window.
func (c *Channel) findLocked(key Key, now time.Time) (found, bool, error) {
	for i := len(c.gens) - 1; i >= 0; i-- {
		f, ok, err := c.gens[i].find(key)
		if err != nil {
			return found{}, false, err
		}
		if ok && f.state == answerDone {
			return f, now.Sub(f.created) < c.window, nil
		}
	}
	return found{}, false, nil
}

// Member is a claimed message in a batch.
type Member struct {
	Claim     *Claim
	Index     int   // in the batch
	Timestamp int64 // of the message, milliseconds
}

// Intent is a batch whose claims are on record. Its methods are called once, from any goroutine.
type Intent struct {
	channel *Channel
	gen     *generation // nil: it could not be written
	pos     int64
	target  Target
	members []Member
}

// Intend records a batch that is about to be sent. An error is reported, not returned: the batch may go out, and until the agent
// stops its ids are remembered in memory.
func (c *Channel) Intend(t Target, members []Member) *Intent {
	now := c.store.cfg.Now()
	slots := make([]slot, len(members))
	for i, m := range members {
		slots[i] = slot{key: m.Claim.key, sum: m.Claim.sum, index: uint32(m.Index), timestamp: m.Timestamp}
	}
	in := &Intent{channel: c, target: t, members: members}
	c.mu.Lock()
	g, err := c.currentLocked(now)
	if err == nil {
		in.pos, err = g.append(appendRecord(nil, now.UnixMilli(), &t, slots), now)
	}
	c.mu.Unlock()
	if err != nil {
		c.store.log.Error("ids are remembered in memory only", slog.String("dir", c.dir), slog.Any("error", err))
		return in
	}
	in.gen = g
	return in
}

// Done records that the batch is in the log, or in the spool, and tells whoever waits.
func (in *Intent) Done(a Answer) {
	c := in.channel
	var err error
	if in.gen != nil {
		err = in.gen.answer(in.pos, answerDone, a)
	}
	c.mu.Lock()
	kept := err == nil && in.gen != nil && !in.gen.gone
	for i, m := range in.members {
		if kept {
			in.gen.table.add(tagOf(m.Claim.key), uint32((in.pos+slotsAt+int64(i)*slotSize)/align))
			delete(c.flying, m.Claim.key)
		}
		m.Claim.settleLocked(resultOf(&in.target, a, uint32(m.Index), m.Timestamp), true)
	}
	c.mu.Unlock()
	if kept {
		c.store.grown(c, len(in.members))
	} else if err != nil && !errors.Is(err, os.ErrClosed) {
		c.store.log.Error("ids are remembered in memory only", slog.String("dir", c.dir), slog.Any("error", err))
	}
}

// Void records that the batch is not in the log and never will be. Its claims go on: to another Intend, or to Abandon.
func (in *Intent) Void() {
	if in.gen == nil {
		return
	}
	if err := in.gen.answer(in.pos, answerVoid, Answer{}); err != nil && !errors.Is(err, os.ErrClosed) {
		in.channel.store.log.Warn("a record of ids stays in doubt", slog.String("dir", in.channel.dir), slog.Any("error", err))
	}
}

// Abandon frees the ids of messages that are not in the log and never will be.
func (c *Channel) Abandon(claims ...*Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range claims {
		if m.records--; m.records > 0 {
			continue
		}
		if c.flying[m.key] == m && !m.ok {
			delete(c.flying, m.key)
		}
		m.settleLocked(Result{}, false)
	}
}

// currentLocked is the generation to write to; a new one is begun four times a window, and those past it go.
func (c *Channel) currentLocked(now time.Time) (*generation, error) {
	c.expireLocked(now)
	if n := len(c.gens); n > 0 && c.number > 0 {
		g := c.gens[n-1]
		if age := now.Sub(g.opened); age >= 0 && age < c.window/4+time.Second {
			return g, nil
		}
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	for {
		name := filepath.Join(c.dir, strconv.FormatInt(now.UnixMilli(), 10)+"-"+strconv.Itoa(c.number)+fileSuffix)
		c.number++
		g, err := createGeneration(name, now)
		if errors.Is(err, os.ErrExist) {
			continue // the clock went back
		}
		if err != nil {
			return nil, err
		}
		c.gens = append(c.gens, g)
		return g, nil
	}
}

// expireLocked drops the files whose ids are all past the window.
func (c *Channel) expireLocked(now time.Time) {
	for len(c.gens) > 0 && now.Sub(c.gens[0].newest) > c.window {
		c.dropOldestLocked()
	}
}

func (c *Channel) expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expireLocked(now)
	for key, m := range c.flying {
		if m.ok && now.Sub(m.created) > c.window {
			delete(c.flying, key) // one that could not be written
		}
	}
}

func (c *Channel) dropOldestLocked() int {
	g := c.gens[0]
	g.gone = true
	c.gens = c.gens[1:]
	c.store.ids.Add(-int64(g.table.count))
	if err := g.remove(); err != nil {
		c.store.log.Warn("an id file stays on disk", slog.String("file", g.name), slog.Any("error", err))
	}
	return g.table.count
}
