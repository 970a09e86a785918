package mask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// absent is what a field shows that is not set and so has its default.
const absent = "default"

// Diff says what changed from one config to the other, one line a field in the order of the proto file:
// `batch.linger: 5ms -> 20ms`.
func Diff(from, to proto.Message) []string {
	return diffMessage(nil, "", from.ProtoReflect(), to.ProtoReflect())
}

func diffMessage(lines []string, prefix string, from, to protoreflect.Message) []string {
	fields := to.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		path := prefix + field.JSONName()
		switch {
		case isGroup(field):
			lines = diffMessage(lines, path+".", from.Get(field).Message(), to.Get(field).Message())
		case field.IsList() && field.Message() != nil:
			lines = diffList(lines, path, from.Get(field).List(), to.Get(field).List())
		default:
			was, is := show(from, field), show(to, field)
			if was != is {
				lines = append(lines, path+": "+was+" -> "+is)
			}
		}
	}
	return lines
}

// diffList compares element by element: routes are few and their order is their meaning.
func diffList(lines []string, path string, from, to protoreflect.List) []string {
	for i := range max(from.Len(), to.Len()) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= from.Len():
			lines = append(lines, at+": none -> "+text(to.Get(i).Message().Interface()))
		case i >= to.Len():
			lines = append(lines, at+": "+text(from.Get(i).Message().Interface())+" -> none")
		default:
			lines = diffMessage(lines, at+".", from.Get(i).Message(), to.Get(i).Message())
		}
	}
	return lines
}

func show(m protoreflect.Message, field protoreflect.FieldDescriptor) string {
	if !m.Has(field) {
		if field.Kind() == protoreflect.BoolKind {
			return "false"
		}
		return absent
	}
	v := m.Get(field)
	switch {
	case field.IsList() || field.IsMap():
		return fmt.Sprint(v.Interface())
	case field.Enum() != nil:
		return enumName(field.Enum(), v.Enum())
	case field.Message() != nil:
		return text(v.Message().Interface())
	case field.Kind() == protoreflect.StringKind:
		return strconv.Quote(v.String())
	}
	return v.String()
}

// enumName is the value's name without the prefix that the type's name makes.
func enumName(d protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	value, zero := d.Values().ByNumber(n), d.Values().ByNumber(0)
	if value == nil {
		return strconv.Itoa(int(n))
	}
	return strings.TrimPrefix(string(value.Name()), strings.TrimSuffix(string(zero.Name()), "UNSPECIFIED"))
}

func text(m proto.Message) string {
	if d, ok := m.(*durationpb.Duration); ok {
		return d.AsDuration().String()
	}
	b, err := protojson.Marshal(m)
	var compact bytes.Buffer // protojson varies its spaces on purpose
	if err == nil {
		err = json.Compact(&compact, b)
	}
	if err != nil {
		return "?" // what came over the wire can always be written
	}
	return compact.String()
}
