package errs

import (
	"errors"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
)

// FromValidation returns what protovalidate found wrong with a request: Invalid, naming the first field, with
// all of them in Violations. Any other error it treats as From does. FromValidation(nil) is nil.
func FromValidation(err error) *Error {
	var v *protovalidate.ValidationError
	if !errors.As(err, &v) || len(v.Violations) == 0 {
		return From(err)
	}
	violations := make([]Violation, len(v.Violations))
	for i, violation := range v.Violations {
		msg := violation.Proto.GetMessage()
		if msg == "" {
			msg = "breaks the rule " + violation.Proto.GetRuleId()
		}
		violations[i] = Violation{Field: fieldPath(violation.Proto.GetField()), Message: msg}
	}
	first := violations[0]
	text := first.Message
	if first.Field != "" {
		text = first.Field + ": " + first.Message
	}
	if n := len(violations) - 1; n > 0 {
		text += " (and " + strconv.Itoa(n) + " more)"
	}
	return &Error{Code: Invalid, Reason: "INVALID_FIELD", Message: text, Field: first.Field, Violations: violations,
		Next: "correct the named field and send the request again"}
}

// fieldPath renders a path as a JSON client writes it: config.routes[2].topic, headers["a"].
func fieldPath(path *validate.FieldPath) string {
	var b strings.Builder
	for i, el := range path.GetElements() {
		if i > 0 {
			b.WriteByte('.')
		}
		writeLowerCamel(&b, el.GetFieldName())
		switch sub := el.GetSubscript().(type) {
		case *validate.FieldPathElement_Index:
			b.WriteString("[" + strconv.FormatUint(sub.Index, 10) + "]")
		case *validate.FieldPathElement_BoolKey:
			b.WriteString("[" + strconv.FormatBool(sub.BoolKey) + "]")
		case *validate.FieldPathElement_IntKey:
			b.WriteString("[" + strconv.FormatInt(sub.IntKey, 10) + "]")
		case *validate.FieldPathElement_UintKey:
			b.WriteString("[" + strconv.FormatUint(sub.UintKey, 10) + "]")
		case *validate.FieldPathElement_StringKey:
			b.WriteString("[" + strconv.Quote(sub.StringKey) + "]")
		}
	}
	return b.String()
}

// writeLowerCamel writes a field's JSON name as protoc derives it.
func writeLowerCamel(b *strings.Builder, name string) {
	upper := false
	for _, c := range []byte(name) {
		switch {
		case c == '_':
			upper = true
			continue
		case upper && 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		}
		upper = false
		b.WriteByte(c)
	}
}
