package natskv

import (
	"fmt"
	"strings"
)

// NATS allows few characters in a key and gives the dot a meaning. A key here is any string in which `/` separates levels:
// each level's letters, digits, `_` and `-` stand for themselves, every other byte is written =XX, and `/` becomes NATS's dot.

const hexDigits = "0123456789ABCDEF"

func encodeKey(key string) (string, error) {
	if key == "" || key[0] == '/' || key[len(key)-1] == '/' || strings.Contains(key, "//") {
		return "", fmt.Errorf("key %q has an empty level", key)
	}
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case plain(c):
			b.WriteByte(c)
		case c == '/':
			b.WriteByte('.')
		default:
			b.WriteByte('=')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
	}
	return b.String(), nil
}

func decodeKey(encoded string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(encoded); i++ {
		switch c := encoded[i]; {
		case plain(c):
			b.WriteByte(c)
		case c == '.':
			b.WriteByte('/')
		case c == '=' && i+2 < len(encoded):
			high, low := strings.IndexByte(hexDigits, encoded[i+1]), strings.IndexByte(hexDigits, encoded[i+2])
			if high < 0 || low < 0 {
				return "", fmt.Errorf("stored key %q is not one of ours", encoded)
			}
			b.WriteByte(byte(high<<4 | low))
			i += 2
		default:
			return "", fmt.Errorf("stored key %q is not one of ours", encoded)
		}
	}
	return b.String(), nil
}

func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}
