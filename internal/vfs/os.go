package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// OS is a directory of the operating system. Every name is resolved below it (os.Root), so neither ".." nor a symbolic link leaves it.
type OS struct {
	path string
	root *os.Root
}

// OpenOS opens an existing directory.
func OpenOS(dir string) (*OS, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", dir, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, err
	}
	return &OS{path: abs, root: root}, nil
}

// Path is the directory's absolute path.
func (o *OS) Path() string { return o.path }

// Close releases the directory's handle; open files stay usable.
func (o *OS) Close() error { return o.root.Close() }

// OpenFile opens or creates a file.
func (o *OS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := o.root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, o.full(err)
	}
	return osFile{f}, nil
}

// Mkdir creates a directory.
func (o *OS) Mkdir(name string, perm fs.FileMode) error { return o.full(o.root.Mkdir(name, perm)) }

// MkdirAll creates a directory and its parents.
func (o *OS) MkdirAll(name string, perm fs.FileMode) error {
	return o.full(o.root.MkdirAll(name, perm))
}

// Remove unlinks a file or an empty directory.
func (o *OS) Remove(name string) error { return o.full(o.root.Remove(name)) }

// RemoveAll removes a tree.
func (o *OS) RemoveAll(name string) error { return o.full(o.root.RemoveAll(name)) }

// Rename moves a file or directory.
func (o *OS) Rename(oldName, newName string) error { return o.full(o.root.Rename(oldName, newName)) }

// Stat describes a file; symbolic links are followed within the tree.
func (o *OS) Stat(name string) (fs.FileInfo, error) {
	fi, err := o.root.Stat(name)
	return fi, o.full(err)
}

// ReadDir lists a directory sorted by name.
func (o *OS) ReadDir(name string) ([]fs.DirEntry, error) {
	d, err := o.root.Open(name)
	if err != nil {
		return nil, o.full(err)
	}
	entries, err := d.ReadDir(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return nil, o.full(err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// SyncDir makes a directory's entries durable.
func (o *OS) SyncDir(name string) error {
	d, err := o.root.Open(name)
	if err != nil {
		return o.full(err)
	}
	return o.full(errors.Join(d.Sync(), d.Close()))
}

// SyncAll syncs the whole volume.
func (o *OS) SyncAll() error {
	d, err := o.root.Open(".")
	if err != nil {
		return o.full(err)
	}
	return o.full(errors.Join(syncVolume(d), d.Close()))
}

// Lock takes an exclusive lock that other processes, Kafka's among them, see.
func (o *OS) Lock(name string) (io.Closer, error) {
	f, err := o.root.OpenFile(name, os.O_RDWR|os.O_CREATE, FilePerm)
	if err != nil {
		return nil, o.full(err)
	}
	held, err := tryLock(f)
	if err == nil && !held {
		err = &LockedError{Path: filepath.Join(o.path, name)}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Usage asks the volume.
func (o *OS) Usage() (Usage, error) { return volumeUsage(o.path) }

// full puts the root's path before the relative one that os.Root reports, so that messages name a file an operator can look at.
func (o *OS) full(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) && !filepath.IsAbs(pe.Path) {
		return &fs.PathError{Op: strings.TrimSuffix(pe.Op, "at"), Path: filepath.Join(o.path, pe.Path), Err: pe.Err}
	}
	var le *os.LinkError
	if errors.As(err, &le) && !filepath.IsAbs(le.Old) {
		return &os.LinkError{Op: strings.TrimSuffix(le.Op, "at"), Old: filepath.Join(o.path, le.Old), New: filepath.Join(o.path, le.New), Err: le.Err}
	}
	return err
}

// osFile adds Size to *os.File.
type osFile struct{ *os.File }

// Size asks the file system.
func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
