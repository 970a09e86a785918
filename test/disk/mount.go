// Package disk runs the real binary on a file system that can lose power: what was not synced is dropped or torn.
package disk

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/databus-suite/databus/internal/vfs"
)

// mount shows fsys below dir by FUSE, until the returned function is called. It needs /dev/fuse and the right to mount.
// The kernel passes every write on at once and keeps none back, so that what fsys was not asked to sync is exactly what
// the processes above did not sync.
func mount(dir string, fsys vfs.FS) (unmount func() error, err error) {
	root := &node{fs: fsys}
	server, err := fusefs.Mount(dir, root, &fusefs.Options{MountOptions: fuse.MountOptions{
		FsName: "databus-power", DirectMountStrict: true, MaxWrite: 1 << 20,
	}})
	if err != nil {
		return nil, err
	}
	return server.Unmount, nil
}

// node is a file or directory of the mount; its path is where it stands in fs.
type node struct {
	fusefs.Inode
	fs vfs.FS
}

var (
	_ fusefs.NodeLookuper  = (*node)(nil)
	_ fusefs.NodeGetattrer = (*node)(nil)
	_ fusefs.NodeSetattrer = (*node)(nil)
	_ fusefs.NodeReaddirer = (*node)(nil)
	_ fusefs.NodeMkdirer   = (*node)(nil)
	_ fusefs.NodeCreater   = (*node)(nil)
	_ fusefs.NodeOpener    = (*node)(nil)
	_ fusefs.NodeFsyncer   = (*node)(nil)
	_ fusefs.NodeUnlinker  = (*node)(nil)
	_ fusefs.NodeRmdirer   = (*node)(nil)
	_ fusefs.NodeRenamer   = (*node)(nil)
	_ fusefs.NodeStatfser  = (*node)(nil)
	_ fusefs.FileReader    = (*handle)(nil)
	_ fusefs.FileWriter    = (*handle)(nil)
	_ fusefs.FileFsyncer   = (*handle)(nil)
	_ fusefs.FileGetattrer = (*handle)(nil)
	_ fusefs.FileSetattrer = (*handle)(nil)
	_ fusefs.FileReleaser  = (*handle)(nil)
)

func (n *node) path(name ...string) string {
	return filepath.Join(append([]string{"/", n.Path(nil)}, name...)...)
}

// child returns the inode of a name: the one that the kernel knows already, so that its cached pages stay true.
func (n *node) child(ctx context.Context, name string, st fs.FileInfo, out *fuse.EntryOut) *fusefs.Inode {
	mode := describe(st.IsDir(), st.Size(), &out.Attr)
	if c := n.GetChild(name); c != nil {
		return c
	}
	return n.NewInode(ctx, &node{fs: n.fs}, fusefs.StableAttr{Mode: mode})
}

// describe fills in the attributes of a file or directory.
func describe(dir bool, size int64, out *fuse.Attr) (mode uint32) {
	out.Mode, out.Size, out.Nlink = fuse.S_IFREG|0o644, uint64(size), 1
	if dir {
		out.Mode = fuse.S_IFDIR | 0o755
	}
	return out.Mode & syscall.S_IFMT
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	st, err := n.fs.Stat(n.path(name))
	if err != nil {
		return nil, errno(err)
	}
	return n.child(ctx, name, st, out), 0
}

func (n *node) Getattr(ctx context.Context, f fusefs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if h, ok := f.(*handle); ok {
		return h.Getattr(ctx, out)
	}
	st, err := n.fs.Stat(n.path())
	if err != nil {
		return errno(err)
	}
	describe(st.IsDir(), st.Size(), &out.Attr)
	return 0
}

func (n *node) Setattr(ctx context.Context, f fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	h, ok := f.(*handle)
	if !ok {
		if _, resize := in.GetSize(); !resize {
			return n.Getattr(ctx, nil, out)
		}
		file, err := n.fs.OpenFile(n.path(), os.O_RDWR)
		if err != nil {
			return errno(err)
		}
		h = &handle{file}
		defer file.Close()
	}
	return h.Setattr(ctx, in, out)
}

func (n *node) Readdir(context.Context) (fusefs.DirStream, syscall.Errno) {
	entries, err := n.fs.ReadDir(n.path())
	if err != nil {
		return nil, errno(err)
	}
	list := make([]fuse.DirEntry, 0, len(entries))
	for _, e := range entries {
		mode := uint32(fuse.S_IFREG)
		if e.IsDir() {
			mode = fuse.S_IFDIR
		}
		list = append(list, fuse.DirEntry{Name: e.Name(), Mode: mode})
	}
	return fusefs.NewListDirStream(list), 0
}

func (n *node) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if err := n.fs.MkdirAll(n.path(name)); err != nil {
		return nil, errno(err)
	}
	return n.Lookup(ctx, name, out)
}

func (n *node) Create(ctx context.Context, name string, flags, _ uint32, out *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	f, err := n.fs.OpenFile(n.path(name), int(flags)&(os.O_TRUNC|os.O_EXCL)|os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, nil, 0, errno(err)
	}
	child, code := n.Lookup(ctx, name, out)
	return child, &handle{f}, 0, code
}

func (n *node) Open(_ context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	f, err := n.fs.OpenFile(n.path(), int(flags)&os.O_TRUNC|os.O_RDWR)
	if err != nil {
		return nil, 0, errno(err)
	}
	return &handle{f}, 0, 0
}

// Fsync of a directory comes without a handle.
func (n *node) Fsync(ctx context.Context, f fusefs.FileHandle, flags uint32) syscall.Errno {
	if h, ok := f.(*handle); ok {
		return h.Fsync(ctx, flags)
	}
	return errno(n.fs.SyncDir(n.path()))
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return errno(n.fs.Remove(n.path(name)))
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return errno(n.fs.Remove(n.path(name)))
}

func (n *node) Rename(_ context.Context, name string, parent fusefs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if flags != 0 {
		return syscall.EINVAL
	}
	return errno(n.fs.Rename(n.path(name), parent.(*node).path(newName)))
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	free, total, err := n.fs.Free(n.path())
	const block = 4096
	out.Bsize, out.Frsize, out.NameLen = block, block, 255
	out.Blocks, out.Bfree, out.Bavail = total/block, free/block, free/block
	return errno(err)
}

// handle is an open file.
type handle struct{ file vfs.File }

func (h *handle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n, err := h.file.ReadAt(dest, off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return fuse.ReadResultData(dest[:n]), errno(err)
}

func (h *handle) Write(_ context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	n, err := h.file.WriteV([][]byte{data}, off)
	return uint32(n), errno(err)
}

func (h *handle) Fsync(context.Context, uint32) syscall.Errno { return errno(h.file.Sync()) }

func (h *handle) Getattr(_ context.Context, out *fuse.AttrOut) syscall.Errno {
	size, err := h.file.Size()
	describe(false, size, &out.Attr)
	return errno(err)
}

func (h *handle) Setattr(ctx context.Context, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		if err := h.file.Truncate(int64(size)); err != nil {
			return errno(err)
		}
	}
	return h.Getattr(ctx, out)
}

func (h *handle) Release(context.Context) syscall.Errno { return errno(h.file.Close()) }

// errno is what the kernel is told of an error.
func errno(err error) syscall.Errno {
	var code syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return code
	case errors.Is(err, fs.ErrNotExist):
		return syscall.ENOENT
	case errors.Is(err, fs.ErrExist):
		return syscall.EEXIST
	}
	return syscall.EIO
}
