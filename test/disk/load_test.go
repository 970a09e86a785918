package disk

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/test/harness"
)

// load is idempotent producers, one for each pair of producer and partition, with one append in flight each. Who is refused in a
// way that can be tried again sends the same again, as clients do; any other answer ends the load and is its error.
type load struct {
	known  *ledger
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	err     error
	failed  chan struct{}
	reasons map[string]int // refusals by reason
	waits   []*wait
	last    map[key]time.Time // of the newest acknowledgement
	longest time.Duration     // between two acknowledgements of one producer
}

// wait is for every producer to have been answered so many times.
type wait struct {
	refused bool
	left    map[key]int
	done    chan struct{}
}

// backOff is how long a refused producer waits.
const backOff = 20 * time.Millisecond

func startLoad(t *testing.T, broker *harness.Service, known *ledger) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{known: known, cancel: cancel, failed: make(chan struct{}), reasons: make(map[string]int), last: make(map[key]time.Time)}
	conn, err := dial(broker.GRPCAddr())
	if err != nil {
		t.Fatal(err)
	}
	for p := range producers {
		for n := range int32(partitions) {
			l.wg.Go(func() { l.produce(ctx, brokerv1.NewLogServiceClient(conn), key{p, n}) })
		}
	}
	t.Cleanup(func() {
		cancel()
		l.wg.Wait()
		_ = conn.Close()
	})
	return l
}

func (l *load) produce(ctx context.Context, client brokerv1.LogServiceClient, k key) {
	l.known.mu.Lock()
	sequence := l.known.next[k]
	l.known.mu.Unlock()
	for ctx.Err() == nil {
		batch, err := build(k, sequence)
		if err != nil {
			l.fail(err)
			return
		}
		answer, err := client.Append(ctx, &brokerv1.AppendRequest{Topic: topic, Partition: k.partition, Batches: batch}, grpc.WaitForReady(true))
		if err == nil {
			l.known.ack(k, sequence, answer.GetBaseOffset())
			l.answered(k, false)
			sequence++
			continue
		}
		if ctx.Err() != nil {
			return
		}
		reason, err := retryable(err)
		if err != nil {
			l.fail(fmt.Errorf("producer %d, partition %d, sequence %d: %w", k.producer, k.partition, sequence, err))
			return
		}
		l.mu.Lock()
		l.reasons[reason]++
		l.mu.Unlock()
		l.answered(k, true)
		select {
		case <-ctx.Done():
		case <-time.After(backOff):
		}
	}
}

// retryable returns a refusal's reason. One that does not say that, why and when to try again is an error.
func retryable(err error) (reason string, _ error) {
	s := status.Convert(err)
	var wait time.Duration
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		}
	}
	if s.Code() != codes.Unavailable || wait <= 0 || reason != "NO_SPACE" && reason != "DIRECTORY_FAILED" {
		return "", fmt.Errorf("refused without a way on (reason %q, retry after %s): %w", reason, wait, err)
	}
	return reason, nil
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
		close(l.failed)
	}
}

// answered notes an answer for those who wait.
func (l *load) answered(k key, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !refused {
		now := time.Now()
		if before, ok := l.last[k]; ok {
			l.longest = max(l.longest, now.Sub(before))
		}
		l.last[k] = now
	}
	for _, w := range l.waits {
		if w.refused != refused || w.left[k] == 0 {
			continue
		}
		if w.left[k]--; w.left[k] == 0 {
			if delete(w.left, k); len(w.left) == 0 {
				close(w.done)
			}
		}
	}
}

// each waits until every producer was acknowledged, or refused, twice from now on: the first of them may have been on its way.
func (l *load) each(t *testing.T, refused bool) {
	t.Helper()
	w := &wait{refused: refused, left: make(map[key]int), done: make(chan struct{})}
	l.mu.Lock()
	for p := range producers {
		for n := range int32(partitions) {
			w.left[key{p, n}] = 2
		}
	}
	l.waits = append(l.waits, w)
	l.mu.Unlock()
	select {
	case <-w.done:
	case <-l.failed:
		t.Fatal(l.err)
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// gap starts to measure anew, and returns the longest time that a producer was not acknowledged since the last call.
func (l *load) gap() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	longest := l.longest
	l.longest, l.last = 0, make(map[key]time.Time)
	return longest
}

// refusals is how many there were, by reason.
func (l *load) refusals() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reasons
}

// stop ends the producers. What they had in flight may be in the log.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.wg.Wait()
	if l.err != nil {
		t.Fatal(l.err)
	}
}

// startBroker starts a broker whose records are in dirs, and shows what it printed last where the test failed.
func startBroker(t *testing.T, dirs string, settings ...string) *harness.Service {
	t.Helper()
	settings = append(settings, "data_dirs="+dirs, "journal_bytes=1MiB", "checkpoint_bytes=100KiB")
	return harness.RunService(t, binary, "broker", settings...)
}

func mustCheck(t *testing.T, broker *harness.Service, known *ledger) {
	t.Helper()
	if err := check(t.Context(), broker, known); err != nil {
		t.Fatal(err)
	}
}

func mustCreate(t *testing.T, broker *harness.Service) {
	t.Helper()
	if err := create(t.Context(), broker); err != nil {
		t.Fatal(err)
	}
}

// directories asks the command line what the broker says of its data directories.
func directories(t *testing.T, broker *harness.Service) string {
	t.Helper()
	out, err := databus(t, broker, "directory", "list", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	return out
}
