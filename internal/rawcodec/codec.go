package rawcodec

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/runtime/protoiface"

	databusv1 "github.com/databus-suite/databus/gen/go/databus/v1"
)

// Codec is an encoding.CodecV2 for grpc.ForceServerCodecV2 and grpc.ForceCodecV2. It has no state and may be used
// concurrently.
//
// Whoever sends a message must leave its payload unchanged for good, not only until the send returns: the transport reads it
// later, and only Parts.Release tells when. Whoever receives one owns its payload.
type Codec struct{}

var _ encoding.CodecV2 = Codec{}

// Name is the name of grpc-go's own codec, because the bytes are the same.
func (Codec) Name() string { return "proto" }

// Marshal encodes a message, or the message in a Parts.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	var payload [][]byte
	var release func()
	if p, ok := v.(*Parts); ok {
		v, payload, release = p.Message, p.Payload, p.Release
	}
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode %T: it is no protobuf message", v)
	}
	f, ok := fieldOf(m)
	if !ok {
		if payload != nil {
			return nil, fmt.Errorf("encode %T: it has no payload that could come in parts", v)
		}
		return marshalWhole(m)
	}
	return marshalPayload(m, f, payload, release)
}

// Unmarshal decodes a message. A payload that lies in one buffer is not copied.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decode into %T: it is no protobuf message", v)
	}
	if f, ok := fieldOf(m); ok {
		return unmarshalPayload(data, m, f)
	}
	switch m.(type) {
	case *databusv1.PublishRequest, *databusv1.PublishStreamRequest:
		return unmarshalShared(data, m)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	return proto.Unmarshal(buf.ReadOnlyData(), m)
}

// unmarshalShared decodes a message of many `bytes` fields, which share one copy of what was received.
func unmarshalShared(data mem.BufferSlice, m proto.Message) error {
	proto.Reset(m)
	r := m.ProtoReflect()
	_, err := r.ProtoMethods().Unmarshal(protoiface.UnmarshalInput{Message: r, Buf: join(nil, data, data.Len()),
		Flags: protoiface.UnmarshalAliasBuffer, Resolver: protoregistry.GlobalTypes, Depth: protowire.DefaultRecursionLimit})
	return err
}

// marshalWhole encodes into one buffer, from the pool where it is worth it.
func marshalWhole(m proto.Message) (mem.BufferSlice, error) {
	size := proto.Size(m)
	options := proto.MarshalOptions{UseCachedSize: true}
	if mem.IsBelowBufferPoolingThreshold(size) {
		b, err := options.Marshal(m)
		if err != nil {
			return nil, err
		}
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	pool := mem.DefaultBufferPool()
	buf := pool.Get(size)
	if _, err := options.MarshalAppend((*buf)[:0], m); err != nil {
		pool.Put(buf)
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(buf, pool)}, nil
}
