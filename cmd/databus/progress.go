package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
)

// mostRefusals is how many refused messages are named one by one.
const mostRefusals = 10

// progress shows how far a publish is: a bar where a person looks on and is not typing, and the lines about refusals and
// waits above it. Its methods are for one goroutine; the bar draws in its own.
type progress struct {
	err      io.Writer
	quiet    bool
	bars     *mpb.Progress
	bar      *mpb.Bar
	messages atomic.Int64
	started  time.Time
}

// newProgress starts a bar of total bytes; total -1 is unknown.
func newProgress(term *terminal, quiet bool, channel string, total int64) *progress {
	p := &progress{err: term.err, quiet: quiet, started: time.Now()}
	if quiet || !term.errTTY || term.inTTY && total < 0 {
		return p
	}
	p.bars = mpb.New(mpb.WithOutput(term.err), mpb.WithRefreshRate(100*time.Millisecond), mpb.WithWidth(40))
	p.err = p.bars
	rate := decor.Any(func(decor.Statistics) string {
		seconds := max(time.Since(p.started).Seconds(), 1e-3)
		n := p.messages.Load()
		return fmt.Sprintf(" %s messages, %s/s", render.Count(n), render.Count(int64(float64(n)/seconds)))
	})
	if total < 0 {
		p.bar = p.bars.New(0, mpb.SpinnerStyle(), mpb.BarWidth(3),
			mpb.PrependDecorators(decor.Name(channel+" "), decor.CurrentKibiByte("% .1f ")), mpb.AppendDecorators(rate))
		return p
	}
	p.bar = p.bars.New(total, mpb.BarStyle(), mpb.BarFillerClearOnComplete(),
		mpb.PrependDecorators(decor.Name(channel+" "), decor.CountersKibiByte("% .1f / % .1f ")),
		mpb.AppendDecorators(decor.Percentage(), rate, decor.OnComplete(decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace), "")))
	return p
}

// add counts messages that were answered and the bytes of input they took.
func (p *progress) add(messages int, bytes int64) {
	p.messages.Add(int64(messages))
	if p.bar != nil {
		p.bar.IncrInt64(bytes)
	}
}

// refused names the n-th message that was refused, until it gets boring.
func (p *progress) refused(n int64, what string) {
	switch {
	case n <= mostRefusals:
		fmt.Fprintf(p.err, "databus: %s\n", what)
	case n == mostRefusals+1:
		fmt.Fprintln(p.err, "databus: further refusals are only counted; -o json names each")
	}
}

// waiting tells that the agent is away or asks to wait.
func (p *progress) waiting(err error, wait time.Duration) {
	if !p.quiet {
		fmt.Fprintf(p.err, "databus: %s; trying again in %s\n", firstLine(err), wait.Round(time.Millisecond))
	}
}

// stop leaves the bar as it is and waits until it is drawn.
func (p *progress) stop() {
	if p.bar == nil {
		return
	}
	p.bar.Abort(false)
	p.bars.Wait()
}
