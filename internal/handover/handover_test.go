package handover

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMain is also the program that replaces itself: it answers one connection under its first name, and one under its second.
func TestMain(m *testing.M) {
	if os.Getenv("HANDOVER_ROLE") == "" {
		os.Exit(m.Run())
	}
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func program() error {
	s, err := Inherit()
	if err != nil {
		return err
	}
	addresses := map[string]string{"tcp": os.Getenv("HANDOVER_TCP"), "unix": os.Getenv("HANDOVER_UNIX")}
	var open []net.Listener
	for network, address := range addresses {
		l, err := s.Inherited(network, address)
		if err != nil {
			return err
		}
		if l == nil {
			if l, err = net.Listen(network, address); err != nil {
				return err
			}
			if err := s.Keep(network, address, l); err != nil {
				return err
			}
		}
		open = append(open, l)
	}
	if err := s.Settle(); err != nil {
		return err
	}
	fmt.Println("listening")
	for _, l := range open {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		fmt.Fprint(conn, os.Getenv("HANDOVER_ROLE"))
		conn.Close()
		l.Close()
	}
	if os.Getenv("HANDOVER_ROLE") == "second" {
		return s.Close()
	}
	// Wait until the test has connected again, while nobody accepts.
	if _, err := io.ReadAll(os.Stdin); err != nil {
		return err
	}
	os.Setenv("HANDOVER_ROLE", "second")
	return s.Exec(os.Args[0], os.Args, os.Environ())
}

func TestExecKeepsTheSockets(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp := l.Addr().String()
	l.Close()
	path := filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HANDOVER_ROLE=first", "HANDOVER_TCP="+tcp, "HANDOVER_UNIX="+path)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"first", "second"} {
		var conns []net.Conn
		for network, address := range map[string]string{"tcp": tcp, "unix": path} {
			conn, err := net.Dial(network, address)
			if err != nil {
				t.Fatalf("%s %s: %v", role, network, err)
			}
			defer conn.Close()
			conns = append(conns, conn)
		}
		if role == "second" {
			in.Close() // everybody is connected: the program may be replaced
		}
		for _, conn := range conns {
			if got, err := io.ReadAll(conn); err != nil || string(got) != role {
				t.Fatalf("answer %q, want %q: %v", got, role, err)
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket's file was left")
	}
}

func TestNilKeepsNothing(t *testing.T) {
	t.Parallel()
	var s *Sockets
	l, err := s.Inherited("tcp", "x")
	if l != nil || err != nil || s.Keep("tcp", "x", nil) != nil || s.Settle() != nil || s.Close() != nil {
		t.Fatal("a nil Sockets does something")
	}
}
