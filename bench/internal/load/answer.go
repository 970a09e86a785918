package load

import (
	"bytes"
	"fmt"
	"strconv"
)

// parse reads an HTTP/1.1 answer as far as a generator needs to: its status, and whether all of it is there. It understands
// Content-Length, chunks without trailers, and answers without a body.
func parse(b []byte) (status int, whole bool, err error) {
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, false, nil
	}
	head, body := b[:end+2], b[end+4:]
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 ")) || len(head) < 12 {
		return 0, false, fmt.Errorf("this is no answer of HTTP/1.1: %.100q", head)
	}
	if status, err = strconv.Atoi(string(head[9:12])); err != nil {
		return 0, false, fmt.Errorf("this is no answer of HTTP/1.1: %.100q", head)
	}
	if status == 204 {
		return status, true, nil
	}
	for line := range bytes.Lines(head) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("content-length")):
			n, err := strconv.Atoi(string(value))
			return status, err == nil && len(body) >= n, err
		case bytes.EqualFold(name, []byte("transfer-encoding")):
			return status, bytes.HasSuffix(body, []byte("0\r\n\r\n")), nil
		}
	}
	return 0, false, fmt.Errorf("the answer does not say how long it is: %.400q", head)
}
