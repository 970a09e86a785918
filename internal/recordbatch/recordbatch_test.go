package recordbatch_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/databus-suite/databus/internal/recordbatch"
)

var codecs = []recordbatch.Codec{recordbatch.None, recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd}

// samples has each shape of a record, and enough bulk to be worth compressing.
func samples() []recordbatch.Record {
	rs := []recordbatch.Record{
		{Timestamp: 1_700_000_000_000, Key: []byte("k"), Value: []byte(`{"n":12345678901234567890}`)},
		{Timestamp: 1_700_000_000_001, Key: nil, Value: nil},
		{Timestamp: 1_600_000_000_000, Key: []byte{}, Value: []byte{}},
		{Timestamp: math.MaxInt64, Key: []byte("k"), Value: []byte("v"), Headers: []recordbatch.RecordHeader{
			{Key: "traceparent", Value: []byte("00-aa-bb-01")}, {Key: "null"}, {Key: "", Value: []byte{}}}},
	}
	for i := range 300 {
		rs = append(rs, recordbatch.Record{Timestamp: 1_700_000_000_000 + int64(i), Key: fmt.Appendf(nil, "key-%d", i%7),
			Value: bytes.Repeat(fmt.Appendf(nil, "value %d ", i), 40),
			Headers: []recordbatch.RecordHeader{
				{Key: "id", Value: fmt.Appendf(nil, "%d", i)}, {Key: strings.Repeat("long", 30), Value: []byte("x")}}})
	}
	for i := range rs {
		rs[i].Offset = int64(i)
	}
	return rs
}

func build(t testing.TB, opts recordbatch.BuilderOptions, rs []recordbatch.Record) []byte {
	t.Helper()
	b := recordbatch.NewBuilder(opts)
	for _, r := range rs {
		before, bound := b.Size(), b.SizeAfter(r.Key, r.Value, r.Headers)
		b.Append(r.Timestamp, r.Key, r.Value, r.Headers)
		if got := b.Size(); got > bound || got < bound-10 || got <= before {
			t.Fatalf("Size after append = %d, SizeAfter = %d", got, bound)
		}
	}
	out, err := b.Build([]byte("in front"))
	if err != nil {
		t.Fatalf("Build: %v", err)
	}
	return bytes.TrimPrefix(out, []byte("in front"))
}

func collect(t testing.TB, batch []byte, limit int) ([]recordbatch.Record, error) {
	t.Helper()
	var rs []recordbatch.Record
	for r, err := range recordbatch.Records(batch, limit) {
		if err != nil {
			return rs, err
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// diff tells nil from empty. Comparing first is much faster than explaining.
func diff(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return "-want +got\n" + cmp.Diff(want, got)
}

func TestRoundTripEveryCodecAndLevel(t *testing.T) {
	t.Parallel()
	want := samples()
	dec := recordbatch.NewDecoder(0)
	for _, codec := range codecs {
		for level := 0; level <= codec.MaxLevel(); level++ {
			batch := build(t, recordbatch.BuilderOptions{Codec: codec, Level: level}, want)
			h, err := recordbatch.Check(batch)
			if err != nil {
				t.Fatalf("%s/%d: %v", codec, level, err)
			}
			if h.Codec() != codec || h.Size() != len(batch) || !h.IsDense() || int(h.Count) != len(want) ||
				h.LastOffset() != int64(len(want)-1) || h.NextOffset() != int64(len(want)) ||
				h.BaseTimestamp != want[0].Timestamp || h.MaxTimestamp != math.MaxInt64 ||
				h.LeaderEpoch != -1 || h.ProducerID != -1 || h.ProducerEpoch != -1 || h.BaseSequence != -1 {
				t.Errorf("%s/%d: header %+v", codec, level, h)
			}
			got, err := collect(t, batch, 0)
			if err != nil {
				t.Fatalf("%s/%d: %v", codec, level, err)
			}
			if d := diff(want, got); d != "" {
				t.Errorf("%s/%d: %s", codec, level, d)
			}
			i := 0
			for r, err := range dec.Records(batch) {
				if err != nil {
					t.Fatalf("%s/%d: Decoder: %v", codec, level, err)
				}
				if d := diff(want[i], r); d != "" {
					t.Errorf("%s/%d: Decoder: %s", codec, level, d)
				}
				i++
			}
		}
	}
}

// A batch that a Kafka broker wrote, as clients' tests have it.
const golden = "0000000000000000" + "0000003b" + "00000002" + "02" + "0318a270" + "0000" + "00000000" +
	"0000015dff7b063c" + "0000015dff7b063c" + "ffffffffffffffff" + "ffff" + "ffffffff" + "00000001" +
	"12000000" + "01" + "06313233" + "00"

func TestGolden(t *testing.T) {
	t.Parallel()
	want, err := hex.DecodeString(golden)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := recordbatch.Check(want); err != nil {
		t.Fatal(err)
	}
	rs, err := collect(t, want, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff([]recordbatch.Record{{Timestamp: 0x15dff7b063c, Value: []byte("123")}}, rs); d != "" {
		t.Error(d)
	}
	got := build(t, recordbatch.BuilderOptions{}, rs)
	recordbatch.SetOffset(got, 0, 2)
	if !bytes.Equal(got, want) {
		t.Errorf("built\n%x, want\n%x", got, want)
	}
}

func TestIncompressibleFallsBackToNone(t *testing.T) {
	t.Parallel()
	for _, codec := range codecs {
		batch := build(t, recordbatch.BuilderOptions{Codec: codec}, samples()[1:2])
		if h, err := recordbatch.Check(batch); err != nil || h.Codec() != recordbatch.None {
			t.Errorf("%s: codec %s, %v", codec, h.Codec(), err)
		}
	}
}

func TestInPlaceEdits(t *testing.T) {
	t.Parallel()
	batch := build(t, recordbatch.BuilderOptions{Codec: recordbatch.LZ4}, samples())
	recordbatch.SetOffset(batch, 1000, 7)
	recordbatch.SetProducer(batch, 42, 3, 99)
	h, err := recordbatch.Check(batch)
	if err != nil {
		t.Fatal(err)
	}
	if h.BaseOffset != 1000 || h.LeaderEpoch != 7 || h.ProducerID != 42 || h.ProducerEpoch != 3 || h.BaseSequence != 99 {
		t.Errorf("header %+v", h)
	}
	recordbatch.SetLogAppendTime(batch, 5)
	if h, err = recordbatch.Check(batch); err != nil || h.TimestampType() != recordbatch.LogAppendTime || h.MaxTimestamp != 5 {
		t.Errorf("header %+v, %v", h, err)
	}
	rs, err := collect(t, batch, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range rs {
		if r.Offset != 1000+int64(i) || r.Timestamp != 5 {
			t.Fatalf("record %d: offset %d, timestamp %d", i, r.Offset, r.Timestamp)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	one := build(t, recordbatch.BuilderOptions{}, samples()[:1])
	two := build(t, recordbatch.BuilderOptions{Codec: recordbatch.Gzip}, samples())
	both := append(bytes.Clone(one), two...)
	first, rest, err := recordbatch.Split(both)
	if err != nil || !bytes.Equal(first, one) {
		t.Fatalf("first: %v", err)
	}
	second, rest, err := recordbatch.Split(rest)
	if err != nil || !bytes.Equal(second, two) || len(rest) != 0 {
		t.Fatalf("second: %v, %d left", err, len(rest))
	}
	for n := range one {
		if _, rest, err := recordbatch.Split(one[:n]); !errors.Is(err, recordbatch.ErrShort) || len(rest) != n {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestBuilderResetAndErrors(t *testing.T) {
	t.Parallel()
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{Codec: recordbatch.Zstd, Level: 23})
	if _, err := b.Build(nil); !errors.Is(err, recordbatch.ErrCorrupt) {
		t.Errorf("empty: %v", err)
	}
	b.Append(1, nil, []byte("v"), nil)
	if out, err := b.Build([]byte("x")); !errors.Is(err, recordbatch.ErrCodec) || string(out) != "x" {
		t.Errorf("level 23: %q, %v", out, err)
	}
	b.Reset(recordbatch.BuilderOptions{})
	if b.Count() != 0 || b.Size() != recordbatch.HeaderSize {
		t.Errorf("after Reset: count %d, size %d", b.Count(), b.Size())
	}
	b.Append(9, nil, []byte("w"), nil)
	out, err := b.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := recordbatch.Check(out); err != nil || h.BaseTimestamp != 9 || h.MaxTimestamp != 9 || h.Count != 1 {
		t.Errorf("header %+v, %v", h, err)
	}
}

func TestParseCodec(t *testing.T) {
	t.Parallel()
	for _, c := range codecs {
		if got, err := recordbatch.ParseCodec(strings.ToUpper(c.String())); err != nil || got != c {
			t.Errorf("ParseCodec(%s) = %s, %v", c, got, err)
		}
	}
	if _, err := recordbatch.ParseCodec("brotli"); !errors.Is(err, recordbatch.ErrCodec) {
		t.Errorf("brotli: %v", err)
	}
}
