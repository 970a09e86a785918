package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/services/broker/internal/segment"
)

// FileSection is a run of whole batches in a segment's file, for the kernel to send from there. Close it.
type FileSection struct {
	File       *os.File // shared: read it only by position
	Offset     int64    // byte position
	Length     int64
	NextOffset int64 // where to fetch on
	section    segment.Section
}

// Close gives the file back. It must be called once.
func (s *FileSection) Close() { s.section.File.Release() }

// SendTo sends the section over a TCP connection by sendfile(2): the bytes do not pass through the process. The
// connection's write deadline holds. It says how much was sent, all of it unless there is an error.
func (s *FileSection) SendTo(c syscall.Conn) (sent int64, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("send %s: %w", s.File.Name(), err)
	}
	at := s.Offset
	var failed error
	err = raw.Write(func(fd uintptr) (done bool) {
		for at < s.Offset+s.Length {
			n, err := unix.Sendfile(int(fd), int(s.section.File.OS().Fd()), &at, int(s.Offset+s.Length-at)) // it moves at
			switch {
			case errors.Is(err, unix.EAGAIN):
				return false
			case errors.Is(err, unix.EINTR):
			case err != nil:
				failed = err
				return true
			case n == 0:
				failed = io.ErrUnexpectedEOF
				return true
			}
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		err = fmt.Errorf("send %s from %d: %w", s.File.Name(), at, err)
	}
	return at - s.Offset, err
}

// FetchFile is Fetch without waiting and without passing the bytes through the process: it says where the batches lie. ok is
// false when there is nothing to read, or when Fetch is the better way: the batches are in memory or the file system has no
// files to send from. What is checked, and when, is said at segment.Segment.Section.
func (p *Partition) FetchFile(o FetchOptions) (s FileSection, ok bool, err error) {
	o = o.withDefaults()
	p.reading.RLock()
	defer p.reading.RUnlock()
	p.mu.Lock()
	if err := p.readable(o.Offset); err != nil {
		p.mu.Unlock()
		return s, false, p.errorf("fetch from", err)
	}
	tail := p.tail[p.tailHead:]
	if o.Offset >= p.high.offset || len(tail) > 0 && o.Offset >= tail[0].base {
		p.mu.Unlock()
		return s, false, nil
	}
	seg, limit, following := p.locate(o.Offset)
	p.mu.Unlock()
	x, ok, err := seg.Section(max(o.Offset, seg.Base()), o.MaxBytes, limit, following)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && !p.holds(seg) {
			return s, false, nil // retention took it away in the meantime
		}
		return s, false, p.errorf("fetch from", readError(err))
	}
	if !ok {
		return s, false, nil
	}
	return FileSection{File: x.File.OS(), Offset: x.At, Length: x.Length, NextOffset: x.Next, section: x}, true, nil
}
