package log

import (
	"fmt"
	"os"

	"github.com/databus-suite/databus/internal/vfs"
)

// FileSection is a run of whole batches in a segment's file, for the kernel to send from there. Close it.
type FileSection struct {
	File       *os.File // shared: read it only by position
	Offset     int64    // byte position
	Length     int64
	NextOffset int64 // where to fetch on
	handle     *vfs.Handle
}

// Close gives the file back. It must be called once.
func (s *FileSection) Close() { s.handle.Release() }

// FetchFile is Fetch without waiting and without reading: it says where the batches lie. ok is false when there is nothing
// to read, or when Fetch is the better way: the batches are in memory or the file system has no files to send from. The
// batches are checked before, once, so that what is sent is what was written.
func (p *Partition) FetchFile(o FetchOptions) (s FileSection, ok bool, err error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 1 << 20
	}
	p.reading.RLock()
	defer p.reading.RUnlock()
	p.mu.Lock()
	if err := p.readable(o.Offset); err != nil || o.Offset >= p.high.offset {
		p.mu.Unlock()
		if err != nil {
			err = p.errorf("fetch from", err)
		}
		return s, false, err
	}
	if tail := p.tail[p.tailHead:]; len(tail) > 0 && o.Offset >= tail[0].base {
		p.mu.Unlock()
		return s, false, nil
	}
	seg, limit, following := p.locate(o.Offset)
	p.mu.Unlock()
	at, n, next, err := seg.Section(max(o.Offset, seg.Base()), o.MaxBytes, limit, following)
	if err != nil || n == 0 {
		if err != nil {
			err = p.errorf("fetch from", readError(err))
		}
		return s, false, err
	}
	h, err := p.log.files.Acquire(seg.Path())
	if err != nil {
		return s, false, p.errorf("fetch from", readError(fmt.Errorf("open %s: %w", seg.Path(), err)))
	}
	if h.OS() == nil {
		h.Release()
		return s, false, nil
	}
	return FileSection{File: h.OS(), Offset: at, Length: n, NextOffset: next, handle: h}, true, nil
}
