package brokertest

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/internal/recordbatch"
)

// Broker is the broker. All methods may run concurrently. It ends with the test.
type Broker struct {
	tb testing.TB

	mu       sync.Mutex
	cond     *sync.Cond
	server   *grpc.Server
	addr     string
	topics   map[string]*topic
	producer int64
	channels map[string]*databusv1.Channel
	revision int64
	watchers map[chan *databusv1.WatchChannelsResponse]bool
	reports  []*databusv1.ReportAgentRequest
	appends  int
	gates    map[string]chan struct{} // topics whose appends wait

	// Refuse, where set, is asked before each append; an error is the answer.
	Refuse func(topic string, partition int32, batch []byte) *errs.Error
	// Drop, where set, is asked after each append; true breaks the stream instead of answering.
	Drop func(topic string, partition int32) bool
	// Trace, where set, is told the traceparent of each append.
	Trace func(traceparent string)
	// Discard keeps offsets and sequences but no records, for benchmarks.
	Discard bool
	// DefaultPartitions of a topic that is made without a number.
	DefaultPartitions int32
}

type topic struct {
	id         string
	partitions []*partition
	config     *brokerv1.TopicConfig
}

type partition struct {
	records   []Record
	batches   [][]byte
	end       int64 // next offset
	producers map[int64]*producer
}

// producer is what a partition knows of an idempotent producer.
type producer struct {
	epoch int16
	last  []appended // up to five
}

type appended struct {
	first, next int32
	base        int64
}

// Record is a stored record with the id of the producer that wrote it.
type Record struct {
	recordbatch.Record
	Producer int64
	Codec    recordbatch.Codec
	Batch    int // number of its batch, from 0
}

// Start starts a broker on a free port.
func Start(tb testing.TB) *Broker {
	b := &Broker{tb: tb, topics: make(map[string]*topic), channels: make(map[string]*databusv1.Channel), producer: 1000,
		watchers: make(map[chan *databusv1.WatchChannelsResponse]bool), gates: make(map[string]chan struct{}), DefaultPartitions: 4}
	b.cond = sync.NewCond(&b.mu)
	b.Up()
	tb.Cleanup(b.Down)
	return b
}

// Addr is the broker's gRPC address.
func (b *Broker) Addr() string { return b.addr }

// Up starts to serve, on the port that it had before.
func (b *Broker) Up() {
	b.tb.Helper()
	addr := b.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		b.tb.Fatalf("broker: %v", err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(rawcodec.Codec{}), grpc.MaxRecvMsgSize(64<<20))
	brokerv1.RegisterLogServiceServer(s, logService{b: b})
	brokerv1.RegisterTopicServiceServer(s, topicService{b: b})
	databusv1.RegisterChannelServiceServer(s, channelService{b: b})
	b.mu.Lock()
	b.server, b.addr = s, l.Addr().String()
	b.mu.Unlock()
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			panic(fmt.Sprintf("broker: %v", err))
		}
	}()
}

// Down stops to serve at once, like a process that is killed; what is appended stays.
func (b *Broker) Down() {
	b.mu.Lock()
	s := b.server
	b.server = nil
	for name, gate := range b.gates {
		close(gate)
		delete(b.gates, name)
	}
	b.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// Hold makes appends to a topic wait until the returned function is called.
func (b *Broker) Hold(topic string) (release func()) {
	gate := make(chan struct{})
	b.mu.Lock()
	b.gates[topic] = gate
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.gates[topic] == gate {
			close(gate)
			delete(b.gates, topic)
		}
	}
}

// Forget deletes a topic, with what is known of producers.
func (b *Broker) Forget(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.topics, name)
}

// Remake deletes a topic and makes another one of its name.
func (b *Broker) Remake(name string, partitions int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &topic{id: strconv.FormatInt(time.Now().UnixNano(), 16)}
	t.grow(partitions)
	b.topics[name] = t
}

// Grow adds partitions to a topic.
func (b *Broker) Grow(name string, partitions int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[name].grow(partitions)
}

func (t *topic) grow(n int32) {
	for int32(len(t.partitions)) < n {
		t.partitions = append(t.partitions, &partition{producers: make(map[int64]*producer)})
	}
}

// Records are a topic's records by partition.
func (b *Broker) Records(name string) [][]Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil {
		return nil
	}
	out := make([][]Record, len(t.partitions))
	for i, p := range t.partitions {
		out[i] = append([]Record(nil), p.records...)
	}
	return out
}

// Await waits until a topic holds n records, and returns them.
func (b *Broker) Await(name string, n int) [][]Record {
	b.mu.Lock()
	for {
		have := 0
		if t := b.topics[name]; t != nil {
			for _, p := range t.partitions {
				have += len(p.records)
			}
		}
		if have >= n {
			break
		}
		b.cond.Wait()
	}
	b.mu.Unlock()
	return b.Records(name)
}

// Appends is how many appends were accepted.
func (b *Broker) Appends() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.appends
}

// AwaitAppends waits until n appends were answered for.
func (b *Broker) AwaitAppends(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.appends < n {
		b.cond.Wait()
	}
}
