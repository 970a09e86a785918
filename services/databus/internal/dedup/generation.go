package dedup

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// maxFile keeps positions within a table's four bytes.
const maxFile = 16 << 30

// generation is one file of a channel and the table of what is in it. Guarded by the channel, but for the file, which may be
// read and given answers by anyone; a write after it was closed fails and does no harm.
type generation struct {
	name   string
	file   *os.File
	size   int64
	opened time.Time
	newest time.Time // of its records
	gone   bool      // removed
	table  table
}

func createGeneration(name string, now time.Time) (*generation, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(fileHeader(now.UnixMilli())); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(name))
	}
	return &generation{name: name, file: f, size: fileHeaderSize, opened: now, newest: now}, nil
}

// openGeneration reads a file, and passes on where each record without an answer is. What follows the last whole record was
// never sent.
func openGeneration(name string, doubt func(g *generation, pos int64, h head, slots []slot)) (*generation, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	created, err := parseFileHeader(b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	g := &generation{name: name, file: f, opened: time.UnixMilli(created), newest: time.UnixMilli(created)}
	at := fileHeaderSize
	h, bad := parseRecord(b[at:])
	for ; bad == nil; h, bad = parseRecord(b[at:]) {
		g.take(b[at:at+h.size], int64(at), h, doubt)
		at += h.size
	}
	g.size = int64(at)
	return g, nil
}

func (g *generation) take(b []byte, at int64, h head, doubt func(g *generation, pos int64, h head, slots []slot)) {
	if t := time.UnixMilli(h.created); t.After(g.newest) {
		g.newest = t
	}
	state, _ := parseAnswer(b[headSize:slotsAt])
	if state == answerVoid {
		return
	}
	var slots []slot
	for i := range h.count {
		pos := slotsAt + i*slotSize
		s := parseSlot(b[pos:])
		if state == answerNone {
			slots = append(slots, s)
			continue
		}
		g.table.add(tagOf(s.key), uint32((at+int64(pos))/align))
	}
	if state == answerNone {
		doubt(g, at, h, slots)
	}
}

// append writes a record and returns where it stands.
func (g *generation) append(record []byte, now time.Time) (pos int64, err error) {
	if g.size+int64(len(record)) > maxFile {
		return 0, io.ErrShortBuffer
	}
	if _, err := g.file.WriteAt(record, g.size); err != nil {
		return 0, err
	}
	pos = g.size
	g.size += int64(len(record))
	g.newest = now
	return pos, nil
}

// found is an id that a file holds.
type found struct {
	slot    slot
	target  Target
	state   byte
	answer  Answer
	created time.Time
}

// find looks for a key; the newest record of it counts.
func (g *generation) find(key Key) (out found, ok bool, err error) {
	g.table.each(tagOf(key), func(pos uint32) bool {
		var f found
		var hit bool
		if f, hit, err = g.read(int64(pos)*align, key); err != nil {
			return false
		}
		if hit && (!ok || !f.created.Before(out.created)) {
			out, ok = f, true
		}
		return true
	})
	return out, ok, err
}

// read reads the slot at pos and, where it is the key's, the record around it.
func (g *generation) read(pos int64, key Key) (out found, hit bool, err error) {
	var b [slotSize]byte
	if _, err := g.file.ReadAt(b[:], pos); err != nil {
		return out, false, fmt.Errorf("read %s at byte %d: %w", g.name, pos, err)
	}
	if Key(b[:16]) != key {
		return out, false, nil
	}
	out.slot = parseSlot(b[:])
	start := pos - slotsAt - int64(out.slot.ordinal)*slotSize
	var hb [slotsAt]byte
	if _, err := g.file.ReadAt(hb[:], start); err != nil {
		return out, false, fmt.Errorf("read %s at byte %d: %w", g.name, start, err)
	}
	h, err := parseHead(hb[:])
	if err != nil {
		return out, false, fmt.Errorf("read %s at byte %d: %w", g.name, start, err)
	}
	topic := make([]byte, h.topic)
	if _, err := g.file.ReadAt(topic, start+int64(h.topicAt())); err != nil {
		return out, false, fmt.Errorf("read %s at byte %d: %w", g.name, start, err)
	}
	out.target, out.created = h.target, time.UnixMilli(h.created)
	out.target.Topic = string(topic)
	out.state, out.answer = parseAnswer(hb[headSize:])
	return out, true, nil
}

// answer fills in what became of the record at pos.
func (g *generation) answer(pos int64, state byte, a Answer) error {
	_, err := g.file.WriteAt(encodeAnswer(state, a), pos+headSize)
	return err
}

func (g *generation) remove() error { return errors.Join(g.file.Close(), os.Remove(g.name)) }
