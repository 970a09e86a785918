package publisher

import (
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/databus-suite/databus/services/databus/internal/channel"
)

// limits is a channel's two token buckets. The zero value limits nothing; its methods may run concurrently.
type limits struct {
	messages atomic.Pointer[rate.Limiter]
	bytes    atomic.Pointer[rate.Limiter]
}

func (l *limits) set(p *channel.Plan) {
	setBucket(&l.messages, p.MessagesPerSec)
	setBucket(&l.bytes, p.BytesPerSec)
}

func setBucket(p *atomic.Pointer[rate.Limiter], perSecond int64) {
	cur := p.Load()
	switch {
	case perSecond <= 0:
		p.Store(nil)
	case cur == nil:
		p.Store(rate.NewLimiter(rate.Limit(perSecond), int(perSecond)))
	case cur.Limit() != rate.Limit(perSecond):
		cur.SetLimit(rate.Limit(perSecond))
		cur.SetBurst(int(perSecond))
	}
}

// take takes tokens for a request, or tells how long to wait for them and takes none.
func (l *limits) take(now time.Time, messages int, size int64) time.Duration {
	m, b := l.messages.Load(), l.bytes.Load()
	if m == nil && b == nil {
		return 0
	}
	first, wait := reserve(m, now, messages)
	if wait > 0 {
		return wait
	}
	if _, wait = reserve(b, now, int(size)); wait > 0 && first != nil {
		first.CancelAt(now)
	}
	return wait
}

// reserve takes n tokens if they are there now. A request larger than the bucket takes the whole bucket, so that it passes
// once the bucket is full.
func reserve(l *rate.Limiter, now time.Time, n int) (*rate.Reservation, time.Duration) {
	if l == nil || n == 0 {
		return nil, 0
	}
	r := l.ReserveN(now, min(n, l.Burst()))
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return r, wait
}
