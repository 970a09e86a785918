package wirejson

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// integer reads an integer given as a number or, as protojson has 64-bit ones, as a string. 1.0 and 1e3 are integers too.
func (c *cursor) integer(bits int) (int64, *fault) {
	c.space()
	at := c.pos
	s, f := c.numberText("an integer")
	if f != nil {
		return 0, f
	}
	n, ok := parseInteger(s, bits)
	if !ok {
		return 0, fieldFault(at, "%s is not an integer of %d bits", clip(s), bits)
	}
	return n, nil
}

// numberText reads a number, bare or in quotes.
func (c *cursor) numberText(expected string) (string, *fault) {
	switch b := c.peek(); {
	case b == '"':
		s, f := c.text()
		return string(s), f
	case b == '-' || b >= '0' && b <= '9':
		s, f := c.raw()
		return string(s), f
	}
	return "", c.wrong(expected)
}

func parseInteger(s string, bits int) (int64, bool) {
	whole, ok := wholeNumber(s)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(whole, 10, bits)
	return n, err == nil
}

func parseUnsigned(s string, bits int) (uint64, bool) {
	whole, ok := wholeNumber(s)
	if !ok {
		return 0, false
	}
	if strings.Trim(whole, "-0") == "" {
		whole = "0"
	}
	n, err := strconv.ParseUint(whole, 10, bits)
	return n, err == nil
}

// wholeNumber checks the JSON grammar and writes fraction and exponent out, without a float's loss.
func wholeNumber(s string) (string, bool) {
	if s == "" || s[0] != '-' && (s[0] < '0' || s[0] > '9') {
		return "", false
	}
	if end, bad := scanNumber([]byte(s), 0); bad != fine || end != len(s) {
		return "", false
	}
	if !strings.ContainsAny(s, ".eE") {
		return s, true
	}
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, err := strconv.Atoi(s[i+1:])
		if err != nil || e > 1000 || e < -1000 {
			return "", false
		}
		mantissa, exponent = s[:i], e
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	sign := ""
	if whole[0] == '-' {
		sign, whole = "-", whole[1:]
	}
	digits, point := whole+fraction, len(whole)+exponent
	switch {
	case point >= len(digits):
		digits += strings.Repeat("0", point-len(digits))
	case strings.Trim(digits[max(point, 0):], "0") != "":
		return "", false
	default:
		digits = digits[:max(point, 0)]
	}
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return "0", true
	}
	return sign + digits, true
}

// partition reads a partition number; null is none.
func (c *cursor) partition() (int32, bool, *fault) {
	if c.null() {
		return 0, false, nil
	}
	n, f := c.integer(32)
	return int32(n), f == nil, f
}

// millis reads an instant: RFC 3339, or milliseconds since 1970 as a number or string; null is none.
func (c *cursor) millis() (int64, bool, *fault) {
	if c.null() {
		return 0, false, nil
	}
	c.space()
	at := c.pos
	s, f := c.numberText("an RFC 3339 time or milliseconds since 1970")
	if f != nil {
		return 0, false, f
	}
	t, ok := parseTime(s)
	ms := t.UnixMilli()
	if !ok || ms < 0 || ms > maxMillis {
		return 0, false, fieldFault(at, "%s is neither an RFC 3339 time nor milliseconds, between the years 1970 and 9999", clip(s))
	}
	return ms, true, nil
}

// parseTime reads RFC 3339 or integer milliseconds.
func parseTime(s string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t.UTC(), true
	}
	ms, ok := parseInteger(s, 64)
	if !ok || ms > math.MaxInt64/2 || ms < math.MinInt64/2 {
		return time.Time{}, false
	}
	return time.UnixMilli(ms).UTC(), true
}

// clip quotes what a caller sent, shortened.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strconv.Quote(s)
}
