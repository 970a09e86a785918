package store_test

import (
	"errors"
	"testing"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
	"github.com/databus-suite/databus/services/broker/internal/store/storetest"
)

func open(fsys vfs.FS, files *vfs.Files, dirs []string) (store.Store, error) {
	s, err := store.OpenFS(fsys, files, dirs)
	if err != nil {
		return nil, err
	}
	return s, nil
}

func TestFS(t *testing.T) { storetest.Run(t, open) }

func TestFSDirectories(t *testing.T) {
	mem := vfstest.NewMem()
	files := vfs.NewFiles(mem, 8)
	s, err := open(mem, files, []string{"/a", "/b"})
	if err != nil {
		t.Fatal(err)
	}
	k := store.Key{Topic: "t", ID: store.ID{1}}
	seg, err := s.Create(k, 0, segment.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(mem, files, []string{"/a"}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("open what is open: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dirs := range [][]string{{"/a", "/a"}, {}} {
		if _, err := open(mem, files, dirs); err == nil {
			t.Errorf("open %v: no error", dirs)
		}
	}
	damaged := mem.Clone()
	name := seg.Segment.Dir() + "/partition.metadata"
	if err := vfs.WriteFile(damaged, name, []byte("version: 9\n")); err != nil {
		t.Fatal(err)
	}
	if s, err = open(damaged, vfs.NewFiles(damaged, 8), []string{"/a", "/b"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(); !errors.Is(err, segment.ErrCorrupt) {
		t.Errorf("list with metadata that can not be read: %v", err)
	}
	if err := mem.RemoveAll("/b"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(mem, files, []string{"/a", "/b"}); !errors.Is(err, store.ErrMissingDir) {
		t.Errorf("open with a directory that lost what it held: %v", err)
	}
}
