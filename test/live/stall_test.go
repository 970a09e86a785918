package live

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/databus-suite/databus/test/harness"
)

const (
	// stallMemory is the bound of the agent's memory, and stallShare what it lets one channel have.
	stallMemory = 16 << 20
	stallShare  = stallMemory / 4
	// stallBody is the size of a message to the stuck channel.
	stallBody = 64 << 10
	// stallCalls is how many publishes to the other channel are timed.
	stallCalls = 300
)

// stall is an agent whose way to the broker leads through something that can get stuck.
type stall struct {
	*testing.T
	agent  *harness.Service
	broker *harness.Service
	taken  map[string]int // messages that BUFFERED channels took
}

func startStall(t *testing.T, broker *harness.Service, way string) *stall {
	t.Helper()
	s := &stall{T: t, broker: broker, agent: startAgent(t, way, fmt.Sprintf("memory_bytes=%d", stallMemory)), taken: make(map[string]int)}
	s.channel("stuck", `"durability":"DURABILITY_BUFFERED"`)
	return s
}

// channel makes a channel with a topic of one partition.
func (s *stall) channel(name, config string) {
	s.Helper()
	s.call("/v1/topics", fmt.Sprintf(`{"name":%q,"partitions":1}`, name))
	s.call("/v1/channels", fmt.Sprintf(`{"name":%q,"config":{%s}}`, name, config))
}

// call is a call of the broker's that must succeed.
func (s *stall) call(path, body string) {
	s.Helper()
	answer, err := harness.Call(s.Context(), http.DefaultClient, http.MethodPost, s.broker.URL()+path, []byte(body), nil)
	if err != nil || answer.Status != http.StatusOK {
		s.Fatalf("POST %s: status %d, error %v: %s", path, answer.Status, err, answer.Body)
	}
}

func (s *stall) publish(channel, value string) harness.Answer {
	s.Helper()
	answer, err := harness.Call(s.Context(), http.DefaultClient, http.MethodPost, s.agent.URL()+"/v1/channels/"+channel+"/messages",
		[]byte(`{"messages":[{"value":`+value+`}]}`), nil)
	if err != nil {
		s.Fatal(err)
	}
	return answer
}

// fill publishes numbered messages to a BUFFERED channel until it takes no more, and checks how it says so.
func (s *stall) fill(channel string) {
	s.Helper()
	for s.offer(channel) == 0 {
		if s.taken[channel] > stallShare/stallBody+10 {
			s.Fatalf("%d messages of %d bytes were taken, the bound is %d bytes", s.taken[channel], stallBody, stallShare)
		}
	}
}

// offer publishes a BUFFERED channel's next message. Where it is not taken, it answers with how long the producer is to wait.
func (s *stall) offer(channel string) time.Duration {
	s.Helper()
	answer := s.publish(channel, fmt.Sprintf(`{"n":%d,"padding":%q}`, s.taken[channel], strings.Repeat("x", stallBody)))
	if answer.Status == http.StatusAccepted {
		s.taken[channel]++
		return 0
	}
	wait, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if answer.Status != http.StatusTooManyRequests && answer.Status != http.StatusServiceUnavailable || err != nil || wait < 1 ||
		!bytes.Contains(answer.Body, []byte("google.rpc.RetryInfo")) {
		s.Errorf("status %d, Retry-After %q: %s", answer.Status, answer.Header.Get("Retry-After"), answer.Body)
	}
	return time.Duration(wait) * time.Second
}

// p99 publishes to another channel, all of which must succeed, and tells how long it took.
func (s *stall) p99(channel string) time.Duration {
	s.Helper()
	times := make([]time.Duration, stallCalls)
	for i := range times {
		began := time.Now()
		if answer := s.publish(channel, "1"); answer.Status != http.StatusOK {
			s.Fatalf("channel %s: status %d: %s", channel, answer.Status, answer.Body)
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[len(times)*99/100]
}

// check compares what another channel had before and while one is stuck, and looks at the agent's memory. The margin is wide: a
// publish that waits for what is stuck would take as long as that.
func (s *stall) check(before, while time.Duration) {
	s.Helper()
	if while > 10*before+time.Second {
		s.Errorf("p99 of another channel was %s before and %s while one is stuck", before, while)
	}
	held, pending := resident(s.T, s.agent.PID()), s.pending()
	if held > residentBound {
		s.Errorf("the agent holds %d MiB, at most %d are allowed", held>>20, residentBound>>20)
	}
	if pending == 0 || pending > stallShare {
		s.Errorf("the stuck channel holds %d bytes, its bound is %d", pending, stallShare)
	}
	s.Logf("%d messages taken before the first refusal, %d of %d KiB held, agent %d MiB; p99 of another channel %s before, %s while stuck",
		s.taken["stuck"], pending>>10, stallShare>>10, held>>20, before.Round(10*time.Microsecond), while.Round(10*time.Microsecond))
}

// pending reads what the stuck channel holds of the agent's memory.
func (s *stall) pending() int64 {
	s.Helper()
	page, err := harness.Call(s.Context(), http.DefaultClient, http.MethodGet, s.agent.URL()+"/metrics", nil, nil)
	if err != nil {
		s.Fatal(err)
	}
	for line := range bytes.Lines(page.Body) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), "} ")
		if !strings.HasPrefix(name, "databus_agent_pending_bytes{") || !strings.Contains(name, `channel="stuck"`) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.Fatal(err)
		}
		return int64(n)
	}
	s.Fatal("/metrics does not say what the channel holds")
	return 0
}

// awaitAll waits until everything that BUFFERED channels took is in the log, and checks that it is there once and in order.
func (s *stall) awaitAll() {
	s.Helper()
	for channel, taken := range s.taken {
		awaitMessages(s.T, s.broker, channel, taken)
		numbers := readBack(s.T, s.broker, []string{channel})[""]
		for i, r := range numbers {
			if i != r.number {
				s.Fatalf("offset %d of topic %s has message %d", i, channel, r.number)
			}
		}
		if len(numbers) != taken {
			s.Errorf("%d messages are in topic %s, %d were taken", len(numbers), channel, taken)
		}
	}
}

// TestStalledConnection: one of the agent's connections to its broker falls silent. Channels on others, and the control plane, notice
// nothing; the stuck one is told to wait once its bound is reached, and what it took arrives once.
func TestStalledConnection(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	proxy := harness.StartProxy(t, broker.GRPCAddr())
	s := startStall(t, broker, proxy.Addr())
	s.first("stuck", `{"n":0,"padding":""}`, http.StatusAccepted)
	s.taken["stuck"]++
	awaitMessages(t, broker, "stuck", 1) // its stream is open
	silent := proxy.Conns() - 1
	well := s.elsewhere(proxy)
	before := s.p99(well)

	resume := proxy.Stall(silent)
	defer resume()
	s.fill("stuck")
	s.check(before, s.p99(well))
	s.channel("late", `"durability":"DURABILITY_BUFFERED"`)
	s.first("late", "1", http.StatusAccepted) // its config and its topic were asked for
	resume()
	s.awaitAll()
}

// TestDeadPartition: one topic's only partition never answers. Its channel is told to wait once its bound is reached; others notice
// nothing.
func TestDeadPartition(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	front := harness.StartFront(t, broker.GRPCAddr())
	s := startStall(t, broker, front.Addr())
	s.channel("well", "")
	s.first("well", "1", http.StatusOK)
	before := s.p99("well")

	resume := front.Silence("stuck", 0)
	defer resume()
	s.fill("stuck")
	s.check(before, s.p99("well"))
	resume()
	s.awaitAll()
}

// TestDeadPartitionOfATopic: the keys of a topic's other partitions go on while one never answers.
func TestDeadPartitionOfATopic(t *testing.T) {
	t.Parallel()
	broker := startBroker(t)
	front := harness.StartFront(t, broker.GRPCAddr())
	s := &stall{T: t, broker: broker, agent: startAgent(t, front.Addr())}
	s.call("/v1/topics", `{"name":"pair","partitions":2}`)
	s.call("/v1/channels", `{"name":"pair","config":{"retry":{"deliveryTimeout":"0.5s"},"partitioner":{"strategy":"PARTITION_STRATEGY_EXPLICIT"}}}`)
	defer front.Silence("pair", 0)()
	for range 10 { // the dead one's come back with 503 after the delivery timeout, more than are in flight at once
		if answer := s.publishTo(0); answer.Status != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" {
			t.Fatalf("dead partition: status %d: %s", answer.Status, answer.Body)
		}
		if answer := s.publishTo(1); answer.Status != http.StatusOK {
			t.Fatalf("other partition: status %d: %s", answer.Status, answer.Body)
		}
	}
}

func (s *stall) publishTo(partition int) harness.Answer {
	s.Helper()
	answer, err := harness.Call(s.Context(), http.DefaultClient, http.MethodPost, s.agent.URL()+"/v1/channels/pair/messages",
		fmt.Appendf(nil, `{"messages":[{"partition":%d,"value":1}]}`, partition), nil)
	if err != nil {
		s.Fatal(err)
	}
	return answer
}

// first publishes a channel's first message.
func (s *stall) first(channel, value string, want int) {
	s.Helper()
	if answer := s.publish(channel, value); answer.Status != want {
		s.Fatalf("channel %s: status %d: %s", channel, answer.Status, answer.Body)
	}
}

// elsewhere finds a channel whose topic goes by another connection than those that are open.
func (s *stall) elsewhere(proxy *harness.Proxy) string {
	s.Helper()
	for i := range 20 {
		open, name := proxy.Conns(), fmt.Sprint("well", i)
		s.channel(name, "")
		if s.first(name, "1", http.StatusOK); proxy.Conns() > open {
			return name
		}
	}
	s.Fatal("20 topics share one connection")
	return ""
}
