// Package producerid hands out the ids of idempotent producers. It owns the counter in the metadata bucket `broker` and
// takes blocks from it, so that an id costs no write; what is left of a block is lost with the process, never handed out
// twice.
package producerid

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/natskv"
)

const (
	block   = 1000
	key     = "producer-ids"
	retries = 16
)

// counter is the next id that no process has taken.
type counter struct {
	Next int64 `json:"next"`
}

// Allocator hands out ids. Its methods may run concurrently; it needs no Close.
type Allocator struct {
	bucket *natskv.Bucket[counter]

	mu         sync.Mutex
	next, past int64 // what is left of the block
}

// Open prepares the counter's bucket.
func Open(ctx context.Context, conn *natskv.Conn, replicas int) (*Allocator, error) {
	bucket, err := natskv.OpenBucket(ctx, conn, natskv.BucketConfig{Name: "broker", Replicas: replicas}, natskv.JSON[counter]())
	if err != nil {
		return nil, err
	}
	return &Allocator{bucket: bucket}, nil
}

// Take returns the first of count ids in a row that nobody else gets. Errors: Unavailable while the metadata store is away.
func (a *Allocator) Take(ctx context.Context, count int64) (first int64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.past-a.next < count {
		size := max(block, count)
		if a.next, err = a.reserve(ctx, size); err != nil {
			a.past = a.next
			return 0, err
		}
		a.past = a.next + size
	}
	first = a.next
	a.next += count
	return first, nil
}

func (a *Allocator) reserve(ctx context.Context, size int64) (first int64, err error) {
	for range retries {
		e, err := a.bucket.Get(ctx, key)
		switch {
		case errs.CodeOf(err) == errs.NotFound:
			_, err = a.bucket.Create(ctx, key, counter{Next: size})
		case err != nil:
			return 0, err
		case e.Value.Next > math.MaxInt64-size:
			return 0, errs.New(errs.Exhausted, "PRODUCER_IDS", "producer ids: all have been handed out")
		default:
			_, err = a.bucket.Update(ctx, key, counter{Next: e.Value.Next + size}, e.Revision)
		}
		if err == nil {
			return e.Value.Next, nil
		}
		if reason := errs.From(err).Reason; reason != natskv.ReasonConflict && reason != natskv.ReasonExists {
			return 0, err
		}
	}
	return 0, errs.New(errs.Unavailable, "PRODUCER_IDS", "producer ids: other brokers take them all the time").WithRetryAfter(time.Second)
}
