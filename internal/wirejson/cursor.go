package wirejson

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// cursor reads a document from front to back. Text without escapes and payloads are slices of the document; what has to be
// decoded goes to the arena, whose slices stay good when it grows.
type cursor struct {
	doc   []byte
	pos   int
	arena []byte
}

func (c *cursor) space() { c.pos = skipSpace(c.doc, c.pos) }

// peek skips space and returns the first byte of what comes, 0 at the end.
func (c *cursor) peek() byte {
	c.space()
	if c.pos < len(c.doc) {
		return c.doc[c.pos]
	}
	return 0
}

// kind names what comes, for messages.
func (c *cursor) kind() string {
	switch b := c.peek(); {
	case b == '{':
		return "an object"
	case b == '[':
		return "an array"
	case b == '"':
		return "a string"
	case b == 't' || b == 'f':
		return "a boolean"
	case b == 'n':
		return "null"
	case b == '-' || b >= '0' && b <= '9':
		return "a number"
	}
	return "nothing"
}

// wrong says that another kind of value was expected. What is no value at all is a syntax error.
func (c *cursor) wrong(expected string) *fault {
	c.space()
	at := c.pos
	if end, bad := scanValue(c.doc, at); bad != fine {
		return syntaxFault(end, bad)
	}
	return fieldFault(at, "must be %s, is %s", expected, c.kind())
}

// raw reads any value and returns its text.
func (c *cursor) raw() ([]byte, *fault) {
	c.space()
	start := c.pos
	end, bad := scanValue(c.doc, start)
	if bad != fine {
		return nil, syntaxFault(end, bad)
	}
	c.pos = end
	return c.doc[start:end:end], nil
}

// null reads null if it comes next.
func (c *cursor) null() bool {
	if c.peek() != 'n' {
		return false
	}
	end, bad := scanLiteral(c.doc, c.pos, "null")
	if bad == fine {
		c.pos = end
	}
	return bad == fine
}

// end checks that only space is left.
func (c *cursor) end() *fault {
	if c.space(); c.pos < len(c.doc) {
		return syntaxFault(c.pos, trailing)
	}
	return nil
}

// next steps to the next element of an array or object. It reports false at the closing bracket, which it takes.
func (c *cursor) next(first bool, closing byte) (bool, *fault) {
	b := c.peek()
	switch {
	case b == closing:
		c.pos++
		return false, nil
	case first && b != 0:
		return true, nil
	case c.pos >= len(c.doc):
		return false, syntaxFault(c.pos, endOfInput)
	case b == ',':
		c.pos++
		return true, nil
	case closing == '}':
		return false, syntaxFault(c.pos, noCommaObject)
	}
	return false, syntaxFault(c.pos, noCommaArray)
}

// name reads a name and its colon; at is where it stands.
func (c *cursor) name() (name []byte, at int, f *fault) {
	c.space()
	at = c.pos
	if _, bad := scanNameStart(c.doc, at); bad != fine {
		return nil, at, syntaxFault(at, bad)
	}
	if name, f = c.text(); f != nil {
		return nil, at, f
	}
	if c.space(); c.pos >= len(c.doc) {
		return nil, at, syntaxFault(c.pos, endOfInput)
	}
	if c.doc[c.pos] != ':' {
		return nil, at, syntaxFault(c.pos, noColon)
	}
	c.pos++
	return name, at, nil
}

func scanNameStart(b []byte, i int) (int, problem) {
	switch {
	case i >= len(b):
		return i, endOfInput
	case b[i] != '"':
		return i, noKey
	}
	return i, fine
}

// open takes an opening bracket.
func (c *cursor) open(bracket byte, expected string) *fault {
	if c.peek() != bracket {
		return c.wrong(expected)
	}
	c.pos++
	return nil
}

// text reads a string. The result aliases the document or the arena and is never nil.
func (c *cursor) text() ([]byte, *fault) {
	if c.peek() != '"' {
		return nil, c.wrong("a string")
	}
	start := c.pos
	end, bad := scanString(c.doc, start)
	if bad != fine {
		return nil, syntaxFault(end, bad)
	}
	c.pos = end
	inner := c.doc[start+1 : end-1 : end-1]
	if i := bytes.IndexByte(inner, '\\'); i >= 0 {
		return c.unescape(inner, i, start+1)
	}
	return inner, nil
}

// unescape decodes a string that scanString has accepted and whose first escape is at i.
func (c *cursor) unescape(s []byte, i, at int) ([]byte, *fault) {
	begin := len(c.arena)
	out := append(c.arena, s[:i]...)
	for i < len(s) {
		if s[i] != '\\' {
			end := i
			for end < len(s) && s[end] != '\\' {
				end++
			}
			out = append(out, s[i:end]...)
			i = end
			continue
		}
		if s[i+1] != 'u' {
			out = append(out, unescaped(s[i+1]))
			i += 2
			continue
		}
		r := hexRune(s[i+2:])
		size := 6
		if utf16.IsSurrogate(r) {
			if r = lowSurrogate(r, s[i+6:]); r == utf8.RuneError {
				return nil, fieldFault(at+i, "half of a surrogate pair has no UTF-8 form")
			}
			size = 12
		}
		out = utf8.AppendRune(out, r)
		i += size
	}
	c.arena = out
	return out[begin:len(out):len(out)], nil
}

func unescaped(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

func hexRune(s []byte) rune {
	n, _ := strconv.ParseUint(string(s[:4]), 16, 16) // the scan has seen four hex digits
	return rune(n)
}

// lowSurrogate joins a high surrogate with the escape that follows it.
func lowSurrogate(high rune, s []byte) rune {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return utf8.RuneError
	}
	return utf16.DecodeRune(high, hexRune(s[2:]))
}

// bytes reads a string of base64, in either alphabet, with or without padding.
func (c *cursor) bytes() ([]byte, *fault) {
	c.space()
	at := c.pos
	s, f := c.text()
	if f != nil {
		return nil, f
	}
	out, ok := appendBase64(c.arena, s)
	if !ok {
		return nil, fieldFault(at, "is not base64")
	}
	begin := len(c.arena)
	c.arena = out
	return out[begin:len(out):len(out)], nil
}

// appendBase64 decodes s; the result is never nil.
func appendBase64(dst, s []byte) ([]byte, bool) {
	for len(s) > 0 && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	enc := base64.RawStdEncoding
	for _, b := range s {
		if b == '-' || b == '_' {
			enc = base64.RawURLEncoding
			break
		}
	}
	if dst == nil {
		dst = []byte{}
	}
	out, err := enc.AppendDecode(dst, s)
	return out, err == nil
}
