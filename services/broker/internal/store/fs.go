package store

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/services/broker/internal/segment"
)

const (
	topicsName = "topics"
	trashName  = "trash"
	lockName   = ".lock"
	// roomNeeded is how many bytes a directory has left that takes new segments while another one could.
	roomNeeded = 1 << 20
	// checkpointReserve is how many bytes of each checkpoint file there is always room for: a block.
	checkpointReserve = 4096
)

// FS is a Store in one or more data directories. A new segment goes to a random healthy one.
type FS struct {
	fs    vfs.FS
	files *vfs.Files

	mu   sync.Mutex
	dirs []*dataDir
	// ready holds the partition directories that are known to exist durably.
	ready map[string]bool
}

var _ Store = (*FS)(nil)

// OpenFS locks and identifies the directories, making those that are new, and empties their trash. files is
// shared with whoever reads segments; the caller closes it after the store.
func OpenFS(fsys vfs.FS, files *vfs.Files, dirs []string) (*FS, error) {
	s := &FS{fs: fsys, files: files, ready: make(map[string]bool)}
	if len(dirs) == 0 {
		return nil, errors.New("open store: no data directory is given")
	}
	for _, path := range dirs {
		d, err := lockDir(fsys, path)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.dirs = append(s.dirs, d)
	}
	if err := identify(fsys, s.dirs); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	for _, d := range s.dirs {
		if err := fsys.RemoveAll(filepath.Join(d.path, trashName)); err != nil {
			return nil, errors.Join(fmt.Errorf("empty the trash of %s: %w", d.path, err), s.Close())
		}
	}
	return s, nil
}

func (s *FS) dir(id ID) (*dataDir, error) {
	for _, d := range s.dirs {
		if d.id == id {
			return d, nil
		}
	}
	return nil, fmt.Errorf("data directory %x: %w", id, ErrNotFound)
}

func (d *dataDir) topic(name string) string { return filepath.Join(d.path, topicsName, name) }
func (d *dataDir) partition(k Key) string {
	return filepath.Join(d.topic(k.Topic), strconv.Itoa(int(k.Partition)))
}

// List implements Store.
func (s *FS) List() ([]Key, error) {
	seen := make(map[Key]bool)
	for _, d := range s.dirs {
		topics, err := readDir(s.fs, filepath.Join(d.path, topicsName))
		if err != nil {
			return nil, err
		}
		for _, t := range topics {
			parts, err := readDir(s.fs, d.topic(t.Name()))
			if err != nil {
				return nil, err
			}
			for _, p := range parts {
				n, err := strconv.ParseInt(p.Name(), 10, 32)
				if err != nil || n < 0 || !p.IsDir() {
					continue
				}
				k := Key{Topic: t.Name(), Partition: int32(n)}
				if k.ID, err = s.topicID(d.partition(k)); err != nil {
					return nil, err
				}
				if k.ID != (ID{}) {
					seen[k] = true
				}
			}
		}
	}
	keys := make([]Key, 0, len(seen))
	for k := range seen {
		keys = append(keys, k)
	}
	return keys, nil
}

// topicID reads a partition directory's metadata. A directory that a crash left before its metadata was complete
// holds nothing that was acknowledged: it has the zero id.
func (s *FS) topicID(dir string) (ID, error) {
	name := filepath.Join(dir, metadataName)
	b, err := vfs.ReadFile(s.fs, name)
	if errors.Is(err, fs.ErrNotExist) {
		return ID{}, nil
	}
	if err != nil {
		return ID{}, fmt.Errorf("read partition metadata: %w", err)
	}
	id, err := parseMetadata(b)
	if err == nil {
		return id, nil
	}
	entries, derr := s.fs.ReadDir(dir)
	if derr != nil {
		return ID{}, derr
	}
	for _, e := range entries {
		if _, ok := segment.ParseName(e.Name()); ok {
			return ID{}, &segment.CorruptError{File: name, Cause: err}
		}
	}
	return ID{}, nil
}

// Load implements Store.
func (s *FS) Load(k Key) (Found, error) {
	f := Found{Key: k}
	for _, d := range s.dirs {
		dir := d.partition(k)
		entries, err := readDir(s.fs, dir)
		if err != nil {
			return f, err
		}
		if len(entries) == 0 {
			continue
		}
		if id, err := s.topicID(dir); err != nil || id != k.ID {
			if err != nil {
				return f, err
			}
			continue
		}
		swaps, err := s.swaps(d, dir, entries)
		if err != nil {
			return f, err
		}
		f.Swaps = append(f.Swaps, swaps...)
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			if base, ok := segment.ParseName(e.Name()); ok {
				st, err := s.fs.Stat(name)
				if err != nil {
					return f, fmt.Errorf("load %s: %w", k, err)
				}
				f.Segments = append(f.Segments, Stub{Dir: d.id, Base: base, Size: st.Size()})
			} else if isCheckpoint(e.Name()) {
				b, err := vfs.ReadFile(s.fs, name)
				if err != nil {
					return f, fmt.Errorf("load %s: %w", k, err)
				}
				if len(b) > 0 {
					f.Checkpoints = append(f.Checkpoints, b)
				}
			}
		}
	}
	slices.SortFunc(f.Segments, func(a, b Stub) int { return cmp.Compare(a.Base, b.Base) })
	if len(f.Swaps) > 0 {
		return f, s.syncCheckpoints(k)
	}
	return f, nil
}

// syncCheckpoints makes sure that what was read of the checkpoints is what a loss of power would leave: files are removed
// on their word.
func (s *FS) syncCheckpoints(k Key) error {
	for _, d := range s.dirs {
		for _, name := range checkpointNames {
			f, err := s.fs.OpenFile(filepath.Join(d.partition(k), name), os.O_RDWR)
			if isNotExist(err) {
				continue
			}
			if err != nil {
				return err
			}
			if err := errors.Join(f.Sync(), f.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// Create implements Store.
func (s *FS) Create(k Key, base int64, o segment.Options, avoid ...ID) (Segment, error) {
	if err := CheckTopic(k.Topic); err != nil {
		return Segment{}, err
	}
	d, err := s.pick(avoid)
	if err != nil {
		return Segment{}, fmt.Errorf("create segment %d of %s: %w", base, k, err)
	}
	dir := d.partition(k)
	if err := s.prepare(d, k); err != nil {
		return Segment{Dir: d.id}, fmt.Errorf("create segment %d of %s: %w", base, k, err)
	}
	seg, err := segment.Create(s.files, s.fs, dir, base, o)
	return Segment{Segment: seg, Dir: d.id}, err
}

// pick chooses a healthy directory at random, of those with room where there are any.
func (s *FS) pick(avoid []ID) (*dataDir, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var healthy, roomy []*dataDir
	var errs []error
	for _, d := range s.dirs {
		switch {
		case d.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", d.path, d.err))
		case !slices.Contains(avoid, d.id):
			healthy = append(healthy, d)
			if free, _, err := s.fs.Free(d.path); err == nil && free >= roomNeeded {
				roomy = append(roomy, d)
			}
		}
	}
	if len(roomy) > 0 {
		return roomy[rand.IntN(len(roomy))], nil
	}
	if len(healthy) == 0 {
		return nil, errors.Join(append([]error{ErrNoDir}, errs...)...)
	}
	return healthy[rand.IntN(len(healthy))], nil
}

// prepare makes a partition's directory with its metadata and checkpoint files, durably. What exists already is synced
// once: a process that died may have left it so that a loss of power would still take it away.
func (s *FS) prepare(d *dataDir, k Key) error {
	dir := d.partition(k)
	s.mu.Lock()
	ok := s.ready[dir]
	s.mu.Unlock()
	if ok {
		return nil
	}
	if _, err := s.fs.Stat(DirFile(d.path)); err != nil { // nothing is made where a disk is not mounted any more
		return fmt.Errorf("%w: %w", ErrMissingDir, err)
	}
	if err := s.fs.MkdirAll(dir); err != nil {
		return err
	}
	name := filepath.Join(dir, metadataName)
	if b, err := vfs.ReadFile(s.fs, name); err != nil || !bytes.Equal(b, metadata(k.ID)) {
		if err := vfs.WriteFile(s.fs, name, metadata(k.ID)); err != nil {
			return err
		}
	}
	for _, name := range []string{metadataName, checkpointNames[0], checkpointNames[1]} {
		f, err := s.fs.OpenFile(filepath.Join(dir, name), os.O_RDWR|os.O_CREATE)
		if err != nil {
			return err
		}
		if isCheckpoint(name) {
			_ = f.Preallocate(0, checkpointReserve) // a full disk must not refuse the checkpoint that lets records go
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	for _, parent := range []string{dir, filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		if err := s.fs.SyncDir(parent); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.ready[dir] = true
	s.mu.Unlock()
	return nil
}

// Open implements Store.
func (s *FS) Open(k Key, stub Stub, o segment.Options) (Segment, error) {
	d, err := s.dir(stub.Dir)
	if err != nil {
		return Segment{}, err
	}
	return Segment{Segment: segment.Open(s.files, s.fs, d.partition(k), stub.Base, stub.Size, o), Dir: d.id}, nil
}

// Remove implements Store.
func (s *FS) Remove(k Key, stub Stub) error {
	seg, err := s.Open(k, stub, segment.Options{})
	if err != nil {
		return err
	}
	if err := seg.Remove(); err != nil {
		return fmt.Errorf("remove segment %s: %w", seg.Path(), err)
	}
	return nil
}

// SaveCheckpoint implements Store: two files are written in place by turns.
func (s *FS) SaveCheckpoint(k Key, dir ID, generation uint64, data []byte) error {
	d, err := s.dir(dir)
	if err != nil {
		return err
	}
	if err := s.prepare(d, k); err != nil {
		return fmt.Errorf("save checkpoint of %s: %w", k, err)
	}
	name := filepath.Join(d.partition(k), checkpointNames[generation%2])
	if err := vfs.WriteFile(s.fs, name, data); err != nil {
		return fmt.Errorf("save checkpoint of %s: %w", k, err)
	}
	return nil
}

// DeletePartition implements Store: the directories move to the trash first, which a restart empties.
func (s *FS) DeletePartition(k Key) error {
	var errs []error
	for _, d := range s.dirs {
		dir := d.partition(k)
		id, err := s.topicID(dir)
		if err == nil && id == k.ID { // else it is not there, or another topic of the same name
			err = s.toTrash(d, k, dir)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", k, err))
		}
	}
	return errors.Join(errs...)
}

func (s *FS) toTrash(d *dataDir, k Key, dir string) error {
	trash := filepath.Join(d.path, trashName)
	if err := s.fs.MkdirAll(trash); err != nil {
		return err
	}
	gone := filepath.Join(trash, fmt.Sprintf("%s-%d-%x-%d", k.Topic, k.Partition, k.ID, rand.Uint64()))
	if err := s.fs.Rename(dir, gone); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.ready, dir)
	s.mu.Unlock()
	topic := filepath.Dir(dir)
	for _, p := range []string{topic, trash} {
		if err := s.fs.SyncDir(p); err != nil {
			return err
		}
	}
	_ = s.fs.Remove(topic) // only when it was the last partition
	return s.fs.RemoveAll(gone)
}

// Fail implements Store.
func (s *FS) Fail(id ID, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, err := s.dir(id); err == nil && d.err == nil {
		d.err, d.since = cause, time.Now()
	}
}

// Restore implements Store.
func (s *FS) Restore(path string) (ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.dirs {
		if filepath.Clean(path) != d.path {
			continue
		}
		if err := s.probe(d); err != nil {
			return d.id, fmt.Errorf("restore data directory %s: %w; repair the disk and try again", path, err)
		}
		d.err, d.since = nil, time.Time{}
		for dir := range s.ready {
			if rel, err := filepath.Rel(d.path, dir); err == nil && filepath.IsLocal(rel) {
				delete(s.ready, dir)
			}
		}
		return d.id, nil
	}
	return ID{}, fmt.Errorf("restore data directory %s: %w; it is not among those of the configuration", path, ErrNotFound)
}

// probe shows that a directory is the one it was and can write and sync.
func (s *FS) probe(d *dataDir) error {
	m, err := readDirFile(s.fs, d.path)
	if err != nil {
		return err
	}
	if m == nil || m.ID != d.id {
		return fmt.Errorf("%w: another directory stands in its place", ErrMissingDir)
	}
	name := filepath.Join(d.path, ".probe")
	if err := vfs.WriteFile(s.fs, name, make([]byte, 4096)); err != nil {
		return err
	}
	return errors.Join(s.fs.Remove(name), s.fs.SyncDir(d.path))
}

// Dirs implements Store.
func (s *FS) Dirs() []DirStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]DirStatus, 0, len(s.dirs))
	for _, d := range s.dirs {
		st := DirStatus{Path: d.path, ID: d.id, Err: d.err, Since: d.since}
		st.Free, st.Total, _ = s.fs.Free(d.path)
		out = append(out, st)
	}
	return out
}

// Close releases the directories' locks. It is idempotent.
func (s *FS) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, d := range s.dirs {
		if d.lock != nil {
			errs = append(errs, d.lock.Close())
			d.lock = nil
		}
	}
	return errors.Join(errs...)
}

func readDir(fsys vfs.FS, dir string) ([]fs.DirEntry, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return entries, nil
}
