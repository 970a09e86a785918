package intake

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/memory"
)

// firstBytes is what a body gets before it has shown that it is longer: a length that a caller claims costs no memory.
const firstBytes = 4 << 10

// zstdWindow bounds the memory that a frame may ask for.
const zstdWindow = 8 << 20

// bodies reads bodies. Its methods may run concurrently on different bodies.
type bodies struct {
	memory *memory.Pool
	limit  int64                   // of a body, packed and unpacked
	shared [len(classes)]sync.Pool // buffers larger than what a request keeps, by size
	gzips  sync.Pool
	zstds  sync.Pool
}

// body is a request's body in a reused buffer, counted in the agent's memory beyond what is kept anyway.
type body struct {
	buf      []byte
	reserved int64
}

// read reads the whole body, unpacked, or says why not.
func (x *bodies) read(w http.ResponseWriter, r *http.Request, b *body) error {
	b.buf = b.buf[:0]
	if r.ContentLength > x.limit {
		return tooLarge(x.limit)
	}
	patient := pace{w: w}
	defer patient.end()
	encoding := r.Header.Get("Content-Encoding")
	if encoding == "" || strings.EqualFold(encoding, "identity") {
		if r.ContentLength == 0 {
			return nil
		}
		return x.fill(b, r.Body, r.ContentLength, &patient)
	}
	src := &counted{r: r.Body, left: x.limit}
	unpacked, done, err := x.unpack(encoding, src)
	if err == nil {
		err = x.fill(b, unpacked, -1, &patient)
		done()
	}
	var known *errs.Error
	if err != nil && !errors.As(err, &known) {
		err = errs.New(errs.Invalid, "MALFORMED_BODY", "unpack the body, content-encoding %s", encoding).Wrap(err).
			WithNext("send a whole stream of that encoding, or none")
	}
	return err
}

// fill reads src to its end. It asks for no more memory than what has arrived warrants.
func (x *bodies) fill(b *body, src io.Reader, length int64, patient *pace) error {
	for {
		if len(b.buf) == cap(b.buf) {
			if err := x.grow(b, length); err != nil {
				return err
			}
		}
		n, err := src.Read(b.buf[len(b.buf):cap(b.buf)])
		b.buf = b.buf[:len(b.buf)+n]
		if int64(len(b.buf)) > x.limit {
			return tooLarge(x.limit)
		}
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, errPackedTooLarge):
			return tooLarge(x.limit)
		case err != nil:
			return readFailed(err)
		case length >= 0 && int64(len(b.buf)) == length:
			return nil
		}
		patient.progress(len(b.buf))
	}
}

// A body that does not come in one piece may take slowFor for each slowBytes: callers that trickle bytes hold connections and
// memory no longer than that.
const (
	slowFor   = 30 * time.Second
	slowBytes = 64 << 10
)

// pace sets the deadline of a body that takes more than one read.
type pace struct {
	w    http.ResponseWriter
	next int // bytes that move the deadline on
	set  bool
}

func (p *pace) progress(have int) {
	if p.set && have < p.next {
		return
	}
	p.set, p.next = true, have+slowBytes
	// A writer without deadlines (a test's) has no slow callers either.
	_ = http.NewResponseController(p.w).SetReadDeadline(time.Now().Add(slowFor))
}

func (p *pace) end() {
	if p.set {
		_ = http.NewResponseController(p.w).SetReadDeadline(time.Time{})
	}
}

// growth is by how much a buffer grows at a time: a caller gets at most so many times what it has sent.
const growth = 4

// grow makes room: a multiple of what is there, or what is still to come where that is less.
func (x *bodies) grow(b *body, length int64) error {
	size := min(max(int64(growth*cap(b.buf)), firstBytes), x.limit+1)
	if length > int64(len(b.buf)) {
		size = min(size, max(length, firstBytes))
	}
	class := classOf(size)
	if class >= 0 {
		size = int64(classes[class])
	}
	if size > maxKept {
		if err := x.memory.Reserve(size - b.reserved); err != nil {
			return errs.New(errs.Exhausted, "MEMORY_FULL", "the agent holds as much as it may").WithRetryAfter(time.Second).Wrap(err)
		}
		b.reserved = size
	}
	buf := x.take(class, size)
	buf = append(buf, b.buf...)
	x.give(b.buf)
	b.buf = buf
	return nil
}

// release gives the memory back, and keeps a small buffer for the next body.
func (x *bodies) release(b *body) {
	if b.reserved > 0 {
		x.memory.Release(b.reserved)
		x.give(b.buf)
		b.reserved, b.buf = 0, nil
	}
}

// classes are the sizes of shared buffers.
var classes = [...]int{128 << 10, 256 << 10, 512 << 10, 1 << 20}

// classOf is the class of buffers that hold size bytes, or -1 where they are too small or too large to be shared.
func classOf(size int64) int {
	if size <= maxKept {
		return -1
	}
	return slices.IndexFunc(classes[:], func(c int) bool { return size <= int64(c) })
}

func (x *bodies) take(class int, size int64) []byte {
	if class >= 0 {
		if p, ok := x.shared[class].Get().(*[]byte); ok {
			return (*p)[:0]
		}
	}
	return make([]byte, 0, size)
}

func (x *bodies) give(buf []byte) {
	if i := slices.Index(classes[:], cap(buf)); i >= 0 {
		x.shared[i].Put(&buf)
	}
}

func readFailed(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errs.New(errs.Invalid, "BODY_CUT", "the body ended before its length was reached")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errs.New(errs.Invalid, "BODY_TOO_SLOW", "the body came too slowly: less than %d bytes in %v", slowBytes, slowFor)
	}
	var known *errs.Error
	if errors.As(err, &known) {
		return known
	}
	return errs.New(errs.Invalid, "BODY_NOT_READ", "read the body").Wrap(err)
}

func tooLarge(limit int64) error {
	return errs.New(errs.TooLarge, "REQUEST_TOO_LARGE", "the body is past the limit of %d bytes", limit).
		WithNext("send fewer messages in one request, or raise max_request_bytes in the agent's config")
}

var errPackedTooLarge = errors.New("the packed body is past the limit")

// counted bounds the packed bytes.
type counted struct {
	r    io.Reader
	left int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errPackedTooLarge
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	return n, err
}

// unpack returns a reader of the content, and what to call once it was read.
func (x *bodies) unpack(encoding string, src io.Reader) (io.Reader, func(), error) {
	switch {
	case strings.EqualFold(encoding, "gzip"), strings.EqualFold(encoding, "x-gzip"):
		z, _ := x.gzips.Get().(*gzip.Reader)
		if z == nil {
			z = new(gzip.Reader)
		}
		if err := z.Reset(src); err != nil {
			return nil, nil, err
		}
		return z, func() { x.gzips.Put(z) }, nil
	case strings.EqualFold(encoding, "zstd"):
		z, _ := x.zstds.Get().(*zstd.Decoder)
		if z == nil {
			var err error
			if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderLowmem(true)); err != nil {
				return nil, nil, err
			}
		}
		if err := z.Reset(src); err != nil {
			return nil, nil, err
		}
		return z, func() { _ = z.Reset(nil); x.zstds.Put(z) }, nil
	}
	return nil, nil, errs.New(errs.UnsupportedMedia, "UNSUPPORTED_ENCODING", "content-encoding %q is not understood", encoding).
		WithNext("use gzip, zstd or none")
}
