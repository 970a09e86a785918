package ports

import (
	"net"
	"strconv"
	"testing"
)

func TestBelowEphemeral(t *testing.T) {
	for range 100 {
		_, port, err := Free()
		if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < lowest || n >= limit() {
			t.Fatalf("port %q, want one from %d to below %d: %v", port, lowest, limit(), err)
		}
		offset, err := Offset(8080, 9092)
		if err != nil || 8080+offset < lowest || 9092+offset >= limit() {
			t.Fatalf("offset %d: %v", offset, err)
		}
	}
}

func TestTaken(t *testing.T) {
	hostPort, port, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", hostPort)
	if err != nil {
		t.Skip("somebody took the port in between:", err)
	}
	defer func() { _ = l.Close() }()
	if n, _ := strconv.Atoi(port); free(n) {
		t.Fatalf("port %d is listened on, and free", n)
	}
}
