package sender

import (
	"errors"
	"hash/fnv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	"github.com/databus-suite/databus/internal/rawcodec"
)

const (
	// maxMessage is the largest message on the wire: a batch of 16 MiB does not compress to more.
	maxMessage = 64 << 20
	// bulkConns is how many connections carry append streams. One is opened when a topic first needs it.
	bulkConns = 3
)

// Dial connects to a broker. It returns at once; the connection is made, and made again, in the background.
func Dial(addr string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient(addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawcodec.Codec{}),
			grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		// The agent's own back-off decides; this one only keeps from hammering a closed port.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithInitialWindowSize(1 << 20), grpc.WithInitialConnWindowSize(4 << 20),
		grpc.WithWriteBufferSize(128 << 10), grpc.WithReadBufferSize(64 << 10),
	}, opts...)...)
}

// Conns are an agent's connections to its broker: one for short calls, and a few for append streams, over which the topics are
// spread. What stalls a connection stalls the topics on it, and neither the others nor the control plane. Methods may run
// concurrently; whoever called DialAll closes them.
type Conns struct {
	control *grpc.ClientConn
	bulk    [bulkConns]*grpc.ClientConn
}

// DialAll is Dial for all the connections of an agent.
func DialAll(addr string, opts ...grpc.DialOption) (*Conns, error) {
	c := &Conns{}
	var err error
	if c.control, err = Dial(addr, opts...); err != nil {
		return nil, err
	}
	for i := range c.bulk {
		if c.bulk[i], err = Dial(addr, opts...); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Control is the connection for short calls and watches.
func (c *Conns) Control() *grpc.ClientConn { return c.control }

// log is the broker's log by the control connection.
func (c *Conns) log() brokerv1.LogServiceClient { return brokerv1.NewLogServiceClient(c.control) }

// appends is the connection for a topic's append stream. turn counts the streams that the topic has lost: each next one goes to
// another connection, since the one before may be what is broken.
func (c *Conns) appends(topic string, turn uint32) brokerv1.LogServiceClient {
	return brokerv1.NewLogServiceClient(c.bulk[place(topic, turn)])
}

// place is the number of a topic's connection.
func place(topic string, turn uint32) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(topic)) // never fails
	return int((h.Sum32()%bulkConns + turn%bulkConns) % bulkConns)
}

// Close closes every connection.
func (c *Conns) Close() error {
	err := c.control.Close()
	for _, conn := range c.bulk {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
	}
	return err
}
