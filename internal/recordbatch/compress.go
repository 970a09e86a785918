package recordbatch

import (
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// zstdWindow bounds what each reader must allocate; batches are rarely larger.
const zstdWindow = 1 << 20

// Compressors are large (zstd: a megabyte and more) and idle most of the time,
// so builders, of which there is one a partition, borrow them while they build.
// They hold no state between uses.
var (
	gzipWriters [10]sync.Pool // by level
	lz4Writers  [10]sync.Pool
	zstdWriters [zstd.SpeedBestCompression + 1]sync.Pool
)

// sliceWriter lets a streaming compressor append to a slice.
type sliceWriter struct{ b []byte }

func (w *sliceWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// compress appends src to dst under the codec.
func compress(dst, src []byte, c Codec, level int) ([]byte, error) {
	if err := c.CheckLevel(level); err != nil {
		return dst, err
	}
	switch c {
	case Gzip:
		return compressGzip(dst, src, level)
	case Snappy:
		return compressSnappy(dst, src, level)
	case LZ4:
		return compressLZ4(dst, src, level)
	case Zstd:
		return compressZstd(dst, src, level)
	default:
		return append(dst, src...), nil
	}
}

type gzipWriter struct {
	z   *gzip.Writer
	out sliceWriter
}

func compressGzip(dst, src []byte, level int) ([]byte, error) {
	pool := &gzipWriters[level]
	w, _ := pool.Get().(*gzipWriter)
	if w == nil {
		l := level
		if l == 0 {
			l = gzip.DefaultCompression
		}
		z, err := gzip.NewWriterLevel(nil, l)
		if err != nil {
			return dst, fmt.Errorf("gzip level %d: %w", level, err)
		}
		w = &gzipWriter{z: z}
	}
	w.out.b = dst
	w.z.Reset(&w.out)
	if _, err := w.z.Write(src); err != nil {
		return dst, fmt.Errorf("gzip %d bytes: %w", len(src), err)
	}
	if err := w.z.Close(); err != nil {
		return dst, fmt.Errorf("gzip %d bytes: %w", len(src), err)
	}
	dst, w.out.b = w.out.b, nil
	pool.Put(w)
	return dst, nil
}

// compressSnappy writes one raw block, which all clients read; the framing of
// Java clients would only add bytes.
func compressSnappy(dst, src []byte, level int) ([]byte, error) {
	bound := s2.MaxEncodedLen(len(src))
	if bound < 0 {
		return dst, fmt.Errorf("snappy %d bytes: %w", len(src), ErrTooLarge)
	}
	dst = slices.Grow(dst, bound)
	room := dst[len(dst) : len(dst)+bound]
	var out []byte
	switch level {
	case 3:
		out = s2.EncodeSnappyBest(room, src)
	case 2:
		out = s2.EncodeSnappyBetter(room, src)
	default:
		out = s2.EncodeSnappy(room, src)
	}
	return dst[:len(dst)+len(out)], nil
}

var lz4Levels = [10]lz4.CompressionLevel{lz4.Fast, lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4,
	lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9}

type lz4Writer struct {
	z   *lz4.Writer
	out sliceWriter
}

// compressLZ4 writes the frame that Java's reader demands: independent blocks
// and no dictionary; the batch's own checksum makes the frame's redundant.
func compressLZ4(dst, src []byte, level int) ([]byte, error) {
	pool := &lz4Writers[level]
	w, _ := pool.Get().(*lz4Writer)
	if w == nil {
		w = &lz4Writer{z: lz4.NewWriter(nil)}
		if err := w.z.Apply(lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false),
			lz4.ConcurrencyOption(1), lz4.CompressionLevelOption(lz4Levels[level])); err != nil {
			return dst, fmt.Errorf("lz4 level %d: %w", level, err)
		}
	}
	w.out.b = dst
	w.z.Reset(&w.out)
	if _, err := w.z.Write(src); err != nil {
		return dst, fmt.Errorf("lz4 %d bytes: %w", len(src), err)
	}
	if err := w.z.Close(); err != nil {
		return dst, fmt.Errorf("lz4 %d bytes: %w", len(src), err)
	}
	dst, w.out.b = w.out.b, nil
	pool.Put(w)
	return dst, nil
}

func compressZstd(dst, src []byte, level int) ([]byte, error) {
	// On JSON events the next speed packs 3 to 7 % smaller, for up to half as much CPU time again.
	speed := zstd.SpeedFastest
	if level > 0 {
		speed = zstd.EncoderLevelFromZstd(level)
	}
	pool := &zstdWriters[speed]
	w, _ := pool.Get().(*zstd.Encoder)
	if w == nil {
		var err error
		w, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true), zstd.WithWindowSize(zstdWindow))
		if err != nil {
			return dst, fmt.Errorf("zstd level %d: %w", level, err)
		}
	}
	dst = w.EncodeAll(src, dst)
	pool.Put(w)
	return dst, nil
}
