package log

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

// maxCompactKeys bounds the memory of one compaction: about 40 bytes a key. A longer log is compacted in several passes.
const maxCompactKeys = 4 << 20

// keyHash stands for a key. It is long enough that two keys never share one.
type keyHash [16]byte

func hashKey(key []byte) keyHash {
	sum := sha256.Sum256(key)
	return keyHash(sum[:16])
}

// Compacted says what a compaction did.
type Compacted struct {
	Records, Kept          int64
	BytesBefore, BytesKept int64
}

// Compact keeps, in the sealed segments that are old enough, only the last record of each key, and drops tombstones
// that are older than TombstoneRetention. Offsets do not change. It does nothing when the configuration does not ask
// for compaction. It can be interrupted by ctx and by a crash: each segment is replaced whole or not at all.
func (p *Partition) Compact(ctx context.Context) (Compacted, error) {
	var done Compacted
	p.mu.Lock()
	p.rollForCompaction()
	if !p.cfg.Compact || p.closing || p.err != nil || p.broken || p.compacting || len(p.segs) < 2 {
		p.mu.Unlock()
		return done, nil
	}
	p.compacting = true
	cfg, now, from := p.cfg, p.nowMillis(), p.cleanedTo
	segs := p.segs[:len(p.segs)-1]
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.compacting = false
		p.mu.Unlock()
	}()

	n := 0
	for n < len(segs) && (cfg.MinCompactionLag <= 0 || segs[n].MaxTimestamp() <= now-cfg.MinCompactionLag.Milliseconds()) {
		n++
	}
	segs = segs[:n]
	if n == 0 {
		return done, nil
	}
	latest, end, err := p.latestOffsets(ctx, segs, from)
	if err != nil || end <= from {
		return done, err
	}
	c := compaction{p: p, latest: latest, end: end, tombstonesBefore: now - cfg.TombstoneRetention.Milliseconds(), done: &done}
	for i := 0; i < len(segs) && segs[i].Base() < end; {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		i, err = c.group(segs, i, cfg.SegmentBytes)
		if err != nil {
			return done, p.errorf("compact", err)
		}
	}
	p.mu.Lock()
	p.cleanedTo, p.metaDirty = end, true
	p.mu.Unlock()
	if err := p.Checkpoint(); err != nil {
		return done, p.errorf("compact", err)
	}
	return done, nil
}

// rollForCompaction ends an active segment whose records wait longer than MaxCompactionLag allows; mu is held.
func (p *Partition) rollForCompaction() {
	if lag := p.cfg.MaxCompactionLag; p.cfg.Compact && lag > 0 && p.nowMillis()-p.created > lag.Milliseconds() && !p.closing && p.err == nil {
		p.rollSoon()
	}
}

// latestOffsets maps each key in the part that was not compacted yet to its last offset. end is where the map stops.
func (p *Partition) latestOffsets(ctx context.Context, segs []store.Segment, from int64) (latest map[keyHash]int64, end int64, err error) {
	latest = make(map[keyHash]int64)
	end = from
	for i, s := range segs {
		next := p.segmentEnd(segs, i)
		if next <= from {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		_, err := s.Scan(0, s.Size(), func(_ int64, h recordbatch.Header, b []byte) error {
			if h.LastOffset() < from || h.IsControl() {
				return nil
			}
			for r, err := range recordbatch.Records(b, 0) {
				if err != nil {
					return err
				}
				if r.Key != nil && r.Offset >= from {
					latest[hashKey(r.Key)] = r.Offset
				}
			}
			return nil
		})
		if err != nil {
			return nil, 0, p.errorf("compact", err)
		}
		end = next
		if len(latest) > maxCompactKeys {
			break
		}
	}
	return latest, end, nil
}

// segmentEnd is the offset behind a sealed segment.
func (p *Partition) segmentEnd(segs []store.Segment, i int) int64 {
	if i+1 < len(segs) {
		return segs[i+1].Base()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	j := sort.Search(len(p.segs), func(j int) bool { return p.segs[j].Base() > segs[i].Base() })
	if j == len(p.segs) {
		return segs[i].Base()
	}
	return p.segs[j].Base()
}

// compaction is one pass over a partition.
type compaction struct {
	p                *Partition
	latest           map[keyHash]int64
	end              int64
	tombstonesBefore int64
	done             *Compacted
}

// group compacts segments from the i-th on into one, as many as fit and lie in one directory, and returns the index of
// the first one behind them.
func (c *compaction) group(segs []store.Segment, i int, limit int64) (int, error) {
	j, size := i, int64(0)
	first := segs[i]
	const maxSpan = 1<<31 - 1
	for j < len(segs) && segs[j].Base() < c.end && segs[j].Dir == first.Dir &&
		(j == i || size+segs[j].Size() <= limit && c.p.segmentEnd(segs, j)-first.Base() < maxSpan) {
		size += segs[j].Size()
		j++
	}
	end := c.p.segmentEnd(segs, j-1)
	name := store.SwapName(first.Base(), end) + store.CleanedSuffix
	out, err := c.rewrite(segs[i:j], filepath.Join(first.Segment.Dir(), name))
	if err != nil {
		return j, err
	}
	c.done.BytesBefore += size
	c.done.BytesKept += out
	if out == size && j == i+1 {
		return j, c.p.log.cfg.FS.Remove(filepath.Join(first.Segment.Dir(), name)) // nothing to win
	}
	return j, c.p.swap(segs[i:j], end, out)
}

// rewrite writes what stays of the segments to a new file, synced, and returns its size.
func (c *compaction) rewrite(segs []store.Segment, name string) (size int64, err error) {
	f, err := c.p.log.cfg.FS.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var buf []byte
	flush := func() error {
		n, err := f.WriteV([][]byte{buf}, size)
		size += int64(n)
		buf = buf[:0]
		return err
	}
	for i, s := range segs {
		_, err := s.Scan(0, s.Size(), func(at int64, h recordbatch.Header, b []byte) error {
			last := i == len(segs)-1 && at+int64(len(b)) == s.Size()
			kept, err := c.keep(h, b, last)
			if err != nil {
				return err
			}
			if buf = append(buf, kept...); len(buf) > 1<<20 {
				return flush()
			}
			return nil
		})
		if err != nil {
			return size, err
		}
	}
	if len(buf) > 0 {
		if err := flush(); err != nil {
			return size, err
		}
	}
	return size, f.Sync()
}

// keep returns what stays of a batch: the batch itself, the batch with fewer records, or nothing. The very last batch of
// a file stays at least as an empty one, so that the offsets it ends with are not forgotten.
func (c *compaction) keep(h recordbatch.Header, b []byte, last bool) ([]byte, error) {
	if h.IsControl() {
		return b, nil
	}
	var records []recordbatch.Record
	n := 0
	for r, err := range recordbatch.Records(b, 0) {
		if err != nil {
			return nil, err
		}
		n++
		if c.stays(r) {
			records = append(records, r)
		}
	}
	c.done.Records += int64(n)
	c.done.Kept += int64(len(records))
	switch {
	case len(records) == n && n > 0:
		return b, nil
	case len(records) == 0 && !last:
		return nil, nil
	}
	return recordbatch.Filter(b, records)
}

func (c *compaction) stays(r recordbatch.Record) bool {
	if r.Key == nil {
		return false
	}
	if newer, ok := c.latest[hashKey(r.Key)]; ok && newer > r.Offset {
		return false
	}
	return r.Value != nil || r.Timestamp >= c.tombstonesBefore
}

// swap puts the compacted file in the place of the segments. The checkpoint that names it decides: a crash before that
// leaves the old segments, one after it is completed by the next open.
func (p *Partition) swap(old []store.Segment, end, size int64) error {
	fsys, dir, first := p.log.cfg.FS, old[0].Segment.Dir(), old[0].Base()
	name := filepath.Join(dir, store.SwapName(first, end))
	p.ck.Lock()
	defer p.ck.Unlock()
	p.mu.Lock()
	at := p.position(old)
	if at < 0 {
		p.mu.Unlock() // retention was faster, or the partition is going away
		return fsys.Remove(name + store.CleanedSuffix)
	}
	o := p.segmentOptions()
	active, written := p.active(), p.written
	c := p.snapshot(written)
	p.mu.Unlock()
	stub := store.Stub{Dir: old[0].Dir, Base: first, Size: size}
	c.segments = slices.Replace(c.segments, at, at+len(old), stub)
	if err := errors.Join(fsys.Rename(name+store.CleanedSuffix, name), fsys.SyncDir(dir)); err != nil {
		return err
	}
	if err := p.save(c, active, written); err != nil {
		return err
	}
	seg, err := p.log.store.Open(p.key, stub, o)
	if err != nil {
		return err
	}
	p.reading.Lock() // nobody may read the new file by the old index
	defer p.reading.Unlock()
	if err := p.log.store.FinishSwap(store.Swap{Dir: dir, ID: stub.Dir, First: first, End: end, Size: size}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.metaDirty = true // what changed since the snapshot
	if at := p.position(old); at >= 0 {
		p.segs = slices.Concat(p.segs[:at], []store.Segment{seg}, p.segs[at+len(old):])
	}
	return nil
}

// position finds segments that follow one another, -1 when they are not all there; mu is held.
func (p *Partition) position(segs []store.Segment) int {
	at := slices.Index(p.segs, segs[0])
	if p.closing || at < 0 || at+len(segs) >= len(p.segs) || !slices.Equal(p.segs[at:at+len(segs)], segs) {
		return -1
	}
	return at
}

// CompactAll compacts every partition whose configuration asks for it.
func (l *Log) CompactAll(ctx context.Context) error {
	var errs []error
	for _, p := range l.partitions() {
		if ctx.Err() != nil {
			break
		}
		_, err := p.Compact(ctx)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
