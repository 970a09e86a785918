//go:build unix

package plainhttp

import (
	"errors"
	"net"
	"syscall"
)

// peek looks at a connection without reading: whether bytes wait to be read, or its caller went away.
func peek(c net.Conn) (waiting, gone bool) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return false, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false, true
	}
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		waiting = n > 0
		gone = err == nil && n == 0 || err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR)
	})
	return waiting, gone || err != nil
}
