package configset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/wirejson"
)

// Edit is a set of changes to a config message.
type Edit struct {
	config protoreflect.MessageDescriptor
	// values are the new values by full path in JSON names; a nil value takes the field back to its default.
	values map[string]json.RawMessage
	// protoNames are the same paths as a mask has them.
	protoNames map[string]string
}

// New returns an empty edit of messages of that type.
func New(config protoreflect.MessageDescriptor) *Edit {
	return &Edit{config: config, values: map[string]json.RawMessage{}, protoNames: map[string]string{}}
}

// Empty reports whether the edit changes nothing.
func (e *Edit) Empty() bool { return len(e.values) == 0 }

// Set gives the field at path a value written as on a command line: 5ms, 64MiB, zstd, true, or JSON for lists and messages.
func (e *Edit) Set(path, value string) error {
	field, path, err := e.find(path)
	if err != nil {
		return err
	}
	if isGroup(field) {
		var doc any
		if err := decode([]byte(value), &doc); err != nil {
			return invalid(path, "%q is no JSON object", value).Wrap(err)
		}
		return e.merge(path, field.Message(), doc)
	}
	raw, err := literal(field, path, value)
	if err != nil {
		return err
	}
	e.put(path, raw)
	return nil
}

// Unset takes the field at path back to its default.
func (e *Edit) Unset(path string) error {
	_, path, err := e.find(path)
	if err != nil {
		return err
	}
	e.put(path, nil)
	return nil
}

// Merge takes every field of a document, YAML or JSON. A document with a member "config", as `get` prints it, stands for that
// member.
func (e *Edit) Merge(name string, document []byte) error {
	asJSON, err := yaml.YAMLToJSON(document)
	if err != nil {
		return errs.New(errs.Invalid, "CONFIG_FILE", "%s is neither YAML nor JSON", name).Wrap(err)
	}
	var doc any
	if err := decode(asJSON, &doc); err != nil {
		return errs.New(errs.Invalid, "CONFIG_FILE", "%s is neither YAML nor JSON", name).Wrap(err)
	}
	if members, ok := doc.(map[string]any); ok && members["config"] != nil && e.config.Fields().ByName("config") == nil {
		doc = members["config"]
	}
	if err := e.merge("", e.config, doc); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (e *Edit) merge(prefix string, config protoreflect.MessageDescriptor, doc any) error {
	members, ok := doc.(map[string]any)
	if !ok {
		return invalid(prefix, "it must be an object with the fields %s", strings.Join(names(config), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		field, path, err := e.find(join(prefix, name))
		if err != nil {
			return err
		}
		if value == nil {
			e.put(path, nil)
			continue
		}
		if isGroup(field) {
			if err := e.merge(path, field.Message(), value); err != nil {
				return err
			}
			continue
		}
		raw, err := literalOf(field, path, value)
		if err != nil {
			return err
		}
		e.put(path, raw)
	}
	return nil
}

// put notes a value and forgets what an earlier one said about fields inside of it.
func (e *Edit) put(path string, raw json.RawMessage) {
	for other := range e.values {
		if strings.HasPrefix(other, path+".") {
			delete(e.values, other)
		}
	}
	e.values[path] = raw
}

// find resolves a path by JSON names or proto names, and returns it in JSON names.
func (e *Edit) find(path string) (protoreflect.FieldDescriptor, string, error) {
	config := e.config
	var field protoreflect.FieldDescriptor
	var protoNames, jsonNames []string
	words := strings.Split(path, ".")
	for i, word := range words {
		if config == nil {
			return nil, "", invalid(path, "%s has no fields inside", strings.Join(words[:i], "."))
		}
		field = config.Fields().ByJSONName(word)
		if field == nil {
			field = config.Fields().ByName(protoreflect.Name(word))
		}
		if field == nil {
			return nil, "", unknown(config, join(strings.Join(words[:i], "."), word), word)
		}
		protoNames, jsonNames = append(protoNames, string(field.Name())), append(jsonNames, field.JSONName())
		config = nil
		if isGroup(field) {
			config = field.Message()
		}
	}
	canonical := strings.Join(jsonNames, ".")
	e.protoNames[canonical] = strings.Join(protoNames, ".")
	return field, canonical, nil
}

// Mask names every field of the edit.
func (e *Edit) Mask() *fieldmaskpb.FieldMask {
	mask := &fieldmaskpb.FieldMask{}
	for _, path := range slices.Sorted(maps.Keys(e.values)) {
		mask.Paths = append(mask.Paths, e.protoNames[path])
	}
	slices.Sort(mask.Paths)
	mask.Paths = slices.Compact(mask.Paths)
	return mask
}

// Into sets the fields of the edit in m, which is of the edit's type.
func (e *Edit) Into(m proto.Message) error {
	tree := map[string]any{}
	for path, raw := range e.values {
		if raw == nil {
			continue
		}
		at, words := tree, strings.Split(path, ".")
		for _, word := range words[:len(words)-1] {
			inner, ok := at[word].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[word] = inner
			}
			at = inner
		}
		at[words[len(words)-1]] = raw
	}
	document, err := json.Marshal(tree)
	if err != nil {
		return fmt.Errorf("write the config as JSON: %w", err)
	}
	if err := wirejson.Unmarshal(document, m); err != nil {
		return ofField(errs.From(err))
	}
	return nil
}

// ofField takes the place within the document out of an error: nobody ever saw that document.
func ofField(err *errs.Error) error {
	e := *err
	if strings.HasPrefix(e.Message, "line ") {
		_, e.Message, _ = strings.Cut(e.Message, ": ")
	}
	if e.Field != "" {
		e.Field = "config." + e.Field
		e.Message = "config." + strings.TrimPrefix(e.Message, "config.")
	}
	if strings.Contains(e.Message, "did you mean") {
		e.Next = "" // it says the same again
	}
	return &e
}

// isGroup tells fields that hold fields of their own from values, lists and the well-known types, which are written as one.
func isGroup(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && !f.IsList() && !f.IsMap() && f.Message().ParentFile().Package() != "google.protobuf"
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// decode keeps numbers as they are written.
func decode(document []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	return d.Decode(into)
}
