package recordbatch

import (
	"fmt"
	"iter"
	"math"
	"sync"
)

// DefaultMaxBytes bounds decompressed records where the caller names no limit.
const DefaultMaxBytes = 64 << 20

// headerChunk is how many record headers share an allocation, and keyCache how
// many different header keys a Decoder remembers: both keep a stream of
// records with the same few headers from allocating for each.
const (
	headerChunk = 256
	keyCache    = 256
	maxCacheKey = 128
)

// decompressors serve Records, whose callers keep nothing between batches.
var decompressors = sync.Pool{New: func() any { return new(decompressor) }}

// Records iterates over the records of one batch. Records that decompress to
// more than maxBytes (0: DefaultMaxBytes) are refused. Slices alias batch, or
// memory of this call's own when it is compressed, so they stay valid. After an
// error the iteration ends. The checksum is not verified: see Check. Control
// batches yield their markers as records: see Header.IsControl. Errors: those
// of ParseHeader, ErrCodec, ErrTooLarge, ErrCorrupt.
func Records(batch []byte, maxBytes int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		var p parser
		err := p.open(batch)
		if err == nil && p.compressed() {
			d := decompressors.Get().(*decompressor)
			err = p.inflate(d, nil, limitOf(maxBytes))
			decompressors.Put(d)
		}
		p.run(err, yield)
	}
}

// Decoder reads records of many batches and reuses its memory. It belongs to
// one goroutine at a time; there is nothing to close.
type Decoder struct {
	maxBytes int
	inflate  decompressor
	buf      []byte
	parser   parser
}

// NewDecoder returns a Decoder that refuses records which decompress to more
// than maxBytes (0: DefaultMaxBytes).
func NewDecoder(maxBytes int) *Decoder {
	return &Decoder{maxBytes: limitOf(maxBytes), parser: parser{keys: make(map[string]string)}}
}

// Records is like the function Records, but what it yields is valid only until
// the next use of the Decoder.
func (d *Decoder) Records(batch []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		p := &d.parser
		err := p.open(batch)
		if err == nil && p.compressed() {
			if err = p.inflate(&d.inflate, d.buf, d.maxBytes); err == nil {
				d.buf = p.body
			}
		}
		p.run(err, yield)
		p.body = nil
	}
}

func limitOf(maxBytes int) int {
	if maxBytes <= 0 {
		return DefaultMaxBytes
	}
	return min(maxBytes, math.MaxInt32) // no batch is larger
}

// parser walks over the records of one batch.
type parser struct {
	header  Header
	body    []byte
	chunk   []RecordHeader    // records' headers are cut from it
	keys    map[string]string // nil: header keys are not shared
	last    int64             // offset delta of the record before
	ordinal int
}

// open checks all but the checksum, and points body at the records as stored.
func (p *parser) open(batch []byte) error {
	h, err := parseWhole(batch)
	if err != nil {
		return err
	}
	if err := h.sane(); err != nil {
		return fmt.Errorf("base offset %d: %w", h.BaseOffset, err)
	}
	p.header, p.body, p.chunk, p.last, p.ordinal = h, batch[HeaderSize:], p.chunk[:0], -1, 0
	return nil
}

// compressed is false for the empty batch that compaction leaves behind.
func (p *parser) compressed() bool {
	return p.header.Codec() != None && (p.header.Count > 0 || len(p.body) > 0)
}

// inflate points body at the decompressed records, in buf's memory or in more.
func (p *parser) inflate(d *decompressor, buf []byte, limit int) error {
	out, err := d.decompress(buf, p.body, p.header.Codec(), limit)
	if err != nil {
		return fmt.Errorf("base offset %d: %w", p.header.BaseOffset, err)
	}
	p.body = out
	return nil
}

// run yields every record, or the error that comes first.
func (p *parser) run(err error, yield func(Record, error) bool) {
	if err != nil {
		yield(Record{}, fmt.Errorf("read records: %w", err))
		return
	}
	rest := p.body
	for p.ordinal = 0; p.ordinal < int(p.header.Count); p.ordinal++ {
		var r Record
		if r, rest, err = p.next(rest); err != nil {
			yield(Record{}, fmt.Errorf("read records: base offset %d: record %d of %d: %w",
				p.header.BaseOffset, p.ordinal, p.header.Count, err))
			return
		}
		if !yield(r, nil) {
			return
		}
	}
	if len(rest) > 0 {
		yield(Record{}, fmt.Errorf("read records: base offset %d: %d bytes after %d records: %w",
			p.header.BaseOffset, len(rest), p.header.Count, ErrCorrupt))
	}
}

// next reads one record off b.
func (p *parser) next(b []byte) (Record, []byte, error) {
	c := cursor{b: b}
	n := c.length()
	if c.bad || n < minRecordSize-1 || n > len(c.b) {
		return Record{}, nil, fmt.Errorf("length %d, %d bytes left: %w", n, len(c.b), ErrCorrupt)
	}
	rest := c.b[n:]
	c.b = c.b[1:n] // without the attributes, of which none are defined

	tsDelta, offsetDelta := c.varint(), c.varint()
	r := Record{
		Offset:    p.header.BaseOffset + offsetDelta,
		Timestamp: p.header.BaseTimestamp + tsDelta,
		Key:       c.nullable(),
		Value:     c.nullable(),
	}
	if p.header.TimestampType() == LogAppendTime {
		r.Timestamp = p.header.MaxTimestamp
	}
	if k := c.length(); k > 0 {
		r.Headers = p.headers(&c, k)
	} else if k < 0 {
		c.bad = true
	}
	switch {
	case c.bad || len(c.b) > 0:
		return Record{}, nil, fmt.Errorf("fields do not fill its %d bytes: %w", n, ErrCorrupt)
	case offsetDelta <= p.last || offsetDelta > int64(p.header.LastOffsetDelta):
		return Record{}, nil, fmt.Errorf("offset delta %d after %d, last is %d: %w",
			offsetDelta, p.last, p.header.LastOffsetDelta, ErrCorrupt)
	}
	p.last = offsetDelta
	return r, rest, nil
}

// headers reads k headers. It trusts k only as far as bytes are left.
func (p *parser) headers(c *cursor, k int) []RecordHeader {
	if k > len(c.b)/2 {
		c.bad = true
		return nil
	}
	if cap(p.chunk)-len(p.chunk) < k {
		// As if the records left had as many each, so that a small batch makes
		// no large chunk.
		left := k * min(headerChunk, int(p.header.Count)-p.ordinal)
		p.chunk = make([]RecordHeader, 0, max(k, min(left, headerChunk)))
	}
	start := len(p.chunk)
	for range k {
		n := c.length()
		if c.bad || n < 0 || n > len(c.b) {
			c.bad = true
			return nil
		}
		key := p.key(c.b[:n])
		c.b = c.b[n:]
		p.chunk = append(p.chunk, RecordHeader{Key: key, Value: c.nullable()})
	}
	return p.chunk[start:len(p.chunk):len(p.chunk)]
}

// key returns b as a string, shared with earlier ones where there is a cache.
func (p *parser) key(b []byte) string {
	if p.keys == nil || len(b) > maxCacheKey {
		return string(b)
	}
	if s, ok := p.keys[string(b)]; ok { // does not allocate
		return s
	}
	s := string(b)
	if len(p.keys) < keyCache {
		p.keys[s] = s
	}
	return s
}
