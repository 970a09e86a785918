package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/rawcodec"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/broker"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"))
}

// world is a broker over directories that outlive it.
type world struct {
	t    *testing.T
	dir  string
	http *http.Client
	conn *grpc.ClientConn
	base string
	deps broker.Deps

	stop context.CancelFunc
	done chan error
}

func config(dir string) broker.Config {
	return broker.Config{HTTPAddr: "127.0.0.1:0", GRPCAddr: "127.0.0.1:0", DataDirs: []string{dir}, MemoryBytes: 64 << 20}
}

func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), http: &http.Client{Transport: &http.Transport{}}}
	w.run()
	t.Cleanup(func() { w.halt() })
	return w
}

func (w *world) run() {
	w.t.Helper()
	b, err := broker.New(w.t.Context(), config(w.dir), w.deps)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := b.Listen(); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop, w.done, w.base = cancel, make(chan error, 1), "http://"+b.HTTPAddr()
	go func() { w.done <- b.Run(ctx) }()
	w.conn, err = grpc.NewClient(b.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{}), grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		w.t.Fatal(err)
	}
}

// halt stops the broker as SIGTERM does.
func (w *world) halt() {
	w.t.Helper()
	if w.stop == nil {
		return
	}
	w.http.CloseIdleConnections()
	w.stop()
	if err := <-w.done; err != nil {
		w.t.Errorf("stop: %v", err)
	}
	_ = w.conn.Close()
	w.stop = nil
}

// rest calls the REST API and returns status and body.
func (w *world) rest(method, path, body string) (int, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := w.http.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// must is rest where only 200 will do; the answer is decoded into out, unless that is nil.
func (w *world) must(method, path, body string, out any) string {
	w.t.Helper()
	status, answer := w.rest(method, path, body)
	if status != http.StatusOK {
		w.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(answer), out); err != nil {
			w.t.Fatalf("%s %s: %s: %v", method, path, answer, err)
		}
	}
	return answer
}

func batch(t *testing.T, codec recordbatch.Codec, messages ...string) []byte {
	t.Helper()
	b := recordbatch.NewBuilder(recordbatch.BuilderOptions{Codec: codec})
	for i, m := range messages {
		b.Append(int64(1000+i), fmt.Appendf(nil, "k%d", i), []byte(m), []recordbatch.RecordHeader{{Key: "h", Value: []byte("v")}})
	}
	out, err := b.Build(nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *world) logs() brokerv1.LogServiceClient { return brokerv1.NewLogServiceClient(w.conn) }

func (w *world) append(topic string, partition int32, messages ...string) *brokerv1.AppendResponse {
	w.t.Helper()
	res, err := w.logs().Append(w.t.Context(), &brokerv1.AppendRequest{Topic: topic, Partition: partition, Batches: batch(w.t, recordbatch.Zstd, messages...)})
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

type messages struct {
	Messages []struct {
		Offset    string
		Key       string
		Value     json.RawMessage
		Headers   map[string]string
		Timestamp time.Time
	}
	HighWatermark, LogStartOffset, NextOffset string
}

func TestAppendedMessagesComeBack(t *testing.T) {
	t.Parallel()
	w := start(t)
	var topic struct {
		Name, ID   string
		Partitions int
		Config     struct{ Retention string }
	}
	w.must("POST", "/v1/topics", `{"name":"orders","partitions":2}`, &topic)
	if topic.Name != "orders" || topic.Partitions != 2 || topic.ID == "" || topic.Config.Retention != "604800s" {
		t.Errorf("created %+v", topic)
	}
	for i, codec := range []recordbatch.Codec{recordbatch.None, recordbatch.Gzip, recordbatch.Snappy, recordbatch.LZ4, recordbatch.Zstd} {
		res, err := w.logs().Append(t.Context(), &brokerv1.AppendRequest{Topic: "orders", Partition: 1, Batches: batch(t, codec, `{"n": 1.0}`, `"two"`, `not json`)})
		if err != nil || res.GetBaseOffset() != int64(i*3) || res.GetLastOffset() != int64(i*3+2) {
			t.Fatalf("append %v: %v %v", codec, res, err)
		}
	}
	var got messages
	answer := w.must("GET", "/v1/topics/orders/partitions/1/messages?offset=4&limit=3", "", &got)
	if len(got.Messages) != 3 || got.Messages[0].Offset != "4" || got.HighWatermark != "15" || got.LogStartOffset != "0" || got.NextOffset != "7" {
		t.Errorf("read %s", answer)
	}
	if m := got.Messages[0]; string(m.Value) != `"two"` || m.Key != "k1" || m.Headers["h"] != "v" || m.Timestamp.UnixMilli() != 1001 {
		t.Errorf("message %+v", m)
	}
	if !strings.Contains(answer, `"value":{"n": 1.0}`) || !strings.Contains(answer, `"valueBase64":"bm90IGpzb24="`) {
		t.Errorf("payloads must be kept byte for byte: %s", answer)
	}
	w.halt()
	w.run()
	if again := w.must("GET", "/v1/topics/orders/partitions/1/messages?offset=4&limit=3", "", nil); again != answer {
		t.Errorf("after a restart: %s", again)
	}
}

func TestReadFromAnywhere(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	for range 3 {
		w.append("t", 0, `1`, `2`, `3`, `4`)
	}
	for query, want := range map[string]string{
		"":                                    "0-11 12",
		"?offset=earliest":                    "0-11 12",
		"?offset=latest":                      "none 12",
		"?offset=12":                          "none 12",
		"?offset=7":                           "7-11 12",
		"?offset=2&limit=1":                   "2-2 3",
		"?maxBytes=10":                        "0-1 2", // each has 5 bytes: k0 1 h v
		"?maxBytes=1":                         "0-0 1",
		"?timestamp=1970-01-01T00:00:01.003Z": "3-11 12",
		"?timestamp=1970-01-01T00:00:02Z":     "none 12",
		"?offset=latest&wait=10ms":            "none 12",
	} {
		var got messages
		w.must("GET", "/v1/topics/t/partitions/0/messages"+query, "", &got)
		text := "none"
		if n := len(got.Messages); n > 0 {
			text = got.Messages[0].Offset + "-" + got.Messages[n-1].Offset
		}
		if text += " " + got.NextOffset; text != want {
			t.Errorf("%q reads %s, want %s", query, text, want)
		}
	}
}

func TestReadWaitsForTheFirstMessage(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	read := make(chan string)
	go func() {
		_, answer := w.rest("GET", "/v1/topics/t/partitions/0/messages?offset=0&wait=60s", "")
		read <- answer
	}()
	w.append("t", 0, `"woken"`)
	if answer := <-read; !strings.Contains(answer, `"woken"`) {
		t.Errorf("the read ended with %s", answer)
	}
}

// TestBadInput is the table of refusals: status, reason, field.
func TestBadInput(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	w.must("POST", "/v1/channels", `{"name":"c"}`, nil)
	for _, tc := range []struct {
		method, path, body string
		status             int
		reason, field      string
	}{
		{"POST", "/v1/topics", `{"name":"t"}`, 409, "TOPIC_EXISTS", "name"},
		{"POST", "/v1/topics", `{"name":"a b"}`, 400, "", "name"},
		{"POST", "/v1/topics", `{"name":".."}`, 400, "", "name"},
		{"POST", "/v1/topics", `{"name":""}`, 400, "", "name"},
		{"POST", "/v1/topics", `{"name":"x","partitions":-1}`, 400, "", "partitions"},
		{"POST", "/v1/topics", `{"name":"x","partitions":10001}`, 400, "", "partitions"},
		{"POST", "/v1/topics", `{"name":"x","config":{"segmentBytes":"100"}}`, 400, "TOPIC_CONFIG", "config.segmentBytes"},
		{"POST", "/v1/topics", `{"name":"x","partitons":1}`, 400, "UNKNOWN_FIELD", "partitons"},
		{"POST", "/v1/topics", `{"name":`, 400, "MALFORMED_JSON", "name"},
		{"GET", "/v1/topics/nosuch", "", 404, "TOPIC_NOT_FOUND", ""},
		{"DELETE", "/v1/topics/nosuch", "", 404, "TOPIC_NOT_FOUND", ""},
		{"PATCH", "/v1/topics/t", `{"updateMask":"retenton","config":{}}`, 400, "UPDATE_MASK", "updateMask"},
		{"GET", "/v1/topics?pageToken=***", "", 400, "INVALID_FIELD", "pageToken"},
		{"GET", "/v1/topics/nosuch/partitions/0/messages", "", 404, "TOPIC_NOT_FOUND", ""},
		{"GET", "/v1/topics/t/partitions/1/messages", "", 404, "PARTITION_NOT_FOUND", "partition"},
		{"GET", "/v1/topics/t/partitions/0/messages?offset=1", "", 400, "OFFSET_OUT_OF_RANGE", "offset"},
		{"GET", "/v1/topics/t/partitions/0/messages?offset=-1", "", 400, "INVALID_FIELD", "offset"},
		{"GET", "/v1/topics/t/partitions/0/messages?offset=first", "", 400, "INVALID_FIELD", "offset"},
		{"GET", "/v1/topics/t/partitions/0/messages?offset=0&timestamp=2020-01-01T00:00:00Z", "", 400, "INVALID_FIELD", "timestamp"},
		{"GET", "/v1/topics/t/partitions/0/messages?limit=10001", "", 400, "", "limit"},
		{"POST", "/v1/topics/t/partitions/0:deleteRecords", `{"beforeOffset":"5"}`, 400, "OFFSET_OUT_OF_RANGE", "beforeOffset"},
		{"POST", "/v1/channels", `{"name":"c"}`, 409, "CHANNEL_EXISTS", "name"},
		{"POST", "/v1/channels", `{"name":"a/b"}`, 400, "", "name"},
		{"POST", "/v1/channels", `{"name":".."}`, 400, "CHANNEL_NAME", "name"},
		{"POST", "/v1/channels", `{"name":"x","config":{"keyPath":"$..id"}}`, 400, "CHANNEL_CONFIG", "config.keyPath"},
		{"POST", "/v1/channels", `{"name":"x","config":{"compression":{"codec":"LZMA"}}}`, 400, "", "config.compression.codec"},
		{"POST", "/v1/channels", `{"name":"x","config":{"compression":{"codec":"SNAPPY","level":1}}}`, 400, "CHANNEL_CONFIG", "config.compression.level"},
		{"POST", "/v1/channels", `{"name":"x","config":{"routes":[{"topic":"a"},{"topic":"b c"}]}}`, 400, "TOPIC_NAME", "config.routes[1].topic"},
		{"POST", "/v1/channels", `{"name":"x","config":{"routes":[{"topic":"a","when":"key"}]}}`, 400, "CHANNEL_CONFIG", "config.routes[0].when"},
		{"POST", "/v1/channels", `{"name":"x","config":{"batch":{"linger":"11s"}}}`, 400, "", "config.batch.linger"},
		{"POST", "/v1/channels", `{"name":"x","config":{"bacth":{}}}`, 400, "UNKNOWN_FIELD", "config.bacth"},
		{"PATCH", "/v1/channels/c", `{"config":{"keyPath":"id"},"updateMask":"keyPath"}`, 400, "CHANNEL_CONFIG", "config.keyPath"},
		{"PATCH", "/v1/channels/c", `{"config":{},"revision":"9"}`, 409, "REVISION_CONFLICT", "revision"},
		{"POST", "/v1/channels/c:rollback", `{"revision":"9"}`, 404, "REVISION_NOT_FOUND", "revision"},
		{"POST", "/v1/channels/c:promote", `{}`, 400, "NO_CANARY", ""},
		{"GET", "/v1/channels/nosuch", "", 404, "CHANNEL_NOT_FOUND", ""},
		{"GET", "/v1/channels/nosuch:history", "", 404, "CHANNEL_NOT_FOUND", ""},
		{"GET", "/v1/channels/nosuch:status", "", 404, "CHANNEL_NOT_FOUND", ""},
		{"DELETE", "/v1/channels/nosuch", "", 404, "CHANNEL_NOT_FOUND", ""},
		{"POST", "/v1/directories:restore", `{"path":"/nosuch"}`, 404, "DIRECTORY_NOT_FOUND", "path"},
	} {
		status, answer := w.rest(tc.method, tc.path, tc.body)
		reason, field, next := details(t, answer)
		if status != tc.status || tc.reason != "" && reason != tc.reason || field != tc.field {
			t.Errorf("%s %s %s: %d %s %q, want %d %s %q: %s", tc.method, tc.path, tc.body, status, reason, field, tc.status, tc.reason, tc.field, answer)
		}
		if status == http.StatusNotFound && next == "" {
			t.Errorf("%s %s: no next step: %s", tc.method, tc.path, answer)
		}
	}
}

func details(t *testing.T, answer string) (reason, field, next string) {
	t.Helper()
	var status struct {
		Details []struct {
			Reason          string
			Metadata        map[string]string
			FieldViolations []struct{ Field string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &status); err != nil {
		t.Fatalf("%s is no status: %v", answer, err)
	}
	for _, d := range status.Details {
		if d.Reason != "" {
			reason, next = d.Reason, d.Metadata["nextStep"]
		}
		if len(d.FieldViolations) > 0 {
			field = d.FieldViolations[0].Field
		}
	}
	return reason, field, next
}

func TestAppendRefusals(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1,"config":{"maxBatchBytes":1000}}`, nil)
	good := batch(t, recordbatch.None, "x")
	broken := append([]byte(nil), good...)
	broken[len(broken)-1] ^= 1
	for name, tc := range map[string]struct {
		req    *brokerv1.AppendRequest
		code   errs.Code
		reason string
	}{
		"unknown topic":     {&brokerv1.AppendRequest{Topic: "nosuch", Batches: good}, errs.NotFound, "TOPIC_NOT_FOUND"},
		"unknown partition": {&brokerv1.AppendRequest{Topic: "t", Partition: 1, Batches: good}, errs.NotFound, "PARTITION_NOT_FOUND"},
		"nothing":           {&brokerv1.AppendRequest{Topic: "t"}, errs.Invalid, "INVALID_BATCH"},
		"checksum":          {&brokerv1.AppendRequest{Topic: "t", Batches: broken}, errs.Invalid, "INVALID_BATCH"},
		"cut":               {&brokerv1.AppendRequest{Topic: "t", Batches: good[:len(good)-1]}, errs.Invalid, "INVALID_BATCH"},
		"too large":         {&brokerv1.AppendRequest{Topic: "t", Batches: batch(t, recordbatch.None, strings.Repeat("x", 2000))}, errs.TooLarge, "BATCH_TOO_LARGE"},
		"leader epoch":      {&brokerv1.AppendRequest{Topic: "t", LeaderEpoch: 99, Batches: good}, errs.Conflict, "LEADER_EPOCH"},
	} {
		_, err := w.logs().Append(t.Context(), tc.req)
		if e := errs.From(err); err == nil || e.Code != tc.code || e.Reason != tc.reason {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSecondBrokerRefuses: one data directory, one broker.
func TestSecondBrokerRefuses(t *testing.T) {
	t.Parallel()
	w := start(t)
	_, err := broker.New(t.Context(), config(w.dir), broker.Deps{})
	if err == nil || !strings.Contains(err.Error(), w.dir) {
		t.Errorf("a second broker on %s: %v", w.dir, err)
	}
}

func TestStopEndsLongWaits(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	stream, err := w.logs().FetchStream(t.Context(), &brokerv1.FetchStreamRequest{Topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	w.append("t", 0, "x")
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	appends, err := w.logs().AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := appends.Send(&brokerv1.AppendStreamRequest{Topic: "t", Sequence: 7, Batches: batch(t, recordbatch.None, "y")}); err != nil {
		t.Fatal(err)
	}
	if res, err := appends.Recv(); err != nil || res.GetSequence() != 7 || res.GetError() != nil || res.GetBaseOffset() != 1 {
		t.Fatalf("append: %v %v", res, err)
	}
	w.halt() // would take the whole drain timeout, and report it, if a stream held it up
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	if e := errs.From(err); e.Reason != "SHUTTING_DOWN" || !e.Retryable {
		t.Errorf("the fetch stream ended with %v", err)
	}
	if _, err := appends.Recv(); errors.Is(err, io.EOF) || errs.From(err).Reason != "SHUTTING_DOWN" {
		t.Errorf("the append stream ended with %v", err)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{Service: "databus-broker"})
	if err != nil {
		t.Fatal(err)
	}
	defer tel.Shutdown(context.Background()) //nolint:errcheck // nothing is exported
	w := &world{t: t, dir: t.TempDir(), http: &http.Client{Transport: &http.Transport{}}, deps: broker.Deps{Telemetry: tel}}
	w.run()
	defer w.halt()
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	w.append("t", 0, "a", "b")
	w.must("GET", "/v1/topics/t/partitions/0/messages", "", nil)
	_, answer := w.rest("GET", "/metrics", "")
	for _, want := range []string{
		`databus_broker_appended_messages_total{ack="DURABLE",topic="t"} 2`,
		`databus_broker_append_seconds_count{ack="DURABLE",topic="t"} 1`,
		`databus_broker_high_watermark{partition="0",topic="t"} 2`,
		`databus_broker_fetched_bytes_total{source="memory",topic="t"}`,
		`databus_broker_directory_healthy{directory="` + w.dir + `"} 1`,
		`databus_broker_sync_seconds_count{directory="` + w.dir + `"`,
	} {
		if !strings.Contains(answer, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(answer, "\n") {
		name, ok := strings.CutPrefix(line, "# TYPE databus_broker_")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		if !strings.Contains(string(doc), "`databus_broker_"+name+"`") {
			t.Errorf("docs/metrics.md lacks databus_broker_%s", name)
		}
	}
}
