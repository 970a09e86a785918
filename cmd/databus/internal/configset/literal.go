package configset

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/nearest"
)

// literalOf is the JSON of a value out of a document. Text in it may be short, as on the command line.
func literalOf(field protoreflect.FieldDescriptor, path string, value any) (json.RawMessage, error) {
	if text, ok := value.(string); ok && !field.IsList() && !field.IsMap() {
		return literal(field, path, text)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, invalid(path, "it cannot be written as JSON").Wrap(err)
	}
	return raw, nil
}

// literal is the JSON of a value as it is written on a command line. What the text means depends on the field, so that
// nobody has to quote.
func literal(field protoreflect.FieldDescriptor, path, text string) (json.RawMessage, error) {
	if field.IsList() || field.IsMap() {
		if !json.Valid([]byte(text)) {
			return nil, invalid(path, "%q is no JSON; a list is written as %s", text, `[{"topic":"orders"}]`)
		}
		return json.RawMessage(text), nil
	}
	switch field.Kind() {
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, invalid(path, "%q is neither true nor false", text)
		}
		return strconv.AppendBool(nil, b), nil
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		n, ok := size(text)
		if !ok {
			return nil, invalid(path, "%q is no number; sizes may be written as 64KiB, 16MiB or 1GiB", text)
		}
		return strconv.AppendInt(nil, n, 10), nil
	case protoreflect.EnumKind:
		text = strings.ToUpper(strings.ReplaceAll(text, "-", "_"))
	default:
		if field.Message() != nil {
			text = days(text)
		}
	}
	raw, err := json.Marshal(text)
	if err != nil {
		return nil, invalid(path, "%q is no text", text).Wrap(err)
	}
	return raw, nil
}

var units = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
}

// size reads a whole number, with a unit of bytes where there is one.
func size(text string) (int64, bool) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n > math.MaxInt64/u.factor || n < math.MinInt64/u.factor {
			return 0, false
		}
		return n * u.factor, true
	}
	return 0, false
}

// days writes 7d as the 168h that durations are parsed from: retention is thought of in days.
func days(text string) string {
	digits, ok := strings.CutSuffix(text, "d")
	if !ok {
		return text
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return text
	}
	return strconv.FormatInt(n*24, 10) + "h"
}

func invalid(path, format string, args ...any) *errs.Error {
	e := errs.New(errs.Invalid, "CONFIG_VALUE", format, args...)
	if path != "" {
		e = e.WithField("config." + path)
	}
	return e
}

func unknown(config protoreflect.MessageDescriptor, path, word string) error {
	e := invalid(path, "there is no field %s", path)
	if near := nearest.Word(word, names(config)); near != "" {
		return e.WithNext("did you mean %s?", strings.TrimSuffix(path, word)+near)
	}
	return e.WithNext("the fields there are %s", strings.Join(names(config), ", "))
}

func names(config protoreflect.MessageDescriptor) []string {
	var list []string
	for i := range config.Fields().Len() {
		list = append(list, config.Fields().Get(i).JSONName())
	}
	slices.Sort(list)
	return list
}
