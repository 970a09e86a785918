package rpc_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/rpc"
)

func TestEveryProtocolAnswersAlike(t *testing.T) {
	t.Parallel()
	f := start(t, rpc.Config{})
	cases := []struct {
		name, want string
		code       errs.Code
		reason     string
		message    string
		field      string
		next       string
		retryAfter time.Duration
	}{
		{name: "orders", want: "orders"},
		{name: "trace", want: "0af7651916cd43dd8448eb211c80319c"},
		{name: "missing", code: errs.NotFound, reason: "CHANNEL_NOT_FOUND", message: "get: channel missing does not exist",
			field: "channel", next: "create it"},
		{name: "full", code: errs.Exhausted, reason: "FULL", message: "channel full is full", retryAfter: 1200 * time.Millisecond},
		{name: "large", code: errs.TooLarge, reason: "MESSAGE_TOO_LARGE", message: "too large"},
		{name: "broken", code: errs.Internal, reason: "INTERNAL", message: "internal error",
			next: "look in the log of the service for the cause"},
		{name: "panics", code: errs.Internal, reason: "PANIC", message: "the server hit a bug while it handled the call",
			next: "look in the log of the service for the stack, and report it"},
	}
	for protocol, get := range f.getters(t) {
		for _, tc := range cases {
			t.Run(protocol+"/"+tc.name, func(t *testing.T) {
				got, err := get(t.Context(), tc.name)
				if tc.code == 0 {
					if err != nil || got != tc.want {
						t.Errorf("got %q, %v, want %q", got, err, tc.want)
					}
					return
				}
				e := errs.From(err)
				if e == nil {
					t.Fatalf("answered %q", got)
				}
				if e.Code != tc.code || e.Reason != tc.reason || e.Message != tc.message || e.Field != tc.field ||
					e.Next != tc.next || e.RetryAfter != tc.retryAfter {
					t.Errorf("got %+v", e)
				}
			})
		}
	}
}

func TestValidation(t *testing.T) {
	t.Parallel()
	f := start(t, rpc.Config{})
	req := &databusv1.CreateChannelRequest{Name: "no/slash"}
	_, viaGRPC := databusv1.NewChannelServiceClient(f.dial(t)).CreateChannel(t.Context(), req)
	res, body := f.do(t, http.MethodPost, "/v1/channels", `{"name":"no/slash"}`)
	client := databusv1connect.NewChannelServiceClient(f.http, f.url(""))
	_, viaConnect := client.GetChannel(t.Context(), &databusv1.GetChannelRequest{})
	for name, tc := range map[string]struct {
		err   error
		field string
	}{
		"grpc":    {viaGRPC, "name"},
		"rest":    {statusError(t, res, body), "name"},
		"connect": {viaConnect, "channel"},
	} {
		if e := errs.From(tc.err); e == nil || e.Code != errs.Invalid || e.Field != tc.field {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestUnvalidatedMethods(t *testing.T) {
	t.Parallel()
	f := start(t, rpc.Config{}, rpc.WithUnvalidated("/databus.v1.ChannelService/CreateChannel"))
	stub := databusv1.NewChannelServiceClient(f.dial(t))
	res, err := stub.CreateChannel(t.Context(), &databusv1.CreateChannelRequest{Name: "no/slash"})
	if err != nil || res.GetChannel().GetName() != "no/slash" {
		t.Errorf("got %v, %v", res, err)
	}
}

// syncBuffer may be written by handlers while the test reads.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestPanicsAreLoggedAndAnswered(t *testing.T) {
	t.Parallel()
	var log syncBuffer
	f := start(t, rpc.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	stream, err := databusv1.NewChannelServiceClient(f.dial(t)).WatchChannels(t.Context(), &databusv1.WatchChannelsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); errs.From(err).Reason != "PANIC" {
		t.Errorf("stream: %v", err)
	}
	res, body := f.do(t, http.MethodPost, "/own", "")
	if e := errs.From(statusError(t, res, body)); e.Reason != "PANIC" {
		t.Errorf("HTTP: %v", e)
	}
	for _, want := range []string{"boom in a stream", "boom over HTTP", "rpc_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %q in the log", want)
		}
	}
	// Half an answer is cut, so that it does not look whole.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url("/own"), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Half", "yes")
	half, err := f.http.Do(req)
	if err == nil {
		_, err = io.ReadAll(half.Body)
		half.Body.Close()
	}
	if err == nil {
		t.Error("half an answer looked whole")
	}
}

func TestHTTPSurface(t *testing.T) {
	t.Parallel()
	f := start(t, rpc.Config{MaxRequestBytes: 1000})
	cases := []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/healthz", "", 200, "ok"},
		{"GET", "/metrics", "", 200, ""},
		{"GET", "/openapi.json", "", 200, `"openapi"`},
		{"GET", "/docs", "", 200, "<!doctype html>"},
		{"GET", "/nowhere", "", 404, `"PATH_NOT_FOUND"`},
		{"GET", "/v1/nowhere", "", 404, `"PATH_NOT_FOUND"`},
		{"DELETE", "/v1/channels", "", 405, `"METHOD_NOT_ALLOWED"`},
		{"GET", "/own", "", 405, "use POST"},
		{"POST", "/v1/channels", `{"name":"` + strings.Repeat("a", 1000) + `"}`, 413, `"REQUEST_TOO_LARGE"`},
		{"POST", "/v1/channels", `{"name":"orders"}`, 200, `"orders"`},
	}
	for _, tc := range cases {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			res, body := f.do(t, tc.method, tc.path, tc.body)
			if res.StatusCode != tc.status || !strings.Contains(string(body), tc.want) {
				t.Errorf("%d %.300s", res.StatusCode, body)
			}
			if tc.status >= 400 {
				_ = statusError(t, res, body)
			}
		})
	}
	t.Run("a body of unknown length", func(t *testing.T) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url("/v1/channels"),
			io.MultiReader(strings.NewReader(`{"name":"`), strings.NewReader(strings.Repeat("a", 1000)), strings.NewReader(`"}`)))
		if err != nil {
			t.Fatal(err)
		}
		res, err := f.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("status %d", res.StatusCode)
		}
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	const service = "databus.v1.ChannelService"
	f := start(t, rpc.Config{})
	stub := healthpb.NewHealthClient(f.dial(t))
	http1 := grpchealth.NewClient(f.http, f.url(""))
	check := func(service string, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		got, err := stub.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || got.GetStatus() != want {
			t.Errorf("gRPC: %v, %v, want %v", got, err, want)
		}
		over, err := http1.Check(t.Context(), &grpchealth.CheckRequest{Service: service})
		if err != nil || over.Status != grpchealth.Status(want) {
			t.Errorf("HTTP: %v, %v, want %v", over, err, want)
		}
	}
	awaitReady(t, f)
	check("", healthpb.HealthCheckResponse_SERVING)
	check(service, healthpb.HealthCheckResponse_SERVING)

	f.SetServing(service, false)
	check("", healthpb.HealthCheckResponse_NOT_SERVING)
	check(service, healthpb.HealthCheckResponse_NOT_SERVING)
	if res, body := f.do(t, "GET", "/readyz", ""); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), service) {
		t.Errorf("readyz: %d %s", res.StatusCode, body)
	}
	f.SetServing(service, true)
	if res, _ := f.do(t, "GET", "/readyz", ""); res.StatusCode != http.StatusOK {
		t.Errorf("readyz: %d", res.StatusCode)
	}
	_, err := stub.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nobody"})
	_, over := http1.Check(t.Context(), &grpchealth.CheckRequest{Service: "nobody"})
	if status.Code(err) != codes.NotFound || connect.CodeOf(over) != connect.CodeNotFound {
		t.Errorf("an unknown service: %v, %v", err, over)
	}
}

func TestReflection(t *testing.T) {
	t.Parallel()
	f := start(t, rpc.Config{})
	h2 := grpcTransport()
	t.Cleanup(h2.CloseIdleConnections)
	for name, base := range map[string]string{"http port": f.url(""), "grpc port": "http://" + f.GRPCAddr()} {
		ctx, cancel := context.WithCancel(t.Context())
		stream := grpcreflect.NewClient(&http.Client{Transport: h2}, base, connect.WithGRPC()).NewStream(ctx)
		names, err := stream.ListServices()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var all []string
		for _, n := range names {
			all = append(all, string(n))
		}
		if got := strings.Join(all, " "); !strings.Contains(got, "databus.v1.ChannelService") || !strings.Contains(got, "grpc.health.v1.Health") {
			t.Errorf("%s: %s", name, got)
		}
		if _, err := stream.FileContainingSymbol("databus.v1.ChannelService"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := stream.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
