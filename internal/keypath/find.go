package keypath

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Find returns the text of the value that the query selects in doc, which must be one valid JSON value; ok is false where
// it selects none. The result aliases doc.
func (p *Path) Find(doc []byte) (raw []byte, ok bool) {
	raw = trim(doc)
	for i := range p.segments {
		s := &p.segments[i]
		if s.byIndex {
			raw, ok = element(raw, s.index)
		} else {
			raw, ok = member(raw, s.name)
		}
		if !ok {
			return nil, false
		}
	}
	return raw, len(raw) > 0
}

// Key returns the key that the query selects in doc: a string's characters without quotes and escapes, any other value's
// text as it is written (numbers and objects keep their exact form). ok is false where there is nothing or a null. The
// result aliases doc unless the string has escapes. A lone surrogate in a string becomes U+FFFD.
func (p *Path) Key(doc []byte) (key []byte, ok bool) {
	raw, ok := p.Find(doc)
	if !ok || string(raw) == "null" {
		return nil, false
	}
	if raw[0] != '"' {
		return raw, true
	}
	if len(raw) < 2 || raw[len(raw)-1] != '"' {
		return nil, false // not JSON
	}
	body := raw[1 : len(raw)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return body, true
	}
	return unescape(make([]byte, 0, len(body)), body), true
}

// member returns the last member of that name.
func member(doc []byte, name string) (value []byte, ok bool) {
	if len(doc) == 0 || doc[0] != '{' {
		return nil, false
	}
	i := skipSpace(doc, 1)
	for i < len(doc) && doc[i] == '"' {
		nameEnd := skipString(doc, i)
		if nameEnd < 0 {
			return nil, false
		}
		match := equalName(doc[i+1:nameEnd-1], name)
		i = skipSpace(doc, nameEnd)
		if i >= len(doc) || doc[i] != ':' {
			return nil, false
		}
		i = skipSpace(doc, i+1)
		end := skipValue(doc, i)
		if end < 0 {
			return nil, false
		}
		if match {
			value, ok = doc[i:end], true
		}
		i = skipSpace(doc, end)
		if i >= len(doc) || doc[i] != ',' {
			break
		}
		i = skipSpace(doc, i+1)
	}
	return value, ok
}

// element returns the element at index; a negative one counts from the end and costs a second walk.
func element(doc []byte, index int64) ([]byte, bool) {
	if index < 0 {
		_, count := walkElements(doc, -1)
		index += count
		if index < 0 {
			return nil, false
		}
	}
	value, _ := walkElements(doc, index)
	return value, value != nil
}

// walkElements returns element want and stops there, or walks the whole array and counts its elements.
func walkElements(doc []byte, want int64) (value []byte, count int64) {
	if len(doc) == 0 || doc[0] != '[' {
		return nil, 0
	}
	i := skipSpace(doc, 1)
	if i < len(doc) && doc[i] == ']' {
		return nil, 0
	}
	for i < len(doc) {
		end := skipValue(doc, i)
		if end < 0 {
			return nil, count
		}
		if count == want {
			return doc[i:end], count
		}
		count++
		i = skipSpace(doc, end)
		if i >= len(doc) || doc[i] != ',' {
			break
		}
		i = skipSpace(doc, i+1)
	}
	return nil, count
}

// skipValue returns the position after the value that starts at i, -1 where there is none. Brackets are counted without
// looking at their kind, which is enough for valid JSON and bounded for anything else.
func skipValue(doc []byte, i int) int {
	if i >= len(doc) {
		return -1
	}
	switch doc[i] {
	case '"':
		return skipString(doc, i)
	case '{', '[':
		return skipContainer(doc, i)
	}
	start := i
	for i < len(doc) && !isDelimiter(doc[i]) {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func skipContainer(doc []byte, i int) int {
	depth := 0
	for i < len(doc) {
		switch doc[i] {
		case '"':
			if i = skipString(doc, i); i < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return -1
}

// skipString returns the position after the string whose quote is at i, -1 where it does not end.
func skipString(doc []byte, i int) int {
	i++
	for {
		n := bytes.IndexByte(doc[i:], '"')
		if n < 0 {
			return -1
		}
		end := i + n
		// A quote after an odd run of backslashes is escaped.
		slashes := 0
		for end-1-slashes >= i && doc[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
		i = end + 1
	}
}

// equalName compares a member name as it is written, between its quotes, with a query's name.
func equalName(written []byte, name string) bool {
	if bytes.IndexByte(written, '\\') < 0 {
		return string(written) == name
	}
	for len(written) > 0 {
		if written[0] != '\\' {
			if name == "" || written[0] != name[0] {
				return false
			}
			written, name = written[1:], name[1:]
			continue
		}
		r, n := readEscape(written)
		if r < 0 {
			return false
		}
		want, size := utf8.DecodeRuneInString(name)
		if size == 0 || want != r {
			return false
		}
		written, name = written[n:], name[size:]
	}
	return name == ""
}

// unescape appends a string's characters to dst.
func unescape(dst, body []byte) []byte {
	for len(body) > 0 {
		n := bytes.IndexByte(body, '\\')
		if n < 0 {
			return append(dst, body...)
		}
		dst = append(dst, body[:n]...)
		r, size := readEscape(body[n:])
		if r < 0 {
			r = utf8.RuneError
		}
		dst = utf8.AppendRune(dst, r)
		body = body[n+size:]
	}
	return dst
}

// readEscape reads the escape that b starts with and how long it is; -1 where it stands for no character.
func readEscape(b []byte) (r rune, size int) {
	if len(b) < 2 {
		return -1, len(b)
	}
	if b[1] != 'u' {
		if r, ok := simpleEscape(b[1]); ok {
			return r, 2
		}
		if b[1] == '"' {
			return '"', 2
		}
		return -1, 2
	}
	r, ok := hex4(b[2:])
	if !ok {
		return -1, 2
	}
	if !utf16.IsSurrogate(r) {
		return r, 6
	}
	if len(b) >= 12 && b[6] == '\\' && b[7] == 'u' {
		if low, ok := hex4(b[8:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12
			}
		}
	}
	return -1, 6
}

// simpleEscape is what the compiler and the evaluator share: JSON's one-letter escapes but the quotes.
func simpleEscape(c byte) (rune, bool) {
	switch c {
	case 'b':
		return '\b', true
	case 'f':
		return '\f', true
	case 'n':
		return '\n', true
	case 'r':
		return '\r', true
	case 't':
		return '\t', true
	case '/', '\\':
		return rune(c), true
	}
	return 0, false
}

func hex4[T string | []byte](s T) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	var r rune
	for i := range 4 {
		c := s[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isDelimiter(c byte) bool {
	return isSpace(c) || c == ',' || c == ':' || c == ']' || c == '}' || c == '[' || c == '{' || c == '"'
}

func skipSpace(doc []byte, i int) int {
	for i < len(doc) && isSpace(doc[i]) {
		i++
	}
	return i
}

func trim(doc []byte) []byte {
	doc = doc[skipSpace(doc, 0):]
	for len(doc) > 0 && isSpace(doc[len(doc)-1]) {
		doc = doc[:len(doc)-1]
	}
	return doc
}
