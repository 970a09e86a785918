// Package ports finds ports for the servers that a benchmark starts. They lie below those that the kernel gives to outgoing
// connections (ip_local_port_range): a load generator makes many, and one could take a port between the moment it was found
// free and the moment its server binds it.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

const (
	lowest   = 10000
	ephemera = 32768 // Linux's default of where they begin
	tries    = 200
)

// limit is the first port that the kernel may give to a connection.
func limit() int {
	var first int
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &first)
	}
	if err != nil || first <= lowest {
		return ephemera
	}
	return first
}

func free(port int) bool {
	l, err := net.Listen("tcp", addr(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

var errNone = errors.New("no free port on 127.0.0.1 below the kernel's ephemeral ones")

// Free gives a loopback address that was free a moment ago.
func Free() (hostPort, port string, err error) {
	for range tries {
		n := lowest + rand.IntN(limit()-lowest)
		if free(n) {
			return addr(n), strconv.Itoa(n), nil
		}
	}
	return "", "", errNone
}

// Offset gives a number that moves each of the ports to one that was free a moment ago.
func Offset(from ...int) (int, error) {
	least, most := from[0], from[0]
	for _, p := range from {
		least, most = min(least, p), max(most, p)
	}
next:
	for range tries {
		offset := lowest - least + rand.IntN(limit()-most-(lowest-least))
		for _, p := range from {
			if !free(p + offset) {
				continue next
			}
		}
		return offset, nil
	}
	return 0, errNone
}
