package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// The layout is drawn in docs/format/spool.md.
const (
	fileMagic      = "DBSP"
	fileVersion    = 1
	fileHeaderSize = 32
	recordMagic    = 0x44425352 // "DBSR"
	recordHeadSize = 24
	recordAlign    = 8
	entryHeadSize  = 30 // without the names
	markHeadSize   = 32
	shedHeadSize   = 12
	spanSize       = 16
	cutSize        = 8
	maxName        = 255
	maxRecord      = 1 << 30
)

// kind is what a record says.
type kind uint8

const (
	kindEntry kind = 1 // a batch
	kindMark  kind = 2 // how far a queue is acknowledged, and its producer
	kindShed  kind = 3 // batches of a queue that are not to be sent
	kindCut   kind = 4 // where a file ends, whatever stands behind
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errRecord  = errors.New("no whole record")
)

// place names a queue.
type place struct {
	topic     string
	partition int32
}

// entryHead is what stands in front of a batch.
type entryHead struct {
	id      uint64
	created int64 // milliseconds
	count   int32 // messages in the batch
	layout  int32 // see Entry.Layout
	place   place
	channel string
}

// mark is a queue's durable state: everything up to and including through is done, and the next batch is stamped with seq.
type mark struct {
	through    uint64
	producerID int64
	epoch      int16
	seq        int32
}

func fileHeader(number uint32) []byte {
	b := make([]byte, fileHeaderSize)
	copy(b, fileMagic)
	binary.BigEndian.PutUint32(b[4:], fileVersion)
	binary.BigEndian.PutUint32(b[8:], number)
	binary.BigEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

func parseFileHeader(b []byte, number uint32) error {
	switch {
	case len(b) < fileHeaderSize:
		return fmt.Errorf("file header: %d of %d bytes: %w", len(b), fileHeaderSize, errRecord)
	case string(b[:4]) != fileMagic:
		return fmt.Errorf("file header: wrong magic: %w", errRecord)
	case crc32.Checksum(b[:28], castagnoli) != binary.BigEndian.Uint32(b[28:]):
		return fmt.Errorf("file header: checksum differs: %w", errRecord)
	case binary.BigEndian.Uint32(b[4:]) != fileVersion:
		return fmt.Errorf("spool format %d: %w (this version reads %d)", binary.BigEndian.Uint32(b[4:]), ErrVersion, fileVersion)
	case binary.BigEndian.Uint32(b[8:]) != number:
		return fmt.Errorf("file header: number %d in file %d: %w", binary.BigEndian.Uint32(b[8:]), number, errRecord)
	}
	return nil
}

// beginRecord appends room for a record's head and returns where it starts.
func beginRecord(b []byte) ([]byte, int) {
	return append(b, make([]byte, recordHeadSize)...), len(b)
}

// endRecord fills the head of the record that starts at b[start:] and goes on in tail, and returns the padding after it.
func endRecord(b []byte, start int, tail []byte, k kind, file, group uint32) (pad int) {
	head := b[start:]
	size := len(head) + len(tail)
	binary.BigEndian.PutUint32(head, recordMagic)
	binary.BigEndian.PutUint32(head[8:], uint32(size))
	binary.BigEndian.PutUint32(head[12:], file)
	binary.BigEndian.PutUint32(head[16:], group)
	head[20] = byte(k)
	crc := crc32.Checksum(head[8:], castagnoli)
	binary.BigEndian.PutUint32(head[4:], crc32.Update(crc, castagnoli, tail))
	return align(size) - size
}

func align(n int) int { return (n + recordAlign - 1) &^ (recordAlign - 1) }

// entrySize is the size in the file of an entry with its padding.
func entrySize(e *Entry) int {
	return align(recordHeadSize + entryHeadSize + len(e.Channel) + len(e.Topic) + len(e.Batch))
}

// appendEntryHead appends everything of an entry's record but the batch.
func appendEntryHead(b []byte, h *entryHead) []byte {
	b = binary.BigEndian.AppendUint64(b, h.id)
	b = binary.BigEndian.AppendUint64(b, uint64(h.created))
	b = binary.BigEndian.AppendUint32(b, uint32(h.count))
	b = binary.BigEndian.AppendUint32(b, uint32(h.layout))
	b = binary.BigEndian.AppendUint32(b, uint32(h.place.partition))
	b = append(b, byte(len(h.place.topic)), byte(len(h.channel)))
	b = append(b, h.place.topic...)
	return append(b, h.channel...)
}

// parseEntry reads an entry's body; batch aliases it.
func parseEntry(body []byte) (h entryHead, batch []byte, err error) {
	if len(body) < entryHeadSize {
		return h, nil, fmt.Errorf("entry: %d bytes: %w", len(body), errRecord)
	}
	topic, channel := int(body[28]), int(body[29])
	if len(body) < entryHeadSize+topic+channel {
		return h, nil, fmt.Errorf("entry: names pass its end: %w", errRecord)
	}
	h = entryHead{
		id:      binary.BigEndian.Uint64(body),
		created: int64(binary.BigEndian.Uint64(body[8:])),
		count:   int32(binary.BigEndian.Uint32(body[16:])),
		layout:  int32(binary.BigEndian.Uint32(body[20:])),
	}
	h.place.partition = int32(binary.BigEndian.Uint32(body[24:]))
	rest := body[entryHeadSize:]
	h.place.topic, h.channel = string(rest[:topic]), string(rest[topic:topic+channel])
	if h.count < 1 || h.place.partition < 0 || topic == 0 {
		return h, nil, fmt.Errorf("entry %d: %d messages for %q/%d: %w", h.id, h.count, h.place.topic, h.place.partition, errRecord)
	}
	return h, rest[topic+channel:], nil
}

func appendMark(b []byte, p place, m mark) []byte {
	b = binary.BigEndian.AppendUint64(b, m.through)
	b = binary.BigEndian.AppendUint64(b, uint64(m.producerID))
	b = binary.BigEndian.AppendUint32(b, uint32(m.seq))
	b = binary.BigEndian.AppendUint32(b, uint32(p.partition))
	b = binary.BigEndian.AppendUint16(b, uint16(m.epoch))
	b = append(b, 0, 0, 0, 0, 0, byte(len(p.topic)))
	return append(b, p.topic...)
}

func parseMark(body []byte) (p place, m mark, err error) {
	if len(body) < markHeadSize || len(body) != markHeadSize+int(body[markHeadSize-1]) {
		return p, m, fmt.Errorf("mark: %d bytes: %w", len(body), errRecord)
	}
	m = mark{
		through:    binary.BigEndian.Uint64(body),
		producerID: int64(binary.BigEndian.Uint64(body[8:])),
		seq:        int32(binary.BigEndian.Uint32(body[16:])),
		epoch:      int16(binary.BigEndian.Uint16(body[24:])),
	}
	p = place{topic: string(body[markHeadSize:]), partition: int32(binary.BigEndian.Uint32(body[20:]))}
	if p.topic == "" || p.partition < 0 || m.seq < 0 {
		return p, m, fmt.Errorf("mark of %q/%d, sequence %d: %w", p.topic, p.partition, m.seq, errRecord)
	}
	return p, m, nil
}

// span is a run of ids of one queue, both ends included.
type span struct{ from, to uint64 }

func appendShed(b []byte, p place, spans []span) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(p.partition))
	b = binary.BigEndian.AppendUint32(b, uint32(len(spans)))
	b = append(b, 0, 0, 0, byte(len(p.topic)))
	b = append(b, p.topic...)
	for _, r := range spans {
		b = binary.BigEndian.AppendUint64(b, r.from)
		b = binary.BigEndian.AppendUint64(b, r.to)
	}
	return b
}

func parseShed(body []byte) (p place, spans []span, err error) {
	if len(body) < shedHeadSize {
		return p, nil, fmt.Errorf("shed: %d bytes: %w", len(body), errRecord)
	}
	count, topic := int64(binary.BigEndian.Uint32(body[4:])), int(body[11])
	if int64(len(body)) != shedHeadSize+int64(topic)+spanSize*count {
		return p, nil, fmt.Errorf("shed: %d bytes for %d: %w", len(body), count, errRecord)
	}
	p = place{topic: string(body[shedHeadSize : shedHeadSize+topic]), partition: int32(binary.BigEndian.Uint32(body))}
	spans = make([]span, count)
	for i := range spans {
		at := body[shedHeadSize+topic+spanSize*i:]
		spans[i] = span{binary.BigEndian.Uint64(at), binary.BigEndian.Uint64(at[8:])}
	}
	return p, spans, nil
}

func appendCut(b []byte, file uint32, end int64) []byte {
	b = binary.BigEndian.AppendUint32(b, file)
	return binary.BigEndian.AppendUint32(b, uint32(end))
}

func parseCut(body []byte) (file uint32, end int64, err error) {
	if len(body) != cutSize {
		return 0, 0, fmt.Errorf("cut: %d bytes: %w", len(body), errRecord)
	}
	return binary.BigEndian.Uint32(body), int64(binary.BigEndian.Uint32(body[4:])), nil
}

// record is one checked record of a file.
type record struct {
	kind  kind
	group uint32 // position at which the write began that brought it
	body  []byte
	size  int // in the file, with padding
}

// parseRecord checks the record at the begin of b.
func parseRecord(b []byte, file uint32) (record, error) {
	if len(b) < recordHeadSize || binary.BigEndian.Uint32(b) != recordMagic {
		return record{}, errRecord
	}
	size := binary.BigEndian.Uint32(b[8:])
	if size < recordHeadSize || size > maxRecord || int(size) > len(b) || binary.BigEndian.Uint32(b[12:]) != file {
		return record{}, errRecord
	}
	if crc32.Checksum(b[8:size], castagnoli) != binary.BigEndian.Uint32(b[4:]) {
		return record{}, errRecord
	}
	return record{
		kind: kind(b[20]), group: binary.BigEndian.Uint32(b[16:]), body: b[recordHeadSize:size:size], size: align(int(size)),
	}, nil
}

// nextSequence is the sequence after count more messages; as in Kafka it goes from MaxInt32 to 0.
func nextSequence(seq, count int32) int32 {
	return int32((int64(seq) + int64(count)) & math.MaxInt32)
}
