// Package vfs is the file-system port: one FS is one directory tree, a broker's log dir.
//
// Three implementations: OS (a real directory, confined by os.Root so that no name, however made, leaves it), Mem (memory with the
// crash behaviour of a disk: CrashClone gives what a power cut leaves) and Fault (any FS with errors injected by the caller).
//
// Names are slash-separated and relative to the tree's root; "." is the root. Errors are *fs.PathError or *os.LinkError and name the
// operation, the path and the errno.
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// FS is a directory tree. Safe for concurrent use.
type FS interface {
	// Path is the root's path, for messages only.
	Path() string
	// OpenFile takes os.O_RDONLY, O_RDWR, O_CREATE, O_EXCL and O_TRUNC. There is no O_APPEND: a write carries its position, so that
	// one that failed half way can be made again at the same place.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	Mkdir(name string, perm fs.FileMode) error
	MkdirAll(name string, perm fs.FileMode) error
	// Remove unlinks a file or an empty directory.
	Remove(name string) error
	RemoveAll(name string) error
	// Rename replaces a file of the new name atomically.
	Rename(oldName, newName string) error
	Stat(name string) (fs.FileInfo, error)
	// ReadDir lists a directory sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	// SyncDir makes the creates, removes and renames done inside a directory durable.
	SyncDir(name string) error
	// SyncAll makes everything on the tree's volume durable at once, names included: cheaper than many Syncs. errors.ErrUnsupported where
	// the system cannot.
	SyncAll() error
	// Lock takes an exclusive lock on a file, which it creates; *LockedError when somebody else holds it.
	Lock(name string) (io.Closer, error)
	// Usage tells the size of the volume the tree lies on.
	Usage() (Usage, error)
	Close() error
}

// File is an open file. Reads and writes carry their position; safe for concurrent use as far as ranges do not overlap.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the file's content and size durable (not its name: see FS.SyncDir).
	Sync() error
	Truncate(size int64) error
	Size() (int64, error)
}

// WriteBack lets the system begin to write a file's content to the disk, where it can be asked to. Nothing becomes durable by it and no error
// is told: a later Sync or SyncAll has less to wait for.
func WriteBack(f File) {
	if w, ok := f.(interface{ writeBack() }); ok {
		w.writeBack()
	}
}

// Usage is the size of a volume in bytes.
type Usage struct {
	Total  int64
	Usable int64 // what an unprivileged process may still write
}

// LockedError tells that another process (or another holder in this one) has the lock.
type LockedError struct {
	Path string // of the lock file
}

// Error names the lock file.
func (e *LockedError) Error() string {
	return fmt.Sprintf("lock %s: held by another process", e.Path)
}

// FilePerm and DirPerm are the modes of everything created, before the umask.
const (
	FilePerm fs.FileMode = 0o644
	DirPerm  fs.FileMode = 0o755
)

// ReadFile returns a file's whole content.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading: nothing to lose
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, size)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return b[:n], nil
}

// WriteFile writes a file in place, without making it durable.
func WriteFile(fsys FS, name string, data []byte) error {
	return writeFile(fsys, name, data, false)
}

// WriteFileSync writes a file in place and makes its content, not its name, durable.
func WriteFileSync(fsys FS, name string, data []byte) error {
	return writeFile(fsys, name, data, true)
}

func writeFile(fsys FS, name string, data []byte, sync bool) error {
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, FilePerm)
	if err != nil {
		return err
	}
	if len(data) > 0 {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil && sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// WriteFileAtomic replaces a file durably: <name>.tmp, fsync, rename, fsync of the parent. A crash leaves the old or the new content.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	if err := WriteFileSync(fsys, tmp, data); err != nil {
		return err
	}
	if err := fsys.Rename(tmp, name); err != nil {
		return err
	}
	return fsys.SyncDir(path.Dir(name))
}
