// Package log is the broker's log: partitions of record batches that are as durable as the disk and as fast.
//
// It owns offsets, acknowledgement, the high watermark, producers' sequences, recovery, retention and compaction,
// and the threads of work that write and sync. It rests on the rooms segment, journal, store and vfs. It may not
// know of gRPC, generated code, configuration files, leases or metadata: its caller tells it which partitions
// there are. services/broker/DESIGN.md has the file map, the lock order and the invariants.
package log

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

// DirStatus is what is known of one data directory.
type DirStatus struct {
	store.DirStatus
	Segments int
}

type name struct {
	topic     string
	partition int32
}

// Log holds the partitions of one broker. All methods may run concurrently. Close it.
type Log struct {
	cfg        Config
	files      *vfs.Files
	store      store.Store
	budget     *semaphore.Weighted
	tail       tailCache
	committers map[store.ID]*committer
	paths      map[store.ID]string
	keeper     *keeper
	journal    journalState
	readAhead  atomic.Int64 // bytes that Readers hold, or will, before they are asked for them

	// One partition is made, deleted or opened at a time; a stripe is locked before mu.
	stripes [64]sync.Mutex

	mu     sync.RWMutex // a partition's mu may be taken under it
	parts  map[name]*Partition
	closed bool
	done   chan struct{} // closed when Close has finished
	err    error         // what Close returned
}

// Open locks the data directories, opens every partition it finds there and recovers what a crash left. A partition
// that can not be opened is there with its error; the others are not affected.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	cfg = cfg.withDefaults()
	l := &Log{cfg: cfg, parts: make(map[name]*Partition), committers: make(map[store.ID]*committer),
		paths: make(map[store.ID]string), done: make(chan struct{})}
	l.budget = semaphore.NewWeighted(cfg.MemoryBytes / 2)
	l.tail.limit = cfg.MemoryBytes / 2
	l.files = vfs.NewFiles(cfg.FS, cfg.MaxOpenFiles)
	st, err := store.OpenFS(cfg.FS, l.files, cfg.Dirs)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	l.store = st
	for _, d := range st.Dirs() {
		l.paths[d.ID] = d.Path
	}
	if err := l.recover(ctx); err != nil {
		l.files.Close()
		return nil, errors.Join(fmt.Errorf("open log: %w", err), l.journal.close(), st.Close())
	}
	for id, path := range l.paths {
		l.committers[id] = newCommitter(l, id, path)
	}
	for _, p := range l.parts {
		if len(p.segs) > 0 {
			p.com = l.committers[p.active().Dir]
		}
	}
	l.keeper = newKeeper(l)
	return l, nil
}

// Close writes out what was accepted, checkpoints every partition and lets the directories go. Appends and fetches
// that come later, or wait, get ErrClosed. A second Close waits for the first and returns what it returned.
// ctx bounds the wait for Close; the work goes on in the background when it ends.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		go func() { //nolint:contextcheck // it goes on when ctx ends
			l.err = l.shutdown()
			close(l.done)
		}()
	}
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return fmt.Errorf("close log: %w", context.Cause(ctx))
	}
}

func (l *Log) shutdown() error {
	parts := l.partitions()
	for _, p := range parts {
		p.mu.Lock()
		p.closing = true
		p.mu.Unlock()
	}
	l.keeper.close()
	// All buffers are free once everything that was accepted is written or refused. No committer may end before: a
	// partition can still move from one to the other.
	_ = l.budget.Acquire(context.Background(), l.cfg.MemoryBytes/2)
	l.budget.Release(l.cfg.MemoryBytes / 2)
	var errs []error
	for _, c := range l.committers {
		c.close()
	}
	var mu sync.Mutex
	clean := true
	parallel(parts, func(p *Partition) {
		err := p.Checkpoint()
		p.shut()
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			clean = false // what the segments do not have is in the journal
			if errors.Is(err, errBroken) {
				return // it was reported when its directory failed
			}
			errs = append(errs, p.errorf("close", err))
		}
	})
	if clean {
		errs = append(errs, l.journal.trimAll())
	}
	errs = append(errs, l.journal.close())
	l.files.Close()
	errs = append(errs, l.store.Close())
	return errors.Join(errs...)
}

// shut ends a partition: nothing is read or written any more, and whoever waits is told.
func (p *Partition) shut() {
	p.mu.Lock()
	p.closing, p.closed = true, true
	failed := p.unwind(ErrClosed, true)
	waiters := p.waiters
	p.waiters, p.tail, p.tailHead = nil, nil, 0
	segs := p.segs
	p.mu.Unlock()
	for _, w := range waiters {
		w.wake()
	}
	p.answerAll(failed)
	for _, s := range segs {
		s.Close()
	}
}

func (l *Log) partitions() []*Partition {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]*Partition, 0, len(l.parts))
	for _, p := range l.parts {
		out = append(out, p)
	}
	return out
}

// Partition returns a partition that is open.
func (l *Log) Partition(topic string, partition int32) (*Partition, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	p, ok := l.parts[name{topic, partition}]
	return p, ok
}

// Topic is what the log holds of one topic.
type Topic struct {
	Name       string
	ID         TopicID
	Partitions []int32 // ascending
}

// Topics lists what is in the log, by name.
func (l *Log) Topics() []Topic {
	byName := make(map[string]*Topic)
	for _, p := range l.partitions() {
		t := byName[p.key.Topic]
		if t == nil {
			t = &Topic{Name: p.key.Topic, ID: p.key.ID}
			byName[p.key.Topic] = t
		}
		t.Partitions = append(t.Partitions, p.key.Partition)
	}
	out := make([]Topic, 0, len(byName))
	for _, t := range byName {
		slices.Sort(t.Partitions)
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b Topic) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Dirs reports on the data directories.
func (l *Log) Dirs() []DirStatus {
	segments := make(map[store.ID]int)
	for _, p := range l.partitions() {
		p.mu.Lock()
		for _, s := range p.segs {
			segments[s.Dir]++
		}
		p.mu.Unlock()
	}
	var out []DirStatus
	for _, d := range l.store.Dirs() {
		out = append(out, DirStatus{d, segments[d.ID]})
	}
	return out
}

func (l *Log) stripe(topic string, partition int32) *sync.Mutex {
	h := uint32(partition)
	for i := range len(topic) {
		h = h*31 + uint32(topic[i])
	}
	return &l.stripes[h%uint32(len(l.stripes))]
}

// Ensure returns a partition, which it makes when it does not exist, and sets its configuration. A partition of the
// same name with another topic id belonged to a topic that was deleted: it is removed first.
// Errors: ErrTopicName, ErrCorrupt, ErrNoSpace, ErrDirFailed, ErrClosed.
func (l *Log) Ensure(ctx context.Context, topic string, id TopicID, partition int32, cfg PartitionConfig) (*Partition, error) {
	if err := store.CheckTopic(topic); err != nil {
		return nil, err
	}
	if id == (TopicID{}) || partition < 0 {
		return nil, fmt.Errorf("ensure %s-%d: %w: a topic id and a partition number from 0 on are needed", topic, partition, ErrTopicName)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	stripe := l.stripe(topic, partition)
	stripe.Lock()
	defer stripe.Unlock()
	p, ok := l.Partition(topic, partition)
	if ok && p.key.ID != id {
		if err := l.drop(p); err != nil {
			return nil, err
		}
		ok = false
	}
	if ok {
		p.SetConfig(cfg)
		if err := p.Err(); err != nil && len(p.segs) == 0 {
			return p, p.errorf("open", err)
		}
		return p, nil
	}
	return l.create(store.Key{Topic: topic, ID: id, Partition: partition}, cfg)
}

// create makes a partition that does not exist.
func (l *Log) create(k store.Key, cfg PartitionConfig) (*Partition, error) {
	l.mu.RLock()
	closed := l.closed
	l.mu.RUnlock()
	p := l.newPartition(k)
	if closed {
		return nil, p.errorf("create", ErrClosed)
	}
	p.cfg = cfg.withDefaults()
	seg, err := p.create(0, nil)
	if err != nil {
		return nil, p.errorf("create", diskError(err))
	}
	p.begin(seg, mark{})
	p.com = l.committers[seg.Dir]
	if err := p.Checkpoint(); err != nil {
		return nil, p.errorf("create", diskError(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, p.errorf("create", ErrClosed)
	}
	l.parts[name{k.Topic, k.Partition}] = p
	return p, nil
}

func (l *Log) newPartition(k store.Key) *Partition {
	return &Partition{log: l, key: k, cfg: PartitionConfig{}.withDefaults(), producers: make(producers), created: l.cfg.Now().UnixMilli()}
}

func diskError(err error) error {
	switch {
	case isNoSpace(err):
		return fmt.Errorf("%w: %w; free space or add a data directory", ErrNoSpace, err)
	case errors.Is(err, store.ErrNoDir):
		return fmt.Errorf("%w: %w; restore a data directory", ErrDirFailed, err)
	}
	return err
}

// Delete removes all partitions of a topic. A crash in the middle leaves each partition whole or gone; deleting again
// removes the rest. A topic that does not exist, or has another id, is no error.
func (l *Log) Delete(ctx context.Context, topic string, id TopicID) error {
	var errs []error
	for _, p := range l.partitions() {
		if p.key.Topic != topic || p.key.ID != id {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		stripe := l.stripe(topic, p.key.Partition)
		stripe.Lock()
		errs = append(errs, l.drop(p))
		stripe.Unlock()
	}
	return errors.Join(errs...)
}

// drop closes a partition and removes its files.
func (l *Log) drop(p *Partition) error {
	l.mu.Lock()
	if l.parts[name{p.key.Topic, p.key.Partition}] == p {
		delete(l.parts, name{p.key.Topic, p.key.Partition})
	}
	l.mu.Unlock()
	for {
		p.mu.Lock()
		p.closing = true
		com := p.com
		p.mu.Unlock()
		if com == nil {
			p.shut()
			break
		}
		stopped := false
		com.call(func() {
			p.mu.Lock()
			stopped = p.com == com
			p.mu.Unlock()
			if stopped {
				p.shut()
			}
		})
		if stopped {
			break
		}
	}
	p.ck.Lock() // no checkpoint may be on its way
	defer p.ck.Unlock()
	for _, s := range p.segs {
		s.Forget()
	}
	return l.store.DeletePartition(p.key)
}

// RestoreDir takes a directory that was fenced back after checking that it works. Partitions that had nowhere to go
// on continue there.
func (l *Log) RestoreDir(dir string) error {
	id, err := l.store.Restore(dir)
	if err != nil {
		return err
	}
	l.cfg.Logger.Info("data directory is back", slog.Any("dir", dir), slog.Any("id", fmt.Sprintf("%x", id)))
	for _, p := range l.partitions() {
		p.mu.Lock()
		if p.broken && errors.Is(p.err, ErrDirFailed) && !p.closing {
			p.err = nil
			p.com.add(p, !p.queued, 0, true)
			p.queued = true
		}
		p.mu.Unlock()
	}
	return nil
}

// dirFailed fences a directory after an error of its disk and moves the partitions that write there.
func (l *Log) dirFailed(id store.ID, cause error) {
	for _, d := range l.store.Dirs() {
		if d.ID == id && d.Err != nil {
			return // known
		}
	}
	l.store.Fail(id, cause)
	l.journal.fail(id, cause)
	l.cfg.Logger.Error("data directory failed and is fenced; repair the disk, then restore the directory", slog.Any("dir", l.paths[id]), slog.Any("err", cause))
	if f := l.cfg.Observer.DirError; f != nil {
		f(l.paths[id], cause)
	}
	for _, p := range l.partitions() {
		p.mu.Lock()
		if len(p.segs) > 0 && p.active().Dir == id && !p.closing && p.com != nil {
			p.broken = true
			p.com.add(p, !p.queued, 0, true)
			p.queued = true
		}
		p.mu.Unlock()
	}
}

func (l *Log) slow(dir string, took time.Duration) {
	l.cfg.Logger.Warn("the disk is slow to sync", slog.Any("dir", dir), slog.Any("took", took))
}
