// Package keypath takes a message's key out of its JSON payload. It owns the compiler of RFC 9535 singular queries
// (`$.user.id`, `$.items[0]['sku']`) and an evaluator that walks the payload's bytes once a segment and builds no tree.
// It knows neither channels nor messages.
//
// What a query selects, where JSON leaves room:
//
//   - Of members with the same name the last one counts, as in most parsers (Go, Python, JavaScript, Java). The choice is
//     made level by level: in {"a":{"b":1},"a":2} the query $.a.b selects nothing.
//   - Names are compared after their escapes are read: $.a selects the member written "a" too. A name with a lone
//     surrogate equals no query.
//   - A negative index counts from the end, as the RFC says.
//
// The payload must be one valid JSON value; callers check that first, since they owe the producer a position in the error.
// On anything else Find selects nothing or something, but never panics and never reads past the payload.
package keypath
