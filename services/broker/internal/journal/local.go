package journal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/databus-suite/databus/internal/vfs"
)

const (
	fileSuffix  = ".journal"
	spareSuffix = ".spare"
	// maxSpares bounds the trimmed files that are kept to be written over. Writing over blocks that exist is what makes a
	// flush cheap: the file system has no metadata to commit with it, and the system's cache can be left out. A file that
	// is written for the first time goes through the cache: past it, every write would wait for metadata.
	maxSpares = 8
	// blockBytes is how much of a flush is copied together and written in one call, maxBlocks how many calls run at the
	// same time: the next is copied while the one before is written.
	blockBytes = 1 << 20
	maxBlocks  = 4
)

// Options says how Local lays out its files.
type Options struct {
	FS        vfs.FS
	FileBytes int64 // a file is closed when it reaches this; 0 means 32 MiB
}

// Local is a Journal in files of one directory, written over one another and synced with fdatasync.
type Local struct {
	fs    vfs.FS
	dir   string
	limit int64

	mu     sync.Mutex
	files  []file // oldest first; the last is written to
	spares []string
	out    vfs.File
	at     int64 // position of the next frame in out
	seq    uint64
	err    error // sticky
	head   []byte
	bufs   [][]byte
	blocks chan []byte // free ones, made when they are first needed
	nblock int
}

// file is one journal file with the sequence number of its first flush.
type file struct {
	name  string
	first uint64
	size  int64
}

var _ Journal = (*Local)(nil)

// OpenLocal opens the journal in dir, which it makes when it is missing. Call Replay before the first Append.
func OpenLocal(dir string, o Options) (*Local, error) {
	if o.FileBytes <= 0 {
		o.FileBytes = 32 << 20
	}
	j := &Local{fs: o.FS, dir: dir, limit: o.FileBytes, blocks: make(chan []byte, maxBlocks)}
	if err := o.FS.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := o.FS.SyncDir(filepath.Dir(dir)); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	entries, err := o.FS.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		ext := filepath.Ext(name)
		if ext != fileSuffix && ext != spareSuffix {
			continue
		}
		first, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), ext), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("open journal: %s is no journal file", name)
		}
		// Flushes that still stand in a spare file name a first flush of at most this: those to come are told from them.
		j.seq = max(j.seq, first)
		if ext == fileSuffix {
			j.files = append(j.files, file{name: name, first: first})
		} else if err := j.adoptSpare(name); err != nil {
			return nil, fmt.Errorf("open journal: %w", err)
		}
	}
	slices.SortFunc(j.files, func(a, b file) int { return cmp.Compare(a.first, b.first) })
	return j, nil
}

// adoptSpare keeps a spare file that an earlier process left, or removes it when it is too large or one too many.
func (j *Local) adoptSpare(name string) error {
	st, err := j.fs.Stat(name)
	if err != nil {
		return err
	}
	if len(j.spares) == maxSpares || st.Size() > 2*j.limit {
		return j.fs.Remove(name)
	}
	j.spares = append(j.spares, name)
	return nil
}

// Last is the highest number of a flush that the names of the files tell of. Before Replay it is a lower bound.
func (j *Local) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

// Reset drops everything and goes on with flush number first, which must be above Last of every journal that a
// recovery could find. What it dropped does not come back after a loss of power.
func (j *Local) Reset(first uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, f := range j.files {
		j.spares = append(j.spares, f.name)
	}
	j.files = nil
	var errs []error
	for _, name := range j.spares {
		errs = append(errs, j.fs.Remove(name))
	}
	j.spares, j.seq = nil, first-1
	if err := errors.Join(append(errs, j.fs.SyncDir(j.dir))...); err != nil {
		return fmt.Errorf("reset journal: %w", err)
	}
	return nil
}

// Append implements Journal.
func (j *Local) Append(entries []Entry) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return 0, j.err
	}
	if j.out == nil || j.at > 0 && j.at+frameSize(entries) > j.limit {
		if err := j.rotate(); err != nil {
			return 0, j.failed("start a journal file", err)
		}
	}
	j.bufs = j.bufs[:0]
	if j.at == 0 { // together, so that a loss of power never leaves the flush without the header
		j.bufs = append(j.bufs, fileHeader(j.files[len(j.files)-1].first))
	}
	j.head, j.bufs = appendFrame(j.head[:0], j.bufs, j.files[len(j.files)-1].first, j.seq+1, entries)
	end, err := j.write(j.bufs, j.at)
	clear(j.bufs)
	if err != nil {
		return 0, j.failed("write", err)
	}
	if err := j.out.Sync(); err != nil {
		return 0, j.failed("sync", err)
	}
	j.at = end
	j.seq++
	j.files[len(j.files)-1].size = j.at
	return j.seq, nil
}

// write writes bufs one after the other in aligned blocks, the last filled up with zeros, and returns where it ended.
func (j *Local) write(bufs [][]byte, at int64) (int64, error) {
	var all errgroup.Group
	b := j.takeBlock()
	n := 0
	for _, buf := range bufs {
		for len(buf) > 0 {
			if n == len(b) {
				full, to := b, at
				all.Go(func() error { return j.writeBlock(full, to) })
				at += int64(n)
				b, n = j.takeBlock(), 0
			}
			m := copy(b[n:], buf)
			n, buf = n+m, buf[m:]
		}
	}
	end := alignUp(n, frameAlign)
	clear(b[n:end])
	err := j.writeBlock(b[:end], at)
	return at + int64(end), errors.Join(err, all.Wait())
}

func (j *Local) writeBlock(b []byte, at int64) error {
	_, err := j.out.WriteV([][]byte{b}, at)
	j.blocks <- b[:blockBytes]
	return err
}

// takeBlock returns a buffer that writeBlock gives back.
func (j *Local) takeBlock() []byte {
	select {
	case b := <-j.blocks:
		return b
	default:
	}
	if j.nblock < maxBlocks {
		j.nblock++
		return vfs.AlignedBuffer(blockBytes)
	}
	return <-j.blocks
}

// failed turns an error into what Append returns. Only a full disk leaves the journal usable: the frame was not
// acknowledged and the next one is written over it.
func (j *Local) failed(op string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%s in %s: %w: %w", op, j.dir, ErrFull, err)
	}
	j.err = fmt.Errorf("%s in %s: %w: %w", op, j.dir, ErrFailed, err)
	return j.err
}

// rotate begins a new file, over a spare one when there is one. Its name is durable before anything in it is; its header
// comes with the first flush.
func (j *Local) rotate() error {
	first := j.seq + 1
	name := filepath.Join(j.dir, fmt.Sprintf("%020d%s", first, fileSuffix))
	var f vfs.File
	var err error
	if n := len(j.spares); n > 0 {
		if err := j.fs.Rename(j.spares[n-1], name); err != nil {
			return err
		}
		j.spares = j.spares[:n-1]
		f, err = j.fs.OpenFile(name, os.O_RDWR|vfs.Direct)
	} else {
		f, err = j.fs.OpenFile(name, os.O_RDWR|os.O_CREATE)
		if err == nil {
			_ = f.Preallocate(0, j.limit)
		}
	}
	if err != nil {
		return err
	}
	// Nothing is written to it while a crash could bring its old name back, or no name.
	if err := j.fs.SyncDir(j.dir); err != nil {
		f.Close()
		return err
	}
	if j.out != nil {
		j.out.Close()
	}
	if n := len(j.files); n > 0 && j.files[n-1].name == name {
		j.files = j.files[:n-1] // begun before and never used
	}
	j.out, j.at = f, 0
	j.files = append(j.files, file{name: name, first: first})
	return nil
}

// Trim implements Journal: files all of whose flushes are trimmed become spares or go away.
func (j *Local) Trim(seq uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	n := 0
	for n+1 < len(j.files) && j.files[n+1].first <= seq+1 {
		n++
	}
	if seq >= j.seq && len(j.files) > 0 {
		n = len(j.files)
		if j.out != nil {
			j.out.Close()
			j.out = nil
		}
	}
	if n == 0 {
		return nil
	}
	var errs []error
	for _, f := range j.files[:n] {
		if len(j.spares) < maxSpares && f.size <= 2*j.limit {
			spare := strings.TrimSuffix(f.name, fileSuffix) + spareSuffix
			if err := j.fs.Rename(f.name, spare); err == nil {
				j.spares = append(j.spares, spare)
				continue
			}
		}
		errs = append(errs, j.fs.Remove(f.name))
	}
	j.files = slices.Delete(j.files, 0, n)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("trim journal: %w", err)
	}
	return nil
}

// Size implements Journal.
func (j *Local) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	var n int64
	for _, f := range j.files {
		n += f.size
	}
	return n
}

// Close closes the file that is written to. It trims nothing.
func (j *Local) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(j.err, ErrClosed) {
		return nil
	}
	j.err = ErrClosed
	if j.out == nil {
		return nil
	}
	return j.out.Close()
}
