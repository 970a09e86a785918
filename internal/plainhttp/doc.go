// Package plainhttp serves the plainest of HTTP/1.1 requests on a connection itself, at about a third of what net/http spends on
// one, and leaves everything else to net/http.
//
// Plain is a POST to one of a few paths whose head is strictly as RFC 9112 wants it, whose body has a Content-Length, and which is
// small. A connection whose next request is anything else goes to net/http for good, with every byte that was read, so that what
// is unusual, malformed, large or slow is answered by net/http, as if this package were not there.
package plainhttp
