package store

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/databus-suite/databus/internal/vfs"
)

const (
	dirFileName  = "databus.dir"
	metadataName = "partition.metadata"
)

var checkpointNames = [2]string{"checkpoint.a", "checkpoint.b"}

func isCheckpoint(name string) bool { return name == checkpointNames[0] || name == checkpointNames[1] }

// dataDir is one data directory. id and path never change; err and since are guarded by FS.mu.
type dataDir struct {
	path  string
	id    ID
	lock  io.Closer
	err   error
	since time.Time
	file  *dirFile
}

// dirFile is what a data directory says of itself and its siblings, so that a disk that is not mounted is
// noticed and not taken for an empty one.
type dirFile struct {
	Version  int       `json:"version"`
	ID       ID        `json:"-"`
	HexID    string    `json:"id"`
	Siblings []sibling `json:"directories"`
}

type sibling struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

func lockDir(fsys vfs.FS, path string) (*dataDir, error) {
	path = filepath.Clean(path)
	if err := makeDir(fsys, path); err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	lock, err := fsys.Lock(filepath.Join(path, lockName))
	if err != nil {
		if errors.Is(err, vfs.ErrLocked) {
			return nil, fmt.Errorf("data directory %s is in use by another process; stop it or choose another directory: %w", path, err)
		}
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	d := &dataDir{path: path, lock: lock}
	if d.file, err = readDirFile(fsys, path); err != nil {
		lock.Close()
		return nil, err
	}
	if d.file != nil {
		d.id = d.file.ID
	}
	return d, nil
}

// makeDir makes a directory and what is missing above it, durably.
func makeDir(fsys vfs.FS, path string) error {
	var parents []string // of what is missing
	for dir := path; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := fsys.Stat(dir); err == nil {
			break
		}
		parents = append(parents, filepath.Dir(dir))
	}
	if err := fsys.MkdirAll(path); err != nil {
		return err
	}
	for _, dir := range parents {
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// readDirFile returns nil when the directory is new.
func readDirFile(fsys vfs.FS, path string) (*dirFile, error) {
	name := filepath.Join(path, dirFileName)
	b, err := vfs.ReadFile(fsys, name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open data directory: %w", err)
	}
	var f dirFile
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("open data directory: %s is damaged: %w", name, err)
	}
	if n, err := hex.Decode(f.ID[:], []byte(f.HexID)); err != nil || n != len(f.ID) || len(f.HexID) != 2*len(f.ID) {
		return nil, fmt.Errorf("open data directory: %s is damaged: no id", name)
	}
	if f.Version != 1 {
		return nil, fmt.Errorf("open data directory: %s has version %d, this program knows 1", name, f.Version)
	}
	return &f, nil
}

// identify gives new directories an id and refuses when one that is configured lost its content: going on without
// it would give its offsets to other records.
func identify(fsys vfs.FS, dirs []*dataDir) error {
	present := make(map[string]bool)
	paths := make(map[string]bool)
	for _, d := range dirs {
		if paths[d.path] {
			return fmt.Errorf("open data directory: %s is given twice", d.path)
		}
		paths[d.path] = true
		if d.file != nil {
			if present[d.file.HexID] {
				return fmt.Errorf("open data directory: %s is a copy of another one", d.path)
			}
			present[d.file.HexID] = true
		}
	}
	for _, d := range dirs {
		if d.file == nil {
			continue
		}
		for _, s := range d.file.Siblings {
			if !present[s.ID] && paths[s.Path] {
				return fmt.Errorf("open data directory: %w: by %s, %s held data and does not now; mount it, or take it out of the configuration to go on without what it held",
					ErrMissingDir, DirFile(d.path), s.Path)
			}
		}
	}
	all := make([]sibling, 0, len(dirs))
	for _, d := range dirs {
		if d.file == nil {
			if _, err := rand.Read(d.id[:]); err != nil {
				return err
			}
		}
		all = append(all, sibling{ID: hex.EncodeToString(d.id[:]), Path: d.path})
	}
	for _, d := range dirs {
		if err := writeDirFile(fsys, d, all); err != nil {
			return fmt.Errorf("open data directory: %w", err)
		}
	}
	return nil
}

// writeDirFile replaces a directory's own file when it would change.
func writeDirFile(fsys vfs.FS, d *dataDir, all []sibling) error {
	if err := fsys.MkdirAll(filepath.Join(d.path, topicsName)); err != nil {
		return err
	}
	f := dirFile{Version: 1, HexID: hex.EncodeToString(d.id[:]), Siblings: all}
	b, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	name := filepath.Join(d.path, dirFileName)
	if old, err := vfs.ReadFile(fsys, name); err == nil && string(old) == string(b) {
		return nil
	}
	if err := vfs.WriteFile(fsys, name+".new", b); err != nil {
		return err
	}
	if err := fsys.Rename(name+".new", name); err != nil {
		return err
	}
	if err := fsys.SyncDir(d.path); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(d.path))
}

// metadata is the content of Kafka's partition.metadata.
func metadata(id ID) []byte {
	return []byte("version: 0\ntopic_id: " + base64.RawURLEncoding.EncodeToString(id[:]) + "\n")
}

func parseMetadata(b []byte) (ID, error) {
	var id ID
	version, rest, _ := strings.Cut(string(b), "\n")
	line, _, whole := strings.Cut(rest, "\n")
	if version != "version: 0" || !whole {
		return id, errors.New("no partition metadata of version 0")
	}
	v, ok := strings.CutPrefix(line, "topic_id: ")
	raw, err := base64.RawURLEncoding.DecodeString(v)
	if !ok || err != nil || len(raw) != len(id) {
		return id, errors.New("no topic id")
	}
	copy(id[:], raw)
	if id == (ID{}) {
		return id, errors.New("topic id is zero")
	}
	return id, nil
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// DirFile is the file by which a data directory is known to be there.
func DirFile(path string) string { return filepath.Join(path, dirFileName) }

// CheckComplete refuses a set of data directories that is not all of what one broker has.
func CheckComplete(fsys vfs.FS, dirs []string) error {
	given := make(map[string]bool)
	for _, dir := range dirs {
		f, err := readDirFile(fsys, dir)
		if err != nil {
			return err
		}
		if f == nil {
			return fmt.Errorf("open %s: no data directory of a log: %w", dir, ErrNotFound)
		}
		given[f.HexID] = true
	}
	for _, dir := range dirs {
		f, err := readDirFile(fsys, dir)
		if err != nil {
			return err
		}
		for _, s := range f.Siblings {
			if !given[s.ID] {
				return fmt.Errorf("%s belongs together with %s; give all directories of the broker", dir, s.Path)
			}
		}
	}
	return nil
}
