package wirejson

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/gen/go/databus/broker/v1/brokerv1connect"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/internal/errs"
)

// service answers with what it was asked, as the text of the request.
type service struct {
	databusv1.UnimplementedChannelServiceServer
	brokerv1.UnimplementedReadServiceServer
}

func echo(ctx context.Context, m proto.Message) string {
	out, err := Append(nil, m)
	if err != nil {
		return err.Error()
	}
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		return string(out) + strings.Join(md.Get("traceparent"), ",")
	}
	return string(out)
}

func (service) UpdateChannel(ctx context.Context, r *databusv1.UpdateChannelRequest) (*databusv1.UpdateChannelResponse, error) {
	return &databusv1.UpdateChannelResponse{Channel: &databusv1.Channel{Name: echo(ctx, r)}}, nil
}

func (service) RollbackChannel(ctx context.Context, r *databusv1.RollbackChannelRequest) (*databusv1.RollbackChannelResponse, error) {
	return &databusv1.RollbackChannelResponse{Channel: &databusv1.Channel{Name: echo(ctx, r)}}, nil
}

func (service) GetChannel(_ context.Context, r *databusv1.GetChannelRequest) (*databusv1.GetChannelResponse, error) {
	return nil, errs.New(errs.NotFound, "CHANNEL_NOT_FOUND", "channel %q does not exist", r.GetChannel()).WithNext("databus channel create %s", r.GetChannel())
}

func (service) ReadMessages(_ context.Context, r *brokerv1.ReadMessagesRequest) (*brokerv1.ReadMessagesResponse, error) {
	out, err := Append(nil, r)
	return &brokerv1.ReadMessagesResponse{Messages: []*databusv1.StoredMessage{{Value: out}}}, err
}

// serve runs gateway and Connect in front of one service.
func serve(t *testing.T) string {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	databusv1.RegisterChannelServiceServer(server, service{})
	brokerv1.RegisterReadServiceServer(server, service{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	mux := runtime.NewServeMux(GatewayOptions()...)
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		databusv1.RegisterChannelServiceHandler, brokerv1.RegisterReadServiceHandler,
	} {
		if err := register(t.Context(), mux, conn); err != nil {
			t.Fatal(err)
		}
	}
	root := http.NewServeMux()
	root.Handle("/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 4096)
		mux.ServeHTTP(w, r)
	}))
	root.Handle(brokerv1connect.NewReadServiceHandler(connectService{}, ConnectCodec()))
	root.Handle(databusv1connect.NewChannelServiceHandler(databusv1connect.UnimplementedChannelServiceHandler{}, ConnectCodec()))
	httpServer := httptest.NewServer(root)
	t.Cleanup(httpServer.Close)
	return httpServer.URL
}

type connectService struct {
	brokerv1connect.UnimplementedReadServiceHandler
}

func (connectService) ReadMessages(ctx context.Context, r *brokerv1.ReadMessagesRequest) (*brokerv1.ReadMessagesResponse, error) {
	return service{}.ReadMessages(ctx, r)
}

func ask(t *testing.T, method, url, contentType, body string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	r.Header.Set("Traceparent", "00-trace")
	response, err := new(http.Client).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(got), response.Header
}

func TestGateway(t *testing.T) {
	t.Parallel()
	base := serve(t)
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/v1/topics/t/partitions/3/messages?offset=latest&limit=5&wait=500ms&max_bytes=7&timestamp=1700000000000", "",
			`{"messages":[{"offset":"0","value":{"topic":"t","partition":3,"offset":"latest","limit":5,"wait":"0.500s","timestamp":"2023-11-14T22:13:20Z","maxBytes":7}}],` +
				`"highWatermark":"0","logStartOffset":"0","nextOffset":"0"}`},
		{"PATCH", "/v1/channels/c?updateMask=batch.linger,keyPath&canaryLabels[zone]=a&validate_only=true", `{"config":{"batch":{"linger":"5ms"}}}`,
			`{"channel":"c","config":{"batch":{"linger":"0.005s"}},"updateMask":"batch.linger,keyPath","validateOnly":true,"canaryLabels":{"zone":"a"}}00-trace`},
		{"PATCH", "/v1/channels/c", `{"channel":"c","updateMask":"keyPath","config":{}}`, `{"channel":"c","config":{},"updateMask":"keyPath"}00-trace`},
		{"PATCH", "/v1/channels/c?config.keyPath=a", ``, `{"channel":"c","config":{"keyPath":"a"}}00-trace`},
		{"POST", "/v1/channels/c:rollback", `{"revision":"3"}`, `{"channel":"c","revision":"3"}00-trace`},
		{"POST", "/v1/channels/c%3A%20d:rollback?revision=3", ``, `{"channel":"c: d","revision":"3"}00-trace`},
	} {
		status, got, header := ask(t, c.method, base+c.path, "application/json", c.body)
		if strings.HasPrefix(got, `{"name":`) {
			var channel struct{ Name string }
			if err := json.Unmarshal([]byte(got), &channel); err != nil {
				t.Errorf("%s: %v", c.path, err)
			}
			got = channel.Name
		}
		if status != 200 || got != c.want || header.Get("Content-Type") != "application/json" || header.Get("Grpc-Metadata-Content-Type") != "" {
			t.Errorf("%s %s: %d %v\n got %s\nwant %s", c.method, c.path, status, header, got, c.want)
		}
	}
}

func TestGatewayErrors(t *testing.T) {
	t.Parallel()
	base := serve(t)
	const jsonType = "application/json"
	for _, c := range []struct {
		method, path, contentType, body string
		status                          int
		reason, field, says             string
	}{
		{"GET", "/v1/channels/c", "", "", 404, "CHANNEL_NOT_FOUND", "", "does not exist"},
		{"GET", "/v1/channels/c?verbose=1", "", "", 400, "UNKNOWN_FIELD", "verbose", "query parameter verbose: there is no such parameter"},
		{"GET", "/v1/topics/t/partitions/0/messages?limt=1", "", "", 400, "UNKNOWN_FIELD", "limt", "did you mean limit?"},
		{"GET", "/v1/topics/t/partitions/0/messages?limit=x", "", "", 400, "INVALID_FIELD", "limit", "not an integer of 32 bits"},
		{"GET", "/v1/topics/t/partitions/0/messages?limit=1&limit=2", "", "", 400, "DUPLICATE_FIELD", "limit", "given twice"},
		{"GET", "/v1/topics/t/partitions/0/messages?max_bytes=1&maxBytes=2", "", "", 400, "DUPLICATE_FIELD", "max_bytes", "given twice"},
		{"GET", "/v1/topics/t/partitions/0/messages?wait=soon", "", "", 400, "INVALID_FIELD", "wait", "no duration"},
		{"GET", "/v1/topics/t/partitions/0/messages?topic=u", "", "", 400, "DUPLICATE_FIELD", "topic", "given in the path"},
		{"GET", "/v1/topics/t/partitions/x/messages", "", "", 400, "INVALID_FIELD", "partition", "partition in the path"},
		{"GET", "/v1/channels?page_token=%zz", "", "", 400, "MALFORMED_QUERY", "", "malformed"},
		{"PATCH", "/v1/channels/c", jsonType, `{"config":{"batch":{"lingr":"5ms"}}}`, 400, "UNKNOWN_FIELD", "config.batch.lingr", "line 1, column 21"},
		{"PATCH", "/v1/channels/c", jsonType, `{"config":`, 400, "MALFORMED_JSON", "config", "line 1, column 11"},
		{"PATCH", "/v1/channels/c", jsonType, `{"channel":"d"}`, 400, "INVALID_FIELD", "channel", `"d" in the body and "c" in the path`},
		{"PATCH", "/v1/channels/c?updateMask=a", jsonType, `{"updateMask":"b"}`, 400, "DUPLICATE_FIELD", "updateMask", "in the body and in the query"},
		{"PATCH", "/v1/channels/c?updateMask=a%20b", jsonType, `{}`, 400, "INVALID_FIELD", "updateMask", "no path of fields"},
		{"PATCH", "/v1/channels/c?channel=c", jsonType, `{}`, 400, "DUPLICATE_FIELD", "channel", "given in the path"},
		{"PATCH", "/v1/channels/c?mask=a", jsonType, `{}`, 400, "UNKNOWN_FIELD", "mask", "no such parameter"},
		{"PATCH", "/v1/channels/c", "text/plain", `{}`, 415, "UNSUPPORTED_CONTENT_TYPE", "", "text/plain"},
		{"PATCH", "/v1/channels/c", "application/json; charset=latin1", `{}`, 415, "UNSUPPORTED_CONTENT_TYPE", "", "latin1"},
		{"PATCH", "/v1/channels/c", jsonType, `{"config":{"keyPath":"` + strings.Repeat("x", 5000) + `"}}`, 413, "BODY_TOO_LARGE", "", "4096 bytes"},
	} {
		status, got, header := ask(t, c.method, base+c.path, c.contentType, c.body)
		var body struct {
			Code    int
			Message string
			Details []struct {
				Reason   string
				Metadata map[string]string
			}
		}
		if err := json.Unmarshal([]byte(got), &body); err != nil || len(body.Details) == 0 {
			t.Errorf("%s %s: %d %q, %v", c.method, c.path, status, got, err)
			continue
		}
		info := body.Details[0]
		if status != c.status || info.Reason != c.reason || info.Metadata["field"] != c.field || !strings.Contains(body.Message, c.says) ||
			header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %s; want %d %s, field %q, … %s", c.method, c.path, status, got, c.status, c.reason, c.field, c.says)
		}
	}
}

func TestStreamChunksStayOnOneLine(t *testing.T) {
	t.Parallel()
	chunk := map[string]any{"result": &brokerv1.FollowMessagesResponse{Messages: []*databusv1.StoredMessage{{Value: []byte("[\n]")}}}}
	got, err := GatewayMarshaler{}.Marshal(chunk)
	want := `{"result":{"partition":0,"messages":[{"offset":"0","valueBase64":"Wwpd"}],"highWatermark":"0"}}`
	if string(got) != want || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestConnect speaks to a Connect handler by hand and by a client.
func TestConnect(t *testing.T) {
	t.Parallel()
	base := serve(t)
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8"} {
		status, got, _ := ask(t, "POST", base+brokerv1connect.ReadServiceReadMessagesProcedure, contentType, `{"topic":"t","wait":"5ms"}`)
		want := `{"messages":[{"offset":"0","value":{"topic":"t","wait":"0.005s"}}],"highWatermark":"0","logStartOffset":"0","nextOffset":"0"}`
		if status != 200 || got != want {
			t.Errorf("%s: %d %s", contentType, status, got)
		}
	}
	status, got, _ := ask(t, "POST", base+brokerv1connect.ReadServiceReadMessagesProcedure, "application/json", "{\n\"topik\":\"t\"}")
	if status != 400 || !strings.Contains(got, "line 2, column 1: topik: there is no such field; did you mean topic?") {
		t.Errorf("%d %s", status, got)
	}
	for _, options := range [][]connect.ClientOption{{ConnectClientCodec()}, nil} {
		client := brokerv1connect.NewReadServiceClient(new(http.Client), base, options...)
		answer, err := client.ReadMessages(t.Context(), &brokerv1.ReadMessagesRequest{Topic: "t", Limit: 3})
		if err != nil || string(answer.GetMessages()[0].GetValue()) != `{"topic":"t","limit":3}` {
			t.Errorf("got %v, %v", answer, err)
		}
	}
}
