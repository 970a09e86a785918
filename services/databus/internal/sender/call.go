package sender

import (
	"context"
	"errors"
	"io"
	"sort"
	"sync"

	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
)

var errBroken = errors.New("the append stream broke")

// call is one AppendStream call.
type call struct {
	client grpc.BidiStreamingClient[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]
	cancel context.CancelFunc
	done   chan struct{} // closed once every outstanding batch was reported

	mu          sync.Mutex
	sequence    int64
	outstanding map[int64]sent
}

func (t *stream) open(ctx context.Context) (*call, error) {
	ctx, cancel := context.WithCancel(ctx)
	client, err := t.sender.cfg.Conns.appends(t.topic, t.turn).AppendStream(ctx)
	if err != nil {
		cancel()
		return nil, errs.From(err)
	}
	c := &call{client: client, cancel: cancel, done: make(chan struct{}), outstanding: make(map[int64]sent)}
	t.sender.work.Go(func() { t.receive(c) })
	return c, nil
}

// sent is a batch on its way, with the span of that.
type sent struct {
	Batch
	span span
}

// register notes that the batch goes out. It returns 0 on a call that has ended.
func (c *call) register(b sent) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outstanding == nil {
		return 0
	}
	c.sequence++
	c.outstanding[c.sequence] = b
	return c.sequence
}

// answered takes the batch that an answer is for; false: an answer was there before.
func (c *call) answered(sequence int64) (sent, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.outstanding[sequence]
	delete(c.outstanding, sequence)
	return b, ok
}

// quiet says that no answer is awaited.
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

// receive reports every answer, and at the end of the call what stayed without one.
func (t *stream) receive(c *call) {
	defer close(c.done)
	defer c.cancel()
	for {
		res, err := c.client.Recv()
		if err != nil {
			c.lost(err)
			return
		}
		if b, ok := c.answered(res.Sequence); ok {
			t.report(b, res)
		}
	}
}

// lost reports what has no answer, in the order in which it was sent.
func (c *call) lost(err error) {
	if errors.Is(err, io.EOF) {
		err = errBroken
	} else {
		err = errs.From(err)
	}
	c.mu.Lock()
	outstanding := c.outstanding
	c.outstanding = nil
	c.mu.Unlock()
	sequences := make([]int64, 0, len(outstanding))
	for n := range outstanding {
		sequences = append(sequences, n)
	}
	sort.Slice(sequences, func(i, j int) bool { return sequences[i] < sequences[j] })
	for _, n := range sequences {
		outstanding[n].span.end(err)
		outstanding[n].Lost(err)
	}
}
