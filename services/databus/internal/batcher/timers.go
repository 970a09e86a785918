package batcher

import (
	"container/heap"
	"sync"
	"time"
)

// timer makes a batch due, or ends a lane's back-off.
type timer struct {
	at    time.Time
	batch *Batch
	lane  *Lane
}

func (t timer) fire() {
	if t.batch != nil {
		t.batch.lingered(FillLinger)
		return
	}
	t.lane.resume()
}

// timers is every timer of the agent, served by one goroutine: arming one costs a push on a heap, and none is ever stopped,
// since a batch that is due already takes no notice.
type timers struct {
	mu   sync.Mutex
	heap timerHeap
	wake chan struct{}
}

func (t *timers) add(x timer) {
	t.mu.Lock()
	heap.Push(&t.heap, x)
	first := t.heap[0] == x
	t.mu.Unlock()
	if first {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// run fires timers until stop is closed.
func (t *timers) run(stop <-chan struct{}) {
	const idle = time.Hour
	clock := time.NewTimer(idle)
	defer clock.Stop()
	for {
		wait := idle
		now := time.Now()
		for {
			x, ok, next := t.pop(now)
			if !ok {
				if next > 0 {
					wait = next
				}
				break
			}
			x.fire()
		}
		clock.Reset(wait)
		select {
		case <-stop:
			return
		case <-t.wake:
		case <-clock.C:
		}
	}
}

// pop takes the first timer if its time has come; otherwise it says how long that is.
func (t *timers) pop(now time.Time) (x timer, ok bool, next time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.heap) == 0 {
		return timer{}, false, 0
	}
	if d := t.heap[0].at.Sub(now); d > 0 {
		return timer{}, false, d
	}
	return heap.Pop(&t.heap).(timer), true, 0
}

type timerHeap []timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timerHeap) Push(x any)        { *h = append(*h, x.(timer)) }
func (h *timerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = timer{}
	*h = old[:len(old)-1]
	return x
}
