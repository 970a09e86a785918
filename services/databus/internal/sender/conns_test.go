package sender

import (
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
	"github.com/databus-suite/databus/services/databus/internal/brokertest"
)

func TestTopicsSpreadAndMoveOn(t *testing.T) {
	t.Parallel()
	var topics [bulkConns]int
	for i := range 300 {
		name := fmt.Sprint("topic-", i)
		topics[place(name, 0)]++
		seen := map[int]bool{}
		for turn := range uint32(bulkConns) {
			seen[place(name, turn)] = true
		}
		if len(seen) != bulkConns {
			t.Errorf("%s tries %d of %d connections", name, len(seen), bulkConns)
		}
	}
	for i, n := range topics {
		if n < 50 {
			t.Errorf("connection %d has %d of 300 topics", i, n)
		}
	}
}

// single is a lane whose batches have one record each, and tells at which offset each was appended; -1: not.
type single struct {
	topic    string
	ready    chan int32 // sequences of batches to send
	acked    chan int64
	producer int64
}

func (l *single) Topic() string                 { return l.topic }
func (l *single) Partition() int32              { return 0 }
func (l *single) Resize(int32) bool             { return false }
func (l *single) SetEnd(int64)                  {}
func (l *single) Stalled(error)                 {}
func (l *single) SetProducer(id int64, _ int16) { l.producer = id }

func (l *single) Next() (Batch, bool) {
	if l.producer == 0 {
		return nil, true
	}
	select {
	case n := <-l.ready:
		return only{l, n}, false
	default:
		return nil, false
	}
}

type only struct {
	lane     *single
	sequence int32
}

func (b only) Bytes() ([]byte, error) {
	x := recordbatch.NewBuilder(recordbatch.BuilderOptions{})
	x.Append(1, nil, []byte("x"), nil)
	data, err := x.Build(nil)
	if err == nil {
		recordbatch.SetProducer(data, b.lane.producer, 0, b.sequence)
	}
	return data, err
}

func (b only) Partition() int32               { return 0 }
func (b only) Traces() []string               { return nil }
func (b only) Acked(offset, _ int64)          { b.lane.acked <- offset }
func (b only) Refused(batcher.Refusal, error) { b.lane.acked <- -1 }
func (b only) Lost(error)                     { b.lane.acked <- -1 }

// TestIdleTopicGivesUpItsStream: nothing is left of a topic without traffic, and its next batch begins anew.
func TestIdleTopicGivesUpItsStream(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t)
	conns, err := DialAll(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conns.Close()
	topics := NewTopics(TopicsConfig{Client: brokerv1.NewTopicServiceClient(conns.Control()), Logger: slog.New(slog.DiscardHandler)})
	if _, err := topics.Resolve(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Conns: conns, Topics: topics, Logger: slog.New(slog.DiscardHandler), IdleAfter: time.Millisecond})
	defer s.Close()
	l := &single{topic: "a", ready: make(chan int32, 1), acked: make(chan int64, 1)}
	for i := range int32(3) {
		l.ready <- i
		s.Push(l)
		if at := <-l.acked; at != int64(i) {
			t.Fatalf("batch %d was appended at %d", i, at)
		}
		for s.Streams() > 0 {
			runtime.Gosched()
		}
	}
}
