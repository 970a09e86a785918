package rawcodec

import (
	"bytes"
	"context"
	"hash/crc32"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

func carriers() []proto.Message {
	return []proto.Message{&brokerv1.AppendRequest{}, &brokerv1.AppendStreamRequest{}, &brokerv1.FetchResponse{}, &brokerv1.FetchStreamResponse{}}
}

// fill sets every field, whatever fields the message gets later, so that one which withoutPayload forgets is found here.
func fill(m proto.Message, payload []byte) {
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		switch fd.Kind() {
		case protoreflect.StringKind:
			r.Set(fd, protoreflect.ValueOfString("text of "+string(fd.Name())))
		case protoreflect.Int32Kind:
			r.Set(fd, protoreflect.ValueOfInt32(int32(1000+i)))
		case protoreflect.Int64Kind:
			r.Set(fd, protoreflect.ValueOfInt64(int64(i)<<40))
		case protoreflect.BoolKind:
			r.Set(fd, protoreflect.ValueOfBool(true))
		case protoreflect.EnumKind:
			r.Set(fd, protoreflect.ValueOfEnum(2))
		case protoreflect.BytesKind:
			r.Set(fd, protoreflect.ValueOfBytes(payload))
		default:
			panic("fill does not know " + fd.Kind().String())
		}
	}
}

func TestBytesAreThoseOfProto(t *testing.T) {
	t.Parallel()
	for _, m := range carriers() {
		for _, size := range []int{0, 1, 61, 20000} {
			fill(m, bytes.Repeat([]byte{7}, size))
			want, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Codec{}.Marshal(m)
			if err != nil || !bytes.Equal(got.Materialize(), want) {
				t.Errorf("%T with %d bytes: differs from proto.Marshal (%v)", m, size, err)
			}
		}
	}
	whole := &brokerv1.ListOffsetsRequest{Topic: string(bytes.Repeat([]byte("x"), 5000))}
	want, _ := proto.Marshal(whole)
	got, err := Codec{}.Marshal(whole)
	if err != nil || !bytes.Equal(got.Materialize(), want) {
		t.Errorf("a message without payload differs from proto.Marshal (%v)", err)
	}
}

func TestPayloadIsNotCopied(t *testing.T) {
	t.Parallel()
	payload := make([]byte, 20000)
	m := &brokerv1.AppendStreamRequest{Topic: "t", Batches: payload}
	data, err := Codec{}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if sent := data[1].ReadOnlyData(); &sent[0] != &payload[0] {
		t.Error("the payload was copied to be sent")
	}
	one := data.Materialize()
	var got brokerv1.AppendStreamRequest
	if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(one)}, &got); err != nil {
		t.Fatal(err)
	}
	if &got.Batches[len(got.Batches)-1] != &one[len(one)-1] {
		t.Error("the payload was copied on receipt")
	}
}

// TestPooledBufferIsKept: a buffer that a payload lies in never goes back to its pool.
func TestRelease(t *testing.T) {
	t.Parallel()
	released := 0
	data, err := Codec{}.Marshal(&Parts{Message: &brokerv1.FetchStreamResponse{NextOffset: 7}, Payload: [][]byte{make([]byte, 5000)}, Release: func() { released++ }})
	if err != nil {
		t.Fatal(err)
	}
	data.Ref()
	data.Free()
	if released != 0 {
		t.Error("released while it is referred to")
	}
	data.Free()
	if released != 1 {
		t.Errorf("released %d times", released)
	}
}

func TestPooledBufferIsKept(t *testing.T) {
	t.Parallel()
	pool := &countingPool{}
	whole, _ := proto.Marshal(&brokerv1.FetchResponse{NextOffset: 9, Batches: bytes.Repeat([]byte{5}, 20000)})
	for _, c := range []struct {
		name  string
		cuts  int
		freed int
	}{{"one piece", 1, 0}, {"two pieces", 2, 2}} {
		pool.puts = 0
		data := pieces(whole, c.cuts, pool)
		var got brokerv1.FetchResponse
		if err := (Codec{}).Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		data.Free()
		if pool.puts != c.freed || len(got.GetBatches()) != 20000 || got.GetNextOffset() != 9 {
			t.Errorf("%s: %d buffers went back, want %d", c.name, pool.puts, c.freed)
		}
	}
}

type countingPool struct{ puts int }

func (p *countingPool) Get(n int) *[]byte { return new(make([]byte, n)) }
func (p *countingPool) Put(*[]byte)       { p.puts++ }

func pieces(b []byte, n int, pool mem.BufferPool) mem.BufferSlice {
	var data mem.BufferSlice
	for i := range n {
		part := bytes.Clone(b[i*len(b)/n : (i+1)*len(b)/n])
		data = append(data, mem.NewBuffer(&part, pool))
	}
	return data
}

func TestParts(t *testing.T) {
	t.Parallel()
	m := &brokerv1.FetchStreamResponse{HighWatermark: 3}
	data, err := Codec{}.Marshal(&Parts{Message: m, Payload: [][]byte{[]byte("ab"), nil, []byte("c")}})
	if err != nil {
		t.Fatal(err)
	}
	var got brokerv1.FetchStreamResponse
	if err := (Codec{}).Unmarshal(data, &got); err != nil || string(got.GetBatches()) != "abc" || got.GetHighWatermark() != 3 {
		t.Errorf("got %v, %v", &got, err)
	}
	m.Batches = []byte("x")
	for _, bad := range []any{
		&Parts{Message: m, Payload: [][]byte{{1}}}, &Parts{Message: &brokerv1.ListOffsetsRequest{}, Payload: [][]byte{{1}}}, "text", &Parts{},
	} {
		if _, err := (Codec{}).Marshal(bad); err == nil {
			t.Errorf("%T %v is taken", bad, bad)
		}
	}
}

func publishes() []proto.Message {
	messages := []*databusv1.Message{{Key: []byte("k"), Value: []byte(`{"a":1}`), Id: "1", Headers: []*databusv1.Header{{Key: "h", Value: []byte("v")}}}, {Value: []byte{}}, {}}
	return []proto.Message{&databusv1.PublishStreamRequest{Sequence: 7, Channel: "c", Messages: messages}, &databusv1.PublishRequest{Channel: "c", Messages: messages}}
}

func TestPublishesOutliveTheTransportsBuffers(t *testing.T) {
	t.Parallel()
	for _, m := range publishes() {
		raw, _ := proto.Marshal(m)
		data := pieces(raw, 3, mem.NopBufferPool{})
		got := m.ProtoReflect().New().Interface()
		if err := (Codec{}).Unmarshal(data, got); err != nil || !proto.Equal(got, m) {
			t.Fatalf("got %v, %v", got, err)
		}
		for _, piece := range data {
			clear(piece.ReadOnlyData()) // the transport's buffers are used again
		}
		if !proto.Equal(got, m) {
			t.Fatalf("got %v after the buffers were given back", got)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, m := range append(carriers(), publishes()...) {
		if r := m.ProtoReflect(); r.Descriptor().Fields().ByName("messages") == nil {
			fill(m, bytes.Repeat([]byte{7}, 100))
		}
		b, _ := proto.Marshal(m)
		f.Add(b, uint8(1))
		f.Add(b, uint8(3))
		f.Add(append(b, b...), uint8(2))
		f.Add(protowire.AppendVarint(protowire.AppendTag(b, 99, protowire.VarintType), 1), uint8(1))
	}
	f.Add([]byte{15 << 3, 1, 0x7a, 0}, uint8(1))
	f.Add(append([]byte{0x7a, 0x80, 0x80, 1}, make([]byte, 16384)...), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, n uint8) {
		for _, m := range append(carriers(), publishes()...) {
			want := m.ProtoReflect().New().Interface()
			wantErr := proto.Unmarshal(b, want)
			err := Codec{}.Unmarshal(pieces(b, 1+int(n%8), mem.NopBufferPool{}), m)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%T: got %v, want %v", m, err, wantErr)
			}
			if err == nil && !proto.Equal(m, want) {
				t.Fatalf("%T: got %v, want %v", m, m, want)
			}
		}
	})
}

// echo answers each append with its payload's length, over a real connection.
type echo struct {
	brokerv1.UnimplementedLogServiceServer
}

func (echo) AppendStream(stream grpc.BidiStreamingServer[brokerv1.AppendStreamRequest, brokerv1.AppendStreamResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client is done
		}
		if err := stream.Send(&brokerv1.AppendStreamResponse{Sequence: int64(len(m.GetBatches())), Duplicate: allAre(m.GetBatches(), 7)}); err != nil {
			return err
		}
	}
}

func (echo) FetchStream(r *brokerv1.FetchStreamRequest, stream grpc.ServerStreamingServer[brokerv1.FetchStreamResponse]) error {
	part := bytes.Repeat([]byte{7}, int(r.GetOffset())/4)
	return stream.SendMsg(&Parts{Message: &brokerv1.FetchStreamResponse{}, Payload: [][]byte{part, part, part, part}})
}

func allAre(b []byte, value byte) bool { return bytes.Count(b, []byte{value}) == len(b) }

func dial(t testing.TB) brokerv1.LogServiceClient {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(Codec{}))
	brokerv1.RegisterLogServiceServer(server, echo{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(Codec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return brokerv1.NewLogServiceClient(conn)
}

func TestOverAConnection(t *testing.T) {
	t.Parallel()
	client := dial(t)
	stream, err := client.AppendStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, 9000, 16384, 40000, 1 << 20} {
		if err := stream.Send(&brokerv1.AppendStreamRequest{Topic: "t", Batches: bytes.Repeat([]byte{7}, size)}); err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil || got.GetSequence() != int64(size) || !got.GetDuplicate() {
			t.Errorf("%d bytes: got %v, %v", size, got, err)
		}
	}
	follow, err := client.FetchStream(t.Context(), &brokerv1.FetchStreamRequest{Topic: "t", Offset: 40000})
	if err != nil {
		t.Fatal(err)
	}
	got, err := follow.Recv()
	if err != nil || len(got.GetBatches()) != 40000 || !allAre(got.GetBatches(), 7) {
		t.Errorf("got %d bytes, %v", len(got.GetBatches()), err)
	}
}

func BenchmarkMarshal(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20} {
		m := &brokerv1.AppendStreamRequest{Topic: "orders", Partition: 3, Sequence: 9, Batches: make([]byte, size)}
		b.Run(name(size)+"/raw", func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				data, _ := Codec{}.Marshal(m)
				data.Free()
			}
		})
		b.Run(name(size)+"/proto", func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				data, _ := marshalWhole(m)
				data.Free()
			}
		})
	}
}

// BenchmarkUnmarshal takes the payload's CRC too, as every receiver does: a copy that leaves the caches cold is paid for there.
func BenchmarkUnmarshal(b *testing.B) {
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, size := range []int{64 << 10, 1 << 20} {
		whole, _ := proto.Marshal(&brokerv1.AppendStreamRequest{Topic: "orders", Partition: 3, Sequence: 9, Batches: make([]byte, size)})
		frames := pieces(whole, (size+16383)/16384, nil)
		b.Run(name(size)+"/raw", func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				var m brokerv1.AppendStreamRequest
				_ = Codec{}.Unmarshal(frames, &m)
				crc32.Checksum(m.GetBatches(), table)
			}
		})
		b.Run(name(size)+"/proto", func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				var m brokerv1.AppendStreamRequest
				buf := frames.MaterializeToBuffer(mem.DefaultBufferPool())
				_ = proto.Unmarshal(buf.ReadOnlyData(), &m)
				crc32.Checksum(m.GetBatches(), table)
				buf.Free()
			}
		})
	}
}

func name(size int) string {
	if size >= 1<<20 {
		return "1MiB"
	}
	return "64KiB"
}
