package log

import (
	"sync"

	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

// mark is an offset together with its position in the active segment.
type mark struct{ offset, pos int64 }

// Partition is one partition's log. All exported methods may run concurrently. It is closed by its Log and
// answers ErrClosed after that.
//
// Offsets, in order: logStart ≤ high watermark ≤ written ≤ next. What lies between written and next is pending
// in memory; what lies between the high watermark and written waits for its sync.
type Partition struct {
	log *Log
	key store.Key

	ck     sync.Mutex // one checkpoint at a time; taken before mu
	ckGen  uint64     // guarded by ck
	ckDone mark       // what the last checkpoint covers; guarded by ck

	reading sync.RWMutex // held for reading while files are read by an index; taken before mu

	mu         sync.Mutex
	cfg        PartitionConfig
	err        error // why nothing can be appended (or read, when there is no segment)
	closing    bool  // nothing new is accepted
	sealed     bool  // nor is it meanwhile; see Seal
	closed     bool
	compacting bool
	gaps       bool // another log's offsets were taken over, with gaps
	gapsKnown  bool // and a checkpoint says so
	metaDirty  bool // something that only a checkpoint keeps has changed since the last one
	ckWanted   bool // in the log's list of partitions to checkpoint
	logStart   int64
	cleanedTo  int64
	epoch      int32
	segs       []store.Segment // by base; the last is active. Replaced, never changed in place
	high       mark
	durable    int64 // everything before it survives a crash, in the segment or in the journal
	synced     mark  // everything before it is durable in the segment
	written    mark
	next       int64

	com      *committer
	queued   bool         // in the committer's list
	writing  bool         // the committer uses the active segment outside of mu
	inflight int          // groups in the committer's sync stage that hold entries of this partition
	pending  []*entry     // wait to be written
	taken    []*entry     // being written
	requeue  []*entry     // written, but the sync failed: to be written again elsewhere
	broken   bool         // the active segment's directory failed: move before the next write
	unnamed  bool         // no checkpoint names the active segment: save one before the next write
	roll     bool         // start a new segment before the next write
	avoid    []store.ID   // were full since the last write that succeeded
	stray    []store.Stub // found at open and not wanted; removed once a checkpoint says so

	journaled bool // in the log's list of partitions whose journaled bytes are not synced
	producers producers

	waiters   []*waiter
	tail      []cached
	tailHead  int
	highBytes int64 // bytes below the high watermark since the partition was opened
	wroteSum  int64 // bytes written since then
	sinceCk   int64 // bytes written since the last checkpoint
	created   int64 // when the active segment was begun, milliseconds
}

// Topic, ID and Index say which partition it is.
func (p *Partition) Topic() string { return p.key.Topic }
func (p *Partition) ID() TopicID   { return p.key.ID }
func (p *Partition) Index() int32  { return p.key.Partition }

// Bounds returns the log start offset, the high watermark up to which records can be read, and the log end
// offset, which the next record gets.
func (p *Partition) Bounds() (logStart, highWatermark, logEnd int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logStart, p.high.offset, p.next
}

// Seal refuses appends from now on, with ErrClosed, unless something was appended past end: then it does nothing and returns false.
func (p *Partition) Seal(end int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == end {
		p.sealed = true
	}
	return p.sealed
}

// Unseal takes appends again.
func (p *Partition) Unseal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = false
}

// Err says why the partition can not be written to, nil when it can.
func (p *Partition) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// SetConfig changes the configuration from the next append on.
func (p *Partition) SetConfig(cfg PartitionConfig) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg = cfg.withDefaults()
}

// Stats is a partition's state in numbers.
type Stats struct {
	LogStart, HighWatermark, LogEnd int64
	Bytes                           int64 // of log on disk
	Segments                        int
	PendingBytes                    int64 // accepted and not yet written
	UnsyncedBytes                   int64 // written and not yet synced in their segment
	Producers                       int
	LeaderEpoch                     int32
}

// Stats returns the partition's state.
func (p *Partition) Stats() Stats {
	p.mu.Lock()
	s := Stats{LogStart: p.logStart, HighWatermark: p.high.offset, LogEnd: p.next, Segments: len(p.segs),
		UnsyncedBytes: p.written.pos - p.synced.pos, Producers: len(p.producers), LeaderEpoch: p.epoch}
	for _, e := range p.pending {
		s.PendingBytes += int64(e.size)
	}
	segs := p.segs
	p.mu.Unlock()
	for _, seg := range segs {
		s.Bytes += seg.Size()
	}
	return s
}

// active is the segment that is written to; mu is held.
func (p *Partition) active() store.Segment { return p.segs[len(p.segs)-1] }

func (p *Partition) segmentOptions() segment.Options {
	return segment.Options{IndexInterval: p.cfg.IndexIntervalBytes, Prealloc: max(p.log.cfg.PreallocBytes, 0)}
}

func (p *Partition) nowMillis() int64 { return p.log.cfg.Now().UnixMilli() }

// Clamp moves a committed offset to what exists, so that no consumer sees phantom lag.
func (p *Partition) Clamp(offset int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(max(offset, p.logStart), p.high.offset)
}
