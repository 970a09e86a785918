package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/databus-suite/databus/internal/vfs"
)

// The layout is described with byte diagrams in docs/format/log.md.
const (
	fileMagic      = "DBJL"
	fileVersion    = 2
	fileHeaderSize = 32
	frameMagic     = 0x44424a46 // "DBJF"
	frameHeadSize  = 32
	entryHeadSize  = 40
	frameAlign     = vfs.DirectAlign
	frameAlignV1   = 8 // what version 1 aligned to
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func fileHeader(first uint64) []byte {
	b := make([]byte, fileHeaderSize)
	copy(b, fileMagic)
	binary.BigEndian.PutUint32(b[4:], fileVersion)
	binary.BigEndian.PutUint64(b[8:], first)
	binary.BigEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

// parseFileHeader returns what the file's flushes are aligned to.
func parseFileHeader(b []byte, first uint64) (align int, err error) {
	switch {
	case len(b) < fileHeaderSize:
		return 0, io.ErrUnexpectedEOF
	case string(b[:4]) != fileMagic:
		return 0, errors.New("no journal file: wrong magic")
	case crc32.Checksum(b[:28], castagnoli) != binary.BigEndian.Uint32(b[28:]):
		return 0, errors.New("checksum of the file header differs")
	case binary.BigEndian.Uint64(b[8:]) != first:
		return 0, fmt.Errorf("file header says first flush %d, name says %d", binary.BigEndian.Uint64(b[8:]), first)
	}
	switch v := binary.BigEndian.Uint32(b[4:]); v {
	case 1:
		return frameAlignV1, nil
	case fileVersion:
		return frameAlign, nil
	default:
		return 0, fmt.Errorf("journal format %d is not known to this version (%d)", v, fileVersion)
	}
}

// frameSize is how many bytes a flush of entries has.
func frameSize(entries []Entry) int64 {
	n := int64(frameHeadSize + len(entries)*entryHeadSize)
	for i := range entries {
		n += int64(entries[i].Size())
	}
	return n
}

// alignUp is the multiple of align, a power of two, at or behind n.
func alignUp[T int | int64](n, align T) T { return (n + align - 1) &^ (align - 1) }

// appendFrame builds a flush's head (frame head and all entry heads) in head and lists it with the batches in bufs.
func appendFrame(head []byte, bufs [][]byte, fileFirst, seq uint64, entries []Entry) ([]byte, [][]byte) {
	var payload int
	head = append(head, make([]byte, frameHeadSize)...)
	for i := range entries {
		e := &entries[i]
		size := e.Size()
		payload += size
		head = append(head, e.Topic[:]...)
		head = binary.BigEndian.AppendUint32(head, uint32(e.Partition))
		head = binary.BigEndian.AppendUint64(head, uint64(e.Base))
		head = binary.BigEndian.AppendUint64(head, uint64(e.Last))
		head = binary.BigEndian.AppendUint32(head, uint32(size))
	}
	binary.BigEndian.PutUint32(head[0:], frameMagic)
	binary.BigEndian.PutUint32(head[8:], uint32(len(head)+payload))
	binary.BigEndian.PutUint32(head[12:], uint32(len(entries)))
	binary.BigEndian.PutUint64(head[16:], fileFirst)
	binary.BigEndian.PutUint64(head[24:], seq)
	crc := crc32.Update(0, castagnoli, head[8:])
	bufs = append(bufs, head)
	for i := range entries {
		for _, b := range entries[i].Batches {
			crc = crc32.Update(crc, castagnoli, b)
			bufs = append(bufs, b)
		}
	}
	binary.BigEndian.PutUint32(head[4:], crc)
	return head, bufs
}

var errNoFrame = errors.New("no whole flush")

// parseFrame checks the frame at the begin of b.
func parseFrame(b []byte, fileFirst, seq uint64) (frame []byte, err error) {
	if len(b) < frameHeadSize || binary.BigEndian.Uint32(b) != frameMagic {
		return nil, errNoFrame
	}
	n := int(binary.BigEndian.Uint32(b[8:]))
	count := int(binary.BigEndian.Uint32(b[12:]))
	if n < frameHeadSize || n > len(b) || count < 0 || count > (n-frameHeadSize)/entryHeadSize ||
		binary.BigEndian.Uint64(b[16:]) != fileFirst || binary.BigEndian.Uint64(b[24:]) != seq {
		return nil, errNoFrame
	}
	if crc32.Checksum(b[8:n], castagnoli) != binary.BigEndian.Uint32(b[4:]) {
		return nil, errNoFrame
	}
	return b[:n], nil
}

// entries passes a checked frame's entries on.
func entries(frame []byte, fn func(e Entry) error) error {
	count := int(binary.BigEndian.Uint32(frame[12:]))
	head := frame[frameHeadSize:]
	body := head[count*entryHeadSize:]
	for ; count > 0; count-- {
		var e Entry
		copy(e.Topic[:], head)
		e.Partition = int32(binary.BigEndian.Uint32(head[16:]))
		e.Base = int64(binary.BigEndian.Uint64(head[20:]))
		e.Last = int64(binary.BigEndian.Uint64(head[28:]))
		size := int(binary.BigEndian.Uint32(head[36:]))
		if size > len(body) {
			return errNoFrame
		}
		e.Batches = [][]byte{body[:size:size]}
		head, body = head[entryHeadSize:], body[size:]
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// Replay implements Journal.
func (j *Local) Replay(fn func(seq uint64, e Entry) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var last uint64
	var used []file
	for _, f := range j.files {
		b, err := j.readAndSync(f.name)
		if err != nil {
			return fmt.Errorf("replay journal: %w", err)
		}
		if len(used) > 0 && f.first <= last && !findFrame(b, f.first, f.first, 0, frameAlignV1) {
			j.spares = append(j.spares, f.name) // begun without room for its name: the file before it went on
			continue
		}
		if len(used) > 0 && f.first != last+1 {
			// A file is begun only after every flush before it was acknowledged.
			return fmt.Errorf("%w: flushes %d to %d are missing before %s", ErrCorrupt, last+1, f.first-1, f.name)
		}
		f.size = int64(len(b))
		next, err := replayFile(b, f, fn)
		if err != nil {
			return err
		}
		last = next - 1
		used = append(used, f)
	}
	if j.files = used; len(used) > 0 {
		j.seq = last
	}
	return nil
}

// Read implements Journal.
func (j *Local) Read(fn func(seq uint64, e Entry) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range j.files {
		b, err := vfs.ReadFile(j.fs, f.name)
		if err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		if _, err := replayFile(b[:min(int64(len(b)), f.size)], f, fn); err != nil {
			return err
		}
	}
	return nil
}

// readAndSync reads a file and makes what it read durable: after the death of the process alone it may not be, and
// flushes that follow must not be all that a later loss of power leaves.
func (j *Local) readAndSync(name string) ([]byte, error) {
	b, err := vfs.ReadFile(j.fs, name)
	if err != nil {
		return nil, err
	}
	f, err := j.fs.OpenFile(name, os.O_RDWR)
	if err != nil {
		return nil, err
	}
	return b, errors.Join(f.Sync(), f.Close())
}

// replayFile passes one file's flushes on and returns the sequence number behind the last. What follows it is no
// flush, as at the end of every file that was written over, unless a later flush stands behind it: flushes are
// written one after the other, each after the one before was synced.
func replayFile(b []byte, f file, fn func(uint64, Entry) error) (next uint64, err error) {
	next = f.first
	align, err := parseFileHeader(b, f.first)
	if err != nil {
		if findFrame(b, f.first, f.first, 0, frameAlignV1) {
			return next, fmt.Errorf("%w: %s at byte 0: %w", ErrCorrupt, f.name, err)
		}
		return next, nil // the crash came before its first flush was acknowledged
	}
	at := fileHeaderSize
	for at < len(b) {
		frame, err := parseFrame(b[at:], f.first, next)
		if err != nil {
			if findFrame(b, f.first, next+1, at, align) {
				return next, fmt.Errorf("%w: %s at byte %d: flush %d can not be read and later ones can", ErrCorrupt, f.name, at, next)
			}
			return next, nil
		}
		if err := entries(frame, func(e Entry) error { return fn(next, e) }); err != nil {
			return next, fmt.Errorf("replay %s at byte %d: %w", f.name, at, err)
		}
		next++
		at = alignUp(at+len(frame), align)
	}
	return next, nil
}

// findFrame says whether a whole flush of at least sequence number seq stands behind position at, at a multiple of align.
func findFrame(b []byte, fileFirst, seq uint64, at, align int) bool {
	for at = alignUp(at+1, align); at+frameHeadSize <= len(b); at += align {
		if binary.BigEndian.Uint32(b[at:]) != frameMagic {
			continue
		}
		got := binary.BigEndian.Uint64(b[at+24:])
		if got < seq {
			continue
		}
		if _, err := parseFrame(b[at:], fileFirst, got); err == nil {
			return true
		}
	}
	return false
}
