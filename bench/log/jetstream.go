package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/databus-suite/databus/bench/internal/ports"
)

// serveJetStream is a NATS server with JetStream in files, until ctx ends. It prints its address first. Without always it
// syncs as its default is, every two minutes, and acknowledges what a loss of power would lose.
func serveJetStream(ctx context.Context, always bool) error {
	dir, err := os.MkdirTemp(".", ".bench-jetstream-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_, port, err := ports.Free()
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: n, JetStream: true, StoreDir: dir, SyncAlways: always, NoSigs: true,
		JetStreamMaxStore: 64 << 30, JetStreamMaxMemory: 1 << 30})
	if err != nil {
		return fmt.Errorf("start JetStream: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return errors.New("JetStream does not take connections within 10 s")
	}
	fmt.Println(s.ClientURL())
	<-ctx.Done()
	s.Shutdown()
	s.WaitForShutdown()
	return nil
}

// maxPending is how many messages one JetStream client has under way.
const maxPending = 1000

// jetClient publishes to a stream of its own. It belongs to one goroutine.
type jetClient struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	subject string
	failed  chan error
}

// openJetClient makes the client's stream where it is missing. answered is called for each acknowledgement, in order.
func openJetClient(ctx context.Context, url string, number int, answered func()) (*jetClient, error) {
	conn, err := nats.Connect(url)
	if err != nil {
		return nil, fmt.Errorf("connect to JetStream: %w", err)
	}
	c := &jetClient{conn: conn, subject: "bench." + strconv.Itoa(number), failed: make(chan error, 1)}
	c.js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithPublishAsyncAckHandler(func(jetstream.JetStream, *nats.Msg, *jetstream.PubAck) { answered() }),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { c.fail(err) }))
	if err == nil {
		_, err = c.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "bench-" + strconv.Itoa(number), Subjects: []string{c.subject}, Storage: jetstream.FileStorage})
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	return c, nil
}

func (c *jetClient) fail(err error) {
	select {
	case c.failed <- err:
	default:
	}
}

// send publishes a message, once there is room in the window.
func (c *jetClient) send(event []byte) error {
	if _, err := c.js.PublishAsync(c.subject, event, jetstream.WithStallWait(time.Minute)); err != nil {
		return fmt.Errorf("publish to JetStream: %w", err)
	}
	return nil
}

// finish waits for the acknowledgements that are still to come.
func (c *jetClient) finish() error {
	defer c.conn.Close()
	select {
	case <-c.js.PublishAsyncComplete():
	case err := <-c.failed:
		return fmt.Errorf("publish to JetStream: %w", err)
	case <-time.After(time.Minute):
		return fmt.Errorf("JetStream left %d messages without an answer for a minute", c.js.PublishAsyncPending())
	}
	select {
	case err := <-c.failed:
		return fmt.Errorf("publish to JetStream: %w", err)
	default:
		return nil
	}
}
