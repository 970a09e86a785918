package wirejson

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting of arrays and objects that a value may have, as in encoding/json.
const MaxDepth = 10000

// problem is what a scan found wrong. A scan reports it by a number so that finding nothing wrong allocates nothing.
type problem uint8

const (
	fine problem = iota
	endOfInput
	noValue
	badLiteral
	badNumber
	badEscape
	badControl
	badUTF8
	noKey
	noColon
	noCommaObject
	noCommaArray
	tooDeep
	trailing
)

var problemTexts = [...]string{
	fine:          "nothing is wrong",
	endOfInput:    "the JSON ends before it is complete",
	noValue:       "expected a JSON value",
	badLiteral:    "expected true, false or null",
	badNumber:     "this is not a JSON number",
	badEscape:     "this is not a JSON escape",
	badControl:    "a control character in a string must be escaped",
	badUTF8:       "the text is not valid UTF-8",
	noKey:         "expected a name in double quotes",
	noColon:       "expected a colon after the name",
	noCommaObject: "expected a comma or } after the value",
	noCommaArray:  "expected a comma or ] after the value",
	tooDeep:       "arrays and objects are nested deeper than 10000 levels",
	trailing:      "expected nothing more after the value",
}

// nesting remembers for each open level whether it is an object. The innermost 64 levels sit in a word, so only documents
// nested deeper than that allocate.
type nesting struct {
	depth int
	word  uint64
	outer []uint64
}

func (n *nesting) push(object uint64) bool {
	if n.depth == MaxDepth {
		return false
	}
	if n.depth > 0 && n.depth&63 == 0 {
		n.outer = append(n.outer, n.word)
	}
	n.word = n.word<<1 | object
	n.depth++
	return true
}

func (n *nesting) pop() {
	n.depth--
	n.word >>= 1
	if n.depth > 0 && n.depth&63 == 0 {
		n.word = n.outer[len(n.outer)-1]
		n.outer = n.outer[:len(n.outer)-1]
	}
}

// scanValue reads one value that starts at b[i] and returns the index after it, or the index of what is wrong.
func scanValue(b []byte, i int) (int, problem) {
	if i < len(b) && b[i] != '{' && b[i] != '[' {
		return scanScalar(b, i)
	}
	var n nesting
	var bad problem
	for {
		// A value starts at b[i].
		if i >= len(b) {
			return i, endOfInput
		}
		opened := true
		switch b[i] {
		case '{':
			if !n.push(1) {
				return i, tooDeep
			}
			if i = skipSpace(b, i+1); i < len(b) && b[i] != '}' {
				if i, bad = scanName(b, i); bad != fine {
					return i, bad
				}
				continue
			}
		case '[':
			if !n.push(0) {
				return i, tooDeep
			}
			if i = skipSpace(b, i+1); i < len(b) && b[i] != ']' {
				continue
			}
		default:
			opened = false
			if i, bad = scanScalar(b, i); bad != fine {
				return i, bad
			}
		}
		if opened && i >= len(b) {
			return i, endOfInput
		}
		if i, bad = scanAfter(b, i, &n, opened); bad != fine || n.depth == 0 {
			return i, bad
		}
	}
}

// scanAfter reads what follows a value: closing brackets, and the comma (with the next name in an object). With closing, b[i] is
// the bracket that closes an empty array or object.
func scanAfter(b []byte, i int, n *nesting, closing bool) (int, problem) {
	for {
		if closing {
			n.pop()
			i++
			if n.depth == 0 {
				return i, fine
			}
		}
		if i = skipSpace(b, i); i >= len(b) {
			return i, endOfInput
		}
		switch object := n.word&1 == 1; {
		case b[i] == ',' && object:
			return scanName(b, skipSpace(b, i+1))
		case b[i] == ',':
			return skipSpace(b, i+1), fine
		case b[i] == '}' && object, b[i] == ']' && !object:
			closing = true
		case object:
			return i, noCommaObject
		default:
			return i, noCommaArray
		}
	}
}

// scanName reads a name and its colon, and returns the index at which the value starts.
func scanName(b []byte, i int) (int, problem) {
	if i >= len(b) {
		return i, endOfInput
	}
	if b[i] != '"' {
		return i, noKey
	}
	i, bad := scanString(b, i)
	if bad != fine {
		return i, bad
	}
	if i = skipSpace(b, i); i >= len(b) {
		return i, endOfInput
	}
	if b[i] != ':' {
		return i, noColon
	}
	return skipSpace(b, i+1), fine
}

func scanScalar(b []byte, i int) (int, problem) {
	switch c := b[i]; {
	case c == '"':
		return scanString(b, i)
	case c == '-' || c >= '0' && c <= '9':
		return scanNumber(b, i)
	case c == 't':
		return scanLiteral(b, i, "true")
	case c == 'f':
		return scanLiteral(b, i, "false")
	case c == 'n':
		return scanLiteral(b, i, "null")
	}
	return i, noValue
}

func scanLiteral(b []byte, i int, word string) (int, problem) {
	for k := range len(word) {
		if i+k >= len(b) {
			return len(b), endOfInput
		}
		if b[i+k] != word[k] {
			return i, badLiteral
		}
	}
	return i + len(word), fine
}

func scanNumber(b []byte, i int) (int, problem) {
	if b[i] == '-' {
		i++
	}
	if i >= len(b) {
		return i, endOfInput
	}
	if b[i] == '0' {
		i++
	} else if end := skipDigits(b, i); end > i {
		i = end
	} else {
		return i, badNumber
	}
	if i < len(b) && b[i] == '.' {
		end := skipDigits(b, i+1)
		if end == i+1 {
			return end, numberProblem(b, end)
		}
		i = end
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end := skipDigits(b, i)
		if end == i {
			return end, numberProblem(b, end)
		}
		i = end
	}
	if i < len(b) && b[i] >= '0' && b[i] <= '9' {
		return i, badNumber
	}
	return i, fine
}

func numberProblem(b []byte, i int) problem {
	if i >= len(b) {
		return endOfInput
	}
	return badNumber
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// scanString reads a string whose opening quote is b[i] and returns the index after its closing quote.
func scanString(b []byte, i int) (int, problem) {
	i++
	for {
		i = skipPlain(b, i)
		if i >= len(b) {
			return i, endOfInput
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, fine
		case c == '\\':
			end, bad := scanEscape(b, i)
			if bad != fine {
				return end, bad
			}
			i = end
		case c < ' ':
			return i, badControl
		default:
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				return i, badUTF8
			}
			i += size
		}
	}
}

// skipPlain returns the index of the first byte from i on that is a quote, a backslash, a control character or not ASCII. It
// looks at eight bytes at a time: a borrow can only raise a false alarm above a true one, so the lowest alarm is true.
func skipPlain(b []byte, i int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		alarm := (x | (x - ' '*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)) & highs
		if alarm != 0 {
			return i + bits.TrailingZeros64(alarm)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' && b[i] < utf8.RuneSelf {
		i++
	}
	return i
}

func scanEscape(b []byte, i int) (int, problem) {
	if i+1 >= len(b) {
		return len(b), endOfInput
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, fine
	case 'u':
		for k := i + 2; k < i+6; k++ {
			if k >= len(b) {
				return len(b), endOfInput
			}
			if !isHex(b[k]) {
				return i, badEscape
			}
		}
		return i + 6, fine
	}
	return i, badEscape
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}
