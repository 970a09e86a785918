// Package errs owns the one coded error type of the suite, and its translation to and from gRPC, Connect and
// HTTP. A service makes an *Error where it knows the operation, the identity and what the caller can do next;
// the edges (package rpc, the gateway, the clients) translate it once, and what crosses the wire reads back as
// the same *Error on the other side.
//
// It knows no service, no message of the suite and no transport beyond status codes and details.
package errs
