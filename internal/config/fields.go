package config

import (
	"reflect"
	"strings"
	"unicode"

	"github.com/databus-suite/databus/internal/nearest"
)

// field is one setting of a struct.
type field struct {
	key   string
	value reflect.Value
}

// fields lists the settings of a struct in their order.
func fields(v reflect.Value) []field {
	var out []field
	for i := range v.NumField() {
		sf := v.Type().Field(i)
		if !sf.IsExported() {
			continue
		}
		name, opts, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		if opts == "inline" || sf.Anonymous && name == "" {
			out = append(out, fields(v.Field(i))...)
			continue
		}
		if name == "" {
			name = snake(sf.Name)
		}
		out = append(out, field{name, v.Field(i)})
	}
	return out
}

// snake turns a Go name into a key: HTTPAddr is http_addr.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 &&
			(!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// eachLeaf visits every setting that one text can hold.
func eachLeaf(path string, v reflect.Value, visit func(key string, v reflect.Value)) {
	for _, f := range fields(v) {
		key := join(path, f.key)
		if f.value.Kind() == reflect.Struct && !isText(f.value) {
			eachLeaf(key, f.value, visit)
			continue
		}
		if takesText(f.value.Type()) {
			visit(key, f.value)
		}
	}
}

func unknownKey(key string, known []string) string {
	last := key[strings.LastIndexByte(key, '.')+1:]
	text := "there is no such key"
	if near := nearest.Word(last, known); near != "" {
		return text + "; did you mean " + near + "?"
	}
	return text + "; the keys here are " + strings.Join(known, ", ")
}
