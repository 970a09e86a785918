package log

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/recordbatch"
)

const (
	minBuffer = 64 << 10
	// maxBuffer is the most that one disk read of a Reader takes, but for a batch that is larger.
	maxBuffer = 1 << 20
)

// buffers are what Readers read files into, one pool a power of two from minBuffer to maxBuffer: fresh memory of that size
// costs twice what it takes to fill it from the system's cache. Each has room for the header that a read takes beyond.
var buffers [5]sync.Pool // of *[]byte

func bufferClass(n int) int { return bits.Len(uint(max(n, minBuffer)-1)) - bits.Len(minBuffer-1) }

// takeBuffer returns one for answers of n bytes; n is at most maxBuffer.
func takeBuffer(n int) *[]byte {
	class := bufferClass(n)
	if b, ok := buffers[class].Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, minBuffer<<class+recordbatch.HeaderSize)
	return &b
}

func giveBuffer(b *[]byte) {
	buffers[bufferClass(len(*b)-recordbatch.HeaderSize)].Put(b)
}

// Reader fetches from an offset on, in order. While its caller is busy with an answer that came from the disk, the next one
// is read and checked already; nothing is where answers come from memory, or the reader is at the end. It holds one answer
// ahead at most, of 1 MiB or a larger batch, and all Readers of a log together no more than an eighth of Config.MemoryBytes:
// those beyond that read when they are asked.
//
// A Reader belongs to one goroutine. It must be closed.
type Reader struct {
	p     *Partition
	o     FetchOptions
	ahead chan ahead // nil: nothing is being read
}

// ahead is an answer that was read before it was asked for.
type ahead struct {
	FetchResult
	cached bool
	err    error
}

// NewReader returns one that begins at o.Offset. Its answers have at most o.MaxBytes, and from the disk 1 MiB, unless a single
// batch has more; at the end it waits o.MaxWait for the next. MinBytes does not apply.
func (p *Partition) NewReader(o FetchOptions) *Reader {
	o.MinBytes, o.reuse = 1, true
	return &Reader{p: p, o: o.withDefaults()}
}

// Offset is where the next answer begins.
func (r *Reader) Offset() int64 { return r.o.Offset }

// Next is Partition.Fetch from where the last answer ended. Whoever is through with an answer should Release it. After an
// error Next tries the same again.
func (r *Reader) Next(ctx context.Context) (FetchResult, error) {
	start := time.Now()
	a, ok := r.take(ctx)
	switch {
	case r.ahead != nil:
		a.err = context.Cause(ctx)
	case !ok:
		// Also where reading ahead failed: who asks gets the error of now, not of then.
		a.FetchResult, a.cached, a.err = r.p.fetch(ctx, r.o)
	}
	if a.err != nil {
		return a.FetchResult, r.p.errorf("fetch from", a.err)
	}
	r.p.observeFetch(a.Size, a.cached, start)
	r.o.Offset = a.NextOffset
	if !a.cached && a.Size > 0 && a.NextOffset < a.HighWatermark {
		r.readAhead()
	}
	return a.FetchResult, nil
}

// chunk is the size of an answer that is read ahead.
func (r *Reader) chunk() int64 { return int64(min(r.o.MaxBytes, maxBuffer)) }

// readAhead begins to read what Next will be asked for, where the log has memory for it.
func (r *Reader) readAhead() {
	l, n := r.p.log, r.chunk()
	if l.readAhead.Add(n) > l.cfg.MemoryBytes/8 {
		l.readAhead.Add(-n)
		return
	}
	r.ahead = make(chan ahead, 1)
	go func(to chan<- ahead, o FetchOptions) {
		var a ahead
		a.FetchResult, _, a.cached, a.err = r.p.read(o)
		to <- a
	}(r.ahead, r.o)
}

// take returns what was read ahead, if it may still be served; ok is false otherwise. Where ctx ends first it goes on being read.
func (r *Reader) take(ctx context.Context) (a ahead, ok bool) {
	if r.ahead == nil {
		return a, false
	}
	select {
	case a = <-r.ahead:
	case <-ctx.Done():
		return a, false
	}
	r.ahead = nil
	r.p.log.readAhead.Add(-r.chunk())
	if a.err != nil || a.Size == 0 {
		return ahead{}, false
	}
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readable(r.o.Offset) != nil { // closed, or deleted up to here, since
		a.Release()
		return ahead{}, false
	}
	a.HighWatermark, a.LogStartOffset = p.high.offset, p.logStart
	return a, true
}

// Close waits for a read that is under way.
func (r *Reader) Close() {
	if r.ahead == nil {
		return
	}
	a := <-r.ahead
	a.Release()
	r.ahead = nil
	r.p.log.readAhead.Add(-r.chunk())
}
