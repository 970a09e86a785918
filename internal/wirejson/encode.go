package wirejson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
)

// Append appends a message as JSON without white space. Equal messages give equal bytes.
//
// What is not set is left out, with one exception: an answer has its lists and its numbers even where they are empty or zero,
// because a reader asks for them (`"highWatermark":"0"`, `"messages":[]`). Requests and everything inside a config stay sparse.
func Append(dst []byte, m proto.Message) ([]byte, error) {
	return (&encoder{}).message(dst, m.ProtoReflect(), false)
}

// AppendLine is Append for documents that must stay on one line: a payload with a line break inside goes into valueBase64.
func AppendLine(dst []byte, m proto.Message) ([]byte, error) {
	return (&encoder{line: true}).message(dst, m.ProtoReflect(), false)
}

type encoder struct{ line bool }

func (e *encoder) message(dst []byte, m protoreflect.Message, sparse bool) ([]byte, error) {
	name := string(m.Descriptor().FullName())
	switch p := m.Interface().(type) {
	case *databusv1.Message:
		return AppendMessage(dst, p, e.line), nil
	case *databusv1.StoredMessage:
		return appendStored(append(dst, '{'), p, e.line), nil
	case *rpcstatus.Status:
		return errs.AppendJSON(dst, p), nil
	}
	switch {
	case name == nameDuration:
		seconds, nanos := secondsOf(m)
		return appendDuration(dst, seconds, nanos), nil
	case name == nameTimestampType:
		seconds, nanos := secondsOf(m)
		return appendTimestamp(dst, seconds, nanos), nil
	case name == nameFieldMask:
		return appendFieldMask(dst, m), nil
	case strings.HasPrefix(name, wellKnown):
		return appendDelegated(dst, m.Interface())
	}
	return e.object(dst, m, sparse || strings.HasSuffix(name, "Config") || strings.HasSuffix(name, "Request"))
}

func (e *encoder) object(dst []byte, m protoreflect.Message, sparse bool) ([]byte, error) {
	begin := len(dst)
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if !m.Has(fd) && (sparse || !isWanted(fd)) {
			continue
		}
		if p, ok := m.Interface().(interface{ GetHeaders() []*databusv1.Header }); ok && isHeaders(fd) {
			dst = appendHeaders(dst, p.GetHeaders())
			continue
		}
		dst = append(dst, ',')
		dst = appendText(dst, fd.JSONName())
		dst = append(dst, ':')
		var err error
		if dst, err = e.field(dst, m.Get(fd), fd, sparse); err != nil {
			return nil, fmt.Errorf("%s: %w", fd.FullName(), err)
		}
	}
	if len(dst) == begin {
		return append(dst, "{}"...), nil
	}
	dst[begin] = '{' // in place of the first comma
	return append(dst, '}'), nil
}

// isWanted tells whether a field that is not set is written nevertheless: lists and plain numbers.
func isWanted(fd protoreflect.FieldDescriptor) bool {
	if fd.IsList() {
		return true
	}
	if fd.HasPresence() || fd.IsMap() {
		return false
	}
	switch fd.Kind() {
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.StringKind, protoreflect.BytesKind:
		return false
	}
	return true
}

func (e *encoder) field(dst []byte, v protoreflect.Value, fd protoreflect.FieldDescriptor, sparse bool) (_ []byte, err error) {
	switch {
	case fd.IsMap():
		return e.mapField(dst, v.Map(), fd, sparse)
	case fd.IsList():
		list := v.List()
		dst = append(dst, '[')
		for i := range list.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, err = e.single(dst, list.Get(i), fd, sparse); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	}
	return e.single(dst, v, fd, sparse)
}

func (e *encoder) mapField(dst []byte, m protoreflect.Map, fd protoreflect.FieldDescriptor, sparse bool) (_ []byte, err error) {
	keys := make([]string, 0, m.Len())
	values := make(map[string]protoreflect.Value, m.Len())
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		keys = append(keys, k.String())
		values[k.String()] = v
		return true
	})
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, key := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, key), ':')
		if dst, err = e.single(dst, values[key], fd.MapValue(), sparse); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func (e *encoder) single(dst []byte, v protoreflect.Value, fd protoreflect.FieldDescriptor, sparse bool) ([]byte, error) {
	switch fd.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return e.message(dst, v.Message(), sparse)
	case protoreflect.StringKind:
		return appendText(dst, v.String()), nil
	case protoreflect.BytesKind:
		return appendBase64Text(dst, v.Bytes()), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v.Bool()), nil
	case protoreflect.EnumKind:
		return appendEnum(dst, fd.Enum(), v.Enum()), nil
	case protoreflect.FloatKind:
		return appendFloat(dst, v.Float(), 32), nil
	case protoreflect.DoubleKind:
		return appendFloat(dst, v.Float(), 64), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return strconv.AppendInt(dst, v.Int(), 10), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return strconv.AppendUint(dst, v.Uint(), 10), nil
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		dst = strconv.AppendInt(append(dst, '"'), v.Int(), 10)
	default:
		dst = strconv.AppendUint(append(dst, '"'), v.Uint(), 10)
	}
	return append(dst, '"'), nil
}

func appendEnum(dst []byte, ed protoreflect.EnumDescriptor, n protoreflect.EnumNumber) []byte {
	v := ed.Values().ByNumber(n)
	if v == nil {
		return strconv.AppendInt(dst, int64(n), 10)
	}
	return appendText(dst, strings.TrimPrefix(string(v.Name()), enumPrefix(ed)))
}

func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(f, -1):
		return append(dst, `"-Infinity"`...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, bits)
}

func appendDuration(dst []byte, seconds int64, nanos int32) []byte {
	dst = append(dst, '"')
	if seconds < 0 || nanos < 0 {
		dst, seconds, nanos = append(dst, '-'), -seconds, -nanos
	}
	dst = strconv.AppendInt(dst, seconds, 10)
	dst = appendFraction(dst, nanos)
	return append(dst, `s"`...)
}

func appendFieldMask(dst []byte, m protoreflect.Message) []byte {
	paths := m.Get(m.Descriptor().Fields().ByNumber(1)).List()
	var b strings.Builder
	for i := range paths.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(lowerCamel(paths.Get(i).String()))
	}
	return appendText(dst, b.String())
}

// appendDelegated leaves the remaining well-known types to protojson, and takes out the white space that it varies on purpose.
func appendDelegated(dst []byte, m proto.Message) ([]byte, error) {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	buf := bytes.NewBuffer(dst)
	if err := json.Compact(buf, raw); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
