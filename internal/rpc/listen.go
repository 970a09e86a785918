package rpc

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"github.com/databus-suite/databus/internal/errs"
)

type listeners struct {
	http, grpc, unix net.Listener
	bound            bool
}

// Listen binds the ports and the socket now, so that a port in use is told before anything else starts. Calls
// that arrive wait until Run. The error says which port, what for, who holds it, and how to change it. Once it
// succeeded it has nothing more to do.
func (s *Server) Listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners.bound {
		return nil
	}
	var l listeners
	var err error
	if s.cfg.HTTPAddr != "" {
		l.http, err = s.socket("tcp", s.cfg.HTTPAddr, func() (net.Listener, error) {
			return listenTCP("HTTP", s.cfg.HTTPAddr, s.cfg.HTTPConfiguredBy)
		})
	}
	if err == nil && s.cfg.GRPCAddr != "" {
		l.grpc, err = s.socket("tcp", s.cfg.GRPCAddr, func() (net.Listener, error) {
			return listenTCP("gRPC", s.cfg.GRPCAddr, s.cfg.GRPCConfiguredBy)
		})
	}
	if err == nil && s.cfg.UnixSocket != "" {
		l.unix, err = s.socket("unix", s.cfg.UnixSocket, func() (net.Listener, error) { return listenUnix(s.cfg.UnixSocket) })
	}
	if err != nil {
		return errors.Join(err, l.close())
	}
	l.bound = true
	s.listeners = l
	return nil
}

// socket takes over the listener that the program before had, or listens and keeps the new one for the next program.
func (s *Server) socket(network, address string, listen func() (net.Listener, error)) (net.Listener, error) {
	l, err := s.cfg.Sockets.Inherited(network, address)
	if l != nil || err != nil {
		return l, err
	}
	if l, err = listen(); err != nil {
		return nil, err
	}
	if err := s.cfg.Sockets.Keep(network, address, l); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// HTTPAddr returns the address of the HTTP port once Listen succeeded, with the port that was taken for port 0.
func (s *Server) HTTPAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return addr(s.listeners.http)
}

// GRPCAddr returns the address of the gRPC port once Listen succeeded.
func (s *Server) GRPCAddr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return addr(s.listeners.grpc)
}

func addr(l net.Listener) string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

func (s *Server) closeListeners() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listeners.close()
}

// close closes what is open. The servers may have closed some of it.
func (l listeners) close() error {
	var err error
	for _, lis := range []net.Listener{l.http, l.grpc, l.unix} {
		if lis == nil {
			continue
		}
		if cerr := lis.Close(); cerr != nil && !errors.Is(cerr, net.ErrClosed) {
			err = errors.Join(err, cerr)
		}
	}
	return err
}

func listenTCP(protocol, address, configuredBy string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		return l, nil
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		holder := portHolder(address)
		if holder == "" {
			holder = "another process"
		}
		return nil, errs.New(errs.Unavailable, "PORT_IN_USE", "listen for %s on %s: the port is in use by %s", protocol, address, holder).
			WithNext("stop that process, or choose another port by %s", configuredBy).Wrap(err)
	case errors.Is(err, syscall.EACCES):
		return nil, errs.New(errs.Denied, "PORT_NOT_ALLOWED", "listen for %s on %s: this user may not", protocol, address).
			WithNext("choose a port above 1023 by %s", configuredBy).Wrap(err)
	}
	return nil, errs.New(errs.Invalid, "ADDRESS_INVALID", "listen for %s on %q", protocol, address).
		WithNext("set a host:port of this machine, such as 127.0.0.1:8080, by %s", configuredBy).Wrap(err)
}

// listenUnix takes over a socket file that no process answers on.
func listenUnix(path string) (net.Listener, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return nil, errs.New(errs.Invalid, "SOCKET_PATH_TAKEN", "listen on the Unix socket %s: a file that is no socket is there", path).
			WithNext("choose another path")
	case err == nil:
		if conn, derr := net.Dial("unix", path); derr == nil {
			_ = conn.Close() // it only had to answer
			return nil, errs.New(errs.Unavailable, "SOCKET_IN_USE", "listen on the Unix socket %s: another process answers on it", path).
				WithNext("stop that process, or choose another path")
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on the Unix socket %s: remove what a process that ended left: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on the Unix socket %s: %w", path, err)
	}
	return l, nil
}
