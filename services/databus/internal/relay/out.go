package relay

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/sender"
	"github.com/databus-suite/databus/services/databus/internal/spool"
)

// OutConfig of an Out.
type OutConfig struct {
	Push       func(sender.Lane) // puts a lane in the sender's line
	Logger     *slog.Logger
	MinBackoff time.Duration // before a repeat; 0: 50 ms
	MaxBackoff time.Duration // 0: 2 s
	RefugeDir  string        // keeps what the broker refused for good; empty: it is dropped
	MaxBytes   int64         // of batches that were read and are not answered, about; 0: 32 MiB. A topic gets a quarter of it
}

// topicPart is the part of MaxBytes that one topic may hold.
const topicPart = 4

// Out sends what is spooled. Its methods may run concurrently. Nothing is to be closed: it ends with the sender and the spool.
type Out struct {
	cfg OutConfig

	mu     sync.Mutex
	lines  map[place]*line
	most   int              // lines at which idle ones are looked for
	bytes  int64            // read and not answered
	held   map[string]int64 // bytes by topic
	parked []*line          // that wait for others to be answered
	refuge refuge
}

type place struct {
	topic     string
	partition int32
}

// NewOut returns an Out that sends nothing yet. Its Ready is for spool.Config.
func NewOut(cfg OutConfig) *Out {
	if cfg.MinBackoff <= 0 {
		cfg.MinBackoff = 50 * time.Millisecond
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = 2 * time.Second
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 32 << 20
	}
	return &Out{cfg: cfg, lines: make(map[place]*line), held: make(map[string]int64), refuge: refuge{dir: cfg.RefugeDir, size: -1}}
}

// Ready says that a queue may have something to send.
func (o *Out) Ready(q *spool.Queue) {
	k := place{q.Topic(), q.Partition()}
	o.mu.Lock()
	l := o.lines[k]
	if l == nil || l.queue != q { // the spool may have forgotten an empty queue and made another
		o.tidy()
		l = &line{out: o, queue: q}
		l.at.Store(q.Partition())
		o.lines[k] = l
	}
	o.mu.Unlock()
	l.kick()
}

// tidy forgets lines that have nothing to send, once they are many. The caller holds the lock, which comes after a line's.
func (o *Out) tidy() {
	if len(o.lines) < max(o.most, 64) {
		return
	}
	for k, l := range o.lines {
		if l.mu.TryLock() {
			if !l.signalled && !l.recovering && !l.backingOff && l.outstanding == 0 && l.queue.Len() == 0 {
				delete(o.lines, k)
			}
			l.mu.Unlock()
		}
	}
	o.most = 2 * len(o.lines)
}

// admit says whether one more batch may be read; where not, the line is kicked once it may.
func (o *Out) admit(l *line) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.room(l) {
		return true
	}
	o.parked = append(o.parked, l)
	return false
}

// room says whether a topic may hold more. One that is not answered gets no more than its part, and one that holds nothing may always
// read: so stuck topics do not hold up the others. The caller holds the lock.
func (o *Out) room(l *line) bool {
	own := o.held[l.Topic()]
	return own == 0 || o.bytes < o.cfg.MaxBytes && own < o.cfg.MaxBytes/topicPart
}

// hold counts bytes of a topic that were read, and, negative, that are not needed any more.
func (o *Out) hold(topic string, n int) {
	o.mu.Lock()
	o.bytes += int64(n)
	if o.held[topic] += int64(n); o.held[topic] == 0 {
		delete(o.held, topic)
	}
	var woken []*line
	if n < 0 {
		o.parked = slices.DeleteFunc(o.parked, func(l *line) bool {
			room := o.room(l)
			if room {
				woken = append(woken, l)
			}
			return room
		})
	}
	o.mu.Unlock()
	for _, l := range woken {
		l.kick()
	}
}

// State is how the sending of a topic fares.
type State struct {
	Failing time.Time // since when nothing got through; zero while all is well
	Cause   error
}

// State reads how the sending of a topic's spooled batches fares; the worst of its partitions counts.
func (o *Out) State(topic string) State {
	o.mu.Lock()
	var lines []*line
	for k, l := range o.lines {
		if k.topic == topic {
			lines = append(lines, l)
		}
	}
	o.mu.Unlock()
	var worst State
	for _, l := range lines {
		l.mu.Lock()
		if !l.failing.IsZero() && (worst.Failing.IsZero() || l.failing.Before(worst.Failing)) {
			worst = State{l.failing, l.cause}
		}
		l.mu.Unlock()
	}
	return worst
}

// line is a queue of the spool as the sender sees it. After a refusal or a lost answer nothing more is sent until every batch in
// flight has its answer; then the queue is sent again from its oldest, with the sequences of the first time.
type line struct {
	out   *Out
	queue *spool.Queue
	at    atomic.Int32 // the partition that it sends to: another one where its own is gone

	mu          sync.Mutex
	signalled   bool // the sender knows
	again       bool // something came while it was served
	outstanding int
	recovering  bool
	forget      bool // the broker does not know the producer
	lost        bool // since the last acknowledgement an answer was
	gone        bool // the broker has no such partition
	backingOff  bool
	failures    int
	failing     time.Time
	cause       error
}

var _ sender.Lane = (*line)(nil)

func (l *line) Topic() string     { return l.queue.Topic() }
func (l *line) Partition() int32  { return l.at.Load() }
func (l *line) SetEnd(int64)      {}
func (l *line) Stalled(err error) { l.mu.Lock(); l.fail(err); l.mu.Unlock() }

// SetProducer gives the queue its identity. It is on disk before anything goes out under it; the spool says when.
func (l *line) SetProducer(id int64, epoch int16) { l.queue.SetProducer(id, epoch) }

// Resize is batcher.Lane.Resize for a line. The producer stays: its sequences may not follow in the other partition, then the
// broker says so, and the line gets another one. After a restart it is the one that the other partition knows.
func (l *line) Resize(partitions int32) (moved bool) {
	want := l.queue.Partition()
	if want >= partitions {
		want %= partitions
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if want == l.at.Load() || l.outstanding > 0 || l.lost && !l.gone {
		return false
	}
	l.at.Store(want)
	l.gone = false
	return true
}

// kick pushes the line unless it is in line already or must wait.
func (l *line) kick() {
	l.mu.Lock()
	l.again = true
	push := l.due()
	l.mu.Unlock()
	if push {
		l.out.cfg.Push(l)
	}
}

// due reports whether the line is to be pushed now, and notes that it is. The caller holds the lock.
func (l *line) due() bool {
	if l.signalled || l.recovering || l.backingOff || !l.again {
		return false
	}
	l.signalled, l.again = true, false
	return true
}

// Next implements sender.Lane. What is being taken counts as outstanding, so that nobody rewinds the queue meanwhile.
func (l *line) Next() (sender.Batch, bool) {
	for {
		l.mu.Lock()
		if l.recovering || l.backingOff {
			l.signalled, l.again = false, true
			l.mu.Unlock()
			return nil, false
		}
		if !l.out.admit(l) {
			l.signalled = false
			l.mu.Unlock()
			return nil, false
		}
		l.again = false
		l.outstanding++
		l.mu.Unlock()
		it, ok, err := l.queue.Next() // outside of the lock: it reads the disk
		if ok {
			l.out.hold(l.Topic(), len(it.Batch))
			return &sent{line: l, item: it}, false
		}
		if errors.Is(err, spool.ErrProducer) {
			l.settle(false, func(*line) {})
			return nil, true
		}
		var more bool
		l.settle(false, func(l *line) {
			switch {
			case errors.Is(err, spool.ErrDamaged):
				more = true
			case err != nil:
				l.again = true
				l.fail(err)
				l.backOff()
			default:
				more = l.again // something came in between
			}
			l.signalled = more
		})
		if err != nil {
			l.out.cfg.Logger.Error("a spooled batch can not be read", slog.Any("dropped", more), slog.Any("error", err))
		}
		if !more {
			return nil, false
		}
	}
}

// sent is one batch that the sender has.
type sent struct {
	line *line
	item spool.Item
}

func (b *sent) Bytes() ([]byte, error) { return b.item.Batch, nil }
func (b *sent) Partition() int32       { return b.line.Partition() }
func (b *sent) Traces() []string       { return nil } // only the records know

// Acked implements sender.Batch.
func (b *sent) Acked(int64, int64) {
	b.line.queue.Acked(b.item.ID)
	b.line.out.hold(b.line.Topic(), -len(b.item.Batch))
	b.line.settle(true, func(l *line) { l.failures, l.failing, l.cause, l.lost, l.gone = 0, time.Time{}, nil, false, false })
}

// Lost implements sender.Batch.
func (b *sent) Lost(cause error) {
	b.line.out.hold(b.line.Topic(), -len(b.item.Batch))
	b.line.settle(false, func(l *line) { l.recovering, l.lost = true, true; l.fail(cause) })
}

// Refused implements sender.Batch. As in the batcher, only when the oldest is itself out of order has the broker forgotten the
// producer; nothing can be appended twice by another one, since the broker said no to the oldest and the others would have had to
// follow it.
func (b *sent) Refused(r batcher.Refusal, cause error) {
	b.line.out.hold(b.line.Topic(), -len(b.item.Batch))
	oldest := b.line.queue.Oldest() == b.item.ID
	if r == batcher.Fatal {
		b.line.out.bury(b, cause)
		b.line.queue.Refused(b.item.ID)
	}
	b.line.settle(false, func(l *line) {
		l.recovering = true
		if r == batcher.OutOfOrder && oldest {
			l.forget = true
		}
		if r == batcher.Gone {
			l.gone = true
		}
		if r == batcher.Retry || r == batcher.Gone || r == batcher.OutOfOrder && oldest {
			l.fail(cause)
			l.backOff()
		}
	})
}

// bury keeps a batch that the broker refused for good, and says so.
func (o *Out) bury(b *sent, cause error) {
	attrs := []any{slog.String("topic", b.line.Topic()), slog.Int("partition", int(b.line.Partition())), slog.String("channel", b.item.Channel),
		slog.Int("messages", int(b.item.Count)), slog.Any("cause", cause)}
	if o.cfg.RefugeDir == "" {
		o.cfg.Logger.Error("the broker refused a spooled batch for good, its messages are dropped", attrs...)
		return
	}
	name, err := o.refuge.keep(b.line.Topic(), b.line.Partition(), b.item.Batch)
	if err != nil {
		o.cfg.Logger.Error("the broker refused a spooled batch for good, its messages are dropped", append(attrs, slog.Any("error", err))...)
		return
	}
	o.cfg.Logger.Error("the broker refused a spooled batch for good, its messages are kept aside", append(attrs, slog.String("file", name))...)
}

// settle notes an answer and, once the last one has come, ends a recovery. room says that more may be in flight now.
func (l *line) settle(room bool, fn func(*line)) {
	l.mu.Lock()
	l.outstanding--
	fn(l)
	over := l.recovering && l.outstanding == 0
	forget := l.forget
	if over {
		l.forget = false
	}
	l.mu.Unlock()
	if !over {
		if room {
			l.kick()
		}
		return
	}
	if forget {
		l.queue.Forget()
	} else {
		l.queue.Rewind()
	}
	l.mu.Lock()
	l.recovering = false
	l.mu.Unlock()
	l.kick()
}

// fail notes why nothing gets through. The caller holds the lock.
func (l *line) fail(cause error) {
	if l.cause = cause; l.failing.IsZero() {
		l.failing = time.Now()
	}
}

// backOff keeps the line still for a while that doubles by each failure. The caller holds the lock.
func (l *line) backOff() {
	if l.backingOff {
		return
	}
	d := l.out.cfg.MinBackoff << min(l.failures, 16)
	l.failures++
	if d > l.out.cfg.MaxBackoff || d <= 0 {
		d = l.out.cfg.MaxBackoff
	}
	d = d/2 + rand.N(d/2+1) // so that lines do not come back all at once
	l.backingOff = true
	time.AfterFunc(d, func() {
		l.mu.Lock()
		l.backingOff = false
		l.mu.Unlock()
		l.kick()
	})
}
