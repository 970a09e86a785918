package configset

import (
	"bytes"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/internal/wirejson"
)

// Setting is one field of a config that has a value of its own.
type Setting struct {
	Path  string
	Value string
}

// Flatten lists the fields that a config sets, in the order of the proto.
func Flatten(config proto.Message) ([]Setting, error) {
	if config == nil || !config.ProtoReflect().IsValid() {
		return nil, nil
	}
	document, err := wirejson.Append(nil, config)
	if err != nil {
		return nil, fmt.Errorf("write the config as JSON: %w", err)
	}
	var members map[string]json.RawMessage
	if err := decode(document, &members); err != nil {
		return nil, fmt.Errorf("read the config's JSON: %w", err)
	}
	return flatten(nil, "", config.ProtoReflect(), members), nil
}

func flatten(list []Setting, prefix string, config protoreflect.Message, members map[string]json.RawMessage) []Setting {
	fields := config.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		raw, ok := members[field.JSONName()]
		if !ok || !config.Has(field) {
			continue
		}
		path := join(prefix, field.JSONName())
		var inner map[string]json.RawMessage
		if isGroup(field) && json.Unmarshal(raw, &inner) == nil {
			list = flatten(list, path, config.Get(field).Message(), inner)
			continue
		}
		list = append(list, Setting{Path: path, Value: text(field, config.Get(field), raw)})
	}
	return list
}

// text is a value as people write it.
func text(field protoreflect.FieldDescriptor, value protoreflect.Value, raw json.RawMessage) string {
	if field.Message() != nil && !field.IsList() && !field.IsMap() {
		if d, ok := value.Message().Interface().(*durationpb.Duration); ok {
			return render.Span(d.AsDuration())
		}
	}
	return plain(raw)
}

// plain is a JSON value without the quotes of a string.
func plain(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return string(raw)
	}
	return compact.String()
}

// Change is a field that two configs differ in. An empty value stands for the default.
type Change struct {
	Path     string
	Old, New string
}

// Diff lists what changes from one config to another.
func Diff(from, to proto.Message) ([]Change, error) {
	before, err := Flatten(from)
	if err != nil {
		return nil, err
	}
	after, err := Flatten(to)
	if err != nil {
		return nil, err
	}
	was := map[string]string{}
	for _, s := range before {
		was[s.Path] = s.Value
	}
	var changes []Change
	seen := map[string]bool{}
	for _, s := range after {
		seen[s.Path] = true
		if old, ok := was[s.Path]; !ok || old != s.Value {
			changes = append(changes, Change{Path: s.Path, Old: old, New: s.Value})
		}
	}
	for _, s := range before {
		if !seen[s.Path] {
			changes = append(changes, Change{Path: s.Path, Old: s.Value})
		}
	}
	return changes, nil
}
