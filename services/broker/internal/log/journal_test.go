package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

// renewNow has a new journal begun without the wait between attempts.
func renewNow(l *Log) {
	for failed := true; failed; {
		l.journal.mu.Lock()
		failed = l.journal.err != nil
		l.journal.retry = time.Time{}
		l.journal.mu.Unlock()
		l.trimJournal()
	}
}

// TestJournalIsRenewed: after the journal fails a new one takes its place, and a recovery goes by the new one.
func TestJournalIsRenewed(t *testing.T) {
	t.Parallel()
	for _, dirs := range [][]string{{"/a"}, {"/a", "/b"}} {
		t.Run(fmt.Sprint(len(dirs)), func(t *testing.T) {
			t.Parallel()
			mem := vfstest.NewMem()
			fs := vfstest.NewFault(mem)
			var journaled atomic.Int32
			l := testLog(t, Config{Dirs: dirs, FS: fs, Observer: Observer{Synced: func(_ string, kind SyncKind, _, _ int, _ time.Duration) {
				if kind == SyncJournal {
					journaled.Add(1)
				}
			}}})
			want := make(map[int64]string)
			p := testPartition(t, l, 0, PartitionConfig{})
			add := func(v string) {
				t.Helper()
				want[mustAppend(t, p, AppendOptions{}, v).BaseOffset] = v
			}
			for life := range 3 {
				before := journaled.Load()
				add(fmt.Sprint("journaled ", life))
				if journaled.Load() == before {
					t.Fatalf("life %d: the journal was not used", life)
				}
				failing(fs, syscall.EIO, ".journal", vfstest.OpSync)
				add(fmt.Sprint("without the journal ", life))
				fs.Set(nil)
				renewNow(l)
			}
			add("last")
			compare(t, want, readAll(t, p))
			for seed := range uint64(20) {
				l2 := testLog(t, Config{Dirs: dirs, FS: mem.Crash(rand.New(rand.NewPCG(seed, 1)))})
				compare(t, want, readAll(t, testPartition(t, l2, 0, PartitionConfig{})))
				mustAppend(t, testPartition(t, l2, 0, PartitionConfig{}), AppendOptions{}, "goes on")
			}
		})
	}
}

// TestJournalServesAFailedDirectory: what only the journal made durable is taken from there when the disk with the segment
// can not be read.
func TestJournalServesAFailedDirectory(t *testing.T) {
	t.Parallel()
	mem := vfstest.NewMem()
	fs := vfstest.NewFault(mem)
	l := testLog(t, Config{Dirs: []string{"/a", "/b"}, FS: fs})
	n := int32(0)
	p := testPartition(t, l, n, PartitionConfig{})
	for ; strings.HasPrefix(activePath(p), "/a"); p = testPartition(t, l, n, PartitionConfig{}) { // where the journal is
		n++
	}
	want := make(map[int64]string)
	for i := range 5 {
		v := fmt.Sprint("journaled ", i)
		want[mustAppend(t, p, AppendOptions{}, v).BaseOffset] = v
	}
	failing(fs, syscall.EIO, "/b/topics", vfstest.OpSync, vfstest.OpWrite, vfstest.OpRead, vfstest.OpOpen)
	l.trimJournal() // finds the disk broken
	want[mustAppend(t, p, AppendOptions{}, "moved").BaseOffset] = "moved"
	compare(t, want, readAll(t, p))
	fs.Set(nil)
	l2 := testLog(t, Config{Dirs: []string{"/a", "/b"}, FS: mem.Crash(nothingLeft())})
	compare(t, want, readAll(t, testPartition(t, l2, n, PartitionConfig{})))
}

// TestJournalOfAVanishedDirectory: a journal whose directory is gone takes writes as if nothing were; it is given up.
func TestJournalOfAVanishedDirectory(t *testing.T) {
	t.Parallel()
	mem := vfstest.NewMem()
	fs := vfstest.NewFault(mem)
	l := testLog(t, Config{Dirs: []string{"/a", "/b"}, FS: fs})
	want := make(map[int64]string)
	p := testPartition(t, l, 0, PartitionConfig{})
	want[mustAppend(t, p, AppendOptions{}, "before").BaseOffset] = "before"
	failing(fs, syscall.ENOENT, "/a/databus.dir", vfstest.OpStat)
	l.probeDirs()
	quiesce(l)
	l.trimJournal()
	want[mustAppend(t, p, AppendOptions{}, "after").BaseOffset] = "after"
	if names, err := mem.ReadDir("/b/journal"); err != nil || len(names) == 0 {
		t.Errorf("no journal in the directory that is left: %v, %v", names, err)
	}
	compare(t, want, readAll(t, p))
	fs.Set(nil)
}

// TestRefusedFlushStaysRefused: what a failed journal holds of an append that was refused must not come back in place of what
// got its offset later.
func TestRefusedFlushStaysRefused(t *testing.T) {
	t.Parallel()
	for _, dirs := range [][]string{{"/a"}, {"/a", "/b"}} {
		t.Run(fmt.Sprint(len(dirs)), func(t *testing.T) {
			t.Parallel()
			mem := vfstest.NewMem()
			fs := vfstest.NewFault(mem)
			var journaled atomic.Int32
			l := testLog(t, Config{Dirs: dirs, FS: fs, Observer: Observer{Synced: func(_ string, kind SyncKind, _, _ int, _ time.Duration) {
				if kind == SyncJournal {
					journaled.Add(1)
				}
			}}})
			p := testPartition(t, l, 0, PartitionConfig{})
			mustAppend(t, p, AppendOptions{}, "first")
			failing(fs, syscall.EIO, "", vfstest.OpSync)
			if _, err := p.Append(t.Context(), batch(1, "refused"), AppendOptions{}); !errors.Is(err, ErrDirFailed) {
				t.Fatalf("append: %v", err)
			}
			fs.Set(nil)
			for _, dir := range dirs {
				if err := l.RestoreDir(dir); err != nil {
					t.Fatal(err)
				}
			}
			quiesce(l)
			renewNow(l)
			before := journaled.Load()
			mustAppend(t, p, AppendOptions{}, "second")
			if journaled.Load() == before {
				t.Fatal("the journal was not used")
			}
			want := map[int64]string{0: "first", 1: "second"}
			compare(t, want, readAll(t, p))
			for seed := range uint64(40) {
				l2 := testLog(t, Config{Dirs: dirs, FS: mem.Crash(rand.New(rand.NewPCG(seed, 1)))})
				compare(t, want, readAll(t, testPartition(t, l2, 0, PartitionConfig{})))
			}
		})
	}
}
