package channel

import (
	"context"
	"iter"
	"sync"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

// Event is one step of a watch: exactly one field is set.
type Event struct {
	Changed *databusv1.Channel // as it is now for this watcher
	Deleted string
	Synced  bool // everything there was when the watch began has been sent
}

// Watch yields every channel, a Synced event, then each change that concerns an agent with these labels, until ctx ends or the
// loop breaks. A watcher that is slow gets a channel's newest state once, not each one in between, so that it costs the
// broker no more than the names that it has yet to read.
func (r *Registry) Watch(ctx context.Context, labels map[string]string) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		w := &watcher{dirty: map[string]struct{}{}, wake: make(chan struct{}, 1)}
		r.join(w)
		defer r.leave(w)
		sent := map[string]int64{} // revision that the watcher has of each channel
		if !r.sendDirty(w, labels, sent, yield) || !yield(Event{Synced: true}) {
			return
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
				if !r.sendDirty(w, labels, sent, yield) {
					return
				}
			}
		}
	}
}

// join marks what there is and registers for what comes, in one step, so that nothing falls between.
func (r *Registry) join(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range r.channels {
		if !s.deleted {
			w.mark(name)
		}
	}
	r.watchers[w] = struct{}{}
}

func (r *Registry) leave(w *watcher) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers, w)
}

func (r *Registry) sendDirty(w *watcher, labels map[string]string, sent map[string]int64, yield func(Event) bool) bool {
	for name := range w.take() {
		s := r.lookup(name)
		if s.deleted {
			if _, known := sent[name]; !known {
				continue
			}
			delete(sent, name)
			if !yield(Event{Deleted: name}) {
				return false
			}
			continue
		}
		c := s.protoFor(labels)
		if sent[name] == c.Revision {
			continue // a canary that is not for this watcher, or a promotion of the one that it runs
		}
		sent[name] = c.Revision
		if !yield(Event{Changed: c}) {
			return false
		}
	}
	return true
}

// watcher collects the names of the channels that its watch has yet to look at.
type watcher struct {
	mu    sync.Mutex
	dirty map[string]struct{}
	wake  chan struct{} // holds one
}

func (w *watcher) mark(name string) {
	w.mu.Lock()
	w.dirty[name] = struct{}{}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) take() map[string]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	dirty := w.dirty
	w.dirty = map[string]struct{}{}
	return dirty
}
