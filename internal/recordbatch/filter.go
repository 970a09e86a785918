package recordbatch

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Filter returns a copy of a batch that holds only the given ones of its records, which must ascend by offset. The
// records keep their offsets, the batch its base offset, its last offset delta and its producer; it is compressed
// with the same codec. Without records the batch says only that its offsets were taken. Check the batch first.
// Errors: those of ParseHeader, ErrCorrupt, ErrTooLarge.
func Filter(batch []byte, keep []Record) ([]byte, error) {
	h, err := parseWhole(batch)
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	var b Builder
	maxTS, last := int64(math.MinInt64), int64(-1)
	for _, r := range keep {
		delta := r.Offset - h.BaseOffset
		if delta <= last || delta > int64(h.LastOffsetDelta) {
			return nil, fmt.Errorf("filter: base offset %d: record of offset %d does not belong here: %w", h.BaseOffset, r.Offset, ErrCorrupt)
		}
		last = delta
		maxTS = max(maxTS, r.Timestamp)
		b.put(r.Timestamp-h.BaseTimestamp, delta, r.Key, r.Value, r.Headers)
	}
	if len(keep) == 0 || h.TimestampType() == LogAppendTime {
		maxTS = h.MaxTimestamp
	}
	out := append(make([]byte, 0, HeaderSize+len(b.records)), batch[:HeaderSize]...)
	codec := h.Codec()
	if codec != None && len(keep) > 0 {
		if out, err = compress(out, b.records, codec, 0); err != nil {
			return nil, fmt.Errorf("filter: base offset %d: %w", h.BaseOffset, err)
		}
	} else {
		codec = None
		out = append(out, b.records...)
	}
	be := binary.BigEndian
	be.PutUint32(out[posLength:], uint32(len(out)-lengthEnd))
	be.PutUint16(out[posAttributes:], uint16(h.Attributes&^attrCodecMask)|uint16(codec))
	be.PutUint64(out[posMaxTimestamp:], uint64(maxTS))
	be.PutUint32(out[posCount:], uint32(len(keep)))
	setCRC(out)
	return out, nil
}
