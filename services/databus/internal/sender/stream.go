package sender

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sort"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
)

// idleAfter is how long a stream without traffic stays open.
const idleAfter = time.Minute

// stream carries one topic's batches. A topic has its own, so that one which the broker cannot take does not hold up the
// others. One goroutine takes and sends, one receives; push may be called by any.
type stream struct {
	sender *Sender
	topic  string
	signal chan struct{}
	ends   map[int32]int64 // of the partitions, when the stream was first used; run's own

	mu    sync.Mutex
	lanes []Lane // ready, in the order in which they became so
}

// call is one AppendStream call.
type call struct {
	client grpc.BidiStreamingClient[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]
	cancel context.CancelFunc
	done   chan struct{} // closed once every outstanding batch was reported

	mu          sync.Mutex
	sequence    int64
	outstanding map[int64]Batch
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

// run sends until ctx ends.
func (t *stream) run(ctx context.Context) {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	var c *call
	defer func() { c.close() }()
	for {
		l := t.pop()
		if l == nil {
			idle.Reset(idleAfter)
			select {
			case <-t.signal:
			case <-idle.C:
				if c.quiet() {
					c.close()
					c = nil
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
		t.send(c, l, b)
	}
	t.push(l)
}

// tellEnd tells a lane that is about to begin where its partition ends. Not to know it costs a longer search, should the fate of
// one of its batches be in doubt.
func (t *stream) tellEnd(ctx context.Context, l Lane) {
	if t.ends == nil {
		ctx, cancel := context.WithTimeout(ctx, resolveWithin)
		defer cancel()
		res, err := t.sender.cfg.Log.ListOffsets(ctx, &brokerv1.ListOffsetsRequest{Topic: t.topic, At: &brokerv1.ListOffsetsRequest_Latest{Latest: true}})
		if err != nil {
			return
		}
		t.ends = make(map[int32]int64, len(res.Offsets))
		for _, o := range res.Offsets {
			t.ends[o.Partition] = o.Offset
		}
	}
	if end, ok := t.ends[l.Partition()]; ok {
		l.SetEnd(end)
	}
}

func (t *stream) send(c *call, l Lane, b Batch) {
	data, err := b.Bytes()
	if err != nil {
		b.Refused(batcher.Fatal, errs.New(errs.Internal, "BATCH_NOT_BUILT", "build a batch for %s/%d", l.Topic(), l.Partition()).Wrap(err))
		return
	}
	req := brokerv1.AppendStreamRequest{Topic: t.topic, Partition: l.Partition(), Ack: brokerv1.AckLevel_ACK_LEVEL_DURABLE,
		Traceparent: b.Trace(), Batches: data}
	if req.Sequence = c.register(b); req.Sequence == 0 {
		b.Lost(errBroken)
		return
	}
	if err := c.client.Send(&req); err != nil {
		c.cancel() // the receiver reports the batch lost, with the reason
		<-c.done
	}
}

var errBroken = errors.New("the append stream broke")

// register notes that the batch goes out. It returns 0 on a call that has ended.
func (c *call) register(b Batch) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outstanding == nil {
		return 0
	}
	c.sequence++
	c.outstanding[c.sequence] = b
	return c.sequence
}

func (c *call) quiet() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.outstanding) == 0
}

func (c *call) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *call) close() {
	if c != nil {
		c.cancel()
		<-c.done
	}
}

// ensure returns a call that is open. While none can be opened it backs off, and tells the lanes in line why. It returns nil
// when ctx ends.
func (t *stream) ensure(ctx context.Context, c *call, l Lane) *call {
	if c != nil && !c.ended() {
		return c
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, time.Second
	for ctx.Err() == nil {
		c, err := t.open(ctx)
		if err == nil {
			return c
		}
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

func (t *stream) open(ctx context.Context) (*call, error) {
	ctx, cancel := context.WithCancel(ctx)
	client, err := t.sender.cfg.Log.AppendStream(ctx)
	if err != nil {
		cancel()
		return nil, errs.From(err)
	}
	c := &call{client: client, cancel: cancel, done: make(chan struct{}), outstanding: make(map[int64]Batch)}
	t.sender.work.Go(func() { t.receive(c) })
	return c, nil
}

// receive reports every answer, and at the end of the call what stayed without one.
func (t *stream) receive(c *call) {
	defer close(c.done)
	defer c.cancel()
	for {
		res, err := c.client.Recv()
		if err != nil {
			t.lost(c, err)
			return
		}
		c.mu.Lock()
		b := c.outstanding[res.Sequence]
		delete(c.outstanding, res.Sequence)
		c.mu.Unlock()
		if b == nil {
			continue // a repeat of an answer says nothing new
		}
		t.report(b, res)
	}
}

func (t *stream) lost(c *call, err error) {
	if errors.Is(err, io.EOF) {
		err = errBroken
	} else {
		err = errs.From(err)
	}
	c.mu.Lock()
	sequences := make([]int64, 0, len(c.outstanding))
	for n := range c.outstanding {
		sequences = append(sequences, n)
	}
	outstanding := c.outstanding
	c.outstanding = nil
	c.mu.Unlock()
	sort.Slice(sequences, func(i, j int) bool { return sequences[i] < sequences[j] })
	for _, n := range sequences {
		b := outstanding[n]
		b.Lost(err)
	}
}

func (t *stream) report(b Batch, res *brokerv1.AppendStreamResponse) {
	if res.Error == nil {
		var at int64
		if res.AppendTime != nil {
			at = res.AppendTime.AsTime().UnixMilli()
		}
		b.Acked(res.BaseOffset, at)
		return
	}
	err := errs.FromProto(res.Error)
	r := classify(err)
	if r == batcher.Fatal {
		t.sender.cfg.Logger.Warn("batch refused", slog.String("topic", t.topic), slog.Any("partition", b.Partition()), slog.Any("error", err))
	}
	if err.Reason == reasonTopicNotFound {
		t.sender.cfg.Topics.Missing(t.topic)
	}
	b.Refused(r, err)
}

// The broker's reasons that the agent acts upon.
const (
	reasonTopicNotFound   = "TOPIC_NOT_FOUND"
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
