package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/gen/go/databus/broker/v1/brokerv1connect"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/recordbatch"
	"github.com/databus-suite/databus/internal/wirejson"
)

// h2c is a client that speaks HTTP/2 without TLS, which streams in both directions need.
func (w *world) h2c() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// appender is an append stream of either protocol.
type appender interface {
	Send(*brokerv1.AppendStreamRequest) error
	Recv() (*brokerv1.AppendStreamResponse, error)
	CloseSend() error
}

type connectAppender struct {
	*connect.BidiStreamForClientSimple[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]
}

func (a connectAppender) Recv() (*brokerv1.AppendStreamResponse, error) { return a.Receive() }
func (a connectAppender) CloseSend() error                              { return a.CloseRequest() }

func (w *world) appenders() map[string]appender {
	w.t.Helper()
	viaGRPC, err := w.logs().AppendStream(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	viaConnect, err := brokerv1connect.NewLogServiceClient(w.h2c(), w.base).AppendStream(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return map[string]appender{"grpc": viaGRPC, "connect": connectAppender{viaConnect}}
}

// TestAppendStream: requests are pipelined over two partitions; each is answered once, in order within its partition, an
// error is an answer, and the stream ends when the client is done and all is answered.
func TestAppendStream(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"grpc","partitions":2}`, nil)
	w.must("POST", "/v1/topics", `{"name":"connect","partitions":2}`, nil)
	const rounds = 3000 // more than may be in flight
	for name, stream := range w.appenders() {
		go func() {
			for n := range rounds {
				req := &brokerv1.AppendStreamRequest{Partition: int32(n % 2), Sequence: int64(n), Batches: batch(t, recordbatch.None, fmt.Sprint(n))}
				if n == 0 {
					req.Topic = name // the others take it from here
				}
				if n%100 == 99 {
					req.Partition = 9
				}
				if err := stream.Send(req); err != nil {
					t.Errorf("%s: send: %v", name, err)
					return
				}
			}
			_ = stream.CloseSend()
		}()
		seen, next := map[int64]bool{}, map[int64]int64{}
		for {
			res, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if seen[res.GetSequence()] {
				t.Fatalf("%s: %d was answered twice", name, res.GetSequence())
			}
			seen[res.GetSequence()] = true
			if res.GetSequence()%100 == 99 {
				if e := errs.FromProto(res.GetError()); e == nil || e.Reason != "PARTITION_NOT_FOUND" {
					t.Fatalf("%s: answer %v", name, res)
				}
				continue
			}
			p := res.GetSequence() % 2
			if res.GetError() != nil || res.GetBaseOffset() != next[p] {
				t.Fatalf("%s: answer %v, want offset %d", name, res, next[p])
			}
			next[p]++
		}
		if len(seen) != rounds {
			t.Errorf("%s: %d answers, want %d", name, len(seen), rounds)
		}
	}
}

func TestFetch(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	w.append("t", 0, "a", "b")
	w.append("t", 0, "c")
	viaConnect := brokerv1connect.NewLogServiceClient(w.h2c(), w.base)
	for name, fetch := range map[string]func(*brokerv1.FetchRequest) (*brokerv1.FetchResponse, error){
		"grpc": func(r *brokerv1.FetchRequest) (*brokerv1.FetchResponse, error) { return w.logs().Fetch(t.Context(), r) },
		"connect": func(r *brokerv1.FetchRequest) (*brokerv1.FetchResponse, error) {
			return viaConnect.Fetch(t.Context(), r)
		},
	} {
		res, err := fetch(&brokerv1.FetchRequest{Topic: "t", Offset: 1})
		if err != nil || res.GetNextOffset() != 3 || res.GetHighWatermark() != 3 || values(t, res.GetBatches()) != "a b c" {
			t.Errorf("%s: %v %v", name, res, err)
		}
		res, err = fetch(&brokerv1.FetchRequest{Topic: "t", Offset: 3, MaxWait: durationpb.New(time.Millisecond)})
		if err != nil || res.GetNextOffset() != 3 || len(res.GetBatches()) != 0 {
			t.Errorf("%s at the end: %v %v", name, res, err)
		}
		_, err = fetch(&brokerv1.FetchRequest{Topic: "t", Offset: 4})
		if e := errs.From(err); e.Code != errs.OutOfRange || e.Meta["highWatermark"] != "3" {
			t.Errorf("%s past the end: %v", name, err)
		}
	}
}

func values(t *testing.T, batches []byte) string {
	t.Helper()
	var list []string
	for len(batches) > 0 {
		one, rest, err := recordbatch.Split(batches)
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range recordbatch.Records(one, 0) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, string(r.Value))
		}
		batches = rest
	}
	return strings.Join(list, " ")
}

func TestFetchStream(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	w.append("t", 0, "a", "b")
	req := &brokerv1.FetchStreamRequest{Topic: "t", Offset: 1, Heartbeat: durationpb.New(10 * time.Millisecond)}
	viaGRPC, err := w.logs().FetchStream(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	viaConnect, err := brokerv1connect.NewLogServiceClient(w.h2c(), w.base).FetchStream(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	streams := map[string]func() (*brokerv1.FetchStreamResponse, error){
		"grpc": viaGRPC.Recv,
		"connect": func() (*brokerv1.FetchStreamResponse, error) {
			if !viaConnect.Receive() {
				return nil, viaConnect.Err()
			}
			return viaConnect.Msg(), nil
		},
	}
	for name, recv := range streams {
		if res, err := recv(); err != nil || values(t, res.GetBatches()) != "a b" || res.GetNextOffset() != 2 {
			t.Errorf("%s: %v %v", name, res, err)
		}
		if res, err := recv(); err != nil || len(res.GetBatches()) != 0 || res.GetHighWatermark() != 2 {
			t.Errorf("%s heartbeat: %v %v", name, res, err)
		}
	}
	w.append("t", 0, "c")
	for name, recv := range streams {
		for {
			res, err := recv()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(res.GetBatches()) > 0 {
				if got := values(t, res.GetBatches()); got != "c" {
					t.Errorf("%s: then %s", name, got)
				}
				break
			}
		}
	}
	w.must("DELETE", "/v1/topics/t", "", nil)
	for name, recv := range streams {
		for err = nil; err == nil; _, err = recv() {
			continue
		}
		if errs.From(err).Reason != "TOPIC_NOT_FOUND" {
			t.Errorf("%s: the topic was deleted, the stream says %v", name, err)
		}
	}
}

func (w *world) follow(ctx context.Context, req *brokerv1.FollowMessagesRequest) func() string {
	w.t.Helper()
	stream, err := brokerv1.NewReadServiceClient(w.conn).FollowMessages(ctx, req)
	if err != nil {
		w.t.Fatal(err)
	}
	return func() string {
		res, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return "end"
		}
		if err != nil {
			return errs.From(err).Reason
		}
		var list []string
		for _, m := range res.GetMessages() {
			list = append(list, fmt.Sprintf("%d:%s", m.GetOffset(), m.GetValue()))
		}
		return fmt.Sprintf("%d %s", res.GetPartition(), strings.Join(list, " "))
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	w.append("t", 0, "a", "b")
	next := w.follow(t.Context(), &brokerv1.FollowMessagesRequest{Topic: "t", Offset: "earliest"})
	expect := func(want string) {
		t.Helper()
		if got := next(); got != want {
			t.Fatalf("followed %q, want %q", got, want)
		}
	}
	expect("0 0:a 1:b")
	w.append("t", 0, "c")
	expect("0 2:c")
	w.must("PATCH", "/v1/topics/t", `{"partitions":2}`, nil)
	w.append("t", 1, "d")
	expect("1 0:d")
	w.must("DELETE", "/v1/topics/t", "", nil)
	expect("TOPIC_NOT_FOUND")
}

func TestFollowUpToTheEnd(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":3}`, nil)
	w.append("t", 0, "a", "b", "c")
	w.append("t", 2, "d")
	next := w.follow(t.Context(), &brokerv1.FollowMessagesRequest{Topic: "t", Offset: "earliest", StopAtEnd: true})
	got := []string{next(), next()}
	if got[0] > got[1] {
		got[0], got[1] = got[1], got[0]
	}
	if got[0] != "0 0:a 1:b 2:c" || got[1] != "2 0:d" {
		t.Errorf("followed %q", got)
	}
	if end := next(); end != "end" {
		t.Errorf("then %q", end)
	}
	next = w.follow(t.Context(), &brokerv1.FollowMessagesRequest{Topic: "t", Partitions: []int32{0}, Offset: "2", StopAtEnd: true})
	if got := next(); got != "0 2:c" {
		t.Errorf("one partition from an offset: %q", got)
	}
	next = w.follow(t.Context(), &brokerv1.FollowMessagesRequest{Topic: "t", Timestamp: timestamppb.New(time.UnixMilli(1002)), StopAtEnd: true})
	if got := next(); got != "0 2:c" {
		t.Errorf("from a time: %q", got)
	}
	for want, req := range map[string]*brokerv1.FollowMessagesRequest{
		"TOPIC_NOT_FOUND":     {Topic: "nosuch"},
		"PARTITION_NOT_FOUND": {Topic: "t", Partitions: []int32{3}},
		"INVALID_FIELD":       {Topic: "t", Offset: "1"},
		"OFFSET_OUT_OF_RANGE": {Topic: "t", Partitions: []int32{0}, Offset: "9"},
	} {
		if got := w.follow(t.Context(), req)(); got != want {
			t.Errorf("%v: %q, want %q", req, got, want)
		}
	}
}

func TestListOffsets(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":2}`, nil)
	w.append("t", 1, "a", "b", "c")
	w.must("POST", "/v1/topics/t/partitions/1:deleteRecords", `{"beforeOffset":"1"}`, nil)
	for want, req := range map[string]*brokerv1.ListOffsetsRequest{
		"0:0 1:1":      {At: &brokerv1.ListOffsetsRequest_Earliest{Earliest: true}},
		"0:0 1:3":      {At: &brokerv1.ListOffsetsRequest_Latest{Latest: true}},
		"1:2@1002":     {Partitions: []int32{1}, At: &brokerv1.ListOffsetsRequest_Timestamp{Timestamp: timestamppb.New(time.UnixMilli(1002))}},
		"1:0 0:0 none": {Partitions: []int32{1, 2}},
	} {
		req.Topic = "t"
		res, err := w.logs().ListOffsets(t.Context(), req)
		if strings.HasSuffix(want, "none") {
			if errs.From(err).Reason != "PARTITION_NOT_FOUND" {
				t.Errorf("%v: %v", req, err)
			}
			continue
		}
		var list []string
		for _, o := range res.GetOffsets() {
			text := fmt.Sprintf("%d:%d", o.GetPartition(), o.GetOffset())
			if o.GetTimestamp() != nil {
				text += fmt.Sprintf("@%d", o.GetTimestamp().AsTime().UnixMilli())
			}
			list = append(list, text)
		}
		if got := strings.Join(list, " "); got != want || res.GetTopicId() == "" || err != nil {
			t.Errorf("%v: %s %v, want %s", req, got, err, want)
		}
	}
}

func TestInitProducerAndDuplicates(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	first, err := w.logs().InitProducer(t.Context(), &brokerv1.InitProducerRequest{Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.logs().InitProducer(t.Context(), &brokerv1.InitProducerRequest{})
	if err != nil || second.GetProducerId() != first.GetProducerId()+3 {
		t.Errorf("ids %v then %v %v", first, second, err)
	}
	send := func(sequence int32) (*brokerv1.AppendResponse, error) {
		b := batch(t, recordbatch.None, "x")
		recordbatch.SetProducer(b, first.GetProducerId(), int16(first.GetProducerEpoch()), sequence)
		return w.logs().Append(t.Context(), &brokerv1.AppendRequest{Topic: "t", Batches: b})
	}
	if res, err := send(0); err != nil || res.GetDuplicate() {
		t.Fatal(res, err)
	}
	if res, err := send(0); err != nil || !res.GetDuplicate() || res.GetBaseOffset() != 0 {
		t.Errorf("the same again: %v %v", res, err)
	}
	if _, err := send(5); errs.From(err).Reason != "OUT_OF_ORDER_SEQUENCE" {
		t.Errorf("out of order: %v", err)
	}
}

// TestConnectSpeaksTheSuitesJSON: the same JSON as REST, on the same port.
func TestConnectSpeaksTheSuitesJSON(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.must("POST", "/v1/topics", `{"name":"t","partitions":1}`, nil)
	w.append("t", 0, `{"n": 1.0}`)
	status, answer := w.rest("POST", "/databus.broker.v1.ReadService/ReadMessages", `{"topic":"t","offset":"earliest"}`)
	if status != http.StatusOK || !strings.Contains(answer, `"value":{"n": 1.0}`) {
		t.Errorf("%d %s", status, answer)
	}
	channels := databusv1connect.NewChannelServiceClient(w.http, w.base, connect.WithProtoJSON(), wirejson.ConnectClientCodec())
	made, err := channels.CreateChannel(t.Context(), &databusv1.CreateChannelRequest{Name: "c"})
	if err != nil || made.GetChannel().GetRevision() != 1 {
		t.Fatal(made, err)
	}
	_, err = channels.CreateChannel(t.Context(), &databusv1.CreateChannelRequest{Name: "c"})
	if e := errs.From(err); e.Code != errs.AlreadyExists || e.Reason != "CHANNEL_EXISTS" {
		t.Errorf("%v", err)
	}
}

func TestChannelsOverTheWire(t *testing.T) {
	t.Parallel()
	w := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := databusv1.NewChannelServiceClient(w.conn)
	stream, err := client.WatchChannels(ctx, &databusv1.WatchChannelsRequest{Agent: &databusv1.AgentInfo{AgentId: "a1", Labels: map[string]string{"env": "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := stream.Recv(); err != nil || !e.GetSynced() {
		t.Fatal(e, err)
	}
	created := w.must("POST", "/v1/channels", `{"name":"orders","config":{"routes":[{"topic":"orders"}],"keyPath":"$.user.id","batch":{"linger":"5ms"},"compression":{"codec":"ZSTD"},"durability":"DURABLE"}}`, nil)
	for _, part := range []string{`"revision":"1"`, `"linger":"0.005s"`, `"codec":"ZSTD"`, `"durability":"DURABLE"`, `"keyPath":"$.user.id"`} {
		if !strings.Contains(created, part) {
			t.Errorf("created %s lacks %s", created, part)
		}
	}
	if e, err := stream.Recv(); err != nil || e.GetChanged().GetName() != "orders" {
		t.Fatal(e, err)
	}
	w.must("PATCH", "/v1/channels/orders", `{"config":{"batch":{"linger":"20ms"}},"updateMask":"batch.linger,keyPath"}`, nil)
	if e, err := stream.Recv(); err != nil || e.GetChanged().GetConfig().GetBatch().GetLinger().AsDuration() != 20*time.Millisecond || e.GetChanged().GetConfig().GetKeyPath() != "" {
		t.Fatal(e, err)
	}
	var history struct {
		Revisions []struct {
			Revision string
			Changes  []string
		}
	}
	answer := w.must("GET", "/v1/channels/orders:history", "", &history)
	if len(history.Revisions) != 2 || history.Revisions[0].Revision != "2" || len(history.Revisions[0].Changes) != 2 {
		t.Errorf("history %s", answer)
	}
	if answer := w.must("POST", "/v1/channels/orders:rollback", `{"revision":"1"}`, nil); !strings.Contains(answer, `"revision":"3"`) {
		t.Errorf("rolled back: %s", answer)
	}
	if e, err := stream.Recv(); err != nil || e.GetChanged().GetRevision() != 3 {
		t.Fatal(e, err)
	}
	if _, err := client.ReportAgent(ctx, &databusv1.ReportAgentRequest{Agent: &databusv1.AgentInfo{AgentId: "a1"}, Complete: true,
		Channels: []*databusv1.ChannelReport{{Channel: "orders", Revision: 3}}}); err != nil {
		t.Fatal(err)
	}
	if answer := w.must("GET", "/v1/channels/orders:status", "", nil); !strings.Contains(answer, `"agentId":"a1"`) {
		t.Errorf("status %s", answer)
	}
	w.must("DELETE", "/v1/channels/orders", "", nil)
	if e, err := stream.Recv(); err != nil || e.GetDeleted() != "orders" {
		t.Fatal(e, err)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	w := start(t)
	for _, name := range []string{"c", "a", "b"} {
		w.must("POST", "/v1/topics", `{"name":"`+name+`","partitions":1}`, nil)
	}
	var got []string
	token := ""
	for {
		var page struct {
			Topics        []struct{ Name string }
			NextPageToken string
		}
		w.must("GET", "/v1/topics?pageSize=2&pageToken="+token, "", &page)
		for _, topic := range page.Topics {
			got = append(got, topic.Name)
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	if strings.Join(got, "") != "abc" {
		t.Errorf("pages %q", got)
	}
}

func TestDirectories(t *testing.T) {
	t.Parallel()
	w := start(t)
	answer := w.must("GET", "/v1/directories", "", nil)
	if !strings.Contains(answer, `"state":"HEALTHY"`) || !strings.Contains(answer, w.dir) || !strings.Contains(answer, "freeBytes") {
		t.Errorf("directories %s", answer)
	}
	w.must("POST", "/v1/directories:restore", `{"path":"`+w.dir+`"}`, nil)
}
