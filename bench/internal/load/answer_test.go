package load

import "testing"

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, answer string
		status       int
		whole, fails bool
	}{
		{"head not whole", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", 0, false, false},
		{"body not whole", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", 200, false, false},
		{"whole", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nDate: now\r\n\r\n{}", 200, true, false},
		{"refused", "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 2\r\n\r\n{}", 503, true, false},
		{"no body", "HTTP/1.1 204 No Content\r\n\r\n", 204, true, false},
		{"chunks to come", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", 200, false, false},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 200, true, false},
		{"without end", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", 0, false, true},
		{"no HTTP", "SSH-2.0-OpenSSH\r\n\r\n", 0, false, true},
	} {
		status, whole, err := parse([]byte(tc.answer))
		if status != tc.status || whole != tc.whole || (err != nil) != tc.fails {
			t.Errorf("%s: %d %v %v", tc.name, status, whole, err)
		}
	}
}
