package rpc_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/databus-suite/databus/internal/errs"
	"github.com/databus-suite/databus/internal/rpc"
)

// awaitReady waits for the health watch to say that the server serves.
func awaitReady(t *testing.T, f *fixture) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watch, err := healthpb.NewHealthClient(f.dial(t)).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		res, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if res.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return
		}
	}
}

func TestDrainLetsCallsEnd(t *testing.T) {
	t.Parallel()
	f := start(t, rpc.Config{})
	awaitReady(t, f)
	watch, err := healthpb.NewHealthClient(f.dial(t)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		protocol, name string
		err            error
	}
	answers := make(chan answer)
	getters := f.getters(t)
	for protocol, get := range getters {
		go func() {
			name, err := get(t.Context(), "slow")
			answers <- answer{protocol, name, err}
		}()
		<-f.svc.entered
	}
	stopped := make(chan error, 1)
	go func() { stopped <- f.stop() }()
	<-f.Draining()
	// A watcher must not hold the drain up.
	for err == nil {
		_, err = watch.Recv()
	}
	close(f.svc.release)
	for range getters {
		if a := <-answers; a.err != nil || a.name != "slow" {
			t.Errorf("%s: %q, %v", a.protocol, a.name, a.err)
		}
	}
	f.http.CloseIdleConnections()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := f.getters(t)["grpc port"](t.Context(), "orders"); status.Code(err) != codes.Unavailable {
		t.Errorf("after the drain: %v", err)
	}
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	f := start(t, rpc.Config{DrainTimeout: time.Millisecond})
	defer close(f.svc.release)
	answers := make(chan error, 2)
	getters := f.getters(t)
	for _, protocol := range []string{"connect", "grpc port"} {
		go func() {
			_, err := getters[protocol](t.Context(), "slow")
			answers <- err
		}()
		<-f.svc.entered
	}
	stopped := make(chan error, 1)
	go func() { stopped <- f.stop() }()
	for range 2 {
		if err := <-answers; err == nil {
			t.Error("a call that was cut was answered")
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if err := f.Run(t.Context()); err == nil {
		t.Error("it ran twice")
	}
	if err := f.Close(); err != nil {
		t.Errorf("Close after Run: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	holder, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Close() })
	for _, tc := range []struct {
		name string
		cfg  rpc.Config
		want []string
	}{
		{"HTTP", rpc.Config{HTTPAddr: holder.Addr().String(), HTTPConfiguredBy: "http_addr in agent.yaml or --port-offset"},
			[]string{"HTTP", "http_addr in agent.yaml or --port-offset"}},
		{"gRPC", rpc.Config{HTTPAddr: "127.0.0.1:0", GRPCAddr: holder.Addr().String(), GRPCConfiguredBy: "grpc_addr in agent.yaml"},
			[]string{"gRPC", "grpc_addr in agent.yaml"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			srv, err := rpc.NewServer(tc.cfg)
			if err != nil {
				t.Fatal(err)
			}
			err = srv.Run(t.Context())
			if err == nil {
				t.Fatal("it ran")
			}
			e := errs.From(err)
			text := e.Error() + "; " + e.Next
			for _, want := range append(tc.want, holder.Addr().String(), "pid "+strconv.Itoa(os.Getpid())) {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in %q", want, text)
				}
			}
		})
	}
}

func TestBadAddress(t *testing.T) {
	t.Parallel()
	srv, err := rpc.NewServer(rpc.Config{HTTPAddr: "8080"})
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Listen(); errs.CodeOf(err) != errs.Invalid {
		t.Errorf("got %v", err)
	}
	if err := srv.Close(); err != nil {
		t.Error(err)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	// What a process that was killed leaves behind is taken over.
	stale, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()

	f := start(t, rpc.Config{UnixSocket: path})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Get("http://unix/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("status %d", res.StatusCode)
	}

	second, err := rpc.NewServer(rpc.Config{UnixSocket: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Listen(); errs.From(err) == nil || errs.From(err).Reason != "SOCKET_IN_USE" {
		t.Errorf("a socket in use: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	transport.CloseIdleConnections()
	if err := f.stop(); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	third, err := rpc.NewServer(rpc.Config{UnixSocket: file})
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Listen(); errs.CodeOf(err) != errs.Invalid {
		t.Errorf("a file in the way: %v", err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
}
