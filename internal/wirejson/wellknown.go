package wirejson

import (
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/databus-suite/databus/internal/nearest"
)

// maxDurationSeconds is the longest that google.protobuf.Duration allows, about 10,000 years.
const maxDurationSeconds = 315576000000

// parseDuration reads "5ms", "1h30m" or protojson's "0.005s".
func parseDuration(s string) (seconds int64, nanos int32, ok bool) {
	if d, err := time.ParseDuration(s); err == nil {
		return int64(d / time.Second), int32(d % time.Second), true
	}
	number, found := strings.CutSuffix(s, "s")
	if !found {
		return 0, 0, false
	}
	whole, fraction, _ := strings.Cut(number, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || len(fraction) > 9 || seconds > maxDurationSeconds || seconds < -maxDurationSeconds {
		return 0, 0, false
	}
	n, err := strconv.ParseUint(fraction+strings.Repeat("0", 9-len(fraction)), 10, 32)
	if err != nil {
		return 0, 0, false
	}
	if nanos = int32(n); strings.HasPrefix(whole, "-") {
		nanos = -nanos
	}
	return seconds, nanos, true
}

func setDuration(m protoreflect.Message, s string) (what string) {
	seconds, nanos, ok := parseDuration(s)
	if !ok {
		return clip(s) + ` is no duration such as "5ms", "1h30m" or "0.005s"`
	}
	setSeconds(m, seconds, nanos)
	return ""
}

func setTime(m protoreflect.Message, s string) (what string) {
	t, ok := parseTime(s)
	if !ok || t.Year() < 1 || t.Year() > 9999 {
		return clip(s) + " is neither an RFC 3339 time nor milliseconds since 1970"
	}
	setSeconds(m, t.Unix(), int32(t.Nanosecond()))
	return ""
}

func setSeconds(m protoreflect.Message, seconds int64, nanos int32) {
	fields := m.Descriptor().Fields()
	m.Set(fields.ByNumber(1), protoreflect.ValueOfInt64(seconds))
	m.Set(fields.ByNumber(2), protoreflect.ValueOfInt32(nanos))
}

func secondsOf(m protoreflect.Message) (seconds int64, nanos int32) {
	fields := m.Descriptor().Fields()
	return m.Get(fields.ByNumber(1)).Int(), int32(m.Get(fields.ByNumber(2)).Int())
}

// setFieldMask reads "a,b.cD". Names in snake_case, as they stand in a mask's protobuf form, are taken too.
func setFieldMask(m protoreflect.Message, s string) (what string) {
	paths := m.Mutable(m.Descriptor().Fields().ByNumber(1)).List()
	paths.Truncate(0)
	for path := range strings.SplitSeq(s, ",") {
		if path = strings.TrimSpace(path); path == "" {
			if strings.TrimSpace(s) == "" {
				return ""
			}
			return clip(s) + " has an empty path"
		}
		if !isPath(path) {
			return clip(path) + " is no path of fields such as batch.linger"
		}
		paths.Append(protoreflect.ValueOfString(snake(path)))
	}
	return ""
}

// isPath takes lowerCamel and snake_case names with dots between.
func isPath(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part != "*" && !plainName(part) {
			return false
		}
	}
	return true
}

func snake(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			b.WriteByte(c + 'a' - 'A')
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func (d *protoDecoder) duration(m protoreflect.Message) *fault {
	return d.fromText(m, `a string such as "5ms"`, setDuration)
}

func (d *protoDecoder) fieldMask(m protoreflect.Message) *fault {
	return d.fromText(m, `a string such as "batch.linger,keyPath"`, setFieldMask)
}

func (d *protoDecoder) timestamp(m protoreflect.Message) *fault {
	d.space()
	at := d.pos
	s, f := d.numberText("an RFC 3339 time or milliseconds since 1970")
	if f != nil {
		return f
	}
	if what := setTime(m, s); what != "" {
		return fieldFault(at, "%s", what)
	}
	return nil
}

func (d *protoDecoder) fromText(m protoreflect.Message, expected string, set func(protoreflect.Message, string) string) *fault {
	if d.peek() != '"' {
		return d.wrong(expected)
	}
	at := d.pos
	s, f := d.text()
	if f != nil {
		return f
	}
	if what := set(m, string(s)); what != "" {
		return fieldFault(at, "%s", what)
	}
	return nil
}

// enumPrefix is what every name of an enum begins with, known from the first one's ending; empty where there is none.
func enumPrefix(ed protoreflect.EnumDescriptor) string {
	if zero := ed.Values().ByNumber(0); zero != nil {
		if prefix, found := strings.CutSuffix(string(zero.Name()), "UNSPECIFIED"); found {
			return prefix
		}
	}
	return ""
}

// enumNames are the short names that a caller may give.
func enumNames(ed protoreflect.EnumDescriptor) []string {
	prefix := enumPrefix(ed)
	var names []string
	for i := range ed.Values().Len() {
		v := ed.Values().Get(i)
		if name := strings.TrimPrefix(string(v.Name()), prefix); v.Number() != 0 || name != "UNSPECIFIED" {
			names = append(names, name)
		}
	}
	return names
}

// parseEnum reads "ZSTD", "CODEC_ZSTD" or a number.
func parseEnum(ed protoreflect.EnumDescriptor, s string) (v protoreflect.Value, what string) {
	ev := ed.Values().ByName(protoreflect.Name(s))
	if ev == nil {
		ev = ed.Values().ByName(protoreflect.Name(enumPrefix(ed) + s))
	}
	if ev != nil {
		return protoreflect.ValueOfEnum(ev.Number()), ""
	}
	if n, ok := parseInteger(s, 32); ok {
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(n)), ""
	}
	names := enumNames(ed)
	what = clip(s) + " is not one of " + strings.Join(names, ", ")
	if near := nearest.Word(s, names); near != "" {
		what += "; did you mean " + near + "?"
	}
	return v, what
}
