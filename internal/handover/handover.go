// Package handover lets a process replace its own program without refusing a connection: its listening sockets stay open
// across exec, and whoever connects meanwhile waits in their queue until the new program accepts.
//
// It knows sockets and environment, and nothing of who serves on them.
package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable tells the new program what it inherits: network|address|descriptor, separated by commas.
const variable = "DATABUS_LISTENERS"

// Sockets are the listening sockets of a process. All methods may run concurrently, and on a nil *Sockets, which inherits and
// keeps nothing. A process that ends without Exec calls Close.
type Sockets struct {
	mu        sync.Mutex
	inherited []socket
	kept      []socket
}

type socket struct {
	network, address string
	file             *os.File
}

// Inherit takes over what a program before this one in the same process left open. It is called once, early.
func Inherit() (*Sockets, error) {
	s := &Sockets{}
	list := os.Getenv(variable)
	if list == "" {
		return s, nil
	}
	if err := os.Unsetenv(variable); err != nil { // a child is not heir to it
		return nil, fmt.Errorf("inherit listeners: %w", err)
	}
	for item := range strings.SplitSeq(list, ",") {
		parts := strings.Split(item, "|")
		if len(parts) != 3 {
			return nil, fmt.Errorf("inherit listeners: %s holds %q, which is not network|address|descriptor", variable, item)
		}
		fd, err := strconv.Atoi(parts[2])
		if err != nil || fd < 3 {
			return nil, fmt.Errorf("inherit listeners: %s holds descriptor %q", variable, parts[2])
		}
		unix.CloseOnExec(fd)
		s.inherited = append(s.inherited, socket{parts[0], parts[1], os.NewFile(uintptr(fd), parts[1])})
	}
	return s, nil
}

// Inherited returns the listener of an address that the program before had open, and keeps it for the next one; nil where
// there is none.
func (s *Sockets) Inherited(network, address string) (net.Listener, error) {
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, x := range s.inherited {
		if x.network != network || x.address != address {
			continue
		}
		s.inherited = append(s.inherited[:i:i], s.inherited[i+1:]...)
		l, err := net.FileListener(x.file)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("take over the listener of %s: %w", address, err), x.file.Close())
		}
		keepFile(l)
		s.kept = append(s.kept, x)
		return l, nil
	}
	return nil, nil
}

// Keep keeps a listener's socket open for the next program, whatever becomes of the listener.
func (s *Sockets) Keep(network, address string, l net.Listener) error {
	if s == nil {
		return nil
	}
	filer, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return fmt.Errorf("keep the listener of %s: a %T has no socket", address, l)
	}
	f, err := filer.File()
	if err != nil {
		return fmt.Errorf("keep the listener of %s: %w", address, err)
	}
	keepFile(l)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, socket{network, address, f})
	return nil
}

// keepFile leaves a Unix socket's file where it is when the listener is closed.
func keepFile(l net.Listener) {
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
}

// Settle closes what was inherited and not asked for: the new config has other addresses.
func (s *Sockets) Settle() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := closeAll(s.inherited)
	s.inherited = nil
	return err
}

// Close closes the sockets, and removes the files of Unix ones.
func (s *Sockets) Close() error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := closeAll(append(s.inherited, s.kept...))
	s.inherited, s.kept = nil, nil
	return err
}

func closeAll(list []socket) error {
	var err error
	for _, x := range list {
		err = errors.Join(err, x.file.Close())
		if x.network == "unix" {
			if rerr := os.Remove(x.address); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
				err = errors.Join(err, rerr)
			}
		}
	}
	return err
}

// Exec replaces this program by the one at path, which inherits the sockets. Nothing of this program runs on, so everything
// else must be closed before. It returns only where that fails.
func (s *Sockets) Exec(path string, args, env []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]string, 0, len(s.kept))
	for _, x := range s.kept {
		fd := int(x.file.Fd())
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("hand over the listener of %s: %w", x.address, err)
		}
		items = append(items, x.network+"|"+x.address+"|"+strconv.Itoa(fd))
	}
	env = append(env[:len(env):len(env)], variable+"="+strings.Join(items, ","))
	return fmt.Errorf("replace the program by %s: %w", path, syscall.Exec(path, args, env))
}
