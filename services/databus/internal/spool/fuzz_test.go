package spool

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func putCRC(h []byte) { binary.BigEndian.PutUint32(h[28:], crc32.Checksum(h[:28], castagnoli)) }

// FuzzScan reads arbitrary bytes as a file: nothing panics, and what ends is within the file.
func FuzzScan(f *testing.F) {
	valid := fileHeader(1)
	rec, at := beginRecord(nil)
	rec = appendMark(rec, place{"t", 1}, mark{through: 5, producerID: 7, seq: 9})
	endRecord(rec, at, nil, kindMark, 1, fileHeaderSize)
	f.Add(append(valid, rec...), uint32(1))
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, number uint32) {
		// Most inputs would fail at the checksum: mend it, so that what is behind it is reached.
		for at := fileHeaderSize; at+recordHeadSize <= len(b); at += recordAlign {
			if binary.BigEndian.Uint32(b[at:]) == recordMagic {
				size := int(binary.BigEndian.Uint32(b[at+8:]))
				if size >= recordHeadSize && size <= len(b)-at {
					binary.BigEndian.PutUint32(b[at+4:], crc32.Checksum(b[at+8:at+size], castagnoli))
				}
			}
		}
		fd := found{entries: map[uint64]*item{}, heads: map[uint64]entryHead{}, marks: map[place]placedMark{}, shed: map[place][]span{}, cuts: map[uint32]int64{}}
		fl := &file{number: number}
		end, _, err := scanFile(b, number, func(r record, at int) error { return fd.take(fl, r, int64(at)) })
		if err == nil && (end < 0 || end > len(b)) {
			t.Errorf("ends at %d of %d", end, len(b))
		}
	})
}

// FuzzRecords writes each kind of record and reads it back, and reads arbitrary bodies.
func FuzzRecords(f *testing.F) {
	f.Add("topic", "channel", int32(1), uint64(3), []byte("batch"))
	f.Fuzz(func(t *testing.T, topic, channel string, partition int32, id uint64, body []byte) {
		_, _, _ = parseEntry(body)
		_, _, _ = parseMark(body)
		_, _, _ = parseShed(body)
		_, _, _ = parseCut(body)
		if topic == "" || len(topic) > maxName || len(channel) > maxName || partition < 0 {
			return
		}
		p := place{topic, partition}
		h := entryHead{id: id, created: int64(id), count: 1, layout: partition, place: p, channel: channel}
		gotH, batch, err := parseEntry(append(appendEntryHead(nil, &h), body...))
		if err != nil || gotH != h || !bytes.Equal(batch, body) {
			t.Errorf("entry: %+v %q %v, want %+v", gotH, batch, err, h)
		}
		m := mark{through: id, producerID: int64(id), epoch: int16(id), seq: partition}
		gotP, gotM, err := parseMark(appendMark(nil, p, m))
		if err != nil || gotP != p || gotM != m {
			t.Errorf("mark: %+v %+v %v, want %+v", gotP, gotM, err, m)
		}
		spans := []span{{id, id + 1}, {id + 3, id + 9}}
		gotP, gotS, err := parseShed(appendShed(nil, p, spans))
		if err != nil || gotP != p || cmp.Diff(spans, gotS, cmp.AllowUnexported(span{})) != "" {
			t.Errorf("shed: %+v %+v %v, want %+v", gotP, gotS, err, spans)
		}
	})
}

func TestSpans(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name              string
		spans             []span
		id, before, after uint64
		want              []span
	}{
		{"first", nil, 5, 0, 9, []span{{5, 5}}},
		{"extends", []span{{5, 5}}, 7, 3, 9, []span{{5, 7}}},
		{"bridges", []span{{5, 5}, {9, 9}}, 7, 3, 10, []span{{5, 9}}},
		{"apart", []span{{5, 5}}, 9, 7, 11, []span{{5, 5}, {9, 9}}},
		{"before", []span{{9, 9}}, 5, 3, 7, []span{{5, 5}, {9, 9}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, addSpan(tc.spans, tc.id, tc.before, tc.after), cmp.AllowUnexported(span{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
