package batcher

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// TestLaneModel drives lanes against a broker that loses answers, refuses, forgets producers and breaks streams at random. In
// the end every partition holds every message once and in order.
func TestLaneModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		synctest.Test(t, func(t *testing.T) { runModel(t, seed) })
	})
}

// partitionModel keeps Kafka's rules for idempotent producers.
type partitionModel struct {
	log  []string
	id   int64
	last [][3]int64 // first, next, base
}

func (p *partitionModel) append(h recordbatch.Header, values []string) (int64, Refusal, bool) {
	if h.ProducerID != p.id {
		p.id, p.last = h.ProducerID, nil
	}
	next := int64(h.BaseSequence) + int64(h.Count)
	for _, a := range p.last {
		if a[0] == int64(h.BaseSequence) && a[1] == next {
			return a[2], 0, true
		}
	}
	want := int64(0)
	if n := len(p.last); n > 0 {
		want = p.last[n-1][1]
	}
	if int64(h.BaseSequence) != want {
		return 0, OutOfOrder, false
	}
	base := int64(len(p.log))
	p.log = append(p.log, values...)
	p.last = append(p.last, [3]int64{want, next, base})
	if len(p.last) > Window {
		p.last = p.last[1:]
	}
	return base, 0, true
}

func runModel(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	x := setup(t, options(func(o *Options) { o.MaxMessages, o.Deadline = 3, 0 }))
	var parts [4]partitionModel
	var pipe []*Batch // sent, not processed: the stream
	const messages = 120
	counts := [4]int{}
	for x.sent < messages || x.owner.answered < messages {
		switch n := rng.IntN(12); {
		case n < 4 && x.sent < messages:
			p := int32(rng.IntN(4))
			counts[p]++
			x.append(x.topic, p, 1)
		case n < 8:
			if b := x.sink.take(); b != nil {
				if _, err := b.Bytes(); err != nil {
					t.Fatal(err)
				}
				pipe = append(pipe, b)
			}
		case n < 10 && len(pipe) > 0:
			b := pipe[0]
			pipe = pipe[1:]
			if rng.IntN(6) == 0 {
				b.Lane().Refused(b, Retry, errors.New("busy"))
				break
			}
			base, r, ok := parts[b.Partition()].append(header(t, b), values(t, b))
			if ok {
				b.Lane().Acked(b, base, 0)
			} else {
				b.Lane().Refused(b, r, errors.New("out of order"))
			}
		case n == 10 && rng.IntN(4) == 0:
			// The stream breaks; some of it arrives all the same, in order.
			for i, b := range pipe {
				if i < len(pipe)/2 {
					parts[b.Partition()].append(header(t, b), values(t, b))
				}
			}
			for _, b := range pipe {
				b.Lane().Lost(b, errors.New("broken"))
			}
			pipe = nil
		default:
			pass(time.Duration(rng.IntN(100)) * time.Millisecond)
		}
	}
	for p := range parts {
		if len(parts[p].log) != counts[p] || !slices.IsSortedFunc(parts[p].log, func(a, b string) int {
			return len(a)*1000 - len(b)*1000 + compare(a, b)
		}) {
			t.Fatalf("partition %d: %d messages, want %d: %v", p, len(parts[p].log), counts[p], parts[p].log)
		}
	}
	if x.owner.resolved != messages {
		t.Fatalf("%d bytes given back, want %d", x.owner.resolved, messages)
	}
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
