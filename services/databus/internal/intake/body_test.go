package intake

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/memory"
)

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zstded(t *testing.T, b []byte) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	return z.EncodeAll(b, nil)
}

func TestReadBody(t *testing.T) {
	const limit = 1 << 20
	small, large := []byte("payload"), bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	for _, tc := range []struct {
		name     string
		encoding string
		body     []byte
		length   int64 // claimed; -1: not
		want     []byte
		code     errs.Code
	}{
		{"small", "", small, 7, small, 0},
		{"empty", "", nil, 0, nil, 0},
		{"chunked", "", large, -1, large, 0},
		{"large", "identity", large, int64(len(large)), large, 0},
		{"claims too much", "", small, limit + 1, nil, errs.TooLarge},
		{"chunked too large", "", make([]byte, limit+1), -1, nil, errs.TooLarge},
		{"cut", "", small, 100, nil, errs.Invalid},
		{"gzip", "gzip", gzipped(t, large), -1, large, 0},
		{"zstd", "zstd", zstded(t, large), -1, large, 0},
		{"gzip bomb", "gzip", gzipped(t, make([]byte, 50<<20)), -1, nil, errs.TooLarge},
		{"zstd bomb", "zstd", zstded(t, make([]byte, 50<<20)), -1, nil, errs.TooLarge},
		{"gzip cut", "gzip", gzipped(t, large)[:500], -1, nil, errs.Invalid},
		{"zstd cut", "zstd", zstded(t, large)[:20], -1, nil, errs.Invalid},
		{"unknown", "br", small, 7, nil, errs.UnsupportedMedia},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pool := memory.NewPool(16 << 20)
			x := bodies{memory: pool, limit: limit}
			var b body
			for range 3 { // buffers and readers are reused
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				r.Body, r.ContentLength = io.NopCloser(&cut{bytes.NewReader(tc.body), tc.length}), tc.length
				r.Header.Set("Content-Encoding", tc.encoding)
				err := x.read(httptest.NewRecorder(), r, &b)
				if errs.CodeOf(err) != tc.code {
					t.Fatalf("error %v, want code %v", err, tc.code)
				}
				if err == nil && !bytes.Equal(b.buf, tc.want) {
					t.Fatalf("read %d bytes, want %d", len(b.buf), len(tc.want))
				}
				x.release(&b)
				if pool.Used() != 0 {
					t.Fatalf("%d bytes stay reserved", pool.Used())
				}
			}
		})
	}
}

// cut ends as net/http's bodies do: early is unexpected.
type cut struct {
	r    *bytes.Reader
	want int64
}

func (c *cut) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.want -= int64(n); errors.Is(err, io.EOF) && c.want > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func TestBodyIsRefusedWhenMemoryIsFull(t *testing.T) {
	pool := memory.NewPool(1 << 20)
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 2<<20)))
	var b body
	x := bodies{memory: pool, limit: 8 << 20}
	err := x.read(httptest.NewRecorder(), r, &b)
	if errs.From(err).Reason != "MEMORY_FULL" || errs.From(err).HTTPStatus() != http.StatusTooManyRequests {
		t.Fatal(err)
	}
	if x.release(&b); pool.Used() != 0 {
		t.Fatalf("%d bytes stay reserved", pool.Used())
	}
}
