package log

import (
	"sort"
	"sync"
)

// cached is a batch that was written a short while ago, as it was received.
type cached struct {
	base, last int64
	buf        []byte
}

// tailCache bounds, over all partitions, the recent batches that are kept in memory for readers that keep up.
// The oldest go first, whichever partition they belong to. A cached batch is never changed: readers share it.
type tailCache struct {
	limit int64

	mu    sync.Mutex
	used  int64
	queue []tailRef
	head  int
}

// tailRef stands for the oldest cached batches of a partition, n of them.
type tailRef struct {
	p     *Partition
	n     int
	bytes int64
}

// cachedOverhead is what a cached batch costs beside its bytes.
const cachedOverhead = 96

// add takes over the batches of entries that were just written.
func (t *tailCache) add(p *Partition, entries []*entry) {
	if t.limit <= 0 {
		return
	}
	ref := tailRef{p: p}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	for _, e := range entries {
		for i, b := range e.batches {
			p.tail = append(p.tail, cached{base: b.Base, last: b.Last, buf: e.bufs[i]})
			ref.n++
			ref.bytes += int64(b.Size) + cachedOverhead
		}
	}
	p.mu.Unlock()
	if ref.n == 0 {
		return
	}
	for _, v := range t.push(ref) {
		v.p.mu.Lock()
		v.p.dropTail(v.n)
		v.p.mu.Unlock()
	}
}

// push accounts for ref and returns what has to go for it.
func (t *tailCache) push(ref tailRef) (victims []tailRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = append(t.queue, ref)
	t.used += ref.bytes
	for t.used > t.limit && t.head < len(t.queue) {
		v := t.queue[t.head]
		t.queue[t.head] = tailRef{}
		t.head++
		t.used -= v.bytes
		victims = append(victims, v)
	}
	if t.head > 1024 && t.head > len(t.queue)/2 {
		t.queue = append(t.queue[:0], t.queue[t.head:]...)
		t.head = 0
	}
	return victims
}

// dropTail lets the oldest n cached batches go; mu is held.
func (p *Partition) dropTail(n int) {
	n = min(n, len(p.tail)-p.tailHead)
	clear(p.tail[p.tailHead : p.tailHead+n])
	p.tailHead += n
	if p.tailHead == len(p.tail) {
		p.tail, p.tailHead = nil, 0
	} else if p.tailHead > 64 && p.tailHead > len(p.tail)/2 {
		p.tail = append(p.tail[:0:0], p.tail[p.tailHead:]...)
		p.tailHead = 0
	}
}

// fromTail returns cached batches from the one that holds offset up to the high watermark; ok is false when the
// cache does not go back that far. mu is held.
func (p *Partition) fromTail(offset int64, maxBytes int) (bufs [][]byte, n int, next int64, ok bool) {
	tail := p.tail[p.tailHead:]
	if len(tail) == 0 || offset < tail[0].base {
		return nil, 0, offset, false
	}
	i := sort.Search(len(tail), func(i int) bool { return tail[i].last >= offset })
	next = offset
	for ; i < len(tail) && tail[i].last < p.high.offset; i++ {
		if n > 0 && n+len(tail[i].buf) > maxBytes {
			break
		}
		bufs = append(bufs, tail[i].buf)
		n += len(tail[i].buf)
		next = tail[i].last + 1
	}
	return bufs, n, next, n > 0
}
