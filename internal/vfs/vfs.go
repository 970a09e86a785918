// Package vfs is the seam between the log's rooms and the operating system's files.
//
// It owns the few file operations that durability rests on: vectored positional writes, fdatasync,
// directory sync, preallocation, locks. It knows nothing of segments, journals or records. The seam exists
// so that tests can put a file system below the log that forgets, tears or refuses what a real disk could.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// FS opens and arranges files. All methods may be called concurrently.
type FS interface {
	// OpenFile opens a file for positional reads and writes; flag is as in os.OpenFile, with Direct.
	OpenFile(name string, flag int) (File, error)
	MkdirAll(dir string) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	ReadDir(dir string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes creations, renames and removals in dir durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock that dies with the process; it fails at once when another holds it.
	Lock(name string) (io.Closer, error)
	// Free says how many bytes of the file system that holds dir are left and how many there are.
	Free(dir string) (free, total uint64, err error)
}

// Direct asks OpenFile for a file that is written past the system's cache, where it can be. Every write must then begin and
// end at a multiple of DirectAlign, in the file and in memory; Sync is needed all the same.
const Direct = unix.O_DIRECT

// DirectAlign is what writes to a file that was opened with Direct are aligned to, in bytes.
const DirectAlign = 4096

// AlignedBuffer returns n bytes that begin at a multiple of DirectAlign in memory.
func AlignedBuffer(n int) []byte {
	b := make([]byte, n+DirectAlign)
	at := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (DirectAlign - 1)
	return b[at : at+n : at+n]
}

// File is one open file. ReadAt and WriteV may run concurrently; Close must not run beside any other method.
type File interface {
	io.ReaderAt
	// WriteV writes bufs one after the other at off, in as few calls as the system allows.
	WriteV(bufs [][]byte, off int64) (int, error)
	Truncate(size int64) error
	Size() (int64, error)
	// Sync makes data, and the metadata needed to read it, durable (fdatasync). After an error nothing
	// may be assumed about what was written since the last success.
	Sync() error
	// Preallocate reserves blocks for n bytes from off without changing the file's size. It is advice:
	// an error says only that the blocks are not reserved.
	Preallocate(off, n int64) error
	// WriteOut writes a range out and waits for it. It is advice: only Sync says that it is durable.
	WriteOut(off, n int64)
	Close() error
	// OS returns the file of the operating system below, or nil where there is none.
	OS() *os.File
}

// ReadFile reads a whole file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// WriteFile replaces a file's content in place and syncs it. It does not sync the directory.
func WriteFile(fsys FS, name string, data []byte) error {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	_, err = f.WriteV([][]byte{data}, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
