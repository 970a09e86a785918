package wirejson

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// Header is one name and value; a nil value is Kafka's null.
type Header = recordbatch.RecordHeader

// Message is one event as every intake hands it on. A nil Key is no key, a nil Value is a tombstone; empty but not nil is an
// empty one.
type Message struct {
	Key             []byte
	Value           []byte
	Headers         []Header
	ID              string
	TimestampMillis int64
	Partition       int32
	HasTimestamp    bool
	HasPartition    bool
}

// Bounds of a message that hold for every channel; protobuf validation states the same for the gRPC API.
const (
	MaxKeyBytes    = 65536
	MaxHeaders     = 256
	MaxMessages    = 10000 // in one request
	MaxHeaderName  = 1024
	MaxIDLength    = 256
	maxMillis      = 253402300799999 // 9999-12-31T23:59:59.999Z, the last that RFC 3339 can write
	reasonNoKey    = "TOMBSTONE_WITHOUT_KEY"
	reasonTooLarge = "FIELD_TOO_LARGE"
)

// Check tells what is wrong with a message whatever its channel says, nil where nothing is. The error's Field is relative to
// the message.
func (m *Message) Check() *errs.Error {
	switch {
	case m.Value == nil && m.Key == nil:
		return errs.New(errs.Invalid, reasonNoKey, "a message without a value is a tombstone, which needs a key").WithField("value").
			WithNext("give a value (or valueBase64), or a key")
	case len(m.Key) > MaxKeyBytes:
		return tooLarge("key", "%d bytes are more than the %d that a key may have", len(m.Key), MaxKeyBytes)
	case len(m.Headers) > MaxHeaders:
		return tooLarge("headers", "%d headers are more than the %d that a message may have", len(m.Headers), MaxHeaders)
	case len(m.ID) > MaxIDLength && utf8.RuneCountInString(m.ID) > MaxIDLength:
		return tooLarge("id", "an id has at most %d characters", MaxIDLength)
	case m.HasPartition && m.Partition < 0:
		return errs.New(errs.Invalid, ReasonInvalid, "a partition is never negative").WithField("partition")
	case m.HasTimestamp && (m.TimestampMillis < 0 || m.TimestampMillis > maxMillis):
		return errs.New(errs.Invalid, ReasonInvalid, "a timestamp lies between the years 1970 and 9999").WithField("timestamp")
	}
	for i := range m.Headers {
		if n := len(m.Headers[i].Key); n == 0 {
			return errs.New(errs.Invalid, ReasonInvalid, "a header has no name").WithField("headers")
		} else if n > MaxHeaderName {
			return tooLarge("headers", "a header's name of %d bytes is longer than %d", n, MaxHeaderName)
		}
	}
	return nil
}

func tooLarge(field, format string, args ...any) *errs.Error {
	return errs.New(errs.Invalid, reasonTooLarge, format, args...).WithField(field)
}

// Size is what a message counts for in limits: the bytes of key, value and headers.
func (m *Message) Size() int {
	n := len(m.Key) + len(m.Value)
	for i := range m.Headers {
		n += len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return n
}

// FromProto sets m from its protobuf form. Key, value and headers are shared, not copied.
func (m *Message) FromProto(p *databusv1.Message) {
	*m = Message{Key: p.GetKey(), Value: p.GetValue(), ID: p.GetId()}
	if len(p.GetHeaders()) > 0 {
		m.Headers = make([]Header, len(p.GetHeaders()))
		for i, h := range p.GetHeaders() {
			m.Headers[i] = Header{Key: h.GetKey(), Value: h.GetValue()}
		}
	}
	if p.GetTimestamp() != nil {
		m.HasTimestamp, m.TimestampMillis = true, protoMillis(p.GetTimestamp())
	}
	if p.Partition != nil {
		m.HasPartition, m.Partition = true, p.GetPartition()
	}
}

// ToProto sets p from m. Key and value are shared, not copied; the text is.
func (m *Message) ToProto(p *databusv1.Message) {
	p.Key, p.Value, p.Id = m.Key, m.Value, m.ID
	p.Headers = headersToProto(m.Headers)
	if m.HasTimestamp {
		p.Timestamp = timestampOf(m.TimestampMillis)
	}
	if m.HasPartition {
		p.Partition = new(m.Partition)
	}
}

func headersToProto(headers []Header) []*databusv1.Header {
	if len(headers) == 0 {
		return nil
	}
	list := make([]*databusv1.Header, len(headers))
	for i, h := range headers {
		list[i] = &databusv1.Header{Key: strings.Clone(h.Key), Value: h.Value}
	}
	return list
}

// AppendProtos appends a request's messages. Keys, values and headers are shared, not copied.
func AppendProtos(to []Message, list []*databusv1.Message) []Message {
	for _, p := range list {
		var m Message
		m.FromProto(p)
		to = append(to, m)
	}
	return to
}

// protoMillis rounds down to the millisecond, and to the ends of what an int64 holds.
func protoMillis(t *timestamppb.Timestamp) int64 {
	const limit = math.MaxInt64/1000 - 1
	seconds := max(min(t.GetSeconds(), limit), -limit)
	return seconds*1000 + int64(t.GetNanos())/1e6
}

func timestampOf(ms int64) *timestamppb.Timestamp { return timestamppb.New(time.UnixMilli(ms)) }
