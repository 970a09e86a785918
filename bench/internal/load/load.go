// Package load drives an HTTP endpoint with a fixed number of keep-alive
// connections, closed-loop (as fast as answers come) or open-loop (at a rate,
// latency counted from when a request was due, so a stall is not hidden).
package load

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"
)

// Config of one run.
type Config struct {
	URL         string
	ContentType string
	Conns       int
	Duration    time.Duration
	Rate        float64               // requests a second over all connections; 0 is closed-loop
	Body        func(i uint64) []byte // body of the i-th request; must be safe for concurrent use
	PerRequest  int                   // messages in one request, for the messages/s figure; 0 is 1
}

// Result of one run. Latencies are in microseconds.
type Result struct {
	Requests, Errors uint64
	PerRequest       int
	Elapsed          time.Duration
	Latency          *hdrhistogram.Histogram
	FirstError       string
}

// RPS is answered requests a second.
func (r Result) RPS() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// MPS is messages a second.
func (r Result) MPS() float64 { return r.RPS() * float64(r.PerRequest) }

// Quantile gives a latency, such as 0.99's.
func (r Result) Quantile(q float64) time.Duration {
	return time.Duration(r.Latency.ValueAtQuantile(q*100)) * time.Microsecond
}

// Run drives the endpoint until the duration is over or ctx ends. It fails
// only where no request was answered.
func Run(ctx context.Context, c Config) (Result, error) {
	if c.PerRequest == 0 {
		c.PerRequest = 1
	}
	ctx, cancel := context.WithTimeout(ctx, c.Duration)
	defer cancel()
	uri := fasthttp.AcquireURI()
	if err := uri.Parse(nil, []byte(c.URL)); err != nil {
		return Result{}, fmt.Errorf("load: parse %s: %w", c.URL, err)
	}
	host := string(uri.Host())
	var next, done, failed atomic.Uint64
	var firstErr atomic.Value
	hists := make([]*hdrhistogram.Histogram, c.Conns)
	start := time.Now()
	var wg sync.WaitGroup
	for w := range c.Conns {
		hists[w] = hdrhistogram.New(1, 60_000_000, 3)
		wg.Go(func() {
			client := &fasthttp.HostClient{Addr: host, MaxConns: 1, MaxIdleConnDuration: time.Minute}
			req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
			req.SetRequestURI(c.URL)
			req.Header.SetMethod(fasthttp.MethodPost)
			req.Header.SetContentType(c.ContentType)
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				due := time.Now()
				if c.Rate > 0 {
					due = start.Add(time.Duration(float64(i) / c.Rate * float64(time.Second)))
					if wait := time.Until(due); wait > 0 {
						select {
						case <-time.After(wait):
						case <-ctx.Done():
							return
						}
					}
				}
				req.SetBodyRaw(c.Body(i))
				err := client.Do(req, resp)
				if err != nil || resp.StatusCode()/100 != 2 {
					failed.Add(1)
					firstErr.CompareAndSwap(nil, fmt.Sprintf("status %d, %v: %.200s", resp.StatusCode(), err, resp.Body()))
					continue
				}
				done.Add(1)
				_ = hists[w].RecordValue(max(1, time.Since(due).Microseconds()))
			}
		})
	}
	wg.Wait()
	res := Result{Requests: done.Load(), Errors: failed.Load(), PerRequest: c.PerRequest, Elapsed: time.Since(start), Latency: hdrhistogram.New(1, 60_000_000, 3)}
	for _, h := range hists {
		res.Latency.Merge(h)
	}
	if s, ok := firstErr.Load().(string); ok {
		res.FirstError = s
	}
	if res.Requests == 0 {
		return res, fmt.Errorf("load: %s answered none of %d requests with a 2xx; first: %s", c.URL, res.Errors, res.FirstError)
	}
	return res, nil
}
