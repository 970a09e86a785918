package recordbatch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// Record is one record as read. Timestamp is in milliseconds. A nil Key or
// Value is null; an empty one that is not nil is empty.
type Record struct {
	Offset    int64
	Timestamp int64
	Key       []byte
	Value     []byte
	Headers   []RecordHeader
}

// RecordHeader is one header of a record. A nil Value is null.
type RecordHeader struct {
	Key   string
	Value []byte
}

// minRecordSize is a record of null key, null value and no headers.
const minRecordSize = 7

// maxTimestampDelta is the longest varint of a timestamp's distance.
const maxTimestampDelta = binary.MaxVarintLen64

// BuilderOptions say how a batch is compressed.
type BuilderOptions struct {
	Codec Codec
	Level int // 0 is the codec's default; see Codec.CheckLevel
}

// Builder collects records and writes them as one batch. It belongs to one
// goroutine at a time; there is nothing to close. Once its buffer has grown,
// it allocates nothing a record. The zero Builder compresses nothing.
type Builder struct {
	opts    BuilderOptions
	records []byte
	count   int
	baseTS  int64
	maxTS   int64
}

// NewBuilder returns an empty Builder. A level that the codec lacks comes back
// from Build.
func NewBuilder(opts BuilderOptions) *Builder { return &Builder{opts: opts} }

// Reset drops the records and keeps the memory.
func (b *Builder) Reset(opts BuilderOptions) {
	*b = Builder{opts: opts, records: b.records[:0]}
}

// Count is how many records the batch holds.
func (b *Builder) Count() int { return b.count }

// Size is the length of the batch so far, uncompressed, with its header.
func (b *Builder) Size() int { return HeaderSize + len(b.records) }

// SizeAfter is the most that Size can be once the record is appended; the
// timestamp, not known here, makes up to 9 bytes of difference.
func (b *Builder) SizeAfter(key, value []byte, headers []RecordHeader) int {
	n := recordBody(maxTimestampDelta, int64(b.count), key, value, headers)
	return b.Size() + varintLen(int64(n)) + n
}

// Append adds a record with a timestamp in milliseconds and copies what it is
// given. The caller keeps a batch within its limits by SizeAfter.
func (b *Builder) Append(ts int64, key, value []byte, headers []RecordHeader) {
	if b.count == 0 {
		b.baseTS, b.maxTS = ts, ts
	}
	b.maxTS = max(b.maxTS, ts)
	b.put(ts-b.baseTS, int64(b.count), key, value, headers)
}

// put encodes a record at the end.
func (b *Builder) put(tsDelta, offsetDelta int64, key, value []byte, headers []RecordHeader) {
	n := recordBody(varintLen(tsDelta), offsetDelta, key, value, headers)
	r := slices.Grow(b.records, binary.MaxVarintLen32+n)
	r = binary.AppendVarint(r, int64(n))
	r = append(r, 0) // attributes: none are defined
	r = binary.AppendVarint(r, tsDelta)
	r = binary.AppendVarint(r, offsetDelta)
	r = appendNullable(r, key)
	r = appendNullable(r, value)
	r = binary.AppendVarint(r, int64(len(headers)))
	for i := range headers {
		r = binary.AppendVarint(r, int64(len(headers[i].Key)))
		r = append(r, headers[i].Key...)
		r = appendNullable(r, headers[i].Value)
	}
	b.records = r
	b.count++
}

// Build appends the finished batch to dst: base offset 0, leader epoch -1, no
// producer, checksum set. Records that compression would not shrink are left
// as they are, with codec None. The Builder keeps its records until Reset.
// Errors: ErrCodec, ErrTooLarge; ErrCorrupt for a batch without records.
func (b *Builder) Build(dst []byte) ([]byte, error) {
	switch {
	case b.count == 0:
		return dst, fmt.Errorf("build: no records: %w", ErrCorrupt)
	case b.count > math.MaxInt32 || b.Size() > math.MaxInt32:
		return dst, fmt.Errorf("build: %d records, %d bytes: %w", b.count, b.Size(), ErrTooLarge)
	}
	if err := b.opts.Codec.CheckLevel(b.opts.Level); err != nil {
		return dst, fmt.Errorf("build: %w", err)
	}
	start := len(dst)
	dst = slices.Grow(dst, HeaderSize)[:start+HeaderSize]
	body, codec := start+HeaderSize, b.opts.Codec
	if codec != None {
		out, err := compress(dst, b.records, codec, b.opts.Level)
		if err != nil {
			return dst[:start], fmt.Errorf("build: %d records, %d bytes: %w", b.count, b.Size(), err)
		}
		dst = out
		if len(dst)-body >= len(b.records) {
			dst, codec = dst[:body], None
		}
	}
	if codec == None {
		dst = append(dst, b.records...)
	}
	b.putHeader(dst[start:], codec)
	return dst, nil
}

func (b *Builder) putHeader(batch []byte, codec Codec) {
	be := binary.BigEndian
	SetOffset(batch, 0, -1)
	be.PutUint32(batch[posLength:], uint32(len(batch)-lengthEnd))
	batch[posMagic] = magicV2
	be.PutUint16(batch[posAttributes:], uint16(codec))
	be.PutUint32(batch[posLastOffsetDelta:], uint32(b.count-1))
	be.PutUint64(batch[posBaseTimestamp:], uint64(b.baseTS))
	be.PutUint64(batch[posMaxTimestamp:], uint64(b.maxTS))
	be.PutUint32(batch[posCount:], uint32(b.count))
	SetProducer(batch, -1, -1, -1) // sums, so it comes last
}

// recordBody is the length of a record after its own length field.
func recordBody(tsLen int, offsetDelta int64, key, value []byte, headers []RecordHeader) int {
	n := 1 + tsLen + varintLen(offsetDelta) + nullableLen(key) + nullableLen(value) + varintLen(int64(len(headers)))
	for i := range headers {
		n += varintLen(int64(len(headers[i].Key))) + len(headers[i].Key) + nullableLen(headers[i].Value)
	}
	return n
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // zigzag of -1
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func nullableLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

// varintLen is the length of v as a zigzag varint.
func varintLen(v int64) int {
	return (bits.Len64(uint64(v<<1^v>>63)|1) + 6) / 7
}
