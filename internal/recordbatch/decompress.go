package recordbatch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// minBuffer is the least room that decompression of unknown size starts with.
const minBuffer = 4 << 10

// decompressor holds one reader a codec, each made at first use. Not
// concurrent. Its output is bounded by the limit of each call, whatever sizes
// the input claims.
type decompressor struct {
	src bytes.Reader
	gz  *gzip.Reader
	lz  *lz4.Reader
	zs  *zstd.Decoder
}

// decompress returns the decompressed src in dst's memory, or in more.
func (d *decompressor) decompress(dst, src []byte, c Codec, limit int) ([]byte, error) {
	dst = dst[:0]
	switch c {
	case Gzip:
		return d.gzip(dst, src, limit)
	case Snappy:
		return unsnappy(dst, src, limit)
	case LZ4:
		return d.lz4(dst, src, limit)
	case Zstd:
		return d.zstd(dst, src, limit)
	default:
		return dst, fmt.Errorf("codec %d: %w", int8(c), ErrCodec)
	}
}

func (d *decompressor) gzip(dst, src []byte, limit int) ([]byte, error) {
	defer d.src.Reset(nil)
	d.src.Reset(src)
	var err error
	if d.gz == nil {
		d.gz, err = gzip.NewReader(&d.src)
	} else {
		err = d.gz.Reset(&d.src)
	}
	if err != nil {
		d.gz = nil
		return dst, fmt.Errorf("gzip: %w: %v", ErrCorrupt, err)
	}
	if dst, err = readAll(dst, d.gz, len(src), limit); err != nil {
		d.gz = nil
		return dst, fmt.Errorf("gzip: %w", err)
	}
	return dst, nil
}

func (d *decompressor) lz4(dst, src []byte, limit int) ([]byte, error) {
	defer d.src.Reset(nil)
	d.src.Reset(src)
	if d.lz == nil {
		d.lz = lz4.NewReader(&d.src)
	} else {
		d.lz.Reset(&d.src)
	}
	dst, err := readAll(dst, d.lz, len(src), limit)
	if err != nil {
		d.lz = nil
		return dst, fmt.Errorf("lz4: %w", err)
	}
	return dst, nil
}

// readAll appends r to dst until the end or the limit. It reads one byte past
// the limit to tell the two apart.
func readAll(dst []byte, r io.Reader, hint, limit int) ([]byte, error) {
	for want := max(minBuffer, 4*hint); ; want = 2 * cap(dst) {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, max(1, min(want, limit+1)-len(dst)))
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > limit:
			return dst, fmt.Errorf("more than %d bytes: %w", limit, ErrTooLarge)
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, fmt.Errorf("after %d bytes: %w: %v", len(dst), ErrCorrupt, err)
		}
	}
}

// zstdBlock is the most that one zstd block decodes to, with room to copy in
// large steps.
const zstdBlock = 128<<10 + 64

// zstd bounds its output by the capacity it decodes into. The library's own
// memory limit would refuse small batches of streaming writers, such as Java
// clients, because their frames announce a large window and no size.
func (d *decompressor) zstd(dst, src []byte, limit int) ([]byte, error) {
	if d.zs == nil {
		// One block at a time in the caller's goroutine: nothing to close.
		zs, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return dst, fmt.Errorf("zstd: %w", err)
		}
		d.zs = zs
	}
	var frame zstd.Header
	if err := frame.Decode(src); err != nil {
		return dst, fmt.Errorf("zstd: %w: %v", ErrCorrupt, err)
	}
	room := max(minBuffer, 4*len(src))
	if frame.HasFCS {
		if frame.FrameContentSize > uint64(limit) {
			return dst, fmt.Errorf("zstd: %d bytes, limit %d: %w", frame.FrameContentSize, limit, ErrTooLarge)
		}
		room = int(frame.FrameContentSize) + 64
	}
	most := limit + zstdBlock // any block that starts within the limit fits
	for {
		if room = min(room, most); cap(dst) < room {
			dst = make([]byte, 0, room)
		}
		room = min(cap(dst), most)
		out, err := d.zs.DecodeAll(src, dst[:0:room])
		switch {
		case len(out) > limit:
			return dst, fmt.Errorf("zstd: more than %d bytes: %w", limit, ErrTooLarge)
		case err == nil:
			return out, nil
		case room == most || len(out)+zstdBlock <= room: // not for want of room
			return dst, fmt.Errorf("zstd: after %d bytes: %w: %v", len(out), ErrCorrupt, err)
		}
		room = 4*room + zstdBlock
	}
}

// xerialMagic opens the framing in which Java clients put snappy blocks. Two
// version fields of 4 bytes follow, then blocks, each after its 4-byte length.
var xerialMagic = []byte("\x82SNAPPY\x00")

const xerialHeader = 16

// unsnappy reads the raw block of most clients and the framing of Java ones.
func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return unsnappyBlock(dst, src, limit)
	}
	for pos := 0; pos < len(src); {
		if bytes.HasPrefix(src[pos:], xerialMagic) { // streams may be joined
			if len(src)-pos < xerialHeader {
				return dst, fmt.Errorf("snappy: frame header cut at byte %d: %w", pos, ErrCorrupt)
			}
			pos += xerialHeader
			continue
		}
		if len(src)-pos < 4 {
			return dst, fmt.Errorf("snappy: block length cut at byte %d: %w", pos, ErrCorrupt)
		}
		n := binary.BigEndian.Uint32(src[pos:])
		pos += 4
		if uint64(n) > uint64(len(src)-pos) {
			return dst, fmt.Errorf("snappy: block of %d bytes at byte %d, %d left: %w", n, pos, len(src)-pos, ErrCorrupt)
		}
		var err error
		if dst, err = unsnappyBlock(dst, src[pos:pos+int(n)], limit); err != nil {
			return dst, err
		}
		pos += int(n)
	}
	return dst, nil
}

// unsnappyBlock appends one block.
func unsnappyBlock(dst, block []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return dst, fmt.Errorf("snappy: %w: %v", ErrCorrupt, err)
	}
	if n > limit-len(dst) {
		return dst, fmt.Errorf("snappy: %d bytes, limit %d: %w", len(dst)+n, limit, ErrTooLarge)
	}
	dst = slices.Grow(dst, n)
	if _, err := snappy.Decode(dst[len(dst):len(dst)+n], block); err != nil {
		return dst, fmt.Errorf("snappy: %w: %v", ErrCorrupt, err)
	}
	return dst[:len(dst)+n], nil
}
