package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
)

// Observer hears what the spool does. Any field may be nil. Calls come from any goroutine and must not block.
type Observer struct {
	// Committed is called after each sync with what it carried.
	Committed func(entries, bytes int, took time.Duration)
	// Dropped is called for messages that will never be sent, and why: "shed", "refused" or "damaged".
	Dropped func(channel, reason string, messages int)
	// Failed is called for each write or sync that failed.
	Failed func(error)
}

// Config of a spool.
type Config struct {
	Dir       string
	FS        vfs.FS // nil: the machine's
	FileBytes int64  // a file is closed when it reaches this; 0: 32 MiB
	// MarkDelay is how long an acknowledgement may wait for a write that goes out anyway; 0: 100 ms.
	MarkDelay time.Duration
	Logger    *slog.Logger // nil: none
	Observer  Observer
	// Ready is called when a queue may have something to hand out. It must not block; it may call the queue.
	Ready func(*Queue)
	Now   func() time.Time // nil: time.Now
}

// Entry is one batch on its way into the spool. The spool keeps Batch until done is called and stamps it only when it is
// handed out, in a copy.
type Entry struct {
	Channel   string
	Topic     string
	Partition int32
	// Layout stands for how topic and partition were picked. A key may have another place under another layout, so a channel's
	// batches are not handed out before all those of the layout before are acknowledged.
	Layout   int32
	Batch    []byte
	Stage    int32 // see Channel.NextStage
	Reserved int64 // what Channel.Reserve gave for it
	// Placed, if set, is called with the batch's id before it is written. It must not block.
	Placed func(id uint64)
}

// Spool is the disk queue of one agent. All methods may run concurrently. The owner closes it.
type Spool struct {
	cfg  Config
	fs   vfs.FS
	log  *slog.Logger
	lock io.Closer

	mu       sync.Mutex
	queues   map[place]*Queue
	channels map[string]*Channel
	files    []*file // oldest first; the committer writes to the last
	pending  []*appending
	dirty    []*Queue
	flushes  []chan error
	moving   []*item // to be written again, so that their file can go
	closed   bool
	revenant bool // a file that was dropped may be there at the next start: what tells of it must stay
	recovery Recovery

	kick chan struct{}
	lazy *time.Timer
	done chan struct{}

	w writer // the committer's own
}

// appending is one entry that waits for the next commit.
type appending struct {
	entry Entry
	count int32
	size  int64
	done  func(error)
	item  *item
}

// Open opens the spool in cfg.Dir, which it makes where it is missing and locks against other processes, and reads what is in
// it. It returns ErrVersion for files of another version. Damage is no error; see Recovery.
func Open(cfg Config) (*Spool, error) {
	if cfg.FS == nil {
		cfg.FS = vfs.OS{}
	}
	if cfg.FileBytes <= 0 {
		cfg.FileBytes = 32 << 20
	}
	if cfg.MarkDelay <= 0 {
		cfg.MarkDelay = 100 * time.Millisecond
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Ready == nil {
		cfg.Ready = func(*Queue) {}
	}
	s := &Spool{
		cfg: cfg, fs: cfg.FS, log: cfg.Logger,
		queues: make(map[place]*Queue), channels: make(map[string]*Channel),
		kick: make(chan struct{}, 1), done: make(chan struct{}),
	}
	if err := s.fs.MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	lock, err := s.fs.Lock(filepath.Join(cfg.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("open spool %s: %w; another agent uses this data directory, give each its own", cfg.Dir, err)
	}
	s.lock = lock
	if err := s.recover(); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool %s: %w", cfg.Dir, err), lock.Close())
	}
	s.lazy = time.AfterFunc(time.Hour, s.wake)
	s.lazy.Stop()
	go s.run()
	return s, nil
}

// Append puts a batch behind what the spool has for its partition. done is called once, from another goroutine, when the
// batch is durable or with ErrDisk or ErrClosed; it must not block. An error of Append itself (ErrClosed, ErrName, or the batch
// is none) means that done will not be called; the reservation is given back either way.
func (s *Spool) Append(e Entry, done func(error)) error {
	ch := s.Channel(e.Channel)
	header, err := recordbatch.Check(e.Batch)
	switch {
	case err != nil:
	case header.Count < 1:
		err = fmt.Errorf("no messages: %w", recordbatch.ErrCorrupt)
	case e.Topic == "" || len(e.Topic) > maxName || len(e.Channel) > maxName:
		err = ErrName
	}
	if err != nil {
		ch.Release(e.Reserved)
		return fmt.Errorf("spool a batch for %s/%d: %w", e.Topic, e.Partition, err)
	}
	a := &appending{entry: e, count: header.Count, size: int64(entrySize(&e)), done: done}
	ch.settle(e.Reserved, a.size)
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.pending = append(s.pending, a)
	}
	s.mu.Unlock()
	if closed {
		ch.settle(a.size, 0)
		return fmt.Errorf("spool a batch for %s/%d: %w", e.Topic, e.Partition, ErrClosed)
	}
	s.wake()
	return nil
}

// Flush waits until everything that was appended and acknowledged before is on disk. It returns ErrDisk, ErrClosed, or the
// context's error.
func (s *Spool) Flush(ctx context.Context) error {
	c := make(chan error, 1)
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.flushes = append(s.flushes, c)
	}
	s.mu.Unlock()
	if closed {
		return ErrClosed
	}
	s.wake()
	select {
	case err := <-c:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wake starts a commit.
func (s *Spool) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// ready tells the owner of queues that may go on.
func (s *Spool) ready(queues []*Queue) {
	for _, q := range queues {
		s.cfg.Ready(q)
	}
}

// Channel returns the account of a channel by name, made on first use without a bound.
func (s *Spool) Channel(name string) *Channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channelLocked(name)
}

func (s *Spool) channelLocked(name string) *Channel {
	ch := s.channels[name]
	if ch == nil {
		ch = newChannel(s, name)
		s.channels[name] = ch
	}
	return ch
}

// Queue returns the queue of a partition, made on first use and kept until the spool is closed.
func (s *Spool) Queue(topicName string, partition int32) *Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queueLocked(place{topicName, partition})
	q.pinned = true
	return q
}

func (s *Spool) queueLocked(p place) *Queue {
	q := s.queues[p]
	if q == nil {
		q = &Queue{spool: s, place: p, state: mark{producerID: -1}}
		s.queues[p] = q
	}
	return q
}

// Waiting returns every queue that has batches, for a sender that starts.
func (s *Spool) Waiting() []*Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	var qs []*Queue
	for _, q := range s.queues {
		if q.live > 0 {
			qs = append(qs, q)
		}
	}
	return qs
}

// Found says whether the batch with this id had become durable when the spool was opened, for who noted the id in Entry.Placed
// and was then interrupted: it is still there, or it was acknowledged.
func (s *Spool) Found(topicName string, partition int32, id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[place{topicName, partition}]
	return q != nil && (id <= q.doneAt || q.find(id) != nil)
}

// DiskBytes is the size of all files.
func (s *Spool) DiskBytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for _, f := range s.files {
		n += f.size
	}
	return n
}

// Recovery says what Open found.
func (s *Spool) Recovery() Recovery { return s.recovery }

// Close writes what is pending, notes the acknowledgements and closes the files. It is idempotent; when ctx ends first the
// writing goes on and Close returns its error.
func (s *Spool) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for _, ch := range s.channels {
		ch.wakeLocked()
	}
	s.mu.Unlock()
	s.wake()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close spool %s: %w", s.cfg.Dir, ctx.Err())
	}
}
