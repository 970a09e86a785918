package recordbatch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// HeaderSize is the length of the fixed part in front of the records.
const HeaderSize = 61

// Where each field starts.
const (
	posBaseOffset      = 0
	posLength          = 8
	posLeaderEpoch     = 12
	posMagic           = 16
	posCRC             = 17
	posAttributes      = 21 // the checksum covers from here to the end
	posLastOffsetDelta = 23
	posBaseTimestamp   = 27
	posMaxTimestamp    = 35
	posProducerID      = 43
	posProducerEpoch   = 51
	posBaseSequence    = 53
	posCount           = 57

	lengthEnd = posLength + 4 // Length counts the bytes after itself
	magicV2   = 2
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Attributes is the batch's bit set.
type Attributes int16

// The bits above the codec's three.
const (
	attrCodecMask     Attributes = 0x07
	attrLogAppendTime Attributes = 0x08
	attrTransactional Attributes = 0x10
	attrControl       Attributes = 0x20
)

// TimestampType says who set the timestamps of a batch.
type TimestampType int8

const (
	// CreateTime is set by the producer, a record at a time.
	CreateTime TimestampType = 0
	// LogAppendTime is set by the broker, once for the batch.
	LogAppendTime TimestampType = 1
)

// Codec returns the compression of the records; it may be unknown.
func (a Attributes) Codec() Codec { return Codec(a & attrCodecMask) }

// IsTransactional reports whether the batch belongs to a transaction.
func (a Attributes) IsTransactional() bool { return a&attrTransactional != 0 }

// IsControl reports whether the records are markers, not for applications.
func (a Attributes) IsControl() bool { return a&attrControl != 0 }

// TimestampType says who set the timestamps.
func (a Attributes) TimestampType() TimestampType {
	if a&attrLogAppendTime != 0 {
		return LogAppendTime
	}
	return CreateTime
}

// Header is the fixed part of a batch. Timestamps are in milliseconds.
type Header struct {
	BaseOffset      int64
	Length          int32 // bytes after this field
	LeaderEpoch     int32
	CRC             uint32
	Attributes      Attributes
	LastOffsetDelta int32
	BaseTimestamp   int64
	MaxTimestamp    int64
	ProducerID      int64 // -1: not idempotent
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32 // records; fewer than offsets once compacted
}

// Size is the length of the whole batch in bytes.
func (h Header) Size() int { return lengthEnd + int(h.Length) }

// LastOffset is the offset of the last record.
func (h Header) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is the offset after the last record.
func (h Header) NextOffset() int64 { return h.LastOffset() + 1 }

// Codec returns the compression of the records.
func (h Header) Codec() Codec { return h.Attributes.Codec() }

// IsTransactional reports whether the batch belongs to a transaction.
func (h Header) IsTransactional() bool { return h.Attributes.IsTransactional() }

// IsControl reports whether the records are markers, not for applications.
func (h Header) IsControl() bool { return h.Attributes.IsControl() }

// TimestampType says who set the timestamps.
func (h Header) TimestampType() TimestampType { return h.Attributes.TimestampType() }

// IsDense reports whether each offset has its record. A producer's batch is
// dense; only compaction makes holes.
func (h Header) IsDense() bool { return h.Count > 0 && h.Count-1 == h.LastOffsetDelta }

// ParseHeader reads the first HeaderSize bytes of a batch and checks the magic
// and the length, but no checksum. Errors: ErrShort, ErrMagic, ErrCorrupt.
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderSize {
		return Header{}, fmt.Errorf("parse header: have %d of %d bytes: %w", len(b), HeaderSize, ErrShort)
	}
	be := binary.BigEndian
	if m := b[posMagic]; m != magicV2 {
		return Header{}, fmt.Errorf("parse header: magic %d: %w", m, ErrMagic)
	}
	h := Header{
		BaseOffset:      int64(be.Uint64(b[posBaseOffset:])),
		Length:          int32(be.Uint32(b[posLength:])),
		LeaderEpoch:     int32(be.Uint32(b[posLeaderEpoch:])),
		CRC:             be.Uint32(b[posCRC:]),
		Attributes:      Attributes(be.Uint16(b[posAttributes:])),
		LastOffsetDelta: int32(be.Uint32(b[posLastOffsetDelta:])),
		BaseTimestamp:   int64(be.Uint64(b[posBaseTimestamp:])),
		MaxTimestamp:    int64(be.Uint64(b[posMaxTimestamp:])),
		ProducerID:      int64(be.Uint64(b[posProducerID:])),
		ProducerEpoch:   int16(be.Uint16(b[posProducerEpoch:])),
		BaseSequence:    int32(be.Uint32(b[posBaseSequence:])),
		Count:           int32(be.Uint32(b[posCount:])),
	}
	if h.Length < HeaderSize-lengthEnd {
		return Header{}, fmt.Errorf("parse header: base offset %d: length %d is below a header's: %w",
			h.BaseOffset, h.Length, ErrCorrupt)
	}
	return h, nil
}

// Split cuts the first whole batch off b; both results alias b. Errors: those
// of ParseHeader, and ErrShort when the batch goes on after b.
func Split(b []byte) (batch, rest []byte, err error) {
	h, err := ParseHeader(b)
	if err != nil {
		return nil, b, fmt.Errorf("split: %w", err)
	}
	n := h.Size()
	if len(b) < n {
		return nil, b, fmt.Errorf("split: base offset %d: have %d of %d bytes: %w", h.BaseOffset, len(b), n, ErrShort)
	}
	return b[:n:n], b[n:], nil
}

// Check verifies exactly one batch without decompressing it: its length, that
// count and offsets agree, that the codec is known, and CRC32C. Records are not
// looked into. It accepts compacted batches; see Header.IsDense. Errors:
// ErrShort, ErrMagic, ErrCorrupt, ErrCodec, ErrCRC.
func Check(batch []byte) (Header, error) {
	h, err := parseWhole(batch)
	if err != nil {
		return Header{}, fmt.Errorf("check: %w", err)
	}
	if sum := crc32.Checksum(batch[posAttributes:], castagnoli); sum != h.CRC {
		return Header{}, fmt.Errorf("check: base offset %d, %d bytes: stored %08x, computed %08x: %w",
			h.BaseOffset, len(batch), h.CRC, sum, ErrCRC)
	}
	// After the checksum, so that a flipped bit is reported as such.
	if err := h.sane(); err != nil {
		return Header{}, fmt.Errorf("check: base offset %d: %w", h.BaseOffset, err)
	}
	return h, nil
}

// parseWhole parses the header of a slice that must be one batch, no less and
// no more.
func parseWhole(batch []byte) (Header, error) {
	h, err := ParseHeader(batch)
	if err != nil {
		return Header{}, err
	}
	switch n := h.Size(); {
	case len(batch) < n:
		return Header{}, fmt.Errorf("base offset %d: have %d of %d bytes: %w", h.BaseOffset, len(batch), n, ErrShort)
	case len(batch) > n:
		return Header{}, fmt.Errorf("base offset %d: %d bytes after its %d: %w", h.BaseOffset, len(batch)-n, n, ErrCorrupt)
	}
	return h, nil
}

// sane checks what the fields say of each other.
func (h Header) sane() error {
	switch {
	case h.BaseOffset < 0 || h.BaseOffset > math.MaxInt64-math.MaxInt32-1:
		return fmt.Errorf("base offset out of range: %w", ErrCorrupt)
	case h.LastOffsetDelta < 0:
		return fmt.Errorf("last offset delta %d: %w", h.LastOffsetDelta, ErrCorrupt)
	case h.Count < 0 || int64(h.Count) > int64(h.LastOffsetDelta)+1:
		return fmt.Errorf("%d records in %d offsets: %w", h.Count, int64(h.LastOffsetDelta)+1, ErrCorrupt)
	case !h.Codec().valid():
		return fmt.Errorf("codec %d: %w", h.Codec(), ErrCodec)
	case h.Codec() == None && int64(h.Count)*minRecordSize > int64(h.Size()-HeaderSize):
		return fmt.Errorf("%d records in %d bytes: %w", h.Count, h.Size()-HeaderSize, ErrCorrupt)
	}
	return nil
}

// SetOffset stamps offset and leader epoch in place. They lie outside the
// checksum. The batch must hold a header; Check it first.
func SetOffset(batch []byte, baseOffset int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(batch[posBaseOffset:], uint64(baseOffset))
	binary.BigEndian.PutUint32(batch[posLeaderEpoch:], uint32(leaderEpoch))
}

// SetProducer stamps the idempotent producer's identity in place and sums the
// batch again: Check it first, since this would hide damage.
func SetProducer(batch []byte, id int64, epoch int16, baseSequence int32) {
	be := binary.BigEndian
	be.PutUint64(batch[posProducerID:], uint64(id))
	be.PutUint16(batch[posProducerEpoch:], uint16(epoch))
	be.PutUint32(batch[posBaseSequence:], uint32(baseSequence))
	setCRC(batch)
}

// SetLogAppendTime makes ms the timestamp of all records, in place, and sums
// the batch again: Check it first, since this would hide damage.
func SetLogAppendTime(batch []byte, ms int64) {
	be := binary.BigEndian
	attrs := Attributes(be.Uint16(batch[posAttributes:])) | attrLogAppendTime
	be.PutUint16(batch[posAttributes:], uint16(attrs))
	be.PutUint64(batch[posMaxTimestamp:], uint64(ms))
	setCRC(batch)
}

func setCRC(batch []byte) {
	binary.BigEndian.PutUint32(batch[posCRC:], crc32.Checksum(batch[posAttributes:], castagnoli))
}
