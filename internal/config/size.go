package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes: 4096, 64KiB, 1.5GiB, or 10MB where the unit is a power of ten.
type Size int64

const sizeAllowed = "give bytes, or a number with KiB, MiB, GiB, TiB (or KB, MB, GB, TB, powers of ten)"

// sizeUnits has the long names before the short ones that end them.
var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range sizeUnits {
		if n := len(number) - len(u.name); n > 0 && strings.EqualFold(number[n:], u.name) {
			number, unit = strings.TrimSpace(number[:n]), u.bytes
			break
		}
	}
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil {
		if whole < 0 || whole > math.MaxInt64/unit {
			return fmt.Errorf("%q is no possible size: %s", text, sizeAllowed)
		}
		*s = Size(whole * unit)
		return nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f < 0 || f*float64(unit) >= math.MaxInt64 || math.IsNaN(f) || unit == 1 {
		return fmt.Errorf("%q is not a size: %s", text, sizeAllowed)
	}
	*s = Size(f * float64(unit))
	return nil
}

// MarshalText writes a size so that UnmarshalText reads the same.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns the size in the largest binary unit that it is a multiple of.
func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := sizeUnits[i]; s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
