package wirejson

import (
	"bytes"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// ConnectCodec makes a Connect handler speak the suite's JSON, strictly: an unknown field is refused.
func ConnectCodec() connect.Option {
	return connect.WithOptions(connect.WithCodec(codec{name: "json"}), connect.WithCodec(codec{name: "json; charset=utf-8"}))
}

// ConnectClientCodec makes a Connect client speak the suite's JSON. It skips fields that a newer server may have added.
func ConnectClientCodec() connect.ClientOption {
	return connect.WithCodec(codec{name: "json", lenient: true})
}

// codec is a connect.Codec, with the extensions by which Connect avoids a copy and makes GET requests cacheable.
type codec struct {
	name    string
	lenient bool
}

func (c codec) Name() string { return c.name }

func (c codec) Marshal(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

func (codec) MarshalAppend(dst []byte, v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode %T as JSON: it is no protobuf message", v)
	}
	return Append(dst, m)
}

func (c codec) MarshalStable(v any) ([]byte, error) { return c.MarshalAppend(nil, v) }

func (codec) IsBinary() bool { return false }

func (c codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decode JSON into %T: it is no protobuf message", v)
	}
	return unmarshal(bytes.Clone(data), m, c.lenient) // Connect uses data again, and payloads alias it
}
