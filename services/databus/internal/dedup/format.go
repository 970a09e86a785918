package dedup

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The layout is drawn in docs/format/dedup.md.
const (
	fileMagic      = "DBID"
	fileVersion    = 1
	fileHeaderSize = 32
	recordMagic    = 0x44424944 // "DBID"
	headSize       = 64         // of a record, without the answer
	answerSize     = 24
	slotSize       = 48
	slotsAt        = headSize + answerSize
	maxTopic       = 255
	maxRecord      = 1 << 30
	align          = 8
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errRecord  = errors.New("no whole record")
	// ErrVersion means files of a format that this version does not read.
	ErrVersion = errors.New("unknown format")
)

// Key is the hash of a message's id.
type Key [16]byte

// Sum is the hash of a message's body.
type Sum [16]byte

// KeyOf hashes an id.
func KeyOf(id string) Key {
	h := sha256.Sum256([]byte(id))
	return Key(h[:16])
}

// SumOf hashes a body: key, value and headers, in pieces whose borders count. A nil piece differs from an empty one.
func SumOf(pieces ...[]byte) Sum {
	h := sha256.New()
	var n [8]byte
	for _, p := range pieces {
		size := uint64(len(p)) << 1
		if p == nil {
			size = 1
		}
		binary.BigEndian.PutUint64(n[:], size)
		h.Write(n[:])
		h.Write(p)
	}
	var out [sha256.Size]byte
	return Sum(h.Sum(out[:0])[:16])
}

// Target is where a batch goes and how it is recognised there.
type Target struct {
	Topic     string
	Partition int32
	// ProducerID, Epoch and Sequence are the batch's, and From is an offset of the partition that lies before it.
	ProducerID int64
	Epoch      int16
	Sequence   int32
	From       int64
	// Entry is the batch's id in the spool; then the others are not known yet.
	Entry uint64
}

// Answer is what became of a batch.
type Answer struct {
	BaseOffset int64 // of its first message; -1: spooled, not yet known
	AppendTime int64 // milliseconds, where the broker stamped it; else 0
}

// slot is one id in a record.
type slot struct {
	key       Key
	sum       Sum
	ordinal   uint32 // in the record
	index     uint32 // of the message in the batch
	timestamp int64  // of the message, milliseconds
}

func fileHeader(created int64) []byte {
	b := make([]byte, fileHeaderSize)
	copy(b, fileMagic)
	binary.BigEndian.PutUint32(b[4:], fileVersion)
	binary.BigEndian.PutUint64(b[8:], uint64(created))
	binary.BigEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

func parseFileHeader(b []byte) (created int64, err error) {
	switch {
	case len(b) < fileHeaderSize || string(b[:4]) != fileMagic || crc32.Checksum(b[:28], castagnoli) != binary.BigEndian.Uint32(b[28:]):
		return 0, errRecord
	case binary.BigEndian.Uint32(b[4:]) != fileVersion:
		return 0, fmt.Errorf("id file format %d: %w (this version reads %d)", binary.BigEndian.Uint32(b[4:]), ErrVersion, fileVersion)
	}
	return int64(binary.BigEndian.Uint64(b[8:])), nil
}

// appendRecord appends a record without an answer.
func appendRecord(b []byte, created int64, t *Target, slots []slot) []byte {
	start := len(b)
	b = append(b, make([]byte, slotsAt)...)
	for i := range slots {
		s := &slots[i]
		b = append(b, s.key[:]...)
		b = append(b, s.sum[:]...)
		b = binary.BigEndian.AppendUint32(b, uint32(i))
		b = binary.BigEndian.AppendUint32(b, s.index)
		b = binary.BigEndian.AppendUint64(b, uint64(s.timestamp))
	}
	b = append(b, t.Topic...)
	for (len(b)-start)%align != 0 {
		b = append(b, 0)
	}
	h := b[start:]
	be := binary.BigEndian
	be.PutUint32(h, recordMagic)
	be.PutUint32(h[8:], uint32(len(h)))
	be.PutUint32(h[12:], uint32(len(slots)))
	be.PutUint64(h[16:], uint64(created))
	be.PutUint64(h[24:], uint64(t.ProducerID))
	be.PutUint64(h[32:], uint64(t.From))
	be.PutUint64(h[40:], t.Entry)
	be.PutUint32(h[48:], uint32(t.Partition))
	be.PutUint32(h[52:], uint32(t.Sequence))
	be.PutUint16(h[56:], uint16(t.Epoch))
	h[58] = byte(len(t.Topic))
	be.PutUint32(h[4:], recordSum(h))
	return b
}

// recordSum leaves out the answer, which comes later.
func recordSum(h []byte) uint32 {
	return crc32.Update(crc32.Checksum(h[8:headSize], castagnoli), castagnoli, h[slotsAt:])
}

// head is the fixed part of a record.
type head struct {
	size    int
	count   int
	created int64
	target  Target // without the topic
	topic   int    // its length
}

func parseHead(b []byte) (head, error) {
	be := binary.BigEndian
	if len(b) < slotsAt || be.Uint32(b) != recordMagic {
		return head{}, errRecord
	}
	h := head{size: int(be.Uint32(b[8:])), count: int(be.Uint32(b[12:])), created: int64(be.Uint64(b[16:])), topic: int(b[58])}
	if h.size > maxRecord || h.size%align != 0 || h.count < 1 || h.count > (h.size-slotsAt)/slotSize ||
		h.size < slotsAt+h.count*slotSize+h.topic || h.topic == 0 {
		return head{}, errRecord
	}
	h.target = Target{
		ProducerID: int64(be.Uint64(b[24:])), From: int64(be.Uint64(b[32:])), Entry: be.Uint64(b[40:]),
		Partition: int32(be.Uint32(b[48:])), Sequence: int32(be.Uint32(b[52:])), Epoch: int16(be.Uint16(b[56:])),
	}
	return h, nil
}

// topicAt is where the topic stands in a record.
func (h *head) topicAt() int { return slotsAt + h.count*slotSize }

// parseRecord checks the record at the begin of b.
func parseRecord(b []byte) (head, error) {
	h, err := parseHead(b)
	if err != nil {
		return head{}, err
	}
	if h.size > len(b) || recordSum(b[:h.size]) != binary.BigEndian.Uint32(b[4:]) {
		return head{}, errRecord
	}
	h.target.Topic = string(b[h.topicAt() : h.topicAt()+h.topic])
	return h, nil
}

func parseSlot(b []byte) slot {
	be := binary.BigEndian
	return slot{key: Key(b[:16]), sum: Sum(b[16:32]), ordinal: be.Uint32(b[32:]), index: be.Uint32(b[36:]), timestamp: int64(be.Uint64(b[40:]))}
}

// The states of an answer. A record that is void was refused or never sent: its ids are free.
const (
	answerNone = 0
	answerDone = 1
	answerVoid = 2
)

func encodeAnswer(state byte, a Answer) []byte {
	b := make([]byte, answerSize)
	b[0] = state
	binary.BigEndian.PutUint64(b[4:], uint64(a.BaseOffset))
	binary.BigEndian.PutUint64(b[12:], uint64(a.AppendTime))
	binary.BigEndian.PutUint32(b[20:], crc32.Checksum(b[:20], castagnoli))
	return b
}

// parseAnswer reads an answer; one that is not whole is none.
func parseAnswer(b []byte) (state byte, a Answer) {
	if len(b) < answerSize || crc32.Checksum(b[:20], castagnoli) != binary.BigEndian.Uint32(b[20:]) {
		return answerNone, Answer{}
	}
	return b[0], Answer{BaseOffset: int64(binary.BigEndian.Uint64(b[4:])), AppendTime: int64(binary.BigEndian.Uint64(b[12:]))}
}
