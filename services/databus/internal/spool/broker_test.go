package spool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/databus-suite/databus/internal/recordbatch"
)

// batchOf builds a batch of one message a value.
func batchOf(t testing.TB, values ...string) []byte {
	t.Helper()
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	for _, v := range values {
		b.Append(1, []byte("k"), []byte(v), nil)
	}
	out, err := b.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// broker keeps the rules that Kafka has for idempotent producers: the five newest batches of a producer are recognised, what
// does not follow is refused.
type broker struct {
	logs      map[place][]string
	producers map[place]map[int64]*[]recordbatch.Header
	ids       int64
}

var errSequence = errors.New("out of order sequence")

func newBroker() *broker {
	return &broker{logs: map[place][]string{}, producers: map[place]map[int64]*[]recordbatch.Header{}}
}

func (b *broker) clone() *broker {
	c := newBroker()
	c.ids = b.ids
	for p, l := range b.logs {
		c.logs[p] = append([]string(nil), l...)
	}
	for p, ids := range b.producers {
		c.producers[p] = map[int64]*[]recordbatch.Header{}
		for id, last := range ids {
			l := append([]recordbatch.Header(nil), *last...)
			c.producers[p][id] = &l
		}
	}
	return c
}

func (b *broker) producer() int64 { b.ids++; return b.ids }

func (b *broker) append(t testing.TB, p place, batch []byte) error {
	t.Helper()
	h, err := recordbatch.Check(batch)
	if err != nil {
		t.Fatalf("the spool handed out a batch that is none: %v", err)
	}
	if b.producers[p] == nil {
		b.producers[p] = map[int64]*[]recordbatch.Header{}
	}
	last := b.producers[p][h.ProducerID]
	if last == nil {
		last = new([]recordbatch.Header)
		b.producers[p][h.ProducerID] = last
	}
	next := int32(0)
	for _, old := range *last {
		if old.BaseSequence == h.BaseSequence && old.Count == h.Count {
			return nil // duplicate
		}
		next = nextSequence(old.BaseSequence, old.Count)
	}
	if h.BaseSequence != next {
		return fmt.Errorf("sequence %d after %d: %w", h.BaseSequence, next, errSequence)
	}
	if *last = append(*last, h); len(*last) > Window {
		*last = (*last)[1:]
	}
	for r, err := range recordbatch.Records(batch, 1<<20) {
		if err != nil {
			t.Fatal(err)
		}
		b.logs[p] = append(b.logs[p], string(r.Value))
	}
	return nil
}

// sender hands what a queue has to a broker.
type sender struct {
	t      testing.TB
	b      *broker
	flying map[*Queue][]Item
}

// take gets everything that may be in flight, gives it to the broker, and answers nothing yet.
func (s *sender) take(q *Queue) {
	s.t.Helper()
	for {
		it, ok, err := q.Next()
		if errors.Is(err, ErrProducer) {
			q.SetProducer(s.b.producer(), 0)
			return
		}
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if !ok {
			return
		}
		if err := s.b.append(s.t, q.place, it.Batch); err != nil {
			s.t.Fatalf("batch %d of %v: %v", it.ID, q.place, err)
		}
		s.flying[q] = append(s.flying[q], it)
	}
}

// answer acknowledges n batches of what is in flight.
func (s *sender) answer(q *Queue, n int) {
	for _, it := range s.flying[q][:n] {
		q.Acked(it.ID)
	}
	s.flying[q] = s.flying[q][n:]
}

// drain sends until nothing is left.
func drain(t testing.TB, s *Spool, b *broker) {
	t.Helper()
	snd := &sender{t: t, b: b, flying: map[*Queue][]Item{}}
	for qs := s.Waiting(); len(qs) > 0; qs = s.Waiting() {
		for _, q := range qs {
			snd.take(q)
			snd.answer(q, len(snd.flying[q]))
		}
		flush(t, s)
	}
}

func open(t testing.TB, cfg Config) *Spool {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = "spool"
	}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSpool(t, s) })
	return s
}

func flush(t testing.TB, s *Spool) {
	t.Helper()
	if err := s.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func closeSpool(t testing.TB, s *Spool) {
	t.Helper()
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// putAll spools batches one after the other and waits for each.
func putAll(t testing.TB, s *Spool, p place, batches ...string) {
	t.Helper()
	for _, b := range batches {
		if err := putOne(t, s, "c", p, 1, b); err != nil {
			t.Fatal(err)
		}
	}
}

func putOne(t testing.TB, s *Spool, channel string, p place, layout int32, values string) error {
	t.Helper()
	errc := make(chan error, 1)
	e := Entry{Channel: channel, Topic: p.topic, Partition: p.partition, Layout: layout, Batch: batchOf(t, strings.Fields(values)...)}
	if err := s.Append(e, func(err error) { errc <- err }); err != nil {
		return err
	}
	if err := <-errc; err != nil {
		return err
	}
	flush(t, s) // done is called before the batch is in its queue
	return nil
}
