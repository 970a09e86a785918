// Package vfstest has file systems to test durability against: Mem forgets and tears what was not synced, Fault
// refuses what it is told to refuse. Nothing outside of tests may use it.
package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/vfs"
)

// Mem is a file system in memory that keeps apart what was written and what a loss of power could not take away:
// a file's content up to its last Sync, a directory's names up to its last SyncDir. All methods may run concurrently.
type Mem struct {
	mu    sync.Mutex
	root  *node
	locks map[string]bool
	syncs int
}

var _ vfs.FS = (*Mem)(nil)

// node is a file or a directory.
type node struct {
	dir bool
	// of a directory
	names, durableNames map[string]*node
	nameOps             []nameOp // since the last SyncDir
	// of a file
	data, durable []byte
	writes        []write // since the last Sync
}

// nameOp sets a name, or removes it when to is nil. A rename is two names changed in one.
type nameOp struct {
	name, gone string
	to         *node
}

// write is a change of a file's content: bytes at off, or a new size when data is nil.
type write struct {
	off  int64
	data []byte
}

func newDir() *node {
	return &node{dir: true, names: make(map[string]*node), durableNames: make(map[string]*node)}
}

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newDir(), locks: make(map[string]bool)} }

// Syncs is how many times anything was synced.
func (m *Mem) Syncs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.syncs
}

func split(name string) []string {
	return strings.FieldsFunc(filepath.Clean(name), func(r rune) bool { return r == '/' })
}

func (m *Mem) find(name string) (*node, error) {
	n := m.root
	for _, part := range split(name) {
		if !n.dir {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		if n = n.names[part]; n == nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

func (m *Mem) parent(name string) (*node, string, error) {
	d, err := m.find(filepath.Dir(filepath.Clean(name)))
	if err == nil && !d.dir {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return d, filepath.Base(name), err
}

func (n *node) set(name string, to *node, gone string) {
	if gone != "" {
		delete(n.names, gone)
	}
	if to == nil {
		delete(n.names, name)
	} else {
		n.names[name] = to
	}
	n.nameOps = append(n.nameOps, nameOp{name: name, to: to, gone: gone})
}

// OpenFile implements vfs.FS.
func (m *Mem) OpenFile(name string, flag int) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil && (flag&os.O_CREATE == 0 || !errors.Is(err, fs.ErrNotExist)) {
		return nil, err
	}
	if n == nil {
		d, base, err := m.parent(name)
		if err != nil {
			return nil, err
		}
		n = &node{}
		d.set(base, n, "")
	}
	if n.dir {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is a directory")}
	}
	if flag&os.O_TRUNC != 0 && len(n.data) > 0 {
		n.truncate(0)
	}
	return &memFile{m: m, n: n}, nil
}

// MkdirAll implements vfs.FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, part := range split(dir) {
		next := n.names[part]
		if next == nil {
			next = newDir()
			n.set(part, next, "")
		}
		if !next.dir {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: fs.ErrExist}
		}
		n = next
	}
	return nil
}

// Rename implements vfs.FS.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(from)
	if err != nil {
		return err
	}
	fd, fb, err := m.parent(from)
	if err != nil {
		return err
	}
	td, tb, err := m.parent(to)
	if err != nil {
		return err
	}
	if fd == td {
		td.set(tb, n, fb)
		return nil
	}
	fd.set(fb, nil, "")
	td.set(tb, n, "")
	return nil
}

// Remove implements vfs.FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return err
	}
	if n.dir && len(n.names) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: errors.New("directory not empty")}
	}
	d, base, err := m.parent(name)
	if err != nil {
		return err
	}
	d.set(base, nil, "")
	return nil
}

// RemoveAll implements vfs.FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.find(name); err != nil {
		return nil
	}
	d, base, err := m.parent(name)
	if err == nil {
		d.set(base, nil, "")
	}
	return nil
}

// ReadDir implements vfs.FS.
func (m *Mem) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(dir)
	if err != nil {
		return nil, err
	}
	out := make([]fs.DirEntry, 0, len(n.names))
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		c := n.names[name]
		out = append(out, fs.FileInfoToDirEntry(info{name: name, size: int64(len(c.data)), dir: c.dir}))
	}
	return out, nil
}

// Stat implements vfs.FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return nil, err
	}
	return info{name: filepath.Base(name), size: int64(len(n.data)), dir: n.dir}, nil
}

// SyncDir implements vfs.FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.syncs++
	n, err := m.find(dir)
	if err != nil {
		return err
	}
	n.durableNames = maps.Clone(n.names)
	n.nameOps = nil
	return nil
}

// Lock implements vfs.FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, vfs.ErrLocked
	}
	m.locks[name] = true
	return unlock{m, name}, nil
}

type unlock struct {
	m    *Mem
	name string
}

func (u unlock) Close() error {
	u.m.mu.Lock()
	defer u.m.mu.Unlock()
	delete(u.m.locks, u.name)
	return nil
}

// Free implements vfs.FS.
func (m *Mem) Free(string) (free, total uint64, err error) { return 1 << 40, 1 << 41, nil }

type memFile struct {
	m *Mem
	n *node
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteV(bufs [][]byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	w := write{off: off, data: slices.Concat(bufs...)}
	f.n.write(w)
	f.n.writes = append(f.n.writes, w)
	return len(w.data), nil
}

func (n *node) write(w write) {
	if end := int(w.off) + len(w.data); end > len(n.data) {
		n.data = append(n.data, make([]byte, end-len(n.data))...)
	}
	copy(n.data[w.off:], w.data)
}

func (n *node) truncate(size int64) {
	if size <= int64(len(n.data)) {
		n.data = n.data[:size:size]
	} else {
		n.data = append(n.data, make([]byte, size-int64(len(n.data)))...)
	}
	n.writes = append(n.writes, write{off: size})
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if size != int64(len(f.n.data)) {
		f.n.truncate(size)
	}
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.m.syncs++
	f.n.durable = append(f.n.durable[:0:0], f.n.data...)
	f.n.writes = nil
	return nil
}

func (f *memFile) Preallocate(int64, int64) error { return nil }
func (f *memFile) WriteOut(int64, int64)          {}
func (f *memFile) Close() error                   { return nil }
func (f *memFile) OS() *os.File                   { return nil }

type info struct {
	name string
	size int64
	dir  bool
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return i.size }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) IsDir() bool        { return i.dir }
func (i info) Sys() any           { return nil }
func (i info) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
