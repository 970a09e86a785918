package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/cenkalti/backoff/v5"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"

	"github.com/databus-suite/databus/cmd/databus/internal/render"
	"github.com/databus-suite/databus/cmd/databus/internal/source"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/wirejson"
)

// requestBytes closes a request before its count does where messages are large.
const requestBytes = 4 << 20

// publisher sends messages in order, one request after the other. One goroutine reads ahead; everything else is run's.
type publisher struct {
	channel string
	client  databusv1connect.PublishServiceClient
	retry   time.Duration
	batch   int
	term    *terminal
	output  outputFlags
	quiet   bool
	started time.Time

	progress *progress
	tally    tally
	firstErr error
}

// run sends everything and prints the results. It returns the error of the input, of a request that failed as a whole, or of
// the first message that was refused.
func (p *publisher) run(ctx context.Context, list inputs, options source.Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	messages := make(chan source.Message, 4*p.batch)
	readErr := make(chan error, 1)
	go func() {
		// Reading standard input cannot be cancelled; a read that hangs ends with the process.
		readErr <- readAll(ctx, list, options, messages)
		close(messages)
	}()
	p.progress = newProgress(p.term, p.quiet, p.channel, list.size())
	err := p.send(ctx, messages)
	p.progress.stop()
	if err == nil {
		err = <-readErr
	}
	if summaryErr := p.summary(); err == nil {
		err = summaryErr
	}
	if err == nil && p.firstErr != nil {
		// Each is named already; the first decides on the exit code.
		return errs.New(errs.CodeOf(p.firstErr), "REFUSED", "%s of %s refused", render.Count(p.tally.refused),
			render.Plural(p.tally.total(), "message"))
	}
	return err
}

// readAll reads the inputs one after the other into out.
func readAll(ctx context.Context, list inputs, options source.Options, out chan<- source.Message) error {
	for _, i := range list {
		s := source.New(i.name, i.in, options)
		for {
			m, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			select {
			case out <- m:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// send takes whatever waits, up to a request's limits, so that a slow input is not held back and a fast one fills requests.
func (p *publisher) send(ctx context.Context, messages <-chan source.Message) error {
	var held *source.Message // did not fit into the request before
	for {
		if held == nil {
			select {
			case m, ok := <-messages:
				if !ok {
					return nil
				}
				held = &m
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var pending []source.Message
		pending, held = fill([]source.Message{*held}, messages, p.batch)
		if err := p.request(ctx, pending); err != nil {
			return err
		}
	}
}

// fill adds what waits already. The message that would make the request too large comes back as rest.
func fill(pending []source.Message, messages <-chan source.Message, most int) (_ []source.Message, rest *source.Message) {
	bytes := pending[0].Size
	for len(pending) < most {
		select {
		case m, ok := <-messages:
			if !ok {
				return pending, nil
			}
			if bytes += m.Size; bytes > requestBytes {
				return pending, &m
			}
			pending = append(pending, m)
		default:
			return pending, nil
		}
	}
	return pending, nil
}

// request publishes messages and counts their results.
func (p *publisher) request(ctx context.Context, pending []source.Message) error {
	req := &databusv1.PublishRequest{Channel: p.channel, Messages: make([]*databusv1.Message, len(pending))}
	var bytes int64
	for i, m := range pending {
		req.Messages[i] = m.Message
		bytes += int64(m.Size)
	}
	res, err := p.call(ctx, req)
	if err != nil {
		return fmt.Errorf("publish %s to channel %s: %w", span(pending), p.channel, err)
	}
	if len(res.GetResults()) != len(pending) {
		return errs.New(errs.Internal, "RESULT_COUNT", "the agent answered %d messages with %d results", len(pending), len(res.GetResults()))
	}
	for i, r := range res.GetResults() {
		if err := p.result(pending[i], r); err != nil {
			return err
		}
	}
	p.progress.add(len(pending), bytes)
	return nil
}

// call repeats a request that was refused for now. One whose answer was lost is not repeated: its messages may be in the log.
func (p *publisher) call(ctx context.Context, req *databusv1.PublishRequest) (*databusv1.PublishResponse, error) {
	attempt := func() (*databusv1.PublishResponse, error) {
		res, err := p.client.Publish(ctx, req)
		if err == nil {
			return res, nil
		}
		e := errs.From(err)
		if !e.Retryable || e.Reason == reasonConnectionLost || p.retry <= 0 {
			return nil, backoff.Permanent(err)
		}
		if e.RetryAfter > 0 {
			return nil, errors.Join(&backoff.RetryAfterError{Duration: e.RetryAfter}, err)
		}
		return nil, err
	}
	res, err := backoff.Retry(ctx, attempt, backoff.WithMaxElapsedTime(max(p.retry, 1)), backoff.WithBackOff(newBackOff()),
		backoff.WithNotify(func(err error, wait time.Duration) { p.progress.waiting(err, wait) }))
	if e, ok := errors.AsType[*errs.Error](err); ok {
		err = e // without the wait that was joined to it
	}
	return res, err
}

// result counts one message and prints its result where each is asked for.
func (p *publisher) result(m source.Message, r *databusv1.PublishResult) error {
	if r.GetError() != nil {
		err := errs.FromProto(r.GetError())
		if p.firstErr == nil {
			p.firstErr = err
		}
		p.tally.refuse()
		p.progress.refused(p.tally.refused, fmt.Sprintf("%s: %s", m.Where(), errText(err)))
	} else {
		p.tally.add(r)
	}
	if p.output.Output != render.JSON {
		return nil
	}
	line, err := wirejson.AppendLine(nil, r)
	if err != nil {
		return errs.New(errs.Internal, "PRINT", "print the result of %s", m.Where()).Wrap(err)
	}
	return render.NewPrinter(p.term.out, render.JSON, render.Screen{}).Print([][]byte{line}, render.Rows{})
}

// summary prints what went where as a table, and how fast on standard error.
func (p *publisher) summary() error {
	if p.quiet || p.tally.total() == 0 {
		return nil
	}
	elapsed := time.Since(p.started)
	perSecond := int64(float64(p.tally.total()) / max(elapsed.Seconds(), 1e-9))
	defer fmt.Fprintf(p.term.err, "%s to channel %s in %s (%s messages/s)\n", p.tally.text(), p.channel,
		elapsed.Round(time.Millisecond), render.Count(perSecond))
	if p.output.Output != render.Table {
		return nil
	}
	return render.NewPrinter(p.term.out, render.Table, p.term.screen()).Print(nil, p.tally.rows())
}

// span names the messages of a request.
func span(pending []source.Message) string {
	first, last := pending[0], pending[len(pending)-1]
	if len(pending) == 1 {
		return first.Where()
	}
	return fmt.Sprintf("%s to %s", first.Where(), last.Where())
}

func errText(e *errs.Error) string {
	if e.Next == "" {
		return e.Error()
	}
	return e.Error() + "; " + e.Next
}
