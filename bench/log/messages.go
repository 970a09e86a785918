package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/bench/internal/child"
	"github.com/databus-suite/databus/bench/internal/load"
	"github.com/databus-suite/databus/bench/internal/report"
	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// client publishes messages. It belongs to one goroutine.
type client interface {
	// send sends one message, or gathers it with others, once there is room in the window.
	send(event []byte) error
	// finish waits for every answer and ends the client.
	finish() error
}

// system takes messages, in one sequence a client.
type system struct {
	name string
	// open opens a client whose messages are gathered into batches, where the system knows batches, or sent one by one.
	// answered is called for each answer, in order.
	open func(ctx context.Context, number int, gather bool, answered func()) (client, error)

	rates          []float64 // messages/s
	p50, p99, p999 []float64 // ms
}

// batchClient builds record batches as an agent does, without compression.
type batchClient struct {
	*appender
	builder *recordbatch.Builder
	size    int // send a batch that has grown so large; 0: each message at once
}

const (
	gatherBytes   = 64 << 10
	batchInFlight = 16 // batches of gatherBytes: about as many messages as maxPending
	oneInFlight   = 1000
)

func openBatchClient(ctx context.Context, addr string, number int, gather bool, answered func()) (client, error) {
	size, window := 0, oneInFlight
	if gather {
		size, window = gatherBytes, batchInFlight
	}
	a, err := openAppender(ctx, addr, brokerv1.AckLevel_ACK_LEVEL_DURABLE, number, window, answered)
	if err != nil {
		return nil, err
	}
	return &batchClient{appender: a, builder: recordbatch.NewBuilder(recordbatch.BuilderOptions{}), size: size}, nil
}

func (c *batchClient) send(event []byte) error {
	c.builder.Append(time.Now().UnixMilli(), nil, event, nil)
	if c.builder.Size() < c.size {
		return nil
	}
	return c.flush()
}

func (c *batchClient) flush() error {
	batch, err := c.builder.Build(nil)
	if err != nil {
		return err
	}
	c.builder.Reset(recordbatch.BuilderOptions{})
	return c.appender.send(batch)
}

func (c *batchClient) finish() error {
	var err error
	if c.builder.Count() > 0 {
		err = c.flush()
	}
	return errors.Join(err, c.appender.finish())
}

// messages measures messages one by one beside JetStream: as many as each system takes, then how long each takes at the rate
// that is half of what the slowest can do.
func messages(ctx context.Context, o *options) error {
	s, err := startBroker(ctx, o, "", o.clients)
	if err != nil {
		return err
	}
	defer s.Stop()
	all := []*system{{name: "databus, DURABLE", open: func(ctx context.Context, number int, gather bool, answered func()) (client, error) {
		return openBatchClient(ctx, s.grpc, number, gather, answered)
	}}}
	for _, peer := range []struct{ name, role string }{
		{"JetStream, sync_interval: always", "jetstream-always"},
		{"JetStream, default: syncs every 2 minutes", "jetstream"},
	} {
		url, _, stop, err := child.Start(ctx, roleFlag, peer.role)
		if err != nil {
			return err
		}
		defer stop()
		all = append(all, &system{name: peer.name, open: func(ctx context.Context, number int, _ bool, answered func()) (client, error) {
			return openJetClient(ctx, url, number, answered)
		}})
	}
	for range o.rounds {
		for _, x := range all {
			unix.Sync()
			rate, err := x.flood(ctx, o)
			if err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
			x.rates = append(x.rates, rate)
		}
	}
	rate := o.rate
	if rate == 0 {
		rate = math.Inf(1)
		for _, x := range all {
			rate = min(rate, report.Median(x.rates)/2)
		}
	}
	for range o.rounds {
		for _, x := range all {
			unix.Sync()
			if err := x.steady(ctx, o, rate); err != nil {
				return fmt.Errorf("%s at %.0f messages/s: %w", x.name, rate, err)
			}
		}
	}
	printMessages(o, all, rate)
	return nil
}

// flood publishes as fast as the system takes messages, and gives messages/s.
func (x *system) flood(ctx context.Context, o *options) (float64, error) {
	sent := make([]int, o.clients)
	start := time.Now()
	err := x.each(ctx, o, true, func(int) func() { return func() {} }, func(i int, c client) error {
		for time.Since(start) < o.duration {
			if err := c.send(o.events[(i+sent[i])%len(o.events)]); err != nil {
				return err
			}
			sent[i]++
		}
		return nil
	})
	sum := 0
	for _, n := range sent {
		sum += n
	}
	return float64(sum) / time.Since(start).Seconds(), err
}

// steady publishes at a rate, each message when it is due whether answers have come or not, and records how long after that
// its answer came.
func (x *system) steady(ctx context.Context, o *options, rate float64) error {
	every := time.Duration(float64(o.clients) / rate * float64(time.Second))
	perClient := int(o.duration / every)
	if perClient == 0 {
		return errors.New("the rate is below one message a client: choose -duration longer")
	}
	start := time.Now().Add(50 * time.Millisecond) // the clients connect meanwhile
	histograms := make([]*hdrhistogram.Histogram, o.clients)
	var answers sync.WaitGroup
	answers.Add(o.clients * perClient)
	at := func(client, n int) time.Time {
		return start.Add(time.Duration(n)*every + time.Duration(client)*every/time.Duration(o.clients))
	}
	err := x.each(ctx, o, false, func(i int) func() {
		histograms[i] = load.NewHistogram()
		n := 0
		return func() {
			_ = histograms[i].RecordValue(max(1, time.Since(at(i, n)).Microseconds()))
			n++
			answers.Done()
		}
	}, func(i int, c client) error {
		for n := range perClient {
			select {
			case <-time.After(time.Until(at(i, n))):
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := c.send(o.events[(i+n)%len(o.events)]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	answers.Wait()
	sum := load.NewHistogram()
	for _, h := range histograms {
		sum.Merge(h)
	}
	ms := func(q float64) float64 { return float64(sum.ValueAtQuantile(q)) / 1000 }
	x.p50, x.p99, x.p999 = append(x.p50, ms(50)), append(x.p99, ms(99)), append(x.p999, ms(99.9))
	return nil
}

// each opens every client, runs work for each at the same time, and waits for the answers.
func (x *system) each(ctx context.Context, o *options, gather bool, answered func(int) func(), work func(int, client) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, o.clients)
	var all sync.WaitGroup
	for i := range o.clients {
		all.Go(func() {
			c, err := x.open(ctx, i, gather, answered(i))
			if err == nil {
				err = errors.Join(work(i, c), c.finish())
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func printMessages(o *options, all []*system, rate float64) {
	fmt.Printf("\nMessages of about %d bytes (%s), %d clients, each with a partition or a stream of its own; databus in batches of %d KiB, "+
		"JetStream with PublishAsync and %d pending; medians of %d rounds. Latency: every message by itself, open loop, %.0f messages/s.\n\n",
		o.eventBytes, o.corpus, o.clients, gatherBytes>>10, maxPending, o.rounds, rate)
	t := report.Table{Head: []string{"", "messages/s", "databus / this", "p50 ms", "p99 ms", "p99.9 ms"}}
	for _, x := range all {
		t.Row(x.name, report.Median(x.rates), report.Ratio(all[0].rates, x.rates), report.Median(x.p50), report.Median(x.p99), report.Median(x.p999))
	}
	t.Print(os.Stdout)
}
