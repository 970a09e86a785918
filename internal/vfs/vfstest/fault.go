package vfstest

import (
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/databus-suite/databus/internal/vfs"
)

// Op is what a Fault is asked about.
type Op string

// The operations that can be made to fail.
const (
	OpOpen     Op = "open"
	OpRead     Op = "read"
	OpWrite    Op = "write"
	OpTruncate Op = "truncate"
	OpSync     Op = "sync"
	OpRename   Op = "rename"
	OpRemove   Op = "remove"
	OpMkdir    Op = "mkdir"
	OpStat     Op = "stat"
)

// Fault is a file system that fails as it is told. A write that is refused has done nothing; a sync that is refused has
// not synced.
type Fault struct {
	vfs.FS
	decide atomic.Pointer[func(Op, string) error]
}

// NewFault returns a Fault that lets everything pass to fsys.
func NewFault(fsys vfs.FS) *Fault { return &Fault{FS: fsys} }

// Set makes decide choose which operations fail, and how. nil lets everything pass.
func (f *Fault) Set(decide func(op Op, name string) error) {
	if decide == nil {
		f.decide.Store(nil)
		return
	}
	f.decide.Store(&decide)
}

func (f *Fault) ask(op Op, name string) error {
	d := f.decide.Load()
	if d == nil {
		return nil
	}
	if err := (*d)(op, name); err != nil {
		return &fs.PathError{Op: string(op), Path: name, Err: err}
	}
	return nil
}

func (f *Fault) OpenFile(name string, flag int) (vfs.File, error) {
	if err := f.ask(OpOpen, name); err != nil {
		return nil, err
	}
	inner, err := f.FS.OpenFile(name, flag)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: inner, f: f, name: name}, nil
}

func (f *Fault) MkdirAll(dir string) error {
	if err := f.ask(OpMkdir, dir); err != nil {
		return err
	}
	return f.FS.MkdirAll(dir)
}

func (f *Fault) Rename(from, to string) error {
	if err := f.ask(OpRename, to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *Fault) Remove(name string) error {
	if err := f.ask(OpRemove, name); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *Fault) Stat(name string) (fs.FileInfo, error) {
	if err := f.ask(OpStat, name); err != nil {
		return nil, err
	}
	return f.FS.Stat(name)
}

func (f *Fault) SyncDir(dir string) error {
	if err := f.ask(OpSync, dir); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

func (f *Fault) Lock(name string) (io.Closer, error) { return f.FS.Lock(name) }

type faultFile struct {
	vfs.File
	f    *Fault
	name string
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.f.ask(OpRead, f.name); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

func (f *faultFile) WriteV(bufs [][]byte, off int64) (int, error) {
	if err := f.f.ask(OpWrite, f.name); err != nil {
		return 0, err
	}
	return f.File.WriteV(bufs, off)
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.f.ask(OpTruncate, f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultFile) Sync() error {
	if err := f.f.ask(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *faultFile) OS() *os.File { return nil }
