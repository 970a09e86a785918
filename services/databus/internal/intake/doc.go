// Package intake is how messages reach the agent: the two hot REST paths as plain net/http handlers, and PublishService by
// gRPC and Connect. It owns bodies (content types, encodings, limits), CloudEvents, and what an answer looks like. Every
// intake ends in the publisher.
//
// It knows neither channels nor batches.
package intake
