package rpc_test

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
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// channels answers GetChannel by the name that it is asked for.
type channels struct {
	databusv1.UnimplementedChannelServiceServer
	entered chan struct{} // receives when a call for "slow" has begun
	release chan struct{} // lets it end
}

func (c *channels) GetChannel(ctx context.Context, req *databusv1.GetChannelRequest) (*databusv1.GetChannelResponse, error) {
	switch name := req.GetChannel(); name {
	case "panics":
		panic("boom")
	case "missing":
		return nil, fmt.Errorf("get: %w", errs.New(errs.NotFound, "CHANNEL_NOT_FOUND", "channel %s does not exist", name).
			WithNext("create it").WithField("channel"))
	case "full":
		return nil, errs.New(errs.Exhausted, "FULL", "channel %s is full", name).WithRetryAfter(1200 * time.Millisecond)
	case "large":
		return nil, errs.New(errs.TooLarge, "MESSAGE_TOO_LARGE", "too large")
	case "broken":
		return nil, errors.New("dial postgres: password=hunter2")
	case "slow":
		c.entered <- struct{}{}
		<-c.release
	case "trace":
		name = trace.SpanContextFromContext(ctx).TraceID().String()
		return &databusv1.GetChannelResponse{Channel: &databusv1.Channel{Name: name}}, nil
	}
	return &databusv1.GetChannelResponse{Channel: &databusv1.Channel{Name: req.GetChannel()}}, nil
}

func (c *channels) CreateChannel(_ context.Context, req *databusv1.CreateChannelRequest) (*databusv1.CreateChannelResponse, error) {
	return &databusv1.CreateChannelResponse{Channel: &databusv1.Channel{Name: req.GetName()}}, nil
}

func (c *channels) WatchChannels(_ *databusv1.WatchChannelsRequest, _ grpc.ServerStreamingServer[databusv1.WatchChannelsResponse]) error {
	panic("boom in a stream")
}

// connectChannels serves GetChannel alone over Connect.
type connectChannels struct {
	databusv1connect.UnimplementedChannelServiceHandler
	svc *channels
}

func (c connectChannels) GetChannel(ctx context.Context, req *databusv1.GetChannelRequest) (*databusv1.GetChannelResponse, error) {
	return c.svc.GetChannel(ctx, req)
}

type fixture struct {
	*rpc.Server
	svc  *channels
	http *http.Client
	stop func() error
}

// start runs a server with the channel service behind every protocol.
func start(t *testing.T, cfg rpc.Config, opts ...rpc.Option) *fixture {
	t.Helper()
	cfg.HTTPAddr, cfg.GRPCAddr = "127.0.0.1:0", "127.0.0.1:0"
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 20 * time.Second
	}
	cfg.OpenAPI = []byte(`{"openapi":"3.0.0"}`)
	srv, err := rpc.NewServer(cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	svc := &channels{entered: make(chan struct{}), release: make(chan struct{})}
	databusv1.RegisterChannelServiceServer(srv.GRPC(), svc)
	srv.Connect(databusv1connect.NewChannelServiceHandler(connectChannels{svc: svc}, srv.ConnectOptions()...))
	if err := srv.Gateway(t.Context(), databusv1.RegisterChannelServiceHandler); err != nil {
		t.Fatal(err)
	}
	srv.Handle("POST /own", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Half") != "" {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
		}
		panic("boom over HTTP")
	}))
	if err := srv.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	transport := &http.Transport{}
	f := &fixture{Server: srv, svc: svc, http: &http.Client{Transport: transport}}
	stopped := false
	f.stop = func() error {
		cancel()
		if stopped {
			return nil
		}
		stopped = true
		return <-done
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *fixture) url(path string) string { return "http://" + f.HTTPAddr() + path }

// do returns the status, the headers and the body of a request.
func (f *fixture) do(t *testing.T, method, path, body string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", traceparent)
	return f.send(t, req)
}

func (f *fixture) send(t *testing.T, req *http.Request) (*http.Response, []byte) {
	t.Helper()
	res, err := f.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, raw
}

func (f *fixture) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(f.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// grpcTransport speaks HTTP/2 without TLS.
func grpcTransport() *http.Transport {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: &p}
}

// getters calls GetChannel by every protocol.
func (f *fixture) getters(t *testing.T) map[string]func(ctx context.Context, name string) (string, error) {
	t.Helper()
	viaConnect := func(client *http.Client, opts ...connect.ClientOption) func(context.Context, string) (string, error) {
		c := databusv1connect.NewChannelServiceClient(client, f.url(""), opts...)
		return func(ctx context.Context, name string) (string, error) {
			ctx, info := connect.NewClientContext(ctx)
			info.RequestHeader().Set("traceparent", traceparent)
			res, err := c.GetChannel(ctx, &databusv1.GetChannelRequest{Channel: name})
			return res.GetChannel().GetName(), err
		}
	}
	h2 := grpcTransport()
	t.Cleanup(h2.CloseIdleConnections)
	stub := databusv1.NewChannelServiceClient(f.dial(t))
	return map[string]func(context.Context, string) (string, error){
		"grpc port": func(ctx context.Context, name string) (string, error) {
			ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", traceparent)
			res, err := stub.GetChannel(ctx, &databusv1.GetChannelRequest{Channel: name})
			return res.GetChannel().GetName(), err
		},
		"connect":             viaConnect(f.http),
		"connect json":        viaConnect(f.http, connect.WithProtoJSON()),
		"grpc over http port": viaConnect(&http.Client{Transport: h2}, connect.WithGRPC()),
		"grpc-web":            viaConnect(f.http, connect.WithGRPCWeb()),
		"rest": func(_ context.Context, name string) (string, error) {
			res, body := f.do(t, http.MethodGet, "/v1/channels/"+name, "")
			if res.StatusCode != http.StatusOK {
				return "", statusError(t, res, body)
			}
			var channel databusv1.Channel
			err := protojson.Unmarshal(body, &channel)
			return channel.GetName(), err
		},
	}
}

// statusError reads an error body, and checks that the HTTP status fits it.
func statusError(t *testing.T, res *http.Response, body []byte) error {
	t.Helper()
	var st rpcstatus.Status
	if err := protojson.Unmarshal(body, &st); err != nil {
		t.Fatalf("%d is not answered by a google.rpc.Status: %v in %q", res.StatusCode, err, body)
	}
	e := errs.FromProto(&st)
	if e.HTTPStatus() != res.StatusCode && e.Reason != "METHOD_NOT_ALLOWED" {
		t.Errorf("HTTP status %d, want %d for %v", res.StatusCode, e.HTTPStatus(), e)
	}
	return e
}
