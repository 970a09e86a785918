package log

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/databus-suite/databus/services/broker/internal/store"
)

// DeleteRecords raises the log start offset to before, durably, and removes the segments that lie wholly below it.
// -1 stands for the high watermark. Errors: ErrOffsetOutOfRange, ErrNoSpace, ErrDirFailed, ErrClosed.
func (p *Partition) DeleteRecords(ctx context.Context, before int64) (logStart int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	p.mu.Lock()
	if before == -1 {
		before = p.high.offset
	}
	switch {
	case p.closing:
		err = ErrClosed
	case len(p.segs) == 0:
		err = p.err
	case before < 0 || before > p.high.offset:
		err = fmt.Errorf("%w: %d is past the high watermark %d", ErrOffsetOutOfRange, before, p.high.offset)
	}
	if err != nil {
		p.mu.Unlock()
		return 0, p.errorf("delete records of", err)
	}
	if before > p.logStart {
		p.logStart, p.metaDirty = before, true
	}
	logStart = p.logStart
	p.mu.Unlock()
	if err := p.dropSegments(); err != nil {
		return logStart, p.errorf("delete records of", diskError(err))
	}
	return logStart, nil
}

// dropSegments removes the segments below the log start offset, once a checkpoint does not name them any more.
func (p *Partition) dropSegments() error {
	p.ck.Lock() // a compaction that puts its segment in the place of others must find them, or none of them
	defer p.ck.Unlock()
	p.mu.Lock()
	n := 0
	for n+1 < len(p.segs) && p.segs[n+1].Base() <= p.logStart {
		n++
	}
	gone := p.segs[:n:n]
	p.segs = p.segs[n:]
	p.metaDirty = p.metaDirty || n > 0
	p.mu.Unlock()
	if err := p.checkpoint(); err != nil {
		p.mu.Lock()
		p.segs = slices.Concat(gone, p.segs) // a checkpoint may still name them
		p.mu.Unlock()
		return err
	}
	var errs []error
	for _, s := range gone {
		errs = append(errs, s.Remove())
	}
	return errors.Join(errs...)
}

// EnforceRetention removes the oldest segments that the configuration's limits of age and bytes let go. A segment goes
// as a whole, when its newest record is too old or when the log without it still has RetentionBytes. It also ends an
// active segment that is older than SegmentAge.
func (p *Partition) EnforceRetention() error {
	p.mu.Lock()
	if p.closing || p.err != nil || len(p.segs) == 0 {
		p.mu.Unlock()
		return nil //nolint:nilerr // the partition is out of use and said so
	}
	cfg, segs, now := p.cfg, p.segs, p.nowMillis()
	p.producers.expire(now - p.log.cfg.ProducerExpiry.Milliseconds())
	if p.written.pos > 0 && now-p.created > cfg.SegmentAge.Milliseconds() {
		p.rollSoon()
	}
	p.mu.Unlock()
	if cfg.Compact && !cfg.DeleteOnRetention {
		return nil
	}
	start := p.expired(segs, cfg, now)
	if start < 0 {
		return nil
	}
	p.mu.Lock()
	if start > p.logStart && start <= p.high.offset {
		p.logStart, p.metaDirty = start, true
	}
	p.mu.Unlock()
	if err := p.dropSegments(); err != nil {
		return p.errorf("enforce retention of", err)
	}
	return nil
}

// expired returns the offset up to which segments can go, -1 when none can.
func (p *Partition) expired(segs []store.Segment, cfg PartitionConfig, now int64) int64 {
	var total int64
	for _, s := range segs {
		total += s.Size()
	}
	start := int64(-1)
	for i, s := range segs {
		size := s.Size()
		old := cfg.RetentionAge > 0 && size > 0 && s.MaxTimestamp() >= 0 && s.MaxTimestamp() < now-cfg.RetentionAge.Milliseconds()
		large := cfg.RetentionBytes > 0 && total-size >= cfg.RetentionBytes
		if !old && !large {
			break
		}
		if i+1 == len(segs) {
			if old { // even the newest record is: a new segment lets this one go next time
				p.mu.Lock()
				p.rollSoon()
				p.mu.Unlock()
			}
			break
		}
		total -= size
		start = segs[i+1].Base()
	}
	return start
}

// rollSoon makes the committer begin a new segment; mu is held.
func (p *Partition) rollSoon() {
	if p.written.pos == 0 || p.roll || p.com == nil {
		return
	}
	p.roll = true
	p.com.add(p, !p.queued, 0, true)
	p.queued = true
}
