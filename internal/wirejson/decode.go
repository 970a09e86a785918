package wirejson

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

// Names of the messages that have a mapping of their own.
const (
	nameMessage       = "databus.v1.Message"
	nameStoredMessage = "databus.v1.StoredMessage"
	nameHeader        = "databus.v1.Header"
	nameDuration      = "google.protobuf.Duration"
	nameTimestampType = "google.protobuf.Timestamp"
	nameFieldMask     = "google.protobuf.FieldMask"
	nameValueType     = "google.protobuf.Value"
	wellKnown         = "google.protobuf."
)

// Unmarshal reads a document into a message that it resets first. Unknown fields are refused. Payloads alias data, which must
// not be changed afterwards. The error is an *errs.Error.
func Unmarshal(data []byte, m proto.Message) error {
	return unmarshal(data, m, false)
}

// UnmarshalLenient is Unmarshal for readers of answers: it skips fields that a newer server may have added.
func UnmarshalLenient(data []byte, m proto.Message) error {
	return unmarshal(data, m, true)
}

func unmarshal(data []byte, m proto.Message, lenient bool) error {
	proto.Reset(m)
	d := protoDecoder{messageDecoder{cursor: cursor{doc: data}, lenient: lenient}}
	f := d.value(m.ProtoReflect())
	if f == nil {
		f = d.end()
	}
	if f != nil {
		return f.coded(data)
	}
	return nil
}

// protoDecoder reads any message by its descriptor.
type protoDecoder struct{ messageDecoder }

// value reads one message, in its own mapping where it has one.
func (d *protoDecoder) value(m protoreflect.Message) *fault {
	switch name := string(m.Descriptor().FullName()); name {
	case nameMessage:
		if p, ok := m.Interface().(*databusv1.Message); ok {
			var own Message
			f := d.message(&own, nil)
			own.ToProto(p)
			return f
		}
	case nameStoredMessage:
		if p, ok := m.Interface().(*databusv1.StoredMessage); ok {
			return d.stored(p)
		}
	case nameDuration:
		return d.duration(m)
	case nameTimestampType:
		return d.timestamp(m)
	case nameFieldMask:
		return d.fieldMask(m)
	default:
		if strings.HasPrefix(name, wellKnown) {
			return d.delegate(m)
		}
	}
	return d.object(m)
}

func (d *protoDecoder) stored(p *databusv1.StoredMessage) *fault {
	var own Message
	f := d.message(&own, &p.Offset)
	p.Key, p.Value, p.Headers = own.Key, own.Value, headersToProto(own.Headers)
	if own.HasTimestamp {
		p.Timestamp = timestampOf(own.TimestampMillis)
	}
	return f
}

// delegate leaves the remaining well-known types to protojson; a fault is placed where the value begins.
func (d *protoDecoder) delegate(m protoreflect.Message) *fault {
	d.space()
	at := d.pos
	raw, f := d.raw()
	if f != nil {
		return f
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: d.lenient}).Unmarshal(raw, m.Interface()); err != nil {
		return fieldFault(at, "is no %s: %s", m.Descriptor().Name(), protojsonCause(err))
	}
	return nil
}

// protojsonCause drops protojson's prefix and its position, which counts within the value.
func protojsonCause(err error) string {
	s := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	s = strings.TrimPrefix(s, "proto: ")
	if strings.HasPrefix(s, "(line ") || strings.HasPrefix(s, "syntax error (line ") {
		if i := strings.Index(s, "): "); i >= 0 {
			s = s[i+len("): "):]
		}
	}
	return s
}

func (d *protoDecoder) object(m protoreflect.Message) *fault {
	if f := d.open('{', "an object"); f != nil {
		return f
	}
	fields := m.Descriptor().Fields()
	seen := make([]bool, fields.Len())
	for first := true; ; first = false {
		more, f := d.next(first, '}')
		if f != nil || !more {
			return f
		}
		raw, at, f := d.name()
		if f != nil {
			return f
		}
		name := string(raw)
		fd, list := findField(fields, name)
		switch {
		case fd == nil && d.lenient:
			if _, f := d.raw(); f != nil {
				return f
			}
			continue
		case fd == nil:
			return unknownFault(at, name, jsonNames(fields)).under(name)
		case seen[fd.Index()] && (!list || !d.lenient):
			return duplicateFault(at).under(name)
		}
		seen[fd.Index()] = true
		if !takesNull(fd) && d.null() {
			continue
		}
		if f = d.oneof(m, fd, at); f == nil {
			f = d.field(m, fd, list)
		}
		if f != nil {
			return f.under(name)
		}
	}
}

// findField finds a field by its JSON name or its proto name; list is true for the other form of a headers field.
func findField(fields protoreflect.FieldDescriptors, name string) (fd protoreflect.FieldDescriptor, list bool) {
	if fd = fields.ByJSONName(name); fd == nil {
		fd = fields.ByTextName(name)
	}
	if fd == nil && (name == "headerList" || name == "header_list") {
		if h := fields.ByName("headers"); h != nil && isHeaders(h) {
			return h, true
		}
	}
	return fd, false
}

func isHeaders(fd protoreflect.FieldDescriptor) bool {
	return fd.IsList() && fd.Message() != nil && fd.Message().FullName() == nameHeader
}

func jsonNames(fields protoreflect.FieldDescriptors) []string {
	names := make([]string, fields.Len())
	for i := range names {
		names[i] = fields.Get(i).JSONName()
	}
	return names
}

// takesNull: null is a value of google.protobuf.Value, and as good as no field in all others.
func takesNull(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == nameValueType && !fd.IsList()
}

// oneof refuses a second field of a oneof.
func (d *protoDecoder) oneof(m protoreflect.Message, fd protoreflect.FieldDescriptor, at int) *fault {
	od := fd.ContainingOneof()
	if od == nil || od.IsSynthetic() {
		return nil
	}
	if other := m.WhichOneof(od); other != nil {
		f := fieldFault(at, "cannot be given together with %s", other.JSONName())
		f.reason = ReasonDuplicate
		return f
	}
	return nil
}

func (d *protoDecoder) field(m protoreflect.Message, fd protoreflect.FieldDescriptor, list bool) *fault {
	switch {
	case isHeaders(fd):
		return d.headersField(m, fd, list)
	case fd.IsMap():
		return d.mapField(m.Mutable(fd).Map(), fd)
	case fd.IsList():
		return d.listField(m.Mutable(fd).List(), fd)
	case fd.Message() != nil:
		return d.value(m.Mutable(fd).Message())
	}
	v, f := d.scalar(fd)
	if f == nil {
		m.Set(fd, v)
	}
	return f
}

func (d *protoDecoder) headersField(m protoreflect.Message, fd protoreflect.FieldDescriptor, list bool) *fault {
	var headers []Header
	var f *fault
	if list {
		headers, f = d.headerArray()
	} else {
		headers, f = d.headerObject()
	}
	if f != nil {
		return f
	}
	target := m.Mutable(fd).List()
	target.Truncate(0)
	for _, h := range headersToProto(headers) {
		target.Append(protoreflect.ValueOfMessage(h.ProtoReflect()))
	}
	return nil
}

func (d *protoDecoder) listField(list protoreflect.List, fd protoreflect.FieldDescriptor) *fault {
	if f := d.open('[', "an array"); f != nil {
		return f
	}
	for i := 0; ; i++ {
		more, f := d.next(i == 0, ']')
		if f != nil || !more {
			return f
		}
		if fd.Message() != nil {
			item := list.NewElement()
			if f := d.value(item.Message()); f != nil {
				return f.item(i)
			}
			list.Append(item)
			continue
		}
		item, f := d.scalar(fd)
		if f != nil {
			return f.item(i)
		}
		list.Append(item)
	}
}

func (d *protoDecoder) mapField(m protoreflect.Map, fd protoreflect.FieldDescriptor) *fault {
	if f := d.open('{', "an object"); f != nil {
		return f
	}
	for first := true; ; first = false {
		more, f := d.next(first, '}')
		if f != nil || !more {
			return f
		}
		raw, at, f := d.name()
		if f != nil {
			return f
		}
		name := string(raw)
		v, what := parseScalar(fd.MapKey(), name)
		if what != "" {
			return fieldFault(at, "%s", what).under(name)
		}
		key := v.MapKey()
		if m.Has(key) {
			return duplicateFault(at).under(name)
		}
		if fd.MapValue().Message() != nil {
			item := m.NewValue()
			if f := d.value(item.Message()); f != nil {
				return f.under(name)
			}
			m.Set(key, item)
			continue
		}
		item, f := d.scalar(fd.MapValue())
		if f != nil {
			return f.under(name)
		}
		m.Set(key, item)
	}
}

// scalar reads one value that is no message.
func (d *protoDecoder) scalar(fd protoreflect.FieldDescriptor) (protoreflect.Value, *fault) {
	var v protoreflect.Value
	d.space()
	at := d.pos
	switch kind := fd.Kind(); kind {
	case protoreflect.StringKind:
		s, f := d.text()
		return protoreflect.ValueOfString(string(s)), f
	case protoreflect.BytesKind:
		b, f := d.bytes()
		return protoreflect.ValueOfBytes(bytes.Clone(b)), f
	case protoreflect.BoolKind:
		raw, f := d.raw()
		if s := string(raw); f != nil || s == "true" || s == "false" {
			return protoreflect.ValueOfBool(s == "true"), f
		}
		d.pos = at
		return v, d.wrong("true or false")
	default:
		s, f := d.numberText(expected(fd))
		if f != nil {
			return v, f
		}
		v, what := parseScalar(fd, s)
		if what != "" {
			return v, fieldFault(at, "%s", what)
		}
		return v, nil
	}
}

func expected(fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		return "one of " + strings.Join(enumNames(fd.Enum()), ", ")
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return "a number"
	}
	return "an integer"
}

// parseScalar reads a value from text, as it stands in a query or a map's key too. What is wrong comes back in words.
func parseScalar(fd protoreflect.FieldDescriptor, s string) (v protoreflect.Value, what string) {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(s), ""
	case protoreflect.BytesKind:
		b, ok := appendBase64(nil, []byte(s))
		if !ok {
			return v, "is not base64"
		}
		return protoreflect.ValueOfBytes(b), ""
	case protoreflect.BoolKind:
		if s != "true" && s != "false" {
			return v, "must be true or false, is " + clip(s)
		}
		return protoreflect.ValueOfBool(s == "true"), ""
	case protoreflect.EnumKind:
		return parseEnum(fd.Enum(), s)
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return parseFloat(fd.Kind(), s)
	}
	return parseIntegerKind(fd.Kind(), s)
}

func parseIntegerKind(kind protoreflect.Kind, s string) (protoreflect.Value, string) {
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		n, ok := parseInteger(s, 32)
		return protoreflect.ValueOfInt32(int32(n)), integerProblem(ok, s, "32")
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		n, ok := parseInteger(s, 64)
		return protoreflect.ValueOfInt64(n), integerProblem(ok, s, "64")
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		n, ok := parseUnsigned(s, 32)
		return protoreflect.ValueOfUint32(uint32(n)), integerProblem(ok, s, "32")
	}
	n, ok := parseUnsigned(s, 64)
	return protoreflect.ValueOfUint64(n), integerProblem(ok, s, "64")
}

func integerProblem(ok bool, s, bits string) string {
	if ok {
		return ""
	}
	return clip(s) + " is not an integer of " + bits + " bits"
}

func parseFloat(kind protoreflect.Kind, s string) (protoreflect.Value, string) {
	bits := 64
	if kind == protoreflect.FloatKind {
		bits = 32
	}
	var f float64
	switch s {
	case "NaN":
		f = math.NaN()
	case "Infinity":
		f = math.Inf(1)
	case "-Infinity":
		f = math.Inf(-1)
	default:
		end, bad := scanValue([]byte(s), 0)
		var err error
		if f, err = strconv.ParseFloat(s, bits); err != nil || bad != fine || end != len(s) {
			return protoreflect.Value{}, clip(s) + " is not a number of " + strconv.Itoa(bits) + " bits"
		}
	}
	if bits == 32 {
		return protoreflect.ValueOfFloat32(float32(f)), ""
	}
	return protoreflect.ValueOfFloat64(f), ""
}
