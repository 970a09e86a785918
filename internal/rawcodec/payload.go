package rawcodec

import (
	"fmt"
	"strings"
	"unsafe"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	brokerv1 "github.com/databus-suite/databus/gen/go/databus/broker/v1"
)

// payloadField is the field of the payload in every message that has one. It is the highest, so that it is encoded last.
const payloadField = protowire.Number(15)

// aliasFrom is the size from which a received payload keeps the transport's buffer. A smaller one is copied: it would keep a
// buffer of 16 KiB alive.
const aliasFrom = 8 << 10

// Parts is a message whose payload comes in several slices. A stream takes it in SendMsg in place of the message.
type Parts struct {
	// Message with an empty payload.
	Message proto.Message
	// Payload in order; the receiver gets it in one piece.
	Payload [][]byte
	// Release, where it is set, is called once the transport has let go of a payload of one slice, or never: a small one, and
	// one that was never sent, are left to the garbage collector.
	Release func()
}

// releaser calls a Parts' Release in the place of a pool that would take the buffer back.
type releaser func()

func (releaser) Get(int) *[]byte { panic("rawcodec: a releaser has no buffers") }
func (r releaser) Put(*[]byte)   { r() }

// field points at the payload of one message.
type field struct {
	value *[]byte
}

// fieldOf finds the payload of a message.
func fieldOf(m proto.Message) (field, bool) {
	switch m := m.(type) {
	case *brokerv1.AppendRequest:
		return field{value: &m.Batches}, m != nil
	case *brokerv1.AppendStreamRequest:
		return field{value: &m.Batches}, m != nil
	case *brokerv1.FetchResponse:
		return field{value: &m.Batches}, m != nil
	case *brokerv1.FetchStreamResponse:
		return field{value: &m.Batches}, m != nil
	}
	return field{}, false
}

// withoutPayload copies the other fields. The message itself is not touched: one may be sent to many at once.
func withoutPayload(m proto.Message) proto.Message {
	switch m := m.(type) {
	case *brokerv1.AppendRequest:
		return &brokerv1.AppendRequest{
			Topic: m.GetTopic(), Partition: m.GetPartition(), Ack: m.GetAck(), LeaderEpoch: m.GetLeaderEpoch(), KeepOffsets: m.GetKeepOffsets(),
		}
	case *brokerv1.AppendStreamRequest:
		return &brokerv1.AppendStreamRequest{
			Topic: m.GetTopic(), Partition: m.GetPartition(), Ack: m.GetAck(), LeaderEpoch: m.GetLeaderEpoch(), KeepOffsets: m.GetKeepOffsets(),
			Sequence: m.GetSequence(), Traceparent: m.GetTraceparent(),
		}
	case *brokerv1.FetchResponse:
		return &brokerv1.FetchResponse{
			HighWatermark: m.GetHighWatermark(), LogStartOffset: m.GetLogStartOffset(), NextOffset: m.GetNextOffset(),
		}
	case *brokerv1.FetchStreamResponse:
		return &brokerv1.FetchStreamResponse{
			HighWatermark: m.GetHighWatermark(), LogStartOffset: m.GetLogStartOffset(), NextOffset: m.GetNextOffset(),
		}
	}
	return m
}

// marshalPayload encodes the small fields and the payload's tag into one buffer and lets the payload follow as it is.
func marshalPayload(m proto.Message, f field, parts [][]byte, release func()) (mem.BufferSlice, error) {
	if len(m.ProtoReflect().GetUnknown()) > 0 && parts == nil {
		return marshalWhole(m)
	}
	if parts == nil {
		parts = [][]byte{*f.value}
	} else if len(*f.value) > 0 {
		return nil, fmt.Errorf("encode %T: its payload is given twice", m)
	}
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	rest := withoutPayload(m)
	options := proto.MarshalOptions{}
	head := make([]byte, 0, options.Size(rest)+protowire.SizeTag(payloadField)+protowire.SizeVarint(uint64(length)))
	head, err := options.MarshalAppend(head, rest)
	if err != nil {
		return nil, err
	}
	if length > 0 {
		head = protowire.AppendTag(head, payloadField, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(length))
	}
	data := make(mem.BufferSlice, 1, 1+len(parts))
	data[0] = mem.SliceBuffer(head)
	if release != nil && len(parts) == 1 {
		return append(data, mem.NewBuffer(&parts[0], releaser(release))), nil
	}
	for _, p := range parts {
		if len(p) > 0 {
			data = append(data, mem.SliceBuffer(p))
		}
	}
	return data, nil
}

// unmarshalPayload decodes a message whose payload comes last, which is how every encoder in use writes it; anything else is
// left to proto.Unmarshal.
func unmarshalPayload(data mem.BufferSlice, m proto.Message, f field) error {
	if len(data) == 0 {
		return proto.Unmarshal(nil, m)
	}
	first := data[0].ReadOnlyData()
	head, start, length := findPayload(first)
	if head < 0 || start+length != data.Len() {
		return proto.Unmarshal(data.Materialize(), m)
	}
	if err := proto.Unmarshal(first[:head], m); err != nil {
		return err
	}
	if len(data) == 1 && length >= aliasFrom {
		data[0].Ref() // for good: the payload's new owner frees nothing, so the buffer never goes back to its pool
		*f.value = first[start : start+length : start+length]
		return nil
	}
	*f.value = join(first[start:], data[1:], length)
	return nil
}

// join copies the pieces of a payload into one. A strings.Builder is the one way to get memory that is not cleared first, which
// would cost as much again as the copy.
func join(first []byte, rest mem.BufferSlice, length int) []byte {
	if length == 0 {
		return nil
	}
	var b strings.Builder
	b.Grow(length)
	b.Write(first)
	for _, piece := range rest {
		b.Write(piece.ReadOnlyData())
	}
	return unsafe.Slice(unsafe.StringData(b.String()), length) // the string is not kept: its bytes have one owner
}

// findPayload returns where the payload's tag and the payload itself begin, and the payload's length; head is negative where
// they are not in b.
func findPayload(b []byte) (head, start, length int) {
	const notHere = -1
	for i := 0; i < len(b); {
		number, kind, n := protowire.ConsumeTag(b[i:])
		if n < 0 {
			return notHere, 0, 0
		}
		if number == payloadField && kind == protowire.BytesType {
			size, k := protowire.ConsumeVarint(b[i+n:])
			if k < 0 || size > 1<<31 {
				return notHere, 0, 0
			}
			return i, i + n + k, int(size)
		}
		k := protowire.ConsumeFieldValue(number, kind, b[i+n:])
		if k < 0 {
			return notHere, 0, 0
		}
		i += n + k
	}
	return notHere, 0, 0
}
