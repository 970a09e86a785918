package plainhttp

import (
	"bytes"
	"context"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// route is a path of three parts, of which the one in the middle is the caller's.
type route struct {
	prefix, param, suffix string
	handler               http.Handler
}

// match returns the caller's part. Only what needs no unescaping or cleaning matches.
func (r *route) match(path string) (value string, ok bool) {
	if value, ok = strings.CutPrefix(path, r.prefix); !ok {
		return "", false
	}
	value, ok = strings.CutSuffix(value, r.suffix)
	if !ok || value == "" || value == "." || value == ".." {
		return "", false
	}
	return value, only(value, ofSegment)
}

// What a byte may be part of.
const (
	ofToken   = 1 << iota // a field's name
	ofSegment             // a path's segment, unescaped
	ofHost
	ofValue // a field's value
)

var kinds = func() (k [256]byte) {
	for c := range 256 {
		if c >= ' ' && c != 0x7f || c == '\t' {
			k[c] = ofValue
		}
	}
	for c := byte('0'); c <= 'z'; c++ {
		if c <= '9' || c >= 'a' || c >= 'A' && c <= 'Z' {
			k[c] |= ofToken | ofSegment | ofHost
		}
	}
	for kind, also := range map[byte]string{ofToken: "!#$%&'*+-.^_`|~", ofSegment: "-._~", ofHost: "-._:[]"} {
		for i := range len(also) {
			k[also[i]] |= kind
		}
	}
	return k
}()

func only(s string, kind byte) bool {
	for i := range len(s) {
		if kinds[s[i]]&kind == 0 {
			return false
		}
	}
	return true
}

// verdict is what the bytes read so far are.
type verdict int

const (
	plain      verdict = iota // begin with the head of a plain request
	incomplete                // may become that
	other                     // net/http's
)

// head is the head of a connection's last request. The next one mostly differs in nothing but the length of its body, and then is
// compared, not parsed.
type head struct {
	text    []byte // without the line of the length
	route   *route
	request *http.Request
}

const (
	method = "POST "
	proto  = " HTTP/1.1"
	eol    = "\r\n"
	least  = 4 // bytes that net/http too waits for before it makes anything of them
)

// read takes the head at the begin of b. size is that of the head, length that of the body.
func (h *head) read(ctx context.Context, b []byte, routes []route) (size, length int, v verdict) {
	if len(b) < least {
		return 0, 0, incomplete
	}
	if n := min(len(b), len(method)); string(b[:n]) != method[:n] {
		return 0, 0, other
	}
	end := bytes.Index(b, []byte(eol+eol))
	if end < 0 {
		return 0, 0, incomplete
	}
	lines := b[:end+len(eol)]
	length, at, same := -1, 0, len(h.text) > 0
	for rest := lines; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n') + 1
		line := rest[:i]
		rest = rest[i:]
		n, is := contentLength(line)
		switch {
		case is && (n < 0 || length >= 0):
			return 0, 0, other
		case is:
			length = n
		case same && bytes.HasPrefix(h.text[at:], line):
			at += len(line)
		default:
			same = false
		}
	}
	if length < 0 || !(same && at == len(h.text)) && !h.parse(ctx, string(lines), routes) {
		return 0, 0, other
	}
	return end + len(eol+eol), length, plain
}

// contentLength reads a line that gives the length of the body; -1 is a length that only net/http may judge.
func contentLength(line []byte) (n int, is bool) {
	const name = "content-length:"
	if len(line) < len(name) || line[0]|' ' != 'c' || !bytes.EqualFold(line[:len(name)], []byte(name)) {
		return 0, false
	}
	digits, ok := bytes.CutSuffix(line[len(name):], []byte(eol))
	digits = bytes.Trim(digits, " \t")
	if !ok || len(digits) == 0 || len(digits) > 9 {
		return -1, true
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return -1, true
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}

// parse takes a head that differs from the last one. It returns false where net/http must see to it, and then h is void.
func (h *head) parse(ctx context.Context, lines string, routes []route) bool {
	h.text = h.text[:0]
	first, rest, _ := strings.Cut(lines, eol)
	path, ok := strings.CutSuffix(first[len(method):], proto)
	if !ok {
		return false
	}
	r := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: path}, Proto: proto[1:], ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, 8), RequestURI: path}
	if !h.find(r, path, routes) {
		return false
	}
	text := append(h.text, first...)
	text = append(text, eol...)
	for rest != "" {
		var line string
		if line, rest, ok = strings.Cut(rest, eol); !ok || !field(r, line) {
			return false
		}
		if _, is := contentLength([]byte(line)); !is {
			text = append(append(text, line...), eol...)
		}
	}
	if r.Host == "" {
		return false
	}
	h.text, h.request = text, r.WithContext(ctx)
	return true
}

func (h *head) find(r *http.Request, path string, routes []route) bool {
	for i := range routes {
		if value, ok := routes[i].match(path); ok {
			h.route = &routes[i]
			r.SetPathValue(routes[i].param, value)
			return true
		}
	}
	return false
}

// field adds a line of the head to the request. It returns false for what says more of the message than that it is plain.
func field(r *http.Request, line string) bool {
	name, value, ok := strings.Cut(line, ":")
	if !ok || name == "" || !only(name, ofToken) || !only(value, ofValue) {
		return false
	}
	name, value = textproto.CanonicalMIMEHeaderKey(name), strings.Trim(value, " \t")
	switch name {
	case "Transfer-Encoding", "Trailer", "Expect", "Upgrade":
		return false
	case "Connection":
		if !strings.EqualFold(value, "keep-alive") {
			return false
		}
	case "Content-Length": // differs from request to request: Request.ContentLength has it
		return true
	case "Host":
		ok = r.Host == "" && value != "" && only(value, ofHost)
		r.Host = value
		return ok
	}
	r.Header[name] = append(r.Header[name], value)
	return true
}
