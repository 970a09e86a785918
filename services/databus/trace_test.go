package databus

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/internal/telemetry"
	"github.com/databus-suite/databus/services/databus/internal/brokertest"
)

// otlp is a collector that keeps what it is sent.
type otlp struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string][]*tracev1.Span // by name
}

func (o *otlp) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, resource := range req.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				o.spans[span.GetName()] = append(o.spans[span.GetName()], span)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func collect(t *testing.T) (*otlp, *telemetry.Telemetry) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kept := &otlp{spans: make(map[string][]*tracev1.Span)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, kept)
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	tel, err := telemetry.Setup(t.Context(), telemetry.Config{Service: "databus-test", OTLPEndpoint: lis.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	return kept, tel
}

// TestAppendLinksToPublishes joins two publishes in one batch, which goes straight to the broker or lies in the spool first: its span is
// a child of one, links to both, and is the parent of what the broker does.
func TestAppendLinksToPublishes(t *testing.T) {
	t.Parallel()
	for _, level := range []databusv1.Durability{databusv1.Durability_DURABILITY_DURABLE, databusv1.Durability_DURABILITY_SPOOLED} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			appendLinks(t, level)
		})
	}
}

func appendLinks(t *testing.T, level databusv1.Durability) {
	t.Helper()
	kept, tel := collect(t)
	b := brokertest.Start(t)
	told := make(chan string, 1)
	b.Trace = func(traceparent string) { told <- traceparent }
	r := startTraced(t, b, tel)
	b.SetChannel("c", &databusv1.ChannelConfig{Durability: level, Batch: &databusv1.Batch{Linger: durationpb.New(1e12), MaxMessages: 2}})
	var work sync.WaitGroup
	for i := range 2 {
		work.Go(func() {
			if err := post1(r.url, "c", "k", i); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	r.halt()
	if err := tel.Shutdown(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}

	kept.mu.Lock()
	defer kept.mu.Unlock()
	publishes, appends := kept.spans["publish c"], kept.spans["append c"]
	if len(publishes) != 2 || len(appends) != 1 {
		t.Fatalf("%d publishes and %d appends in %v", len(publishes), len(appends), kept.spans)
	}
	batch := appends[0]
	var want, got []string
	for _, p := range publishes {
		want = append(want, hex.EncodeToString(p.GetSpanId()))
	}
	for _, l := range batch.GetLinks() {
		got = append(got, hex.EncodeToString(l.GetSpanId()))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("links to %v, want %v", got, want)
	}
	if parent := hex.EncodeToString(batch.GetParentSpanId()); !slices.Contains(want, parent) {
		t.Errorf("child of %q, want one of %v", parent, want)
	}
	if batch.GetKind() != tracev1.Span_SPAN_KIND_CLIENT {
		t.Errorf("kind %s", batch.GetKind())
	}
	if id, told := hex.EncodeToString(batch.GetSpanId()), <-told; !strings.Contains(told, id) {
		t.Errorf("the broker was told %s, want span %s", told, id)
	}
}
