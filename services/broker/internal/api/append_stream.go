package api

import (
	"context"
	"errors"
	"io"
	"sync"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/broker/internal/log"
	"github.com/databus-suite/databus/services/broker/internal/topic"
)

// maxInFlight bounds the appends of one stream that wait for their answer. Their bytes are bounded by the log's buffers.
const maxInFlight = 1024

// appendStream is one open stream. Requests are handed to the log in the order in which they come, answers go out in the
// order in which the log gives them: within a partition the same order.
//
// A slot is taken before an append and given back when its answer is sent, so that answers, which has as much room, never
// blocks the log.
type appendStream struct {
	service *logService
	ctx     context.Context
	slots   chan struct{}
	answers chan *brokerv1.AppendStreamResponse
	topic   string // of the request before

	mu      sync.Mutex
	closed  bool           // takes no more requests
	pending sync.WaitGroup // appends that have no answer yet
}

func (s *logService) appendStream(ctx context.Context, recv func() (*brokerv1.AppendStreamRequest, error), send func(*brokerv1.AppendStreamResponse) error) error {
	a := &appendStream{
		service: s, ctx: ctx,
		slots: make(chan struct{}, maxInFlight), answers: make(chan *brokerv1.AppendStreamResponse, maxInFlight),
	}
	received := make(chan error, 1)
	go func() { received <- a.receive(recv) }()
	sent := make(chan error, 1)
	go func() { sent <- a.send(send) }()

	var err error
	select {
	case err = <-received:
		a.finish()
		if failed := <-sent; err == nil {
			err = failed
		}
		return err
	case <-s.calls.drain.Done():
		// What was taken is answered; what the client sends from here on it has to send again elsewhere.
		a.finish()
		if err = <-sent; err != nil {
			return err
		}
		return errDraining
	case err = <-sent:
		a.close()
		return err
	}
}

// receive takes requests until the client is done; an error ends the stream.
func (a *appendStream) receive(recv func() (*brokerv1.AppendStreamRequest, error)) error {
	for {
		req, err := recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case a.slots <- struct{}{}:
		case <-a.ctx.Done():
			return context.Cause(a.ctx)
		}
		if !a.append(req) {
			return nil
		}
	}
}

// append hands one request to the log; false where the stream takes none any more.
func (a *appendStream) append(req *brokerv1.AppendStreamRequest) bool {
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return false
	}
	a.pending.Add(1)
	a.mu.Unlock()
	if req.GetTopic() != "" {
		a.topic = req.GetTopic()
	}
	t, p, err := a.service.topics.Partition(a.ctx, a.topic, req.GetPartition())
	if err == nil {
		err = checkEpoch(p, req.GetLeaderEpoch(), req.GetKeepOffsets())
	}
	if err != nil {
		a.answer(req.GetSequence(), log.AppendResult{}, err)
		return true
	}
	a.start(t, p, req)
	return true
}

func (a *appendStream) start(t *topic.Topic, p *log.Partition, req *brokerv1.AppendStreamRequest) {
	sequence := req.GetSequence()
	span := a.service.spans.startFrom(a.ctx, req.GetTraceparent(), t.Name, req.GetPartition(), req.GetBatches())
	p.AppendAsync(a.ctx, req.GetBatches(), appendOptions(t, req.GetAck(), req.GetLeaderEpoch(), req.GetKeepOffsets()),
		func(res log.AppendResult, err error) {
			span.end(res, err)
			a.answer(sequence, res, err)
		})
}

func (a *appendStream) answer(sequence int64, res log.AppendResult, err error) {
	out := &brokerv1.AppendStreamResponse{Sequence: sequence}
	if err != nil {
		out.Error = errs.From(coded(err)).Proto()
	} else {
		out.BaseOffset, out.LastOffset, out.Duplicate = res.BaseOffset, res.LastOffset, res.Duplicate
		out.AppendTime = millis(res.AppendTime)
	}
	a.answers <- out // has room: see slots
	a.pending.Done()
}

// send sends answers until there are no more to come.
func (a *appendStream) send(send func(*brokerv1.AppendStreamResponse) error) error {
	for out := range a.answers {
		if err := send(out); err != nil {
			return err
		}
		<-a.slots
	}
	return nil
}

// close refuses further requests.
func (a *appendStream) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

// finish refuses further requests and lets send end once all that were taken are answered.
func (a *appendStream) finish() {
	a.close()
	a.pending.Wait()
	close(a.answers)
}
