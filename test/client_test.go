package test

import (
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
	"github.com/databus-suite/databus/gen/go/databus/v1/databusv1connect"
	"github.com/databus-suite/databus/test/harness"
)

// clients speak to one suite in every protocol. They survive its restarts. Methods may run concurrently.
type clients struct {
	suite   *harness.Suite
	http    *http.Client
	grpc    databusv1.PublishServiceClient
	connect databusv1connect.PublishServiceClient
	grpcWeb databusv1connect.PublishServiceClient
	log     brokerv1.LogServiceClient
	read    brokerv1.ReadServiceClient
}

func newClients(t *testing.T, suite *harness.Suite) *clients {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 128}
	t.Cleanup(transport.CloseIdleConnections)
	c := &clients{suite: suite, http: &http.Client{Transport: transport}}
	c.grpc = databusv1.NewPublishServiceClient(dial(t, suite.Addr(harness.AgentGRPC)))
	c.connect = databusv1connect.NewPublishServiceClient(c.http, suite.URL(harness.AgentHTTP))
	c.grpcWeb = databusv1connect.NewPublishServiceClient(c.http, suite.URL(harness.AgentHTTP), connect.WithGRPCWeb())
	broker := dial(t, suite.Addr(harness.BrokerGRPC))
	c.log, c.read = brokerv1.NewLogServiceClient(broker), brokerv1.NewReadServiceClient(broker)
	return c
}

// dial connects to a gRPC port, and again soon after it was away: a test waits for a suite to come back.
func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(64<<20)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (c *clients) createChannel(t *testing.T, name, config string) {
	t.Helper()
	if err := c.suite.CreateChannel(t.Context(), c.http, name, config); err != nil {
		t.Fatal(err)
	}
}
