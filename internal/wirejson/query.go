package wirejson

import (
	"net/url"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/nearest"
)

// queryParser reads query parameters of requests without a body.
type queryParser struct{}

var _ runtime.QueryParameterParser = queryParser{}

// Parse fills in what the preparer has checked, so that an error here was answered already.
func (queryParser) Parse(m proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	return fillFromQuery(m, values, filter.HasCommonPrefix)
}

// fillFromQuery sets the fields that parameters name, in lowerCamel or snake_case, nested ones with dots and map entries with
// brackets. It refuses what is unknown, malformed, given twice, or given in the path or in the body as well.
func fillFromQuery(m proto.Message, values url.Values, inPath func(path []string) bool) error {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names) // so that of several errors it is always the same
	seen := map[string]bool{}
	for _, name := range names {
		if e := fillParameter(m.ProtoReflect(), name, values[name], inPath, seen); e != nil {
			return e
		}
	}
	return nil
}

func fillParameter(m protoreflect.Message, name string, values []string, inPath func([]string) bool, seen map[string]bool) *errs.Error {
	fieldName, key, isEntry := strings.Cut(name, "[")
	if isEntry {
		if !strings.HasSuffix(key, "]") {
			return badParameter(ReasonInvalid, name, "lacks its closing bracket")
		}
		key = strings.TrimSuffix(key, "]")
	}
	parent, fd, path, e := resolve(m, name, fieldName)
	if e != nil {
		return e
	}
	id := strings.Join(path, ".")
	switch {
	case inPath(path):
		return badParameter(ReasonDuplicate, name, "is given in the path")
	case seen[id] && !isEntry:
		return badParameter(ReasonDuplicate, name, "is given twice")
	case !seen[id] && parent.Has(fd):
		return badParameter(ReasonDuplicate, name, "is given in the body and in the query")
	case isEntry != fd.IsMap():
		return badParameter(ReasonInvalid, name, "an entry of a map is written "+fd.JSONName()+"[key]=value, and only that")
	case len(values) > 1 && !fd.IsList():
		return badParameter(ReasonDuplicate, name, "is given twice")
	}
	seen[id] = true
	if od := fd.ContainingOneof(); od != nil && !od.IsSynthetic() {
		if other := parent.WhichOneof(od); other != nil {
			return badParameter(ReasonDuplicate, name, "cannot be given together with "+other.JSONName())
		}
	}
	for _, value := range values {
		if what := setFromText(parent, fd, key, value); what != "" {
			return badParameter(ReasonInvalid, name, what)
		}
	}
	return nil
}

// resolve walks a dotted name to its field.
func resolve(m protoreflect.Message, name, fieldName string) (protoreflect.Message, protoreflect.FieldDescriptor, []string, *errs.Error) {
	parts := strings.Split(fieldName, ".")
	var path []string
	for i, part := range parts {
		fields := m.Descriptor().Fields()
		fd, list := findField(fields, part)
		if fd == nil || list {
			e := badParameter(ReasonUnknown, name, "there is no such parameter")
			if near := nearest.Word(part, jsonNames(fields)); near != "" && !list {
				e.Message += "; did you mean " + near + "?"
			}
			return nil, nil, nil, e.WithNext("the parameters are %s", strings.Join(jsonNames(fields), ", "))
		}
		path = append(path, string(fd.Name()))
		if i == len(parts)-1 {
			return m, fd, path, nil
		}
		if fd.Message() == nil || fd.IsList() || fd.IsMap() || strings.HasPrefix(string(fd.Message().FullName()), wellKnown) {
			return nil, nil, nil, badParameter(ReasonUnknown, name, fd.JSONName()+" has no fields")
		}
		m = m.Mutable(fd).Message()
	}
	return nil, nil, nil, badParameter(ReasonUnknown, name, "there is no such parameter")
}

// setFromText sets or appends one value; what is wrong comes back in words.
func setFromText(m protoreflect.Message, fd protoreflect.FieldDescriptor, key, text string) (what string) {
	if fd.IsMap() {
		k, what := parseScalar(fd.MapKey(), key)
		if what != "" {
			return what
		}
		if fd.MapValue().Message() != nil {
			return "cannot be given in a query; give it in the body"
		}
		v, what := parseScalar(fd.MapValue(), text)
		if what == "" {
			m.Mutable(fd).Map().Set(k.MapKey(), v)
		}
		return what
	}
	if fd.Message() != nil {
		if fd.IsList() {
			return "cannot be given in a query; give it in the body"
		}
		return setMessage(m.Mutable(fd).Message(), text)
	}
	v, what := parseScalar(fd, text)
	switch {
	case what != "":
		return what
	case fd.IsList():
		m.Mutable(fd).List().Append(v)
	default:
		m.Set(fd, v)
	}
	return ""
}

func setMessage(m protoreflect.Message, text string) (what string) {
	switch m.Descriptor().FullName() {
	case nameDuration:
		return setDuration(m, text)
	case nameTimestampType:
		return setTime(m, text)
	case nameFieldMask:
		return setFieldMask(m, text)
	}
	return "cannot be given in a query; give it in the body, or its fields with dots"
}

func badParameter(reason, name, what string) *errs.Error {
	name = strings.ToValidUTF8(name, "\ufffd")
	return errs.New(errs.Invalid, reason, "%s", "query parameter "+name+": "+what).WithField(name)
}
