package sender

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
)

// stream carries one topic's batches. A topic has its own, so that one which the broker cannot take does not hold up the
// others. One goroutine takes and sends, one receives; push may be called by any.
type stream struct {
	sender *Sender
	topic  string
	signal chan struct{}
	ends   map[int32]int64 // of the partitions, when the stream was first used; run's own
	turn   uint32          // calls that broke, or could not be opened; run's own

	mu    sync.Mutex
	lanes []Lane // ready, in the order in which they became so
}

func newStream(s *Sender, topic string) *stream {
	return &stream{sender: s, topic: topic, signal: make(chan struct{}, 1)}
}

func (t *stream) push(l Lane) {
	t.mu.Lock()
	t.lanes = append(t.lanes, l)
	t.mu.Unlock()
	select {
	case t.signal <- struct{}{}:
	default:
	}
}

func (t *stream) pop() Lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lanes) == 0 {
		return nil
	}
	l := t.lanes[0]
	t.lanes = append(t.lanes[:0], t.lanes[1:]...)
	return l
}

func (t *stream) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lanes) > 0
}

// run sends until ctx ends, or the topic has been idle for long: the next batch then begins another stream.
func (t *stream) run(ctx context.Context) {
	after := t.sender.cfg.IdleAfter
	idle := time.NewTimer(after)
	defer idle.Stop()
	var c *call
	defer func() { c.close() }()
	for {
		l := t.pop()
		if l == nil {
			idle.Reset(after)
			select {
			case <-t.signal:
			case <-idle.C:
				if c.quiet() && t.sender.retire(t) {
					return
				}
			case <-ctx.Done():
				return
			}
			continue
		}
		if c = t.ensure(ctx, c, l); c == nil {
			return
		}
		t.serve(ctx, c, l)
	}
}

// serve sends one batch of the lane, and puts the lane back in line: lanes take turns.
func (t *stream) serve(ctx context.Context, c *call, l Lane) {
	if topic, ok := t.sender.cfg.Topics.Known(t.topic); ok && l.Resize(topic.Partitions) {
		t.ends = nil // they are another topic's
	}
	b, needProducer := l.Next()
	switch {
	case needProducer:
		id, epoch, err := t.sender.ids.next(ctx)
		if err != nil {
			l.Stalled(err)
			pause(ctx, 100*time.Millisecond)
		} else {
			t.tellEnd(ctx, l)
			l.SetProducer(id, epoch)
		}
	case b == nil:
		return
	default:
		t.send(ctx, c, l, b)
	}
	t.push(l)
}

// tellEnd tells a lane that is about to begin where its partition ends. Not to know it costs a longer search, should the fate of
// one of its batches be in doubt; so the broker is asked once.
func (t *stream) tellEnd(ctx context.Context, l Lane) {
	if t.ends == nil {
		t.ends = t.askEnds(ctx)
	}
	if end, ok := t.ends[l.Partition()]; ok {
		l.SetEnd(end)
	}
}

func (t *stream) askEnds(ctx context.Context) map[int32]int64 {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	ends := make(map[int32]int64)
	res, err := t.sender.cfg.Conns.log().ListOffsets(ctx, &brokerv1.ListOffsetsRequest{Topic: t.topic, At: &brokerv1.ListOffsetsRequest_Latest{Latest: true}})
	if err != nil {
		return ends
	}
	for _, o := range res.Offsets {
		ends[o.Partition] = o.Offset
	}
	return ends
}

func (t *stream) send(ctx context.Context, c *call, l Lane, b Batch) {
	data, err := b.Bytes()
	if err != nil {
		b.Refused(batcher.Fatal, errs.New(errs.Internal, "BATCH_NOT_BUILT", "build a batch for %s/%d", l.Topic(), l.Partition()).Wrap(err))
		return
	}
	span := t.sender.span(ctx, t.topic, l.Partition(), b.Traces(), len(data))
	req := brokerv1.AppendStreamRequest{Topic: t.topic, Partition: l.Partition(), Ack: brokerv1.AckLevel_ACK_LEVEL_DURABLE,
		Traceparent: span.parent, Batches: data}
	if req.Sequence = c.register(sent{b, span}); req.Sequence == 0 {
		span.end(errBroken)
		b.Lost(errBroken)
		return
	}
	if err := c.client.Send(&req); err != nil {
		c.cancel() // the receiver reports the batch lost, with the reason
		<-c.done
	}
}

// ensure returns a call that is open. While none can be opened it backs off, and tells the lanes in line why. It returns nil
// when ctx ends.
func (t *stream) ensure(ctx context.Context, c *call, l Lane) *call {
	if c != nil && !c.ended() {
		return c
	}
	if c != nil {
		t.turn++
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, time.Second
	for ctx.Err() == nil {
		c, err := t.open(ctx)
		if err == nil {
			return c
		}
		t.turn++
		l.Stalled(err)
		t.mu.Lock()
		waiting := append([]Lane(nil), t.lanes...)
		t.mu.Unlock()
		for _, other := range waiting {
			other.Stalled(err)
		}
		pause(ctx, wait.NextBackOff())
	}
	return nil
}

func (t *stream) report(b sent, res *brokerv1.AppendStreamResponse) {
	if res.Error == nil {
		b.span.end(nil)
		var at int64
		if res.AppendTime != nil {
			at = res.AppendTime.AsTime().UnixMilli()
		}
		b.Acked(res.BaseOffset, at)
		return
	}
	err := errs.FromProto(res.Error)
	b.span.end(err)
	r := classify(err)
	if r == batcher.Fatal {
		t.sender.cfg.Logger.Warn("batch refused", slog.String("topic", t.topic), slog.Any("partition", b.Partition()), slog.Any("error", err))
	}
	if r == batcher.Gone || err.Reason == reasonTopicNotFound {
		t.sender.cfg.Topics.Missing(t.topic)
	}
	b.Refused(r, err)
}

// The broker's reasons that the agent acts upon.
const (
	reasonTopicNotFound   = "TOPIC_NOT_FOUND"
	reasonNoPartition     = "PARTITION_NOT_FOUND"
	reasonOutOfOrder      = "OUT_OF_ORDER_SEQUENCE"
	reasonUnknownProducer = "UNKNOWN_PRODUCER_ID"
	reasonFenced          = "PRODUCER_FENCED"
)

// classify says what the broker's answer means for the batch. A topic that is missing is made again; everything that the
// broker does not call wrong with the batch itself may pass.
func classify(err *errs.Error) batcher.Refusal {
	switch err.Reason {
	case reasonOutOfOrder, reasonUnknownProducer, reasonFenced:
		return batcher.OutOfOrder
	case reasonTopicNotFound:
		return batcher.Retry
	case reasonNoPartition:
		return batcher.Gone
	}
	if err.Retryable {
		return batcher.Retry
	}
	switch err.Code {
	case errs.Unavailable, errs.Exhausted, errs.Internal, errs.Conflict, errs.Canceled, errs.Deadline:
		return batcher.Retry
	}
	return batcher.Fatal
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
