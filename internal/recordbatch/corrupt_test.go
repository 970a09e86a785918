package recordbatch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// wrap puts any bytes behind a valid header and checksum.
func wrap(codec recordbatch.Codec, count int32, body []byte) []byte {
	batch := make([]byte, recordbatch.HeaderSize, recordbatch.HeaderSize+len(body))
	batch = append(batch, body...)
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-12))
	batch[16] = 2
	binary.BigEndian.PutUint16(batch[21:], uint16(codec))
	binary.BigEndian.PutUint32(batch[23:], uint32(max(0, count-1)))
	binary.BigEndian.PutUint32(batch[57:], uint32(count))
	recordbatch.SetProducer(batch, -1, -1, -1)
	return batch
}

func TestCheckFindsEveryFlippedBit(t *testing.T) {
	t.Parallel()
	batch := build(t, recordbatch.BuilderOptions{Codec: recordbatch.Zstd}, samples()[:20])
	for i := 8; i < len(batch); i++ {
		if i >= 12 && i < 16 {
			continue // leader epoch, which the broker stamps
		}
		for bit := range 8 {
			bad := bytes.Clone(batch)
			bad[i] ^= 1 << bit
			if _, err := recordbatch.Check(bad); err == nil {
				t.Fatalf("byte %d, bit %d: not found", i, bit)
			}
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	good := build(t, recordbatch.BuilderOptions{}, samples()[:3])
	resum := func(b []byte) {
		h, _ := recordbatch.ParseHeader(b)
		recordbatch.SetProducer(b, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	}
	put32 := func(pos int, v int32) func([]byte) []byte {
		return func(b []byte) []byte {
			binary.BigEndian.PutUint32(b[pos:], uint32(v))
			resum(b)
			return b
		}
	}
	for name, tc := range map[string]struct {
		edit func([]byte) []byte
		want error
	}{
		"nothing":        {func([]byte) []byte { return nil }, recordbatch.ErrShort},
		"cut":            {func(b []byte) []byte { return b[:len(b)-1] }, recordbatch.ErrShort},
		"more":           {func(b []byte) []byte { return append(b, 0) }, recordbatch.ErrCorrupt},
		"magic":          {func(b []byte) []byte { b[16] = 1; return b }, recordbatch.ErrMagic},
		"crc":            {func(b []byte) []byte { b[len(b)-1] ^= 1; return b }, recordbatch.ErrCRC},
		"length":         {put32(8, 48), recordbatch.ErrCorrupt},
		"length below 0": {put32(8, -1), recordbatch.ErrCorrupt},
		"codec":          {func(b []byte) []byte { b[22] = 5; resum(b); return b }, recordbatch.ErrCodec},
		"count below 0":  {put32(57, -1), recordbatch.ErrCorrupt},
		"count":          {put32(57, 4), recordbatch.ErrCorrupt},
		"last delta":     {put32(23, -1), recordbatch.ErrCorrupt},
		"base offset":    {func(b []byte) []byte { recordbatch.SetOffset(b, -1, 0); return b }, recordbatch.ErrCorrupt},
	} {
		if _, err := recordbatch.Check(tc.edit(bytes.Clone(good))); !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
	holes := put32(23, 9)(bytes.Clone(good))
	if h, err := recordbatch.Check(holes); err != nil || h.IsDense() || h.NextOffset() != 10 {
		t.Errorf("compacted: %+v, %v", h, err)
	}
}

func TestRecordsRefuses(t *testing.T) {
	t.Parallel()
	record := []byte{12, 0, 0, 0, 1, 1, 0}
	for name, batch := range map[string][]byte{
		"nothing":            wrap(recordbatch.Snappy, 1, nil),
		"too few":            wrap(recordbatch.Snappy, 2, snappy.Encode(nil, record)),
		"too many":           wrap(recordbatch.None, 1, append(bytes.Clone(record), record...)),
		"record length":      wrap(recordbatch.None, 1, []byte{14, 0, 0, 0, 1, 1, 0}),
		"record length < 0":  wrap(recordbatch.None, 1, []byte{13, 0, 0, 0, 1, 1, 0}),
		"key length":         wrap(recordbatch.None, 1, []byte{12, 0, 0, 0, 9, 1, 0}),
		"value length < -1":  wrap(recordbatch.None, 1, []byte{12, 0, 0, 0, 1, 3, 0}),
		"offset delta":       wrap(recordbatch.None, 1, []byte{12, 0, 0, 2, 1, 1, 0}),
		"offset delta < 0":   wrap(recordbatch.None, 1, []byte{12, 0, 0, 1, 1, 1, 0}),
		"same offset twice":  wrap(recordbatch.None, 2, append(bytes.Clone(record), record...)),
		"header count":       wrap(recordbatch.None, 1, []byte{12, 0, 0, 0, 1, 1, 2}),
		"header count < 0":   wrap(recordbatch.None, 1, []byte{12, 0, 0, 0, 1, 1, 1}),
		"header count large": wrap(recordbatch.None, 1, []byte{20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f}),
		"header key null":    wrap(recordbatch.None, 1, []byte{16, 0, 0, 0, 1, 1, 2, 1, 1}),
		"field left":         wrap(recordbatch.None, 1, []byte{14, 0, 0, 0, 1, 1, 0, 0}),
		"not gzip":           wrap(recordbatch.Gzip, 1, record),
		"not snappy":         wrap(recordbatch.Snappy, 1, record),
		"not lz4":            wrap(recordbatch.LZ4, 1, record),
		"not zstd":           wrap(recordbatch.Zstd, 1, record),
	} {
		if _, err := collect(t, batch, 0); !errors.Is(err, recordbatch.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, codec := range codecs {
		if codec != recordbatch.None {
			whole := build(t, recordbatch.BuilderOptions{Codec: codec}, samples())
			if _, err := collect(t, wrap(codec, int32(len(samples())), whole[61:len(whole)-9]), 0); !errors.Is(err, recordbatch.ErrCorrupt) {
				t.Errorf("%s cut: %v", codec, err)
			}
		}
	}
	if rs, err := collect(t, wrap(recordbatch.Zstd, 0, nil), 0); err != nil || len(rs) != 0 {
		t.Errorf("empty compacted batch: %v", err)
	}
}

// foreign compresses as other clients do.
func foreign(t testing.TB, codec recordbatch.Codec, src []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w interface {
		Write([]byte) (int, error)
		Close() error
	}
	switch codec {
	case recordbatch.Gzip:
		w = gzip.NewWriter(&out)
	case recordbatch.LZ4:
		w = lz4.NewWriter(&out)
	case recordbatch.Zstd: // a stream does not tell its size
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	case recordbatch.Snappy: // xerial framing
		out.WriteString("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
		for len(src) > 0 {
			n := min(len(src), 32<<10)
			block := snappy.Encode(nil, src[:n])
			out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(block))))
			out.Write(block)
			src = src[n:]
		}
		return out.Bytes()
	default:
		return src
	}
	if _, err := w.Write(src); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestForeignWritersAndLimits(t *testing.T) {
	t.Parallel()
	rs := samples()
	plain := build(t, recordbatch.BuilderOptions{}, rs)[recordbatch.HeaderSize:]
	for _, codec := range codecs[1:] {
		batches := map[string][]byte{
			"foreign": wrap(codec, int32(len(rs)), foreign(t, codec, plain)),
			"ours":    build(t, recordbatch.BuilderOptions{Codec: codec}, rs),
		}
		if codec == recordbatch.Snappy { // joined streams
			joined := append(foreign(t, codec, plain[:50_000]), foreign(t, codec, plain[50_000:])...)
			batches["joined"] = wrap(codec, int32(len(rs)), joined)
		}
		for name, batch := range batches {
			if got, err := collect(t, batch, len(plain)); err != nil || len(got) != len(rs) {
				t.Errorf("%s %s at the limit: %d records, %v", name, codec, len(got), err)
			}
			if _, err := collect(t, batch, len(plain)-1); !errors.Is(err, recordbatch.ErrTooLarge) {
				t.Errorf("%s %s past the limit: %v", name, codec, err)
			}
		}
	}
}

// Not parallel: it watches the allocations of the process.
func TestBombsAreBounded(t *testing.T) {
	zeros := make([]byte, 64<<20)
	for _, codec := range codecs[1:] {
		batch := wrap(codec, 1, foreign(t, codec, zeros))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := collect(t, batch, 1<<20); !errors.Is(err, recordbatch.ErrTooLarge) {
			t.Errorf("%s: %v", codec, err)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 24<<20 {
			t.Errorf("%s: allocated %d bytes for a limit of 1 MiB", codec, n)
		}
	}
}
