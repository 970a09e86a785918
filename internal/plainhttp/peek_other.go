//go:build !unix

package plainhttp

import "net"

// peek cannot look without reading here: a caller that went away is noticed once it is answered.
func peek(net.Conn) (waiting, gone bool) { return false, false }
