package sender

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/services/databus/internal/batcher"
)

// maxMessage is the largest message on the wire: a batch of 16 MiB does not compress to more.
const maxMessage = 64 << 20

// Dial connects to a broker. It returns at once; the connection is made, and made again, in the background.
func Dial(addr string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{}),
			grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		// The agent's own back-off decides; this one only keeps from hammering a closed port.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20),
		grpc.WithWriteBufferSize(128 << 10), grpc.WithReadBufferSize(64 << 10),
	}, opts...)...)
}

// Config of a Sender.
type Config struct {
	Log    brokerv1.LogServiceClient
	Topics *Topics
	Logger *slog.Logger
}

// Sender is the batcher's sink. Ready may be called concurrently; Close ends every stream and is idempotent.
type Sender struct {
	cfg    Config
	ids    producers
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.RWMutex
	streams map[string]*stream
	closed  bool
}

// New returns a Sender without streams; each topic's is opened by its first batch.
func New(cfg Config) *Sender {
	ctx, cancel := context.WithCancel(context.Background())
	return &Sender{cfg: cfg, ids: producers{log: cfg.Log}, ctx: ctx, cancel: cancel, streams: make(map[string]*stream)}
}

// Ready puts the batcher's lane in its topic's line.
func (s *Sender) Ready(l *batcher.Lane) { s.Push(batched{l}) }

// Push puts a lane in its topic's line. The lane is not pushed again before its Next has returned nothing.
func (s *Sender) Push(l Lane) {
	s.mu.RLock()
	t := s.streams[l.Topic()]
	s.mu.RUnlock()
	if t == nil {
		if t = s.start(l.Topic()); t == nil {
			return
		}
	}
	t.push(l)
}

func (s *Sender) start(topic string) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.streams[topic]; t != nil || s.closed {
		return t
	}
	t := newStream(s, topic)
	s.streams[topic] = t
	s.work.Go(func() { t.run(s.ctx) })
	return t
}

// Close ends the streams. What is in flight stays unanswered.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
}
