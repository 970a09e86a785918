package natskv

import (
	"context"
	"iter"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/nats-io/nats.go/jetstream"
)

// Event is one step of a watch.
type Event[T any] struct {
	Entry  Entry[T] // the key as it is now; Deleted says that it is gone
	Synced bool     // everything there was when the watch began has been sent; Entry is zero
	Err    error    // the entry's value cannot be read; the watch goes on
}

// Watch yields every key's current value, then one Synced event, then each change, in the order of the writes, until ctx
// ends or the loop breaks. It survives reconnects and leader changes without losing a change; what is compacted in between
// comes as its newest value.
func (b *Bucket[T]) Watch(ctx context.Context) iter.Seq[Event[T]] {
	return func(yield func(Event[T]) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w := watch[T]{bucket: b, yield: yield}
		wait := backoff.NewExponentialBackOff()
		wait.InitialInterval, wait.MaxInterval = 50*time.Millisecond, 2*time.Second
		for {
			seen := w.last
			if !w.run(ctx) {
				return
			}
			if w.last != seen {
				wait.Reset()
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait.NextBackOff()):
			}
		}
	}
}

// watch is one loop's state across the server-side consumers that it goes through.
type watch[T any] struct {
	bucket *Bucket[T]
	yield  func(Event[T]) bool
	last   uint64 // newest revision yielded
	synced bool
}

// run consumes one server-side watch; false ends the loop.
func (w *watch[T]) run(ctx context.Context) bool {
	var opts []jetstream.WatchOpt
	if w.last > 0 {
		opts = append(opts, jetstream.ResumeFromRevision(w.last+1))
	}
	back := w.bucket.conn.nextReconnect()
	watcher, err := w.bucket.kv.WatchAll(ctx, opts...)
	if err != nil {
		return ctx.Err() == nil // away: try again
	}
	defer watcher.Stop() //nolint:errcheck // only says that the connection is gone
	for {
		select {
		case <-ctx.Done():
			return false
		case <-back:
			return true
		case e, ok := <-watcher.Updates():
			if !ok {
				return ctx.Err() == nil
			}
			if !w.step(e) {
				return false
			}
		}
	}
}

func (w *watch[T]) step(e jetstream.KeyValueEntry) bool {
	if e == nil {
		if w.synced {
			return true // the mark of a watch that was opened again
		}
		w.synced = true
		return w.yield(Event[T]{Synced: true})
	}
	if e.Revision() <= w.last {
		return true
	}
	w.last = e.Revision()
	entry, err := w.bucket.entry(e)
	return w.yield(Event[T]{Entry: entry, Err: err})
}
