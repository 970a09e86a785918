// Package openapi makes the generated OpenAPI document say what the suite's JSON really is.
//
// It owns where internal/wirejson departs from protojson (messages, enum names, durations) and what the generator cannot know
// (errors, the statuses of a publish, raw bodies). It may know the descriptors of the API; it serves nothing. `make gen` runs it
// after the generator, so everything it writes depends on its input alone.
package openapi

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/databus-suite/databus/gen/go/databus/broker/v1" // linked for their descriptors
	_ "github.com/databus-suite/databus/gen/go/databus/index/v1"
	_ "github.com/databus-suite/databus/gen/go/databus/mirror/v1"
	_ "github.com/databus-suite/databus/gen/go/databus/v1"
)

const about = "The JSON follows protojson: lowerCamelCase, 64-bit integers as strings (numbers are taken too), RFC 3339 times. " +
	"Durations are written like `0.005s` and read like `5ms` as well. Enums have their short names (`ZSTD`), and the long ones are read too. " +
	"A message's `value` is any JSON value, kept byte for byte. Unknown fields and query parameters are refused by name, with line and column. " +
	"Every error is an `ErrorStatus`."

// Rewrite turns the generator's document into the true one. Rewriting it again changes nothing.
func Rewrite(doc []byte) ([]byte, error) {
	root, err := parse(doc)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	root.set("info", obj("title", "Databus", "version", "v1", "description", about))
	definitions := root.child("definitions")
	rewriteEnums(definitions)
	rewriteDurations(definitions)
	rewriteMessages(definitions)
	rewriteErrors(root, definitions)
	rewritePaths(root.child("paths"))
	removeUnused(root, definitions)
	return root.write()
}

// apiMessages calls f for every message of the API under the name of its definition; requests with a path have one named Body.
func apiMessages(f func(name string, md protoreflect.MessageDescriptor)) {
	protoregistry.GlobalFiles.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		if !strings.HasPrefix(string(file.Package()), "databus.") {
			return true
		}
		for i := range file.Messages().Len() {
			md := file.Messages().Get(i)
			f(string(md.Name()), md)
			if base, found := strings.CutSuffix(string(md.Name()), "Request"); found {
				f(base+"Body", md)
			}
		}
		return true
	})
}

// rewriteDurations marks the fields that are durations: in the generator's document they are any string.
func rewriteDurations(definitions *object) {
	apiMessages(func(name string, md protoreflect.MessageDescriptor) {
		properties := definitions.child(name).child("properties")
		for i := range md.Fields().Len() {
			fd := md.Fields().Get(i)
			if property, ok := properties.get(fd.JSONName()).(*object); ok && isDuration(fd) {
				property.set("format", "duration")
				property.set("example", "30s")
			}
		}
	})
}

func isDuration(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Duration" && !fd.IsList()
}

// rewriteEnums takes the type's prefix off every enum's names.
func rewriteEnums(definitions *object) {
	for _, m := range definitions.members {
		definition, ok := m.value.(*object)
		if !ok {
			continue
		}
		values, _ := definition.get("enum").([]any)
		if len(values) == 0 {
			continue
		}
		first, _ := values[0].(string)
		prefix, found := strings.CutSuffix(first, "UNSPECIFIED")
		if !found {
			continue
		}
		var short []any
		for _, v := range values[1:] {
			short = append(short, strings.TrimPrefix(v.(string), prefix))
		}
		definition.set("enum", short)
		definition.remove("default")
		description := strings.ReplaceAll(definition.text("description"), " - "+prefix+"UNSPECIFIED: ", " - left out: ")
		definition.set("description", strings.ReplaceAll(description, " - "+prefix, " - "))
	}
}

// removeUnused drops definitions that nothing refers to any more, until none is left.
func removeUnused(root, definitions *object) {
	for {
		used := map[string]bool{}
		collectRefs(root, used)
		before := len(definitions.members)
		for _, m := range append([]member(nil), definitions.members...) {
			if !used["#/definitions/"+m.name] {
				definitions.remove(m.name)
			}
		}
		if len(definitions.members) == before {
			return
		}
	}
}

func collectRefs(v any, used map[string]bool) {
	switch v := v.(type) {
	case *object:
		if ref := v.text("$ref"); ref != "" {
			used[ref] = true
			v.remove("type") // nothing may stand beside a reference but its description
		}
		for _, m := range v.members {
			collectRefs(m.value, used)
		}
	case []any:
		for _, item := range v {
			collectRefs(item, used)
		}
	}
}
