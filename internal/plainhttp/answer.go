package plainhttp

import (
	"net/http"
	"strconv"
	"strings"
)

// answer is a handler's answer. It is buffered whole, so that one write sends it and its length is known.
type answer struct {
	header http.Header
	status int // 0: not set yet
	body   []byte
	out    []byte
}

// maxKept bounds the buffers that a connection keeps for its next answer.
const maxKept = 16 << 10

func (a *answer) reset() {
	clear(a.header)
	a.status = 0
	if cap(a.body) > maxKept || cap(a.out) > maxKept {
		a.body, a.out = nil, nil
	}
	a.body = a.body[:0]
}

// Header is http.ResponseWriter's.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader is http.ResponseWriter's.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

// Write is http.ResponseWriter's.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, p...)
	return len(p), nil
}

// oneLine keeps a value from ending its line.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// bytes are the whole answer, valid until the next one. last says that the connection ends with it.
func (a *answer) bytes(date []byte, last bool) []byte {
	a.WriteHeader(http.StatusOK)
	b := append(a.out[:0], "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(a.status), 10)
	b = append(b, ' ')
	b = append(b, http.StatusText(a.status)...)
	for name, values := range a.header {
		if name == "Content-Length" {
			continue
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n") {
				v = oneLine.Replace(v)
			}
			b = append(append(append(append(b, eol...), name...), ": "...), v...)
		}
	}
	b = append(append(b, "\r\nDate: "...), date...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(a.body)), 10)
	if last {
		b = append(b, "\r\nConnection: close"...)
	}
	b = append(b, eol+eol...)
	a.out = append(b, a.body...)
	return a.out
}
