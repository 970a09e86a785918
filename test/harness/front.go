package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
)

// Front is a gRPC server before a broker that hands every call on as it is, except that it can keep the appends to one partition to
// itself: that partition is then one that never answers. Methods may run concurrently. It ends with its test.
type Front struct {
	addr   string
	broker *grpc.ClientConn

	mu     sync.Mutex
	silent map[string]chan struct{} // by topic/partition; closed: it answers again
}

// StartFront starts a front before the broker at addr.
func StartFront(t testing.TB, addr string) *Front {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{}), grpc.MaxCallRecvMsgSize(64<<20), grpc.MaxCallSendMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Front{addr: listener.Addr().String(), broker: conn, silent: make(map[string]chan struct{})}
	server := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.MaxRecvMsgSize(64<<20), grpc.UnknownServiceHandler(f.handle))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-served, conn.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Addr is the front's own host:port.
func (f *Front) Addr() string { return f.addr }

// Silence keeps appends to a partition back from now on, until the returned function is called; then they go on, in order.
func (f *Front) Silence(topic string, partition int32) (resume func()) {
	gate := make(chan struct{})
	f.mu.Lock()
	f.silent[placeOf(topic, partition)] = gate
	f.mu.Unlock()
	return sync.OnceFunc(func() { close(gate) })
}

func (f *Front) gate(place string) chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.silent[place]
}

func placeOf(topic string, partition int32) string { return fmt.Sprintf("%s/%d", topic, partition) }

// handle hands one call on, in both directions.
func (f *Front) handle(_ any, server grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(server)
	ctx, cancel := context.WithCancel(server.Context())
	defer cancel()
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	client, err := f.broker.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	up := &upward{front: f, client: client, held: make(map[string][][]byte), appends: method == brokerv1.LogService_AppendStream_FullMethodName}
	go func() {
		if up.run(ctx, server) != nil {
			cancel()
		}
	}()
	for {
		var answer []byte
		if err := client.RecvMsg(&answer); err != nil {
			if errors.Is(err, io.EOF) {
				server.SetTrailer(client.Trailer())
				return nil
			}
			return err
		}
		if err := server.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// upward is the requests of one call.
type upward struct {
	front   *Front
	client  grpc.ClientStream
	appends bool

	mu   sync.Mutex          // of sending
	held map[string][][]byte // by topic/partition
}

func (u *upward) run(ctx context.Context, server grpc.ServerStream) error {
	for {
		var request []byte
		if err := server.RecvMsg(&request); err != nil {
			if errors.Is(err, io.EOF) {
				return u.client.CloseSend()
			}
			return err
		}
		if err := u.pass(ctx, request); err != nil {
			return err
		}
	}
}

// pass sends a request on, or keeps it.
func (u *upward) pass(ctx context.Context, request []byte) error {
	place := ""
	if u.appends {
		var a brokerv1.AppendStreamRequest
		if err := proto.Unmarshal(request, &a); err != nil {
			return err
		}
		place = placeOf(a.GetTopic(), a.GetPartition())
	}
	gate := u.front.gate(place)
	u.mu.Lock()
	defer u.mu.Unlock()
	if gate != nil && !isClosed(gate) {
		if u.held[place] = append(u.held[place], request); len(u.held[place]) == 1 {
			go u.release(ctx, place, gate)
		}
		return nil
	}
	if err := u.flush(place); err != nil {
		return err
	}
	return u.client.SendMsg(&request)
}

func (u *upward) release(ctx context.Context, place string, gate chan struct{}) {
	select {
	case <-gate:
	case <-ctx.Done():
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	_ = u.flush(place) // a broken stream is told by its receiver
}

// flush sends what was kept of a partition. The caller holds the lock.
func (u *upward) flush(place string) error {
	held := u.held[place]
	delete(u.held, place)
	for i := range held {
		if err := u.client.SendMsg(&held[i]); err != nil {
			return err
		}
	}
	return nil
}

func isClosed(gate chan struct{}) bool {
	select {
	case <-gate:
		return true
	default:
		return false
	}
}

// rawCodec leaves messages as they are on the wire: *[]byte.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a message of type %T, want bytes", v)
	}
	return *b, nil
}

func (rawCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("a message of type %T, want bytes", v)
	}
	*b = append([]byte(nil), data...)
	return nil
}
