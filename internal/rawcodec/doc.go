// Package rawcodec is a grpc-go codec that carries record batches without copying them.
//
// It owns the protobuf encoding of the messages that carry one large payload in their last `bytes` field: sent, the payload
// goes to the transport as it is; received, it is a slice of the buffer that the transport filled. The payloads of publishes share one buffer when they are received. Every other message is
// encoded as grpc-go's own codec does. On the wire there is no difference.
//
// It may know the generated messages of the log and publish services and grpc-go's buffers; not what is in a payload.
package rawcodec
