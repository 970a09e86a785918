package spool

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/vfs"
)

// memFS is a file system in memory that knows what was synced, so that a test can take the power away.
type memFS struct {
	mu       sync.Mutex
	files    map[string]*memNode // as the running process sees it
	durable  map[string]*memNode // names that a directory sync made durable
	locked   bool
	syncErr  error // the next syncs fail with this
	writeErr error
}

type memNode struct {
	data   []byte
	synced []byte
	writes []memWrite // since the last sync
}

type memWrite struct {
	off  int64
	data []byte
}

func newMemFS() *memFS { return &memFS{files: map[string]*memNode{}, durable: map[string]*memNode{}} }

// crash returns what a power loss leaves: of what was not synced any part, in any order, in sectors.
func (m *memFS) crash(r *rand.Rand) *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := newMemFS()
	names := maps.Clone(m.durable)
	for name, node := range m.files {
		if r.IntN(2) == 0 {
			names[name] = node // the directory happened to be written
		}
	}
	for name, node := range names {
		if m.files[name] != node && r.IntN(2) == 0 {
			continue // removed, and that happened to be written
		}
		data := append([]byte(nil), node.synced...)
		for _, w := range node.writes {
			for at := 0; at < len(w.data); at += 512 {
				part := w.data[at:min(at+512, len(w.data))]
				switch r.IntN(3) {
				case 0: // lost
				case 1: // whole
					data = put(data, w.off+int64(at), part)
				case 2: // the size is there, the bytes are not
					if r.IntN(2) == 0 {
						data = put(data, w.off+int64(at), make([]byte, len(part)))
					} else {
						data = put(data, w.off+int64(at), part[:r.IntN(len(part)+1)])
					}
				}
			}
		}
		c := &memNode{data: data, synced: append([]byte(nil), data...)}
		n.files[name], n.durable[name] = c, c
	}
	return n
}

// kill returns what SIGKILL leaves: everything that was written.
func (m *memFS) kill() *memFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := newMemFS()
	for name, node := range m.files {
		n.files[name] = &memNode{data: append([]byte(nil), node.data...), synced: node.synced, writes: node.writes}
		if m.durable[name] == node {
			n.durable[name] = n.files[name]
		}
	}
	return n
}

func put(data []byte, off int64, b []byte) []byte {
	if end := int(off) + len(b); end > len(data) {
		data = append(data, make([]byte, end-len(data))...)
	}
	copy(data[off:], b)
	return data
}

func (m *memFS) OpenFile(name string, flag int) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	node := m.files[name]
	if node == nil {
		if flag&os.O_CREATE == 0 {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		node = &memNode{}
		m.files[name] = node
	}
	return &memFile{fs: m, node: node}, nil
}

func (m *memFS) MkdirAll(string) error { return nil }
func (m *memFS) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[to] = m.files[from]
	delete(m.files, from)
	return nil
}

func (m *memFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.files, name)
	return nil
}
func (m *memFS) RemoveAll(string) error { return errors.ErrUnsupported }

func (m *memFS) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var es []fs.DirEntry
	for name := range m.files {
		if filepath.Dir(name) == dir {
			es = append(es, fs.FileInfoToDirEntry(memInfo(filepath.Base(name))))
		}
	}
	return es, nil
}
func (m *memFS) Stat(string) (fs.FileInfo, error) { return nil, errors.ErrUnsupported }

func (m *memFS) SyncDir(string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.durable = maps.Clone(m.files)
	return nil
}

func (m *memFS) Lock(string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return nil, vfs.ErrLocked
	}
	m.locked = true
	return memLock{m}, nil
}
func (m *memFS) Free(string) (free, total uint64, err error) { return 1 << 40, 1 << 40, nil }

func (m *memFS) fail(write, sync error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writeErr, m.syncErr = write, sync
}

type memLock struct{ m *memFS }

func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	l.m.locked = false
	return nil
}

type memFile struct {
	fs   *memFS
	node *memNode
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteV(bufs [][]byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	var all []byte
	for _, b := range bufs {
		all = append(all, b...)
	}
	if f.fs.writeErr != nil {
		all = all[:len(all)/2]
	}
	f.node.data = put(f.node.data, off, all)
	f.node.writes = append(f.node.writes, memWrite{off, all})
	return len(all), f.fs.writeErr
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.node.data = f.node.data[:size]
	f.node.writes = append(f.node.writes[:0:0], memWrite{0, append([]byte(nil), f.node.data...)})
	f.node.synced = nil
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return int64(len(f.node.data)), nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.syncErr != nil {
		return f.fs.syncErr
	}
	f.node.synced = append([]byte(nil), f.node.data...)
	f.node.writes = nil
	return nil
}
func (f *memFile) Preallocate(int64, int64) error { return nil }
func (f *memFile) WriteOut(int64, int64)          {}
func (f *memFile) Close() error                   { return nil }
func (f *memFile) OS() *os.File                   { return nil }

type memInfo string

func (i memInfo) Name() string       { return string(i) }
func (i memInfo) Size() int64        { return 0 }
func (i memInfo) Mode() fs.FileMode  { return 0o644 }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) IsDir() bool        { return false }
func (i memInfo) Sys() any           { return nil }
