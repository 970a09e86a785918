// Package load drives an HTTP/1.1 endpoint with a fixed number of keep-alive
// connections, closed-loop (as fast as answers come) or open-loop (at a rate,
// latency counted from when a request was due, so a stall is not hidden).
//
// The generator shares its cores with what it measures, so it does next to
// nothing: requests are made beforehand, one thread serves all connections by
// epoll, a request is one write and an answer, as a rule, one read.
package load

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/bench/internal/process"
)

// Config of one run.
type Config struct {
	URL         string // http://host:port/path
	ContentType string
	Bodies      [][]byte // sent in turns
	Conns       int
	Duration    time.Duration
	Rate        float64 // requests a second over all connections; 0 is closed-loop
	PerRequest  int     // messages in one request, for the messages/s figure; 0 is 1
	Server      int     // process whose CPU time is taken; 0: none
}

// Result of one run. Latencies are in microseconds.
type Result struct {
	Requests, Errors uint64
	PerRequest       int
	Elapsed          time.Duration
	Latency          *hdrhistogram.Histogram
	FirstError       string
	ServerCPU        time.Duration // of Config.Server
	LoadCPU          time.Duration // of the generator itself
}

// RPS is answered requests a second.
func (r Result) RPS() float64 { return float64(r.Requests) / r.Elapsed.Seconds() }

// MPS is messages a second.
func (r Result) MPS() float64 { return r.RPS() * float64(r.PerRequest) }

// Quantile gives a latency, such as 0.99's.
func (r Result) Quantile(q float64) time.Duration {
	return time.Duration(r.Latency.ValueAtQuantile(q*100)) * time.Microsecond
}

// Micros is a CPU time for each request, in microseconds.
func (r Result) Micros(cpu time.Duration) float64 {
	return float64(cpu.Nanoseconds()) / 1000 / float64(r.Requests)
}

// NewHistogram is what latencies are recorded in: from 1 µs to a minute, three digits.
func NewHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, 60_000_000, 3) }

// Run drives the endpoint until the duration is over or ctx ends, and waits for
// the answers that are still to come. It fails where a connection does, and
// where no request was answered with a 2xx; other answers count as errors.
func Run(ctx context.Context, c Config) (Result, error) {
	c.PerRequest = max(c.PerRequest, 1)
	u, err := url.Parse(c.URL)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	requests := make([][]byte, len(c.Bodies))
	for i, b := range c.Bodies {
		requests[i] = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			u.RequestURI(), u.Host, c.ContentType, len(b), b)
	}
	l, err := newLoop(u.Host, requests, c)
	if err != nil {
		return Result{}, fmt.Errorf("load: %s: %w", c.URL, err)
	}
	defer l.close()
	before, own, err := used(c.Server)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	start := time.Now()
	if err := l.run(ctx, start); err != nil {
		return Result{}, fmt.Errorf("load: %s: %w", c.URL, err)
	}
	res := l.result
	res.PerRequest, res.Elapsed = c.PerRequest, time.Since(start)
	after, ownAfter, err := used(c.Server)
	if err != nil {
		return Result{}, fmt.Errorf("load: %w", err)
	}
	res.ServerCPU, res.LoadCPU = after-before, ownAfter-own
	if res.Requests == 0 {
		return res, fmt.Errorf("load: %s answered none of %d requests with a 2xx; first: %s", c.URL, res.Errors, res.FirstError)
	}
	return res, nil
}

// used is the CPU time of the server and of this process.
func used(pid int) (server, own time.Duration, err error) {
	if pid != 0 {
		if server, err = process.CPU(pid); err != nil {
			return 0, 0, err
		}
	}
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, 0, fmt.Errorf("getrusage: %w", err)
	}
	return server, time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
