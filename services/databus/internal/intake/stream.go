package intake

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/publisher"
)

// maxInFlight is how many requests of one stream wait for their answer before the next is read; the transport's flow control
// then holds the caller.
const maxInFlight = 1024

// GRPC is PublishService for grpc-go.
type GRPC struct {
	databusv1.UnimplementedPublishServiceServer
	*Service
}

// GRPC returns the implementation for grpc-go.
func (in *Intake) GRPC() GRPC { return GRPC{Service: in.Service()} }

// Publish hands in messages for one channel.
func (g GRPC) Publish(ctx context.Context, req *databusv1.PublishRequest) (*databusv1.PublishResponse, error) {
	return g.Service.Publish(ctx, req)
}

// PublishEvents hands in a payload as it is.
func (g GRPC) PublishEvents(ctx context.Context, req *databusv1.PublishEventsRequest) (*databusv1.PublishEventsResponse, error) {
	return g.Service.PublishEvents(ctx, req)
}

// PublishBulk hands in messages for several channels.
func (g GRPC) PublishBulk(ctx context.Context, req *databusv1.PublishBulkRequest) (*databusv1.PublishBulkResponse, error) {
	return g.Service.PublishBulk(ctx, req)
}

// PublishStream is Publish over one long stream.
func (g GRPC) PublishStream(s grpc.BidiStreamingServer[databusv1.PublishStreamRequest, databusv1.PublishStreamResponse]) error {
	return g.stream(s.Context(), s.Recv, s.Send)
}

// PublishStream is Publish over one long stream.
func (s *Service) PublishStream(ctx context.Context, c *connect.BidiStream[databusv1.PublishStreamRequest, databusv1.PublishStreamResponse]) error {
	return s.stream(ctx, c.Receive, c.Send)
}

// answers is the responses of one stream, from whoever finishes a request to the one goroutine that sends.
type answers struct {
	mu     sync.Mutex
	done   []*inFlight
	signal chan struct{}
}

// inFlight is one request of a stream.
type inFlight struct {
	sequence int64
	pending  *publisher.Pending
	err      error // the request failed as a whole
}

func (a *answers) put(f *inFlight) {
	a.mu.Lock()
	a.done = append(a.done, f)
	a.mu.Unlock()
	select {
	case a.signal <- struct{}{}:
	default:
	}
}

func (a *answers) take(into []*inFlight) []*inFlight {
	a.mu.Lock()
	defer a.mu.Unlock()
	into = append(into[:0], a.done...)
	clear(a.done)
	a.done = a.done[:0]
	return into
}

// streaming is one stream under way.
type streaming struct {
	service *Service
	answers answers
	room    chan struct{}
	read    atomic.Int64  // requests read so far
	ended   chan struct{} // closed once no more are read
	err     error         // why, unless the caller ended the stream; set before ended is closed
}

// stream sends answers, as they come, on the caller's goroutine, and reads requests, in order, on another. It ends once the
// caller has ended its side and every request has its answer, or once the agent drains and all that were read have theirs.
func (s *Service) stream(ctx context.Context, recv func() (*databusv1.PublishStreamRequest, error), send func(*databusv1.PublishStreamResponse) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the reader, whose recv fails once the handler has returned
	t := &streaming{service: s, answers: answers{signal: make(chan struct{}, 1)}, room: make(chan struct{}, maxInFlight),
		ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		t.err = t.receive(ctx, recv)
	}()
	return t.send(ctx, send)
}

func (t *streaming) receive(ctx context.Context, recv func() (*databusv1.PublishStreamRequest, error)) error {
	channel := ""
	for {
		req, err := recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case t.room <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if req.GetChannel() != "" {
			channel = req.GetChannel()
		}
		t.read.Add(1)
		f := &inFlight{sequence: req.GetSequence()}
		if channel == "" {
			f.err = errs.New(errs.Invalid, "NO_CHANNEL", "the first request of a stream must name its channel").WithField("channel")
		} else {
			f.pending, f.err = t.service.enqueueWhenRoom(ctx, channel, req.GetMessages())
		}
		if f.err != nil {
			t.answers.put(f)
			continue
		}
		f.pending.Notify(func() { t.answers.put(f) })
	}
}

// enqueueWhenRoom waits while memory is full or the rate limit is reached; any other refusal is the request's answer.
func (s *Service) enqueueWhenRoom(ctx context.Context, channel string, messages []*databusv1.Message) (*publisher.Pending, error) {
	const step = 5 * time.Millisecond
	var timer *time.Timer
	for {
		p, err := s.enqueue(ctx, channel, messages)
		if err == nil || errs.CodeOf(err) != errs.Exhausted {
			return p, err
		}
		if timer == nil {
			timer = time.NewTimer(step)
			defer timer.Stop()
		} else {
			timer.Reset(step)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// send sends answers until every request has one.
func (t *streaming) send(ctx context.Context, send func(*databusv1.PublishStreamResponse) error) error {
	var sent int64
	var batch []*inFlight
	ended, draining := t.ended, t.service.in.cfg.Draining
	for {
		batch = t.answers.take(batch)
		for _, f := range batch {
			if err := send(f.response()); err != nil {
				return err
			}
			sent++
			<-t.room
		}
		if len(batch) > 0 {
			continue
		}
		if (ended == nil || draining == nil) && sent == t.read.Load() {
			if ended == nil {
				return t.err
			}
			return errs.New(errs.Unavailable, "AGENT_STOPPING", "the agent is stopping").WithRetryAfter(time.Second)
		}
		select {
		case <-t.answers.signal:
		case <-ended:
			if ended = nil; t.err != nil {
				return t.err
			}
		case <-draining:
			draining = nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *inFlight) response() *databusv1.PublishStreamResponse {
	out := &databusv1.PublishStreamResponse{Sequence: f.sequence}
	if f.err != nil {
		out.Error = status(f.err)
		return out
	}
	out.Results = protos(f.pending)
	f.pending.Put()
	return out
}
