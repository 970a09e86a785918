package keypath

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxIndex is the largest index that RFC 9535 allows (I-JSON's exact integers).
const maxIndex = 1<<53 - 1

// maxSegments bounds the work for one payload: each segment walks what the one before selected.
const maxSegments = 64

// Path is a compiled query. It is immutable: any number of goroutines may use it.
type Path struct {
	source   string
	segments []segment
}

// segment selects a member by name, or an element by index where byIndex is set.
type segment struct {
	name    string
	index   int64
	byIndex bool
}

// SyntaxError says where a query stops being an RFC 9535 singular query.
type SyntaxError struct {
	Query   string
	Pos     int // byte position in Query, from 0
	Problem string
}

// Error names the position from 1, as people count.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("key path %q: column %d: %s", e.Query, e.Pos+1, e.Problem)
}

// Compile parses an RFC 9535 singular query: `$`, then names (`.user`, `['user']`) and indexes (`[0]`, `[-1]`).
// The error is a *SyntaxError.
func Compile(query string) (*Path, error) {
	p := parser{in: query}
	segments, err := p.parse()
	if err != nil {
		return nil, err
	}
	return &Path{source: query, segments: segments}, nil
}

// String returns the query as it was given to Compile.
func (p *Path) String() string { return p.source }

type parser struct {
	in  string
	pos int
}

func (p *parser) fail(format string, args ...any) error {
	return &SyntaxError{Query: p.in, Pos: p.pos, Problem: fmt.Sprintf(format, args...)}
}

func (p *parser) parse() ([]segment, error) {
	if !utf8.ValidString(p.in) {
		return nil, p.fail("the query is not valid UTF-8")
	}
	if !strings.HasPrefix(p.in, "$") {
		return nil, p.fail("a query starts with $, such as $.user.id")
	}
	p.pos = 1
	var segments []segment
	for p.pos < len(p.in) {
		start := p.pos
		p.space()
		if p.pos == len(p.in) {
			p.pos = start
			return nil, p.fail("white space after the query")
		}
		if len(segments) == maxSegments {
			return nil, p.fail("more than %d segments", maxSegments)
		}
		s, err := p.segment()
		if err != nil {
			return nil, err
		}
		segments = append(segments, s)
	}
	return segments, nil
}

func (p *parser) segment() (segment, error) {
	switch p.in[p.pos] {
	case '.':
		return p.shorthand()
	case '[':
		return p.bracketed()
	}
	return segment{}, p.fail("expected . or [, found %q", p.rune())
}

// shorthand is `.name`: a letter, `_` or a non-ASCII character, then those and digits.
func (p *parser) shorthand() (segment, error) {
	p.pos++
	start := p.pos
	if start == len(p.in) {
		return segment{}, p.fail("a name must follow the dot")
	}
	switch p.in[start] {
	case '.':
		return segment{}, p.fail(".. selects more than one value; a key path names exactly one")
	case '*':
		return segment{}, p.fail("* selects more than one value; a key path names exactly one")
	}
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		first := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= utf8.RuneSelf
		if !first && (p.pos == start || c < '0' || c > '9') {
			break
		}
		p.pos++
	}
	if p.pos == start {
		return segment{}, p.fail("a name cannot start with %q here; write ['…']", p.rune())
	}
	return segment{name: p.in[start:p.pos]}, nil
}

// bracketed is `['name']`, `["name"]` or `[index]`.
func (p *parser) bracketed() (segment, error) {
	p.pos++
	p.space()
	if p.pos == len(p.in) {
		return segment{}, p.fail("the bracket is not closed")
	}
	var s segment
	var err error
	switch c := p.in[p.pos]; {
	case c == '\'' || c == '"':
		s.name, err = p.quoted(c)
	case c == '-' || c >= '0' && c <= '9':
		s.byIndex = true
		s.index, err = p.number()
	case c == '*' || c == ':' || c == '?':
		err = p.fail("%c selects more than one value; a key path names exactly one", c)
	default:
		err = p.fail("expected a quoted name or an index, found %q", p.rune())
	}
	if err != nil {
		return segment{}, err
	}
	p.space()
	switch {
	case p.pos == len(p.in):
		return segment{}, p.fail("the bracket is not closed")
	case p.in[p.pos] == ',' || p.in[p.pos] == ':':
		return segment{}, p.fail("%c selects more than one value; a key path names exactly one", p.in[p.pos])
	case p.in[p.pos] != ']':
		return segment{}, p.fail("expected ], found %q", p.rune())
	}
	p.pos++
	return s, nil
}

// number is an index: no leading zeros, no -0, within I-JSON's exact integers.
func (p *parser) number() (int64, error) {
	start := p.pos
	if p.in[p.pos] == '-' {
		p.pos++
	}
	digits := p.pos
	var n int64
	for p.pos < len(p.in) && p.in[p.pos] >= '0' && p.in[p.pos] <= '9' {
		n = n*10 + int64(p.in[p.pos]-'0')
		if n > maxIndex {
			p.pos = start
			return 0, p.fail("the index is past 2^53-1")
		}
		p.pos++
	}
	text := p.in[digits:p.pos]
	switch {
	case text == "":
		return 0, p.fail("digits must follow the minus sign")
	case text[0] == '0' && (len(text) > 1 || digits > start):
		p.pos = start
		return 0, p.fail("an index has no leading zero and is not -0")
	}
	if digits > start {
		n = -n
	}
	return n, nil
}

// quoted reads a name between quotes, with JSON's escapes and the quote's own.
func (p *parser) quoted(quote byte) (string, error) {
	open := p.pos
	p.pos++
	var name strings.Builder
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		switch {
		case c == quote:
			p.pos++
			return name.String(), nil
		case c < 0x20:
			return "", p.fail("a control character in a name must be escaped")
		case c != '\\':
			name.WriteByte(c)
			p.pos++
		default:
			r, err := p.escape(quote)
			if err != nil {
				return "", err
			}
			name.WriteRune(r)
		}
	}
	p.pos = open
	return "", p.fail("the quote is not closed")
}

func (p *parser) escape(quote byte) (rune, error) {
	if p.pos+1 == len(p.in) {
		return 0, p.fail("the escape is cut short")
	}
	c := p.in[p.pos+1]
	if c == 'u' {
		return p.unicodeEscape()
	}
	r, ok := simpleEscape(c)
	if c == '\'' || c == '"' {
		r, ok = rune(c), c == quote
	}
	if !ok {
		return 0, p.fail("unknown escape \\%c", c)
	}
	p.pos += 2
	return r, nil
}

func (p *parser) unicodeEscape() (rune, error) {
	r, ok := hex4(p.in[p.pos+2:])
	if !ok {
		return 0, p.fail("\\u needs four hexadecimal digits")
	}
	if !utf16.IsSurrogate(r) {
		p.pos += 6
		return r, nil
	}
	rest := p.in[p.pos+6:]
	if strings.HasPrefix(rest, `\u`) {
		if low, ok := hex4(rest[2:]); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				p.pos += 12
				return pair, nil
			}
		}
	}
	return 0, p.fail("a lone surrogate is no character")
}

// space skips RFC 9535's blank space.
func (p *parser) space() {
	for p.pos < len(p.in) && isSpace(p.in[p.pos]) {
		p.pos++
	}
}

func (p *parser) rune() rune {
	r, _ := utf8.DecodeRuneInString(p.in[p.pos:])
	return r
}
