package databus

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/internal/murmur2"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/databus/internal/brokertest"
)

// rig is an agent over a broker.
type rig struct {
	*testing.T
	broker *brokertest.Broker
	agent  *Agent
	url    string
	stop   context.CancelFunc
	done   chan error
}

func start(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	return startOn(t, brokertest.Start(t), change...)
}

func startOn(t *testing.T, b *brokertest.Broker, change ...func(*Config)) *rig {
	t.Helper()
	return startTraced(t, b, nil, change...)
}

// startTraced starts an agent that is measured; nil: it is not.
func startTraced(t *testing.T, b *brokertest.Broker, tel *telemetry.Telemetry, change ...func(*Config)) *rig {
	t.Helper()
	cfg := Config{HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", Broker: BrokerConfig{GRPCAddr: b.Addr()}, DataDir: t.TempDir(),
		DrainTimeout: 5 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	a, err := New(cfg, Deps{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Version: "test", Telemetry: tel})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &rig{T: t, broker: b, agent: a, url: "http://" + a.HTTPAddr(), stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(func() { r.halt() })
	return r
}

// halt stops the agent and waits; it may be called again.
func (r *rig) halt() {
	r.Helper()
	r.stop()
	if err, ok := <-r.done; ok {
		close(r.done)
		if err != nil {
			r.Logf("run: %v", err)
		}
	}
}

// post posts a body and returns status, answer and header.
func (r *rig) post(path, contentType, body string, headers ...string) (int, string, http.Header) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, r.url+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		r.Fatal(err)
	}
	return res.StatusCode, string(answer), res.Header
}

func (r *rig) want(status int, path, contentType, body string, headers ...string) string {
	r.Helper()
	got, answer, _ := r.post(path, contentType, body, headers...)
	if got != status {
		r.Fatalf("POST %s: status %d, want %d: %s", path, got, status, answer)
	}
	return answer
}

type result struct {
	Topic     string
	Partition *int32
	Offset    *string
	Timestamp string
	Error     json.RawMessage
}

func results(t *testing.T, answer string) []result {
	t.Helper()
	var out struct{ Results []result }
	if err := json.Unmarshal([]byte(answer), &out); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
	return out.Results
}

func TestEveryIntakeReachesTheLog(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("orders", &databusv1.ChannelConfig{KeyPath: "$.user"})
	ctx := t.Context()

	answer := r.want(200, "/v1/channels/orders/messages", "application/json",
		`{"messages":[{"key":"k1","value":{"a": 1.0},"headers":{"h":"v"}},{"value":{"user":"u1"}},{"valueBase64":"AP8="}]}`)
	got := results(t, answer)
	if len(got) != 3 || got[0].Topic != "orders" || *got[0].Partition != murmur2.Partition([]byte("k1"), 4) || *got[0].Offset != "0" ||
		*got[1].Partition != murmur2.Partition([]byte("u1"), 4) {
		t.Fatalf("results: %s", answer)
	}
	r.want(200, "/v1/channels/orders/events", "text/plain", "  raw \n", "Databus-Key", "k2", "Databus-Header-X-One", "1", "databus-lane", "red")
	r.want(200, "/v1/channels/orders/events", "application/x-ndjson", "{\"n\":1}\n\n[2]\r\n3", "Databus-Key", "k3")

	cc := databusv1connect.NewPublishServiceClient(http.DefaultClient, r.url)
	if _, err := cc.Publish(ctx, &databusv1.PublishRequest{Channel: "orders", Messages: []*databusv1.Message{{Key: []byte("k4"), Value: []byte("connect")}}}); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(r.agent.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	gc := databusv1.NewPublishServiceClient(conn)
	bulk, err := gc.PublishBulk(ctx, &databusv1.PublishBulkRequest{Requests: []*databusv1.PublishRequest{
		{Channel: "orders", Messages: []*databusv1.Message{{Key: []byte("k5"), Value: []byte("bulk")}}},
		{Channel: "nowhere", Messages: []*databusv1.Message{{Value: []byte("x")}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if bulk.Responses[0].Error != nil || bulk.Responses[1].Error == nil {
		t.Fatalf("bulk: %v", bulk)
	}
	stream, err := gc.PublishStream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	const streamed = 100
	for i := range streamed {
		req := &databusv1.PublishStreamRequest{Sequence: int64(i + 1), Messages: []*databusv1.Message{{Key: []byte("k6"), Value: fmt.Append(nil, i)}}}
		if i == 0 {
			req.Channel = "orders"
		}
		if err := stream.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for range streamed {
		res, err := stream.Recv()
		if err != nil || res.Error != nil || res.Results[0].Offset == nil {
			t.Fatalf("stream: %v %v", res, err)
		}
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("stream end: %v", err)
	}

	byKey := map[string][]brokertest.Record{}
	for _, p := range r.broker.Await("orders", 3+1+3+1+1+streamed) {
		for _, rec := range p {
			byKey[string(rec.Key)] = append(byKey[string(rec.Key)], rec)
		}
	}
	if v := byKey["k1"][0]; string(v.Value) != `{"a": 1.0}` || v.Headers[0].Key != "h" || v.Codec != recordbatch.None && v.Codec != recordbatch.Zstd {
		t.Errorf("k1: %+v", v)
	}
	if v := byKey["k2"][0]; string(v.Value) != "  raw \n" || len(v.Headers) != 2 || v.Headers[0].Key != "databus-lane" || v.Headers[1].Key != "x-one" {
		t.Errorf("k2: %+v", v)
	}
	if v := byKey["k3"]; len(v) != 3 || string(v[0].Value) != `{"n":1}` || string(v[1].Value) != "[2]" || string(v[2].Value) != "3" {
		t.Errorf("k3: %+v", v)
	}
	for i, v := range byKey["k6"] {
		if string(v.Value) != fmt.Sprint(i) {
			t.Fatalf("k6 out of order at %d: %s", i, v.Value)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, func(c *Config) { c.MaxRequestBytes = 4 << 20 })
	r.broker.SetChannel("c", &databusv1.ChannelConfig{Limits: &databusv1.Limits{MaxMessageBytes: 1000}})
	r.broker.SetChannel("paused", &databusv1.ChannelConfig{Paused: true})
	big := strings.Repeat("x", 2000)
	for _, tc := range []struct {
		name, path, contentType, body string
		headers                       []string
		status                        int
		contains                      string
	}{
		{"unknown channel", "nope/messages", "application/json", `{"messages":[{"value":1}]}`, nil, 404, "databus channel create nope"},
		{"unknown channel, events", "nope/events", "", `1`, nil, 404, "CHANNEL_NOT_FOUND"},
		{"malformed", "c/messages", "application/json", "{\"messages\":[\n  {\"value\":tru}]}", nil, 400, "line 2, column"},
		{"malformed event", "c/events", "application/json", "{\"a\":\n x}", nil, 400, "line 2, column 2"},
		{"malformed line", "c/events", "application/x-ndjson", "1\n\n{\"a\":}\n", nil, 400, "line 3"},
		{"no messages", "c/messages", "application/json", `{"messages":[]}`, nil, 400, "messages"},
		{"empty event of lines", "c/events", "application/x-ndjson", "\n\n", nil, 400, "NO_MESSAGES"},
		{"content type", "c/messages", "text/plain", `{"messages":[{"value":1}]}`, nil, 415, "events"},
		{"encoding", "c/events", "", "x", []string{"Content-Encoding", "br"}, 415, "gzip"},
		{"bad gzip", "c/events", "", "x", []string{"Content-Encoding", "gzip"}, 400, "gzip"},
		{"value too large", "c/messages", "application/json", `{"messages":[{"value":"` + big + `"}]}`, nil, 413, "MESSAGE_TOO_LARGE"},
		{"body too large", "c/events", "", strings.Repeat("x", 5<<20), nil, 413, "REQUEST_TOO_LARGE"},
		{"some too large", "c/messages", "application/json", `{"messages":[{"value":"` + big + `"},{"value":1}]}`, nil, 207, "MESSAGE_TOO_LARGE"},
		{"tombstone without key", "c/messages", "application/json", `{"messages":[{}]}`, nil, 400, "TOMBSTONE_WITHOUT_KEY"},
		{"paused", "paused/messages", "application/json", `{"messages":[{"value":1}]}`, nil, 503, "CHANNEL_PAUSED"},
		{"unknown field", "c/messages", "application/json", `{"messages":[{"valu":1}]}`, nil, 400, "value"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, answer, header := r.post("/v1/channels/"+tc.path, tc.contentType, tc.body, tc.headers...)
			if status != tc.status || !strings.Contains(answer, tc.contains) {
				t.Fatalf("status %d, want %d, with %q: %s", status, tc.status, tc.contains, answer)
			}
			if status == 503 && header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
		})
	}
}

func TestConfigChangeKeepsOrder(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", &databusv1.ChannelConfig{Routes: []*databusv1.Route{{Topic: "a"}},
		Batch: &databusv1.Batch{Linger: durationpb.New(time.Hour)}})
	release := r.broker.Hold("a")
	first := make(chan int, 1)
	go func() {
		status, _, _ := r.post("/v1/channels/c/messages", "application/json", `{"messages":[{"key":"k","value":1}]}`)
		first <- status
	}()
	waitFor(t, func() bool { return pendingOf(r) > 0 })
	rev := r.broker.SetChannel("c", &databusv1.ChannelConfig{Routes: []*databusv1.Route{{Topic: "b"}}})
	r.broker.AwaitReport(func(q *databusv1.ReportAgentRequest) bool {
		for _, c := range q.Channels {
			if c.Revision == rev {
				return true
			}
		}
		return false
	})
	second := make(chan int, 1)
	go func() {
		status, _, _ := r.post("/v1/channels/c/messages", "application/json", `{"messages":[{"key":"k","value":2}]}`)
		second <- status
	}()
	before := pendingOf(r)
	waitFor(t, func() bool { return pendingOf(r) > before })
	if n := r.broker.Appends(); n != 0 {
		t.Fatalf("%d appends before the old topic answered", n)
	}
	release()
	if s := <-first; s != 200 {
		t.Fatalf("first: %d", s)
	}
	if s := <-second; s != 200 {
		t.Fatalf("second: %d", s)
	}
	if n := len(r.broker.Await("b", 1)); n != 4 {
		t.Fatalf("b has %d partitions", n)
	}
}

func pendingOf(r *rig) int64 {
	var n int64
	for _, c := range r.agent.publisher.Reports() {
		n += c.PendingBytes
	}
	return n
}

// waitFor polls a condition that has no signal of its own.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("the test ended first")
		}
	}
}

func TestBrokerRestartLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", nil)
	const writers, each = 8, 60
	failures := make(chan string, writers*each)
	done := make(chan struct{})
	for w := range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range each {
				body := fmt.Sprintf(`{"messages":[{"key":"w%d","value":%d}]}`, w, i)
				res, err := http.Post(r.url+"/v1/channels/c/messages", "application/json", strings.NewReader(body))
				if err != nil {
					failures <- err.Error()
					return
				}
				answer, _ := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusOK {
					failures <- string(answer)
				}
			}
		}()
	}
	r.broker.AwaitAppends(20)
	r.broker.Down()
	r.broker.Up()
	for range writers {
		<-done
	}
	close(failures)
	for f := range failures {
		t.Error(f)
	}
	next := map[string]int{}
	for _, p := range r.broker.Await("c", writers*each) {
		for _, rec := range p {
			if string(rec.Value) != fmt.Sprint(next[string(rec.Key)]) {
				t.Fatalf("%s: got %s, want %d", rec.Key, rec.Value, next[string(rec.Key)])
			}
			next[string(rec.Key)]++
		}
	}
	for k, n := range next {
		if n != each {
			t.Errorf("%s has %d messages, want %d", k, n, each)
		}
	}
}

func TestBufferedAnswersAtOnceAndDrains(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", &databusv1.ChannelConfig{Durability: databusv1.Durability_DURABILITY_BUFFERED,
		Batch: &databusv1.Batch{Linger: durationpb.New(time.Hour)}})
	got := results(t, r.want(202, "/v1/channels/c/messages", "application/json", `{"messages":[{"value":1},{"value":2}]}`))
	if len(got) != 2 || got[0].Offset != nil || got[0].Timestamp == "" {
		t.Fatalf("%+v", got)
	}
	r.halt()
	r.broker.Await("c", 2)
}

func TestStartsWithoutBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, func(c *Config) { c.DataDir = dir })
	rev := r.broker.SetChannel("c", &databusv1.ChannelConfig{Retry: &databusv1.Retry{DeliveryTimeout: durationpb.New(200 * time.Millisecond)}})
	r.want(200, "/v1/channels/c/messages", "application/json", `{"messages":[{"value":1}]}`)
	r.broker.AwaitReport(func(q *databusv1.ReportAgentRequest) bool {
		return len(q.Channels) == 1 && q.Channels[0].Revision == rev
	})
	r.halt()
	r.broker.Down()

	again := startOn(t, r.broker, func(c *Config) { c.DataDir = dir })
	status, answer, header := again.post("/v1/channels/c/messages", "application/json", `{"messages":[{"key":"k","value":2}]}`)
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(answer, "BROKER_UNAVAILABLE") {
		t.Fatalf("%d %s", status, answer)
	}
	if status, answer, _ = again.post("/v1/channels/other/messages", "application/json", `{"messages":[{"value":2}]}`); status != 503 {
		t.Fatalf("%d %s", status, answer)
	}
	r.broker.Up()
	waitFor(t, func() bool {
		status, _, _ := again.post("/v1/channels/c/messages", "application/json", `{"messages":[{"key":"k","value":3}]}`)
		return status == 200
	})
}

func TestConnectErrorsAreCoded(t *testing.T) {
	t.Parallel()
	r := start(t)
	cc := databusv1connect.NewPublishServiceClient(http.DefaultClient, r.url, connect.WithProtoJSON())
	_, err := cc.Publish(t.Context(), &databusv1.PublishRequest{Channel: "nope", Messages: []*databusv1.Message{{Value: []byte("1")}}})
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Fatal(err)
	}
	var bulk bytes.Buffer
	bulk.WriteString(`{"requests":[{"channel":"nope","messages":[{"value":1}]}]}`)
	if answer := r.want(200, "/v1/messages:bulk", "application/json", bulk.String()); !strings.Contains(answer, "CHANNEL_NOT_FOUND") {
		t.Fatal(answer)
	}
}

func TestTraceReachesTheRecords(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", nil)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	r.want(200, "/v1/channels/c/events", "text/plain", "rest", "traceparent", parent, "baggage", "tenant=a", "Databus-Key", "k")
	r.want(200, "/v1/channels/c/messages", "application/json", `{"messages":[{"key":"k","value":1,"headers":{"traceparent":"mine"}}]}`, "traceparent", parent)
	conn, err := grpc.NewClient(r.agent.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent)
	if _, err := databusv1.NewPublishServiceClient(conn).Publish(ctx, &databusv1.PublishRequest{Channel: "c",
		Messages: []*databusv1.Message{{Key: []byte("k"), Value: []byte("grpc")}}}); err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"baggage=tenant=a", "traceparent=" + parent}, {"traceparent=mine"}, {"traceparent=" + parent}}
	for _, p := range r.broker.Await("c", 3) {
		for i, rec := range p {
			var got []string
			for _, h := range rec.Headers {
				got = append(got, h.Key+"="+string(h.Value))
			}
			slices.Sort(got)
			if !slices.Equal(got, want[i]) {
				t.Errorf("message %d: headers %q, want %q", i, got, want[i])
			}
		}
	}
}

// TestIdleAndSlowConnections holds many connections that say little while others publish.
func TestIdleAndSlowConnections(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.broker.SetChannel("c", nil)
	for i := range 300 {
		conn, err := net.Dial("tcp", r.agent.HTTPAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		switch i % 3 {
		case 1: // stops inside the header
			fmt.Fprint(conn, "POST /v1/channels/c/events HTTP/1.1\r\nHost:")
		case 2: // claims much and sends little
			fmt.Fprint(conn, "POST /v1/channels/c/events HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\n\r\nx")
		}
	}
	writers(t, r.url, "c", 4, 10, nil)
	if used := r.agent.memory.Used(); used > 1<<20 {
		t.Errorf("%d bytes are held for connections that sent nothing", used)
	}
}
