package vfs

import (
	"container/list"
	"os"
	"sync"
)

// Files is a bounded set of open files, shared by everything that reads or writes segments, so that ten
// thousand partitions do not need ten thousand descriptors. A file stays open while someone holds it and,
// after that, until the room is needed. All methods may run concurrently. Close closes what nobody holds;
// what is held is closed by its last Release.
type Files struct {
	fs    FS
	limit int

	mu   sync.Mutex
	open map[string]*Handle
	idle *list.List // of *Handle, least recently used first
}

// NewFiles returns an empty set that keeps at most limit files open beyond those that are held.
func NewFiles(fsys FS, limit int) *Files {
	return &Files{fs: fsys, limit: limit, open: make(map[string]*Handle), idle: list.New()}
}

// Handle is one open file that is held. Release it exactly once for each Acquire.
type Handle struct {
	File
	name  string
	files *Files
	once  sync.Once
	err   error
	// guarded by files.mu
	refs   int
	elem   *list.Element
	forgot bool
}

// Acquire opens name for reading and writing, or returns the open one.
func (s *Files) Acquire(name string) (*Handle, error) { return s.acquire(name, os.O_RDWR) }

// Create is Acquire for a file that may not exist yet.
func (s *Files) Create(name string) (*Handle, error) { return s.acquire(name, os.O_RDWR|os.O_CREATE) }

func (s *Files) acquire(name string, flag int) (*Handle, error) {
	s.mu.Lock()
	h := s.open[name]
	if h == nil {
		h = &Handle{name: name, files: s}
		s.open[name] = h
	}
	h.refs++
	if h.elem != nil {
		s.idle.Remove(h.elem)
		h.elem = nil
	}
	s.mu.Unlock()
	// Opened outside of the lock: a slow disk must not hold up the others.
	h.once.Do(func() { h.File, h.err = s.fs.OpenFile(name, flag) })
	if h.err != nil {
		err := h.err
		s.Forget(name)
		h.Release()
		return nil, err
	}
	return h, nil
}

// Release gives the file back.
func (h *Handle) Release() {
	s := h.files
	var victim *Handle
	s.mu.Lock()
	h.refs--
	if h.refs == 0 {
		if h.forgot {
			victim = h
		} else {
			h.elem = s.idle.PushBack(h)
			if len(s.open) > s.limit {
				victim = s.idle.Remove(s.idle.Front()).(*Handle)
				victim.elem = nil
				delete(s.open, victim.name)
			}
		}
	}
	s.mu.Unlock()
	if victim != nil && victim.File != nil {
		_ = victim.File.Close() // was synced by whoever wrote to it
	}
}

// Forget makes the next Acquire of name open it anew: it was removed, renamed or failed.
func (s *Files) Forget(name string) {
	s.mu.Lock()
	h := s.open[name]
	var victim *Handle
	if h != nil {
		delete(s.open, name)
		h.forgot = true
		if h.elem != nil {
			s.idle.Remove(h.elem)
			h.elem = nil
			victim = h
		}
	}
	s.mu.Unlock()
	if victim != nil && victim.File != nil {
		_ = victim.File.Close()
	}
}

// Close closes every file that nobody holds and makes the others close at their last Release.
func (s *Files) Close() {
	s.mu.Lock()
	names := make([]string, 0, len(s.open))
	for name := range s.open {
		names = append(names, name)
	}
	s.mu.Unlock()
	for _, name := range names {
		s.Forget(name)
	}
}

// Len says how many files are open.
func (s *Files) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}
