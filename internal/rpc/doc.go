// Package rpc owns how a service of the suite is reached: its HTTP port, where Connect, gRPC, gRPC-Web and REST
// meet, its grpc-go port, an optional Unix socket, and everything that each of them needs alike: health,
// readiness, reflection, metrics, the OpenAPI document, validation, translation of errors, recovery from panics,
// trace context, limits against slow and large callers, and a drain that is bounded.
//
// It knows no service and no message. A service registers its generated handlers and says when it is ready.
package rpc
