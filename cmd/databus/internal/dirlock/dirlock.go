// Package dirlock keeps a second process off a data directory. It owns the lock file and the note in it that says who holds
// the directory and where that process answers. It knows nothing of what is in the directory.
package dirlock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/databus-suite/databus/internal/errs"
)

// FileName of the lock within its directory.
const FileName = "databus.lock"

// Holder is the note in the lock file.
type Holder struct {
	PID       int               `json:"pid"`
	Started   time.Time         `json:"started"`
	Addresses map[string]string `json:"addresses,omitempty"`
}

// Lock is a directory that this process holds until Release, or until the process ends however it ends: the kernel drops the
// lock, so that a crash leaves nothing to clean up. For one goroutine.
type Lock struct {
	dir  string
	file *os.File
}

// Acquire makes the directory where it is missing and locks it. The error is an *errs.Error: AlreadyExists/DATA_DIR_IN_USE
// where another process holds it.
func Acquire(dir string) (*Lock, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, errs.New(errs.Precondition, "DATA_DIR", "make the data directory %s", dir).Wrap(err).
			WithNext("give --data a directory that this user may write")
	}
	file, err := os.OpenFile(filepath.Join(dir, FileName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, errs.New(errs.Precondition, "DATA_DIR", "open the lock of the data directory %s", dir).Wrap(err).
			WithNext("give --data a directory that this user may write")
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		holder := readHolder(file)
		closeErr := file.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errs.New(errs.Precondition, "DATA_DIR", "lock the data directory %s", dir).Wrap(errors.Join(err, closeErr))
		}
		return nil, inUse(dir, holder)
	}
	l := &Lock{dir: dir, file: file}
	if err := l.Note(nil); err != nil {
		return nil, errors.Join(err, l.Release())
	}
	return l, nil
}

// Note writes down where this process answers, for whoever finds the directory locked.
func (l *Lock) Note(addresses map[string]string) error {
	note, err := json.Marshal(Holder{PID: os.Getpid(), Started: time.Now().UTC().Truncate(time.Second), Addresses: addresses})
	if err == nil {
		err = l.file.Truncate(0)
	}
	if err == nil {
		_, err = l.file.WriteAt(append(note, '\n'), 0)
	}
	if err != nil {
		return fmt.Errorf("write the lock of the data directory %s: %w", l.dir, err)
	}
	return nil
}

// Release gives the directory up. The file stays: to remove it could remove the lock of a process that just took it.
func (l *Lock) Release() error {
	err := l.file.Truncate(0)
	// A process that is being started may have the descriptor too, so closing it alone may not let go at once.
	return errors.Join(err, unix.Flock(int(l.file.Fd()), unix.LOCK_UN), l.file.Close())
}

// readHolder reads the note as far as there is one; whoever holds the lock may be just writing it.
func readHolder(file *os.File) Holder {
	var h Holder
	note, err := io.ReadAll(io.LimitReader(file, 64<<10))
	if err != nil || json.Unmarshal(note, &h) != nil {
		return Holder{}
	}
	return h
}

func inUse(dir string, h Holder) error {
	who := "another process"
	stop := "stop it"
	if h.PID > 0 {
		who = fmt.Sprintf("process %d (since %s)", h.PID, h.Started.Format(time.RFC3339))
		stop = fmt.Sprintf("stop it with `kill %d`", h.PID)
	}
	e := errs.New(errs.AlreadyExists, "DATA_DIR_IN_USE", "the data directory %s is in use by %s", dir, who).
		WithNext("%s, or give this one a --data and a --port-offset of its own", stop)
	for name, address := range h.Addresses {
		e = e.WithMeta(name, address)
	}
	return e
}
