package rpc_test

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/databus-suite/databus/internal/rpc"
	"github.com/databus-suite/databus/internal/telemetry"
)

// otlp is a collector that keeps what it is sent.
type otlp struct {
	collector.UnimplementedTraceServiceServer
	mu     sync.Mutex
	traces map[string][]string // span name → trace ids
}

func (o *otlp) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				o.traces[span.GetName()] = append(o.traces[span.GetName()], hex.EncodeToString(span.GetTraceId()))
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestCallsAreTracedByEveryProtocol(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kept := &otlp{traces: map[string][]string{}}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, kept)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	tel, err := telemetry.Setup(t.Context(), telemetry.Config{Service: "databus-test", OTLPEndpoint: lis.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, rpc.Config{Telemetry: tel})
	getters := f.getters(t)
	for protocol, get := range getters {
		// The service sees the caller's trace, whose spans of the server's own are in between.
		if got, err := get(t.Context(), "trace"); err != nil || got != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s: %q, %v", protocol, got, err)
		}
	}
	// A span ends after its answer has gone out: only a drained server has no open ones.
	f.http.CloseIdleConnections()
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	want := slices.Repeat([]string{"0af7651916cd43dd8448eb211c80319c"}, len(getters))
	if got := kept.traces["databus.v1.ChannelService/GetChannel"]; !slices.Equal(got, want) {
		t.Errorf("the collector has %v", kept.traces)
	}
}
