package wirejson

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"google.golang.org/protobuf/types/known/timestamppb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

// Result is where one message is, or why it is not there.
type Result struct {
	Topic           string
	Partition       int32
	Offset          int64
	TimestampMillis int64
	// Placed is false for a message that was buffered or spooled: it has no partition and offset yet.
	Placed bool
	// Duplicate: the id was seen before and this is the first result again.
	Duplicate bool
	// Err is set where the message did not reach its durability; the rest is then empty.
	Err *errs.Error
}

// ResultProtos converts the results of a request. They share their memory: many at once cost two allocations.
func ResultProtos(results []Result) []*databusv1.PublishResult {
	type parts struct {
		result    databusv1.PublishResult
		timestamp timestamppb.Timestamp
		partition int32
		offset    int64
	}
	all := make([]parts, len(results))
	out := make([]*databusv1.PublishResult, len(results))
	for i := range results {
		r, p := &results[i], &all[i]
		out[i] = &p.result
		if r.Err != nil {
			p.result.Error = r.Err.Proto()
			continue
		}
		at := time.UnixMilli(r.TimestampMillis)
		p.timestamp.Seconds, p.timestamp.Nanos = at.Unix(), int32(at.Nanosecond())
		p.result.Topic, p.result.Duplicate, p.result.Timestamp = r.Topic, r.Duplicate, &p.timestamp
		if r.Placed {
			p.partition, p.offset = r.Partition, r.Offset
			p.result.Partition, p.result.Offset = &p.partition, &p.offset
		}
	}
	return out
}

// AppendResults appends {"results":[…]}.
func AppendResults(dst []byte, results []Result) []byte {
	dst = append(dst, `{"results":[`...)
	for i := range results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendResult(dst, &results[i])
	}
	return append(dst, "]}"...)
}

func appendResult(dst []byte, r *Result) []byte {
	if r.Err != nil {
		dst = append(dst, `{"error":`...)
		dst = errs.AppendJSON(dst, r.Err.Proto())
		return append(dst, '}')
	}
	dst = append(dst, `{"topic":`...)
	dst = appendText(dst, r.Topic)
	if r.Placed {
		dst = append(dst, `,"partition":`...)
		dst = strconv.AppendInt(dst, int64(r.Partition), 10)
		dst = append(dst, `,"offset":"`...)
		dst = strconv.AppendInt(dst, r.Offset, 10)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"timestamp":`...)
	dst = appendMillis(dst, r.TimestampMillis)
	if r.Duplicate {
		dst = append(dst, `,"duplicate":true`...)
	}
	return append(dst, '}')
}

// AppendStored appends a message as readers get it.
func AppendStored(dst []byte, m *databusv1.StoredMessage) []byte {
	return appendStored(append(dst, '{'), m, false)
}

// AppendStoredLine appends a message that stays on one line: a payload with a line break inside goes into valueBase64. The
// partition is left out where it is negative.
func AppendStoredLine(dst []byte, partition int32, m *databusv1.StoredMessage) []byte {
	dst = append(dst, '{')
	if partition >= 0 {
		dst = append(dst, `"partition":`...)
		dst = append(strconv.AppendInt(dst, int64(partition), 10), ',')
	}
	return appendStored(dst, m, true)
}

func appendStored(dst []byte, m *databusv1.StoredMessage, line bool) []byte {
	dst = append(dst, `"offset":"`...)
	dst = strconv.AppendInt(dst, m.GetOffset(), 10)
	dst = append(dst, '"')
	if m.GetTimestamp() != nil {
		dst = append(dst, `,"timestamp":`...)
		dst = appendTimestamp(dst, m.GetTimestamp().GetSeconds(), m.GetTimestamp().GetNanos())
	}
	dst = appendKey(dst, m.GetKey())
	dst = appendValue(dst, m.GetValue(), line)
	dst = appendHeaders(dst, m.GetHeaders())
	return append(dst, '}')
}

// AppendMessage appends a message as applications send it.
func AppendMessage(dst []byte, m *databusv1.Message, line bool) []byte {
	begin := len(dst)
	dst = appendKey(dst, m.GetKey())
	dst = appendValue(dst, m.GetValue(), line)
	dst = appendHeaders(dst, m.GetHeaders())
	if m.GetId() != "" {
		dst = append(dst, `,"id":`...)
		dst = appendText(dst, m.GetId())
	}
	if m.GetTimestamp() != nil {
		dst = append(dst, `,"timestamp":`...)
		dst = appendTimestamp(dst, m.GetTimestamp().GetSeconds(), m.GetTimestamp().GetNanos())
	}
	if m.Partition != nil {
		dst = append(dst, `,"partition":`...)
		dst = strconv.AppendInt(dst, int64(m.GetPartition()), 10)
	}
	if len(dst) == begin {
		return append(dst, "{}"...)
	}
	dst[begin] = '{' // in place of the first comma
	return append(dst, '}')
}

func appendKey(dst, key []byte) []byte {
	switch {
	case key == nil:
		return dst
	case utf8.Valid(key):
		dst = append(dst, `,"key":`...)
		return appendText(dst, key)
	}
	dst = append(dst, `,"keyBase64":`...)
	return appendBase64Text(dst, key)
}

func appendValue(dst, value []byte, line bool) []byte {
	switch {
	case value == nil:
		return dst
	case isPayloadJSON(value) && (!line || !bytes.ContainsAny(value, "\r\n")):
		dst = append(dst, `,"value":`...)
		return append(dst, value...)
	}
	dst = append(dst, `,"valueBase64":`...)
	return appendBase64Text(dst, value)
}

func appendBase64Text(dst, b []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// appendHeaders appends the object of what it can carry, and the whole list where that is not everything.
func appendHeaders(dst []byte, headers []*databusv1.Header) []byte {
	if len(headers) == 0 {
		return dst
	}
	lossy, first := false, true
	last := lastOf(headers)
	for i, h := range headers {
		if h.Value == nil || !utf8.Valid(h.Value) || !last(i) {
			lossy = true
			continue
		}
		if first {
			dst = append(dst, `,"headers":{`...)
		} else {
			dst = append(dst, ',')
		}
		first = false
		dst = appendText(dst, h.GetKey())
		dst = append(dst, ':')
		dst = appendText(dst, h.Value)
	}
	if !first {
		dst = append(dst, '}')
	}
	if lossy {
		dst = appendHeaderList(dst, headers)
	}
	return dst
}

// lastOf tells whether a header is the last of its name: of a repeated name the object has the last, as Kafka's lastHeader.
func lastOf(headers []*databusv1.Header) func(i int) bool {
	const few = 32
	if len(headers) <= few {
		return func(i int) bool {
			for _, h := range headers[i+1:] {
				if h.GetKey() == headers[i].GetKey() {
					return false
				}
			}
			return true
		}
	}
	last := make(map[string]int, len(headers))
	for i, h := range headers {
		last[h.GetKey()] = i
	}
	return func(i int) bool { return last[headers[i].GetKey()] == i }
}

func appendHeaderList(dst []byte, headers []*databusv1.Header) []byte {
	dst = append(dst, `,"headerList":[`...)
	for i, h := range headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"key":`...)
		dst = appendText(dst, h.GetKey())
		switch {
		case h.Value == nil:
		case utf8.Valid(h.Value):
			dst = append(dst, `,"value":`...)
			dst = appendText(dst, h.Value)
		default:
			dst = append(dst, `,"valueBase64":`...)
			dst = appendBase64Text(dst, h.Value)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// appendText appends a JSON string; bytes that are not UTF-8 become U+FFFD.
func appendText[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst, _ = jsontext.AppendQuote(dst, s) // the error only says that bytes were replaced
	return dst
}

// appendMillis appends an RFC 3339 time in UTC with milliseconds where there are any.
func appendMillis(dst []byte, ms int64) []byte {
	t := time.UnixMilli(ms)
	return appendTimestamp(dst, t.Unix(), int32(t.Nanosecond()))
}

// appendTimestamp appends a time as protojson does, with 0, 3, 6 or 9 digits of fraction.
func appendTimestamp(dst []byte, seconds int64, nanos int32) []byte {
	dst = append(dst, '"')
	dst = time.Unix(seconds, 0).UTC().AppendFormat(dst, time.RFC3339)
	dst = appendFraction(dst[:len(dst)-1], nanos)
	return append(dst, `Z"`...)
}

func appendFraction(dst []byte, nanos int32) []byte {
	if nanos == 0 {
		return dst
	}
	digits := 9
	for digits > 3 && nanos%1000 == 0 {
		nanos /= 1000
		digits -= 3
	}
	var text [10]byte
	text[0] = '.'
	for i := digits; i > 0; i-- {
		text[i] = '0' + byte(nanos%10)
		nanos /= 10
	}
	return append(dst, text[:digits+1]...)
}
