package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/databus-suite/databus/internal/vfs/vfstest"
	"github.com/databus-suite/databus/services/broker/internal/segment"
	"github.com/databus-suite/databus/services/broker/internal/store"
)

func empty(t *testing.T, open Open) {
	b := newBed(t, open)
	b.wantList()
	found, err := b.Load(key("t", 1, 0))
	if err != nil || len(found.Segments)+len(found.Checkpoints)+len(found.Swaps) > 0 {
		t.Errorf("load what does not exist: %+v, %v", found, err)
	}
	if err := b.DeletePartition(key("t", 1, 0)); err != nil {
		t.Errorf("delete what does not exist: %v", err)
	}
	for range 2 {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

func created(t *testing.T, open Open) {
	b := newBed(t, open)
	k0, k1, other := key("t", 1, 0), key("t", 1, 1), key("other", 2, 0)
	for _, base := range []int64{20, 0, 10} {
		b.create(k0, base)
	}
	b.create(k1, 7)
	d := b.Dirs()[0].ID
	b.must(b.SaveCheckpoint(other, d, 1, []byte("one")))
	b.must(b.SaveCheckpoint(other, d, 2, []byte("two")))
	b.must(b.SaveCheckpoint(other, d, 3, []byte("three, longer")))
	b.must(b.SaveCheckpoint(other, d, 4, []byte("4")))
	check := func(b *bed) {
		b.wantList(k0, k1, other)
		b.wantBases(k0, 0, 10, 20)
		b.wantBases(k1, 7)
		found, err := b.Load(other)
		b.must(err)
		for _, want := range []string{"three, longer", "4"} {
			if !slices.ContainsFunc(found.Checkpoints, func(c []byte) bool { return string(c) == want }) {
				t.Errorf("checkpoints are %q, want %q among them", found.Checkpoints, want)
			}
		}
	}
	check(b)
	b.must(b.Close())
	check(openBed(t, open, b.mem))
	// A segment that is there already begins anew.
	seg, err := openBed(t, open, b.mem.Clone()).Create(k1, 7, segment.Options{})
	if err != nil || seg.Size() != 0 {
		t.Errorf("create over another one: %v", err)
	}
}

func names(t *testing.T, open Open) {
	b := newBed(t, open)
	for _, topic := range []string{"", ".", "..", "a/b", "ü", strings.Repeat("x", 250)} {
		if _, err := b.Create(store.Key{Topic: topic, ID: store.ID{1}}, 0, segment.Options{}); !errors.Is(err, store.ErrTopicName) {
			t.Errorf("topic %.20q: %v", topic, err)
		}
	}
	if _, err := b.Open(key("t", 1, 0), store.Stub{Dir: store.ID{9}}, segment.Options{}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("open in a directory that is not known: %v", err)
	}
	if err := b.SaveCheckpoint(key("t", 1, 0), store.ID{9}, 1, nil); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("save in a directory that is not known: %v", err)
	}
	b.wantList()
}

func places(t *testing.T, open Open) {
	b := newBed(t, open)
	k := key("t", 1, 0)
	all := b.Dirs()
	if len(all) != 2 || all[0].Path != dirs[0] || all[1].Path != dirs[1] || all[0].ID == all[1].ID || all[0].Total == 0 {
		t.Fatalf("directories: %+v", all)
	}
	used := make(map[store.ID]int)
	for base := range int64(64) {
		used[b.create(k, base).Dir]++
	}
	if len(used) != 2 {
		t.Errorf("64 segments are all in one of two directories: %v", used)
	}
	for base := int64(64); base < 80; base++ {
		if s := b.create(k, base, all[0].ID); s.Dir != all[1].ID {
			t.Fatal("a segment is in a directory to avoid")
		}
	}
	if _, err := b.Create(k, 99, segment.Options{}, all[0].ID, all[1].ID); !errors.Is(err, store.ErrNoDir) {
		t.Errorf("create while all are to avoid: %v", err)
	}
	one, two := b.create(k, 200, all[0].ID), b.create(k, 200, all[1].ID)
	found, err := b.Load(k)
	b.must(err)
	for _, s := range []store.Segment{one, two} {
		if !slices.Contains(found.Segments, store.Stub{Dir: s.Dir, Base: 200, Size: s.Size()}) {
			t.Errorf("of two segments with one base the one in %x is not found", s.Dir)
		}
	}
}

func fences(t *testing.T, open Open) {
	b := newBed(t, open)
	k, all := key("t", 1, 0), b.Dirs()
	first := errors.New("the first cause")
	b.Fail(all[0].ID, first)
	b.Fail(all[0].ID, errors.New("another cause"))
	if d := b.Dirs(); !errors.Is(d[0].Err, first) || d[0].Since.IsZero() || d[1].Err != nil {
		t.Errorf("after a failure: %+v", d)
	}
	for base := range int64(16) {
		if s := b.create(k, base); s.Dir != all[1].ID {
			t.Fatal("a segment is in a directory that failed")
		}
	}
	b.Fail(all[1].ID, errors.New("the last one too"))
	if _, err := b.Create(k, 99, segment.Options{}); !errors.Is(err, store.ErrNoDir) || !strings.Contains(err.Error(), first.Error()) {
		t.Errorf("create while all have failed: %v", err)
	}
	if _, err := b.Restore("/elsewhere"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("restore what is not known: %v", err)
	}
	for _, op := range []vfstest.Op{vfstest.OpWrite, vfstest.OpSync} {
		b.fault.Set(func(o vfstest.Op, _ string) error {
			if o == op {
				return syscall.EIO
			}
			return nil
		})
		if _, err := b.Restore(dirs[0]); !errors.Is(err, syscall.EIO) || b.Dirs()[0].Err == nil {
			t.Errorf("restore while %s fails: %v", op, err)
		}
	}
	b.fault.Set(nil)
	id, err := b.Restore(dirs[0])
	if d := b.Dirs()[0]; err != nil || id != all[0].ID || d.Err != nil || !d.Since.IsZero() {
		t.Errorf("restore: %v, %+v", err, d)
	}
	if s := b.create(k, 100); s.Dir != all[0].ID {
		t.Error("a directory that is back is not used")
	}
	b.must(b.mem.RemoveAll(dirs[1]))
	b.must(b.mem.MkdirAll(dirs[1]))
	if _, err := b.Restore(dirs[1]); !errors.Is(err, store.ErrMissingDir) {
		t.Errorf("restore an empty directory in the place of one that held data: %v", err)
	}
}

func diskErrors(t *testing.T, open Open) {
	b := newBed(t, open)
	k, d := key("t", 1, 0), b.Dirs()[0].ID
	b.create(k, 0)
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO} {
		b.fault.Set(func(op vfstest.Op, _ string) error {
			if op == vfstest.OpWrite || op == vfstest.OpSync {
				return cause
			}
			return nil
		})
		if s, err := b.Create(key("new", 2, 0), 0, segment.Options{}); !errors.Is(err, cause) || s.Dir == (store.ID{}) {
			t.Errorf("create: %v, in %x", err, s.Dir)
		}
		if err := b.SaveCheckpoint(k, d, 1, []byte("x")); !errors.Is(err, cause) {
			t.Errorf("save a checkpoint: %v", err)
		}
	}
	b.fault.Set(func(op vfstest.Op, _ string) error {
		if op == vfstest.OpOpen || op == vfstest.OpRead || op == vfstest.OpStat {
			return syscall.EIO
		}
		return nil
	})
	if _, err := b.List(); !errors.Is(err, syscall.EIO) {
		t.Errorf("list: %v", err)
	}
	if _, err := b.Load(k); !errors.Is(err, syscall.EIO) {
		t.Errorf("load: %v", err)
	}
	if err := b.DeletePartition(k); !errors.Is(err, syscall.EIO) {
		t.Errorf("delete: %v", err)
	}
	b.fault.Set(nil)
	b.wantBases(k, 0)
}

func remove(t *testing.T, open Open) {
	b := newBed(t, open)
	k := key("t", 1, 0)
	s := b.create(k, 0)
	b.create(k, 10)
	stub := store.Stub{Dir: s.Dir, Base: 0, Size: s.Size()}
	for range 2 {
		if err := b.Remove(k, stub); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	b.wantBases(k, 10)
	b.wantList(k)
}

func again(t *testing.T, open Open) {
	b := newBed(t, open)
	old, again := key("t", 1, 0), key("t", 2, 0)
	b.create(old, 5)
	b.must(b.DeletePartition(again)) // of the same name, not the same
	b.wantBases(old, 5)
	b.wantBases(again)
	b.must(b.DeletePartition(old))
	b.wantList()
	b.wantBases(old)
	b.create(again, 0)
	b.wantList(again)
	b.wantBases(old)
	b.wantBases(again, 0)
	b.must(b.DeletePartition(old))
	b.wantBases(again, 0)
	left := b.afterPowerLoss(1)
	left.wantList(again)
	left.wantBases(again, 0)
}

func concurrent(t *testing.T, open Open) {
	b := newBed(t, open)
	var wg sync.WaitGroup
	var want []store.Key
	for n := range int32(8) {
		k := key(fmt.Sprint("t", n%3), byte(n%3+1), n)
		if n%4 != 3 {
			want = append(want, k)
		}
		wg.Go(func() {
			for i := range int64(10) {
				s, err := b.Create(k, i, segment.Options{})
				if err == nil {
					err = b.SaveCheckpoint(k, s.Dir, uint64(i)+1, fmt.Appendf(nil, "%d", i)) //nolint:gosec // from 0 to 9
				}
				if err == nil && i%2 == 1 {
					err = b.Remove(k, store.Stub{Dir: s.Dir, Base: i})
				}
				if err != nil {
					t.Error(err)
				}
				if _, err := b.Load(k); err != nil {
					t.Error(err)
				}
				b.Dirs()
			}
			if n%4 == 3 {
				if err := b.DeletePartition(k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.wantList(want...)
	for _, k := range want {
		found, err := b.Load(k)
		if err != nil || len(found.Segments) != 5 {
			t.Errorf("%v: %v, %v", k, found.Segments, err)
		}
	}
}
