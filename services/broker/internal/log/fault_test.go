package log

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/databus-suite/databus/internal/vfs"
	"github.com/databus-suite/databus/internal/vfs/vfstest"
)

// failing makes operations on names that contain part fail with err until the returned function is called.
func failing(f *vfstest.Fault, err error, part string, ops ...vfstest.Op) (heal func()) {
	f.Set(func(op vfstest.Op, name string) error {
		for _, o := range ops {
			if o == op && strings.Contains(name, part) {
				return err
			}
		}
		return nil
	})
	return func() { f.Set(nil) }
}

func TestDiskFullIsRetryable(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewFault(vfs.OS{})
	cfg := Config{Dirs: []string{t.TempDir()}, FS: fs}
	l := testLog(t, cfg)
	p := testPartition(t, l, 0, PartitionConfig{})
	mustAppend(t, p, AppendOptions{}, "before")
	heal := failing(fs, syscall.ENOSPC, ".log", vfstest.OpWrite)
	for range 3 {
		_, err := p.Append(t.Context(), batch(1, "refused"), AppendOptions{})
		if !errors.Is(err, ErrNoSpace) || !Retryable(err) {
			t.Fatalf("append to a full disk: %v", err)
		}
	}
	if got := readAll(t, p); len(got) != 1 {
		t.Errorf("reads while the disk is full: %v", got)
	}
	// What was acknowledged from memory waits for room and is not lost.
	if r := mustAppend(t, p, AppendOptions{Level: Buffered}, "buffered"); r.BaseOffset != 1 {
		t.Errorf("buffered append: %+v", r)
	}
	heal()
	if r := mustAppend(t, p, AppendOptions{}, "after"); r.BaseOffset != 2 {
		t.Errorf("append after room came back: %+v", r)
	}
	compare(t, map[int64]string{0: "before", 1: "buffered", 2: "after"}, readAll(t, p))
}

func TestDiskFullGoesOnInAnotherDirectory(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewFault(vfs.OS{})
	dirs := []string{t.TempDir(), t.TempDir()}
	l := testLog(t, Config{Dirs: dirs, FS: fs})
	p := testPartition(t, l, 0, PartitionConfig{})
	mustAppend(t, p, AppendOptions{}, "a")
	full := activePath(p)
	failing(fs, syscall.ENOSPC, full[:strings.Index(full, "/topics")], vfstest.OpWrite)
	mustAppend(t, p, AppendOptions{}, "b")
	if activePath(p) == full {
		t.Error("the partition did not move")
	}
	compare(t, map[int64]string{0: "a", 1: "b"}, readAll(t, p))
	fs.Set(nil)
}

// TestFailedSync: the bytes of a sync that failed do not count, even when a later sync would succeed.
func TestFailedSyncMoves(t *testing.T) {
	t.Parallel()
	for _, journalBytes := range []int64{-1, 1 << 20} {
		t.Run(fmt.Sprint("journal=", journalBytes > 0), func(t *testing.T) {
			t.Parallel()
			mem := vfstest.NewMem()
			fs := vfstest.NewFault(mem)
			var failed atomic.Int32
			cfg := Config{Dirs: []string{"/a", "/b"}, FS: fs, JournalBytes: journalBytes,
				Observer: Observer{DirError: func(string, error) { failed.Add(1) }}}
			l := testLog(t, cfg)
			want := make(map[int64]string)
			p := testPartition(t, l, 0, PartitionConfig{})
			add := func(v string, o AppendOptions) {
				t.Helper()
				want[mustAppend(t, p, o, v).BaseOffset] = v
			}
			for i := range 5 {
				add(fmt.Sprint("safe ", i), AppendOptions{})
			}
			add("buffered", AppendOptions{Level: Buffered})
			bad := activePath(p)
			dir := bad[:2]
			failing(fs, syscall.EIO, dir+"/topics", vfstest.OpSync)
			var wg sync.WaitGroup
			var mu sync.Mutex
			for i := range 20 {
				wg.Go(func() {
					v := fmt.Sprint("moved ", i)
					r, err := p.Append(t.Context(), batch(1, v), AppendOptions{})
					if err != nil {
						t.Errorf("%s: %v", v, err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					want[r.BaseOffset] = v
				})
			}
			wg.Wait()
			l.trimJournal() // what relied on the journal must not rely on the bad directory
			for i := range 3 {
				add(fmt.Sprint("later ", i), AppendOptions{})
			}
			compare(t, want, readAll(t, p))
			if failed.Load() == 0 || activePath(p) == bad {
				t.Errorf("directory errors: %d, active segment %s", failed.Load(), activePath(p))
			}
			fs.Set(nil)
			// Power fails; nothing of what was not synced is left.
			crashed := mem.Crash(nothingLeft())
			l2 := testLog(t, Config{Dirs: []string{"/a", "/b"}, FS: crashed})
			compare(t, want, readAll(t, testPartition(t, l2, 0, PartitionConfig{})))
		})
	}
}

// TestEmptySegmentMoves: what goes on where an empty segment's directory failed, or is full, is found again.
func TestEmptySegmentMoves(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
		mem := vfstest.NewMem()
		fs := vfstest.NewFault(mem)
		cfg := Config{Dirs: []string{"/a", "/b"}, FS: fs, JournalBytes: -1}
		p := testPartition(t, testLog(t, cfg), 0, PartitionConfig{})
		full := activePath(p)
		heal := failing(fs, cause, full[:2]+"/topics", vfstest.OpWrite)
		mustAppend(t, p, AppendOptions{}, "moved")
		if activePath(p) == full {
			t.Fatalf("%v: the partition did not move", cause)
		}
		heal()
		l2 := testLog(t, Config{Dirs: cfg.Dirs, FS: mem.Crash(nothingLeft())})
		compare(t, map[int64]string{0: "moved"}, readAll(t, testPartition(t, l2, 0, PartitionConfig{})))
	}
}

// TestFullBesideFailed: where one directory failed and the other is full, what is missing is room, and it passes by itself.
func TestFullBesideFailed(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewFault(vfstest.NewMem())
	l := testLog(t, Config{Dirs: []string{"/a", "/b"}, FS: fs})
	p := testPartition(t, l, 0, PartitionConfig{})
	mustAppend(t, p, AppendOptions{}, "a")
	l.dirFailed(p.active().Dir, syscall.EIO)
	mustAppend(t, p, AppendOptions{}, "b")
	heal := failing(fs, syscall.ENOSPC, ".log", vfstest.OpWrite)
	for range 3 {
		if _, err := p.Append(t.Context(), batch(1, "refused"), AppendOptions{}); !errors.Is(err, ErrNoSpace) {
			t.Errorf("append: %v", err)
		}
	}
	heal()
	mustAppend(t, p, AppendOptions{}, "c")
	compare(t, map[int64]string{0: "a", 1: "b", 2: "c"}, readAll(t, p))
}

func TestOnlyDirectoryFailsAndComesBack(t *testing.T) {
	t.Parallel()
	mem := vfstest.NewMem()
	fs := vfstest.NewFault(mem)
	l := testLog(t, Config{Dirs: []string{"/a"}, FS: fs, JournalBytes: -1})
	p := testPartition(t, l, 0, PartitionConfig{})
	mustAppend(t, p, AppendOptions{}, "a")
	failing(fs, syscall.EIO, "/a", vfstest.OpSync)
	if _, err := p.Append(t.Context(), batch(1, "b"), AppendOptions{}); !errors.Is(err, ErrDirFailed) || !Retryable(err) {
		t.Fatalf("append: %v", err)
	}
	if _, err := p.Append(t.Context(), batch(1, "b"), AppendOptions{}); !errors.Is(err, ErrDirFailed) {
		t.Fatalf("append again: %v", err)
	}
	if d := l.Dirs(); d[0].Err == nil {
		t.Error("the directory is not reported")
	}
	compare(t, map[int64]string{0: "a"}, readAll(t, p))
	if err := l.RestoreDir("/a"); err == nil {
		t.Error("a directory that still fails was taken back")
	}
	fs.Set(nil)
	if err := l.RestoreDir("/a"); err != nil {
		t.Fatal(err)
	}
	quiesce(l)
	if r := mustAppend(t, p, AppendOptions{}, "c"); r.BaseOffset != 1 {
		t.Errorf("append after restore: %+v", r)
	}
	compare(t, map[int64]string{0: "a", 1: "c"}, readAll(t, p))
	l2 := testLog(t, Config{Dirs: []string{"/a"}, FS: mem.Crash(nothingLeft())})
	compare(t, map[int64]string{0: "a", 1: "c"}, readAll(t, testPartition(t, l2, 0, PartitionConfig{})))
}

func TestWriteErrorMoves(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewFault(vfs.OS{})
	l := testLog(t, Config{Dirs: []string{t.TempDir(), t.TempDir(), t.TempDir()}, FS: fs})
	want := make(map[int64]string)
	p := testPartition(t, l, 0, PartitionConfig{})
	var bad []string
	var mu sync.Mutex
	fs.Set(func(op vfstest.Op, name string) error {
		mu.Lock()
		defer mu.Unlock()
		for _, dir := range bad {
			if (op == vfstest.OpWrite || op == vfstest.OpSync) && strings.HasPrefix(name, dir) {
				return syscall.EIO
			}
		}
		return nil
	})
	for i := range 3 {
		v := fmt.Sprint("v", i)
		want[mustAppend(t, p, AppendOptions{}, v).BaseOffset] = v
		path := activePath(p)
		mu.Lock()
		if i < 2 {
			bad = append(bad, path[:strings.Index(path, "/topics")])
		}
		mu.Unlock()
	}
	fs.Set(nil)
	compare(t, want, readAll(t, p))
}

func TestReadErrorIsRetryable(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewFault(vfs.OS{})
	l := testLog(t, Config{Dirs: []string{t.TempDir()}, FS: fs, MemoryBytes: 1024})
	p := testPartition(t, l, 0, PartitionConfig{})
	for i := range 30 {
		mustAppend(t, p, AppendOptions{}, fmt.Sprint(i))
	}
	heal := failing(fs, syscall.EIO, ".log", vfstest.OpRead)
	if _, err := p.Fetch(t.Context(), FetchOptions{}); !errors.Is(err, ErrDirFailed) {
		t.Errorf("fetch: %v", err)
	}
	heal()
	if n := len(readAll(t, p)); n != 30 {
		t.Errorf("%d records", n)
	}
}

func TestDirectoryDisappears(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewFault(vfs.OS{})
	l := testLog(t, Config{Dirs: []string{t.TempDir(), t.TempDir()}, FS: fs})
	p := testPartition(t, l, 0, PartitionConfig{})
	mustAppend(t, p, AppendOptions{}, "a")
	path := activePath(p)
	dir := path[:strings.Index(path, "/topics")]
	// Open files go on working, as they do after an unmount or a removal; the directory's own file is gone.
	failing(fs, syscall.ENOENT, dir+"/databus.dir", vfstest.OpStat)
	l.probeDirs()
	mustAppend(t, p, AppendOptions{}, "b")
	if strings.HasPrefix(activePath(p), dir) {
		t.Error("the partition goes on writing where nothing is kept")
	}
	compare(t, map[int64]string{0: "a", 1: "b"}, readAll(t, p))
	fs.Set(nil)
}

func TestMissingDirectoryIsNoticedAtOpen(t *testing.T) {
	t.Parallel()
	mem := vfstest.NewMem()
	l := testLog(t, Config{Dirs: []string{"/a", "/b"}, FS: mem})
	mustAppend(t, testPartition(t, l, 0, PartitionConfig{}), AppendOptions{}, "x")
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := mem.RemoveAll("/b"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Dirs: []string{"/a", "/b"}, FS: mem}); err == nil || !strings.Contains(err.Error(), "/b held data") {
		t.Errorf("open without a directory: %v", err)
	}
}

func TestMemoryBoundPushesBack(t *testing.T) {
	t.Parallel()
	fs := vfstest.NewFault(vfs.OS{})
	l := testLog(t, Config{Dirs: []string{t.TempDir()}, FS: fs, MemoryBytes: 20 << 10})
	p := testPartition(t, l, 0, PartitionConfig{})
	gate := make(chan struct{})
	fs.Set(func(op vfstest.Op, name string) error {
		if op == vfstest.OpSync && strings.HasSuffix(name, ".log") {
			<-gate
		}
		return nil
	})
	value := strings.Repeat("x", 2000)
	results := make(chan error, 100)
	busy := false
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p.AppendAsync(ctx, batch(1, value), AppendOptions{}, func(_ AppendResult, err error) {
			if err != nil {
				results <- err
			}
		})
		if len(results) > 0 {
			busy = true
			break
		}
	}
	close(gate)
	mustAppend(t, p, AppendOptions{}, value) // the answer to the refused one came before this one's
	if err := <-results; !errors.Is(err, ErrBusy) || !Retryable(err) {
		t.Errorf("append past the bound: %v (at once: %v)", err, busy)
	}
	if _, err := p.Append(t.Context(), batch(1, strings.Repeat("x", 30<<10)), AppendOptions{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("append larger than the buffers: %v", err)
	}
}

// TestMovesBetweenDirectoriesUnderLoad: a partition whose segments roll from directory to directory is written to by one
// committer at a time, and by the last one until everything is written.
func TestMovesBetweenDirectoriesUnderLoad(t *testing.T) {
	t.Parallel()
	const appends, writers, partitions = 600, 4, 2
	cfg := Config{Dirs: []string{t.TempDir(), t.TempDir(), t.TempDir()}}
	pcfg := PartitionConfig{SegmentBytes: 1500}
	l := testLog(t, cfg)
	h := newHistory()
	var writing, answering sync.WaitGroup
	for n := range int32(partitions) {
		p := testPartition(t, l, n, pcfg)
		for w := range writers {
			writing.Go(func() {
				window := make(chan struct{}, 16)
				for i := range appends {
					v := fmt.Sprintf("%d/%d/%d", n, w, i)
					window <- struct{}{}
					answering.Add(1)
					p.AppendAsync(t.Context(), batch(1, v), AppendOptions{Level: []Level{Durable, Durable, Buffered}[(w+i)%3]}, func(r AppendResult, err error) {
						if err != nil {
							t.Errorf("%s: %v", v, err)
						}
						h.ack(n, r.BaseOffset, []string{v})
						<-window
						answering.Done()
					})
				}
			})
		}
	}
	writing.Wait()
	answering.Wait()
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	verify(t, testLog(t, cfg), h.snapshot(), partitions, pcfg)
}

// TestDeleteRecordsWhileTheDirectoryIsGone: segments that the last checkpoint names stay until one is saved that does not.
func TestDeleteRecordsWhileTheDirectoryIsGone(t *testing.T) {
	t.Parallel()
	mem := vfstest.NewMem()
	fs := vfstest.NewFault(mem)
	l := testLog(t, Config{Dirs: []string{"/a"}, FS: fs})
	p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 200})
	for i := range 20 {
		mustAppend(t, p, AppendOptions{}, fmt.Sprint(i))
	}
	failing(fs, syscall.EIO, "", vfstest.OpSync)
	if _, err := p.Append(t.Context(), batch(1, "refused"), AppendOptions{}); !errors.Is(err, ErrDirFailed) {
		t.Fatalf("append: %v", err)
	}
	if _, err := p.DeleteRecords(t.Context(), 15); !errors.Is(err, ErrDirFailed) || !Retryable(err) {
		t.Errorf("delete records: %v", err)
	}
	testPartition(t, testLog(t, Config{Dirs: []string{"/a"}, FS: mem.Crash(nothingLeft())}), 0, PartitionConfig{})
	fs.Set(nil)
	if err := l.RestoreDir("/a"); err != nil {
		t.Fatal(err)
	}
	quiesce(l)
	if start, err := p.DeleteRecords(t.Context(), 15); err != nil || start != 15 {
		t.Fatalf("delete records after restore: %d, %v", start, err)
	}
	if n := p.Stats().Segments; n > 7 {
		t.Errorf("%d segments are left for five records", n)
	}
	l2 := testLog(t, Config{Dirs: []string{"/a"}, FS: mem.Crash(nothingLeft())})
	if got := readAll(t, testPartition(t, l2, 0, PartitionConfig{})); len(got) != 5 || got[15] != "15" {
		t.Errorf("after a loss of power: %v", got)
	}
}

// TestNoRoomForTheCheckpoint: nothing is written to a segment that no checkpoint names, however long there is no room for one.
func TestNoRoomForTheCheckpoint(t *testing.T) {
	t.Parallel()
	mem := vfstest.NewMem()
	fs := vfstest.NewFault(mem)
	l := testLog(t, Config{Dirs: []string{"/a"}, FS: fs, JournalBytes: -1})
	p := testPartition(t, l, 0, PartitionConfig{SegmentBytes: 200})
	mustAppend(t, p, AppendOptions{}, strings.Repeat("a", 100))
	heal := failing(fs, syscall.ENOSPC, "checkpoint.", vfstest.OpWrite)
	for range 3 {
		if _, err := p.Append(t.Context(), batch(1, strings.Repeat("b", 100)), AppendOptions{}); !errors.Is(err, ErrNoSpace) {
			t.Errorf("append: %v", err)
		}
	}
	heal()
	if r := mustAppend(t, p, AppendOptions{}, "c"); r.BaseOffset != 1 {
		t.Errorf("append: %+v", r)
	}
	if p.unnamed {
		t.Error("no checkpoint names the segment that is written to")
	}
}

// TestRenewForNothing: a partition that no longer needs a new segment when its turn comes keeps the one that it has.
func TestRenewForNothing(t *testing.T) {
	t.Parallel()
	p := testPartition(t, testLog(t, Config{Dirs: []string{t.TempDir(), t.TempDir()}}), 0, PartitionConfig{})
	before := activePath(p)
	p.com.call(p.renew)
	mustAppend(t, p, AppendOptions{}, "a")
	if activePath(p) != before {
		t.Error("the partition moved")
	}
}

// TestDeepDirectory: what is missing above a data directory is made durable with it.
func TestDeepDirectory(t *testing.T) {
	t.Parallel()
	mem := vfstest.NewMem()
	cfg := Config{Dirs: []string{"/srv/broker/data"}, FS: mem}
	mustAppend(t, testPartition(t, testLog(t, cfg), 0, PartitionConfig{}), AppendOptions{}, "kept")
	cfg.FS = mem.Crash(nothingLeft())
	if got := readAll(t, testPartition(t, testLog(t, cfg), 0, PartitionConfig{})); got[0] != "kept" {
		t.Errorf("after a loss of power: %v", got)
	}
}
