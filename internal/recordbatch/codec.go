package recordbatch

import (
	"fmt"
	"strings"
)

// Codec is the compression of a batch's records, numbered as on the wire.
type Codec int8

// The codecs that Kafka knows.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

const numCodecs = 5

var codecNames = [numCodecs]string{"none", "gzip", "snappy", "lz4", "zstd"}

// maxLevels holds each codec's highest level. Levels start at 1; 0 is the
// codec's default.
var maxLevels = [numCodecs]int{None: 0, Gzip: 9, Snappy: 3, LZ4: 9, Zstd: 22}

func (c Codec) valid() bool { return c >= 0 && c < numCodecs }

// String returns Kafka's name of the codec.
func (c Codec) String() string {
	if !c.valid() {
		return fmt.Sprintf("codec(%d)", int8(c))
	}
	return codecNames[c]
}

// ParseCodec reads a codec's name in any case. Errors: ErrCodec.
func ParseCodec(s string) (Codec, error) {
	for c, name := range codecNames {
		if strings.EqualFold(name, s) {
			return Codec(c), nil
		}
	}
	return None, fmt.Errorf("codec %q: %w; use one of %s", s, ErrCodec, strings.Join(codecNames[:], ", "))
}

// MaxLevel is the highest level that the codec takes. 0 is always the default,
// and the only level of None.
func (c Codec) MaxLevel() int {
	if !c.valid() {
		return 0
	}
	return maxLevels[c]
}

// CheckLevel verifies a level before it reaches a Builder. Errors: ErrCodec.
func (c Codec) CheckLevel(level int) error {
	if !c.valid() {
		return fmt.Errorf("codec %d: %w", int8(c), ErrCodec)
	}
	if level < 0 || level > maxLevels[c] {
		return fmt.Errorf("codec %s, level %d: %w; use 0 (default) to %d", c, level, ErrCodec, maxLevels[c])
	}
	return nil
}
