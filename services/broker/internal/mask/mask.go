// Package mask applies update masks to protobuf configs and says in words what changed. It works on descriptors alone and
// knows no message of the suite.
package mask

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	"github.com/databus-suite/databus/internal/errs"
)

// Apply changes dst by the fields of src that the mask names; a named field that src lacks is cleared in dst. Without a mask
// every field that src has counts, message by message. Names may be snake_case or lowerCamel, and may start with `config.`.
// The error is Invalid and names updateMask.
func Apply(dst, src proto.Message, m *fieldmaskpb.FieldMask) error {
	defer Prune(dst)
	if len(m.GetPaths()) == 0 {
		merge(dst.ProtoReflect(), src.ProtoReflect())
		return nil
	}
	for _, path := range m.GetPaths() {
		if err := applyPath(dst.ProtoReflect(), src.ProtoReflect(), path); err != nil {
			return err
		}
	}
	return nil
}

func applyPath(dst, src protoreflect.Message, path string) error {
	rest := strings.TrimPrefix(path, "config.")
	if rest == "config" || rest == "*" {
		replace(dst, src)
		return nil
	}
	for {
		name, after, more := strings.Cut(rest, ".")
		field := find(dst.Descriptor(), name)
		if field == nil {
			return errs.New(errs.Invalid, "UPDATE_MASK", "update mask: %q names no field: there is no %q in %s", path, name, dst.Descriptor().Name()).
				WithField("updateMask").WithNext("name one of: %s", strings.Join(names(dst.Descriptor()), ", "))
		}
		if !more {
			set(dst, src, field)
			return nil
		}
		if !isGroup(field) {
			return errs.New(errs.Invalid, "UPDATE_MASK", "update mask: %q goes into %q, which has no fields of its own", path, name).
				WithField("updateMask").WithNext("name %s as a whole", strings.TrimSuffix(path, "."+after))
		}
		if !src.Has(field) && !dst.Has(field) {
			// Nothing to clear, but the rest of the path must still exist.
			dst, src = dst.Get(field).Message().New(), src.Get(field).Message()
		} else {
			dst, src = dst.Mutable(field).Message(), src.Get(field).Message()
		}
		rest = after
	}
}

// Prune drops groups of settings in which nothing is set: they say no more than groups that are absent.
func Prune(m proto.Message) { prune(m.ProtoReflect()) }

func prune(m protoreflect.Message) (empty bool) {
	empty = true
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if isGroup(field) && prune(v.Message()) {
			m.Clear(field)
		} else {
			empty = false
		}
		return true
	})
	return empty
}

func set(dst, src protoreflect.Message, field protoreflect.FieldDescriptor) {
	if src.Has(field) {
		dst.Set(field, src.Get(field))
	} else {
		dst.Clear(field)
	}
}

func replace(dst, src protoreflect.Message) {
	fields := dst.Descriptor().Fields()
	for i := range fields.Len() {
		set(dst, src, fields.Get(i))
	}
}

func merge(dst, src protoreflect.Message) {
	src.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if isGroup(field) {
			merge(dst.Mutable(field).Message(), v.Message())
		} else {
			dst.Set(field, v)
		}
		return true
	})
}

// isGroup tells whether a field is a message that has settings of its own; durations and timestamps are values.
func isGroup(field protoreflect.FieldDescriptor) bool {
	return field.Message() != nil && !field.IsList() && !field.IsMap() && field.Message().ParentFile().Package() != "google.protobuf"
}

func find(d protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if field := d.Fields().ByName(protoreflect.Name(name)); field != nil {
		return field
	}
	return d.Fields().ByJSONName(name)
}

func names(d protoreflect.MessageDescriptor) []string {
	list := make([]string, d.Fields().Len())
	for i := range list {
		list[i] = d.Fields().Get(i).JSONName()
	}
	return list
}
