package load

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve answers with what it was sent, as a handler does, and counts.
func serve(t *testing.T) (url string, seen *atomic.Uint64) {
	t.Helper()
	seen = new(atomic.Uint64)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || int64(len(body)) != r.ContentLength {
			t.Errorf("read %d bytes of %d: %v", len(body), r.ContentLength, err)
		}
		if seen.Add(1); r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write(body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, seen
}

func TestClosedLoop(t *testing.T) {
	url, seen := serve(t)
	large := bytes.Repeat([]byte("x"), 8<<20) // neither it nor its answer goes through a socket in one piece
	r, err := Run(t.Context(), Config{URL: url, ContentType: "text/plain", Bodies: [][]byte{[]byte("a"), large}, Conns: 3,
		Duration: 100 * time.Millisecond, PerRequest: 2, Server: os.Getpid()})
	if err != nil || r.Requests == 0 || r.Requests != seen.Load() || r.Errors != 0 || r.Latency.TotalCount() != int64(r.Requests) {
		t.Fatalf("%+v, %d seen: %v", r, seen.Load(), err)
	}
	if r.LoadCPU <= 0 || r.MPS() != 2*r.RPS() {
		t.Fatalf("%+v", r)
	}
}

func TestOpenLoop(t *testing.T) {
	url, seen := serve(t)
	r, err := Run(t.Context(), Config{URL: url, ContentType: "text/plain", Bodies: [][]byte{[]byte("a")}, Conns: 8,
		Duration: 200 * time.Millisecond, Rate: 500})
	if err != nil || r.Requests == 0 || r.Requests > 100 || r.Requests != seen.Load() {
		t.Fatalf("%d answered, %d seen, at most 100 wanted: %v", r.Requests, seen.Load(), err)
	}
}

func TestRefusals(t *testing.T) {
	url, _ := serve(t)
	r, err := Run(t.Context(), Config{URL: url + "/refuse", Bodies: [][]byte{[]byte("why")}, Conns: 1, Duration: 20 * time.Millisecond})
	if err == nil || r.Errors == 0 || !strings.Contains(r.FirstError, "503") {
		t.Fatalf("%+v: %v", r, err)
	}
}
