package vfs

import (
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"
)

// memFile is a handle; it stays usable after the name is gone, as on Unix.
type memFile struct {
	fs     *Mem
	name   string
	node   *memNode
	closed atomic.Bool
}

func (n *memNode) edit(e memEdit) {
	n.data = e.applyTo(n.data)
	n.writes = append(n.writes, e)
	n.mtime = time.Now()
}

func (f *memFile) check(op string) error {
	if f.closed.Load() {
		return f.fs.fail(op, f.name, fs.ErrClosed)
	}
	return nil
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.node.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("write"); err != nil {
		return 0, err
	}
	if len(b) > 0 {
		f.node.edit(memEdit{off: off, data: slices.Clone(b)})
	}
	return len(b), nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("sync"); err != nil {
		return err
	}
	f.node.sync()
	return nil
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("truncate"); err != nil {
		return err
	}
	f.node.edit(memEdit{off: size})
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.check("stat"); err != nil {
		return 0, err
	}
	return int64(len(f.node.data)), nil
}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return f.fs.fail("close", f.name, fs.ErrClosed)
	}
	return nil
}

// memInfo is a snapshot of a node.
type memInfo struct {
	name  string
	dir   bool
	size  int64
	mtime time.Time
}

func (n *memNode) info(name string) fs.FileInfo {
	return memInfo{name: name, dir: n.dir, size: int64(len(n.data)), mtime: n.mtime}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return i.mtime }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }

func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | DirPerm
	}
	return FilePerm
}
