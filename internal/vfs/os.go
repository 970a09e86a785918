package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// OS is the file system of the machine.
type OS struct{}

var _ FS = OS{}

// ErrLocked says that another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// maxIOV is the kernel's limit of buffers in one vectored call.
const maxIOV = 1024

func (OS) OpenFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o644)
	if err == nil && flag&Direct != 0 && !alignEnough(f) {
		err = errors.Join(f.Close(), unix.EINVAL)
	}
	if flag&Direct != 0 && errors.Is(err, unix.EINVAL) { // the file system can not
		f, err = os.OpenFile(name, flag&^Direct, 0o644)
	}
	if err != nil {
		return nil, err
	}
	return &osFile{f: f, fd: int(f.Fd())}, nil
}

// alignEnough says whether DirectAlign is enough for a file, as far as the system tells.
func alignEnough(f *os.File) bool {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return true
	}
	fits := func(n uint32) bool { return n > 0 && DirectAlign%n == 0 }
	return fits(st.Dio_offset_align) && fits(st.Dio_mem_align)
}

func (OS) MkdirAll(dir string) error                 { return os.MkdirAll(dir, 0o755) }
func (OS) Rename(from, to string) error              { return os.Rename(from, to) }
func (OS) Remove(name string) error                  { return os.Remove(name) }
func (OS) RemoveAll(name string) error               { return os.RemoveAll(name) }
func (OS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }
func (OS) Stat(name string) (fs.FileInfo, error)     { return os.Stat(name) }

func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

func (OS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return lock{f}, nil
}

// lock is released explicitly: a process that is being started has the descriptor too, until it runs its own program.
type lock struct{ f *os.File }

func (l lock) Close() error {
	return errors.Join(unix.Flock(int(l.f.Fd()), unix.LOCK_UN), l.f.Close())
}

func (OS) Free(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}

type osFile struct {
	f  *os.File
	fd int
}

func (o *osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }
func (o *osFile) Truncate(size int64) error               { return o.f.Truncate(size) }
func (o *osFile) Close() error                            { return o.f.Close() }
func (o *osFile) OS() *os.File                            { return o.f }

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (o *osFile) WriteV(bufs [][]byte, off int64) (int, error) {
	if len(bufs) == 1 {
		return o.f.WriteAt(bufs[0], off)
	}
	written := 0
	rest := bufs
	for len(rest) > 0 {
		n, err := unix.Pwritev(o.fd, rest[:min(len(rest), maxIOV)], off)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return written, &fs.PathError{Op: "write", Path: o.f.Name(), Err: err}
		}
		written += n
		off += int64(n)
		rest = skip(rest, n)
	}
	return written, nil
}

// skip drops the first n bytes of bufs. A cut buffer is replaced in a copy: bufs belongs to the caller.
func skip(bufs [][]byte, n int) [][]byte {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	if n == 0 {
		return bufs
	}
	cut := append([][]byte{bufs[0][n:]}, bufs[1:]...)
	return cut
}

func (o *osFile) Sync() error {
	for {
		err := unix.Fdatasync(o.fd)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return &fs.PathError{Op: "fdatasync", Path: o.f.Name(), Err: err}
		}
		return nil
	}
}

func (o *osFile) Preallocate(off, n int64) error {
	return unix.Fallocate(o.fd, unix.FALLOC_FL_KEEP_SIZE, off, n)
}

func (o *osFile) WriteOut(off, n int64) {
	_ = unix.SyncFileRange(o.fd, off, n, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
}

// Cached says whether the system has all of a range of a file in memory, false where it can not tell.
func Cached(f *os.File, off, n int64) bool {
	page := int64(os.Getpagesize())
	var have unix.Cachestat_t
	err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &have, 0)
	return err == nil && n > 0 && int64(have.Cache) >= (off+n-1)/page-off/page+1
}
