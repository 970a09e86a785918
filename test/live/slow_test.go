package live

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/test/harness"
)

// slowRate is how many bytes a second come through to a slow broker.
const slowRate = 512 << 10

// TestSlowBroker: the way to the broker is slow, one channel wants more of it than there is, and another one's only partition never
// answers. Both are told to wait once they hold what they may. Channels whose topics have other connections get their turn, and what
// the two took arrives once.
func TestSlowBroker(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	front := harness.StartFront(t, broker.GRPCAddr())
	proxy := harness.StartProxy(t, front.Addr())
	s := startStall(t, broker, proxy.Addr())
	s.channel("hog", `"durability":"DURABILITY_BUFFERED","compression":{"codec":"CODEC_NONE"}`)
	s.first("hog", `{"n":0,"padding":""}`, http.StatusAccepted)
	s.taken["hog"]++
	awaitMessages(t, broker, "hog", 1) // its stream is open
	well := s.elsewhere(proxy)
	before := s.p99(well)

	resume := front.Silence("stuck", 0)
	defer resume()
	proxy.Throttle(slowRate)
	s.fill("stuck")
	s.refusedByGRPC("stuck")
	s.fill("hog")
	while := s.flood("hog", func() time.Duration { return s.p99(well) })
	s.check(before, while)
	proxy.Throttle(0)
	resume()
	s.awaitAll()
	t.Logf("%d messages of %d KiB went through at %d KiB/s", s.taken["hog"], stallBody>>10, slowRate>>10)
}

// flood keeps a BUFFERED channel full while something is measured. Its producer waits for as long as it is told to.
func (s *stall) flood(channel string, measure func() time.Duration) time.Duration {
	s.Helper()
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(s.offer(channel)):
			}
		}
	})
	defer work.Wait()
	defer close(stop)
	return measure()
}

// refusedByGRPC checks how a full channel says so to a stub.
func (s *stall) refusedByGRPC(channel string) {
	s.Helper()
	_, err := databusv1.NewPublishServiceClient(dial(s.T, s.agent.GRPCAddr())).Publish(s.Context(), &databusv1.PublishRequest{Channel: channel,
		Messages: []*databusv1.Message{{Value: make([]byte, 2*stallBody)}}})
	if code := status.Code(err); code != codes.ResourceExhausted && code != codes.Unavailable {
		s.Fatalf("gRPC publish to a full channel: %v", err)
	}
	for _, detail := range status.Convert(err).Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok && retry.GetRetryDelay().AsDuration() > 0 {
			return
		}
	}
	s.Errorf("gRPC publish to a full channel has no RetryInfo: %v", status.Convert(err).Proto())
}
