package recordbatch_test

import (
	"bytes"
	"testing"

	"github.com/databus-suite/databus/internal/recordbatch"
)

const fuzzLimit = 1 << 20

func drain(t *testing.T, batch []byte) {
	total := 0
	for r, err := range recordbatch.Records(batch, fuzzLimit) {
		if err != nil {
			return
		}
		total += len(r.Key) + len(r.Value)
	}
	if limit := max(fuzzLimit, len(batch)); total > limit {
		t.Fatalf("%d bytes of records, limit %d", total, limit)
	}
}

func FuzzCheck(f *testing.F) {
	for _, codec := range codecs {
		f.Add(build(f, recordbatch.BuilderOptions{Codec: codec}, samples()[:6]))
	}
	f.Add([]byte{})
	f.Add(make([]byte, recordbatch.HeaderSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if batch, rest, err := recordbatch.Split(b); err == nil && len(batch)+len(rest) != len(b) {
			t.Fatalf("split %d bytes into %d and %d", len(b), len(batch), len(rest))
		}
		if h, err := recordbatch.Check(b); err == nil && (h.Size() != len(b) || h.NextOffset() <= h.BaseOffset) {
			t.Fatalf("checked %+v of %d bytes", h, len(b))
		}
		drain(t, b)
	})
}

// FuzzRecords gets past the header, to the decompressors and the records.
func FuzzRecords(f *testing.F) {
	for _, codec := range codecs {
		batch := build(f, recordbatch.BuilderOptions{Codec: codec}, samples()[:8])
		f.Add(uint8(codec), int32(8), batch[recordbatch.HeaderSize:])
	}
	f.Add(uint8(2), int32(1), []byte("\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, codec uint8, count int32, body []byte) {
		drain(t, wrap(recordbatch.Codec(codec%8), count, body))
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(uint8(4), int64(1), int64(-1), []byte("key"), []byte("value"), "header", []byte{}, uint16(100))
	f.Add(uint8(0), int64(0), int64(1<<62), []byte{}, []byte{}, "", []byte("x"), uint16(0))
	f.Fuzz(func(t *testing.T, codec uint8, ts, ts2 int64, key, value []byte, hkey string, hvalue []byte, n uint16) {
		headers := []recordbatch.RecordHeader{{Key: hkey, Value: append([]byte{}, hvalue...)}, {Key: hkey}}
		key, value = append([]byte{}, key...), append([]byte{}, value...)
		want := []recordbatch.Record{
			{Offset: 0, Timestamp: ts, Key: key, Value: nil, Headers: headers},
			{Offset: 1, Timestamp: ts2, Key: nil, Value: value},
			{Offset: 2, Timestamp: ts, Key: key, Value: bytes.Repeat([]byte{7}, int(n)), Headers: headers[:1]},
		}
		batch := build(t, recordbatch.BuilderOptions{Codec: recordbatch.Codec(codec % 5)}, want)
		if _, err := recordbatch.Check(batch); err != nil {
			t.Fatal(err)
		}
		got, err := collect(t, batch, 0)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(want, got); d != "" {
			t.Fatal(d)
		}
	})
}
