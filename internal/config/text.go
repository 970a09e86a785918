package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// isText reports whether a value reads itself from text.
func isText(v reflect.Value) bool { return reflect.PointerTo(v.Type()).Implements(textType) }

// takesText reports whether a setting of this type can be given as one text, as a variable or a flag does.
func takesText(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(textType) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return takesText(t.Elem()) && t.Elem().Kind() != reflect.Slice && t.Elem().Kind() != reflect.Map
	case reflect.Map:
		return t.Key().Kind() == reflect.String && takesScalar(t.Elem())
	}
	return takesScalar(t)
}

func takesScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	}
	return reflect.PointerTo(t).Implements(textType)
}

// setText sets a setting from a variable or a flag. Lists are a,b,c and maps are a=1,b=2.
func setText(v reflect.Value, text string) error {
	if isText(v) {
		return setScalar(v, text)
	}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		if err := setText(p.Elem(), text); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.Slice:
		parts := strings.Split(text, ",")
		out := reflect.MakeSlice(v.Type(), len(parts), len(parts))
		for i, part := range parts {
			if err := setScalar(out.Index(i), strings.TrimSpace(part)); err != nil {
				return err
			}
		}
		v.Set(out)
		return nil
	case reflect.Map:
		return setMapText(v, text)
	}
	return setScalar(v, text)
}

func setMapText(v reflect.Value, text string) error {
	out := reflect.MakeMap(v.Type())
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return fmt.Errorf("%q is not name=value; several are separated by commas", part)
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		if err := setScalar(elem, strings.TrimSpace(value)); err != nil {
			return err
		}
		out.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), elem)
	}
	v.Set(out)
	return nil
}

// setScalar sets a value of one of the types of takesScalar. The error says what is allowed.
func setScalar(v reflect.Value, text string) error {
	if isText(v) {
		if err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
			return err
		}
		return nil
	}
	if v.Type() == durationType {
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration: give a number with a unit, such as 5ms, 2s or 1h30m", text)
		}
		v.SetInt(int64(d))
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number of %d bits", text, v.Type().Bits())
		}
		v.SetInt(n)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a whole number from 0 of %d bits", text, v.Type().Bits())
		}
		v.SetUint(n)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("a setting of type %s cannot be given as text", v.Type())
	}
	return nil
}
