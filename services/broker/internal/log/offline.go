package log

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

// Finding is something that is wrong with a file, or was.
type Finding struct {
	Topic     string
	Partition int32
	File      string
	Offset    int64 // byte position, -1 when it is about the whole file
	Problem   string
	Harmless  bool // the next start deals with it and nothing that was acknowledged is lost
}

// Summary is what was looked through.
type Summary struct {
	Partitions, Segments, Findings int
	Bytes, Batches, Records        int64
}

// Batch is a record batch in a file.
type Batch struct {
	Topic     string
	Partition int32
	File      string
	Position  int64
	Header    recordbatch.Header
	Bytes     []byte // valid during the call
}

// Verify reads everything in data directories that no broker uses and changes nothing. Damage is reported, not
// returned.
func Verify(ctx context.Context, dirs []string, report func(Finding)) (Summary, error) {
	return walk(ctx, dirs, report, nil)
}

// Dump passes every good batch on, partition by partition, in order. A batch that is damaged is reported.
func Dump(ctx context.Context, dirs []string, report func(Finding), fn func(Batch) error) (Summary, error) {
	return walk(ctx, dirs, report, fn)
}

// walk visits each partition of each directory.
func walk(ctx context.Context, dirs []string, report func(Finding), fn func(Batch) error) (Summary, error) {
	var sum Summary
	count := func(f Finding) { sum.Findings++; report(f) }
	for _, dir := range dirs {
		lock, err := vfs.OS{}.Lock(filepath.Join(dir, ".lock"))
		if err != nil {
			return sum, fmt.Errorf("open %s: %w; stop the broker that uses it", dir, err)
		}
		err = walkDir(ctx, dir, &sum, count, fn)
		if err = errors.Join(err, lock.Close()); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

func walkDir(ctx context.Context, dir string, sum *Summary, report func(Finding), fn func(Batch) error) error {
	if _, err := (vfs.OS{}).Stat(store.DirFile(dir)); err != nil {
		return fmt.Errorf("open %s: no data directory of a log: %w", dir, err)
	}
	topics, err := vfs.OS{}.ReadDir(filepath.Join(dir, "topics"))
	if err != nil {
		return err
	}
	for _, topic := range topics {
		parts, err := vfs.OS{}.ReadDir(filepath.Join(dir, "topics", topic.Name()))
		if err != nil {
			return err
		}
		for _, part := range parts {
			if err := ctx.Err(); err != nil {
				return err
			}
			var n int32
			if _, err := fmt.Sscan(part.Name(), &n); err != nil {
				continue
			}
			w := walker{dir: filepath.Join(dir, "topics", topic.Name(), part.Name()), topic: topic.Name(), partition: n, sum: sum, report: report, fn: fn}
			if err := w.run(); err != nil {
				return err
			}
			sum.Partitions++
		}
	}
	return nil
}

// walker looks through one partition in one directory.
type walker struct {
	dir       string
	topic     string
	partition int32
	sum       *Summary
	report    func(Finding)
	fn        func(Batch) error
}

func (w *walker) finding(file string, offset int64, problem string, harmless bool) {
	w.report(Finding{Topic: w.topic, Partition: w.partition, File: file, Offset: offset, Problem: problem, Harmless: harmless})
}

func (w *walker) run() error {
	entries, err := vfs.OS{}.ReadDir(w.dir)
	if err != nil {
		return err
	}
	c := w.checkpoint(entries)
	named := make(map[int64]int64) // base → bytes that must be good
	if c != nil {
		for i, s := range c.segments {
			if named[s.Base] = s.Size; i == len(c.segments)-1 {
				named[s.Base] = c.position
			}
		}
	}
	for _, e := range entries {
		base, ok := segment.ParseName(e.Name())
		if !ok {
			continue
		}
		w.sum.Segments++
		if err := w.segment(base, named[base], c != nil && c.segments[len(c.segments)-1].Base == base); err != nil {
			return err
		}
	}
	return nil
}

// checkpoint reads the newest checkpoint in this directory.
func (w *walker) checkpoint(entries []fs.DirEntry) *checkpoint {
	var best *checkpoint
	var bad []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "checkpoint.") {
			continue
		}
		name := filepath.Join(w.dir, e.Name())
		b, err := vfs.ReadFile(vfs.OS{}, name)
		if err == nil && len(b) == 0 {
			continue
		}
		var c *checkpoint
		if err == nil {
			c, err = decodeCheckpoint(b)
		}
		if err != nil {
			bad = append(bad, name+": "+err.Error())
			continue
		}
		if best == nil || c.generation > best.generation {
			best = c
		}
	}
	for _, b := range bad {
		w.finding(b, -1, "checkpoint can not be read", best != nil)
	}
	if best != nil && len(best.segments) == 0 {
		return nil
	}
	return best
}

func (w *walker) segment(base, durable int64, active bool) error {
	log := filepath.Join(w.dir, segment.Name(base, segment.LogSuffix))
	report := func(c *segment.CorruptError) {
		switch {
		case c.File != log:
			w.finding(c.File, c.Offset, c.Cause.Error(), true) // an index is built anew when it is used
		case active && c.Offset >= durable:
			w.finding(c.File, c.Offset, "unfinished end: "+c.Cause.Error(), true)
		default:
			w.finding(c.File, c.Offset, c.Cause.Error(), false)
		}
	}
	var fn func(int64, recordbatch.Header, []byte) error
	if w.fn != nil {
		fn = func(at int64, h recordbatch.Header, b []byte) error {
			return w.fn(Batch{Topic: w.topic, Partition: w.partition, File: log, Position: at, Header: h, Bytes: b})
		}
	}
	v, err := segment.Verify(vfs.OS{}, w.dir, base, report, fn)
	if err != nil {
		return err
	}
	if v.Size < durable {
		w.finding(log, v.Size, fmt.Sprintf("the checkpoint says that %d bytes are good", durable), false)
	}
	w.sum.Bytes += v.Size
	w.sum.Batches += v.Batches
	w.sum.Records += v.Records
	return nil
}

// Repair makes data directories that no broker uses open again. Damaged batches are left out, and their offsets stay
// empty; the file as it was stays beside the new one. Give it all directories of the broker.
func Repair(ctx context.Context, dirs []string, report func(Finding)) error {
	if err := store.CheckComplete(vfs.OS{}, dirs); err != nil {
		return err
	}
	l, err := Open(ctx, Config{Dirs: dirs, repair: report})
	if err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	for _, p := range l.partitions() {
		if err := p.Err(); err != nil {
			report(Finding{Topic: p.key.Topic, Partition: p.key.Partition, Offset: -1, Problem: "not repaired: " + err.Error()})
		}
		for _, s := range p.segs {
			s.MaxTimestamp() // builds indexes that are missing
		}
	}
	return l.Close(context.WithoutCancel(ctx))
}

// salvage makes every segment of a partition readable before it is opened for a repair, and the checkpoint agree with
// what is there.
func (p *Partition) salvage(c *checkpoint, found []store.Stub) error {
	for i, s := range found {
		seg, err := p.log.store.Open(p.key, s, segment.Options{})
		if err != nil {
			return err
		}
		lost, at, err := segment.Salvage(p.log.cfg.FS, seg.Path(), s.Base)
		if err != nil {
			return err
		}
		if lost > 0 {
			found[i].Size -= lost
			p.repaired(seg.Path(), at, fmt.Sprintf("%d bytes are no record batches and were left out", lost))
		}
		seg.Forget()
	}
	kept := c.segments[:0]
	for _, s := range c.segments {
		i := 0
		for i < len(found) && (found[i].Dir != s.Dir || found[i].Base != s.Base) {
			i++
		}
		if i == len(found) {
			p.repaired(segment.Name(s.Base, segment.LogSuffix), -1, "the segment is missing and was given up")
			continue
		}
		kept = append(kept, found[i])
	}
	c.segments = kept
	if n := len(kept); n > 0 {
		c.position, c.offset = 0, kept[n-1].Base // read all of the last one
	}
	p.metaDirty, c.gaps = true, true
	return nil
}

func (p *Partition) repaired(file string, offset int64, problem string) {
	p.log.cfg.repair(Finding{Topic: p.key.Topic, Partition: p.key.Partition, File: file, Offset: offset, Problem: problem})
}
