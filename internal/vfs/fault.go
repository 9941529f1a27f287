package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// OpKind names a file-system operation.
type OpKind uint8

// The operations an Injector sees. Close and Path are never failed.
const (
	OpOpen OpKind = iota
	OpCreate
	OpMkdir
	OpRemove
	OpRename
	OpStat
	OpReadDir
	OpSyncDir
	OpSyncAll
	OpLock
	OpUsage
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpSize
)

var opNames = [...]string{"open", "create", "mkdir", "remove", "rename", "stat", "readdir", "syncdir", "syncall", "lock", "usage", "read", "write", "sync", "truncate", "size"}

// String gives the operation's name in lower case.
func (k OpKind) String() string { return opNames[k] }

// Op is one operation about to be made.
type Op struct {
	Kind    OpKind
	Name    string
	NewName string // of a rename
	Offset  int64  // of a read, write or truncation
	Bytes   int    // of a read or write
}

// Injector is asked before every operation; a non-nil error is returned instead of doing it. It may be called concurrently.
type Injector func(Op) error

// PartialWrite, returned by an Injector for OpWrite, lets the first N bytes through before Err: a write that was cut short.
type PartialWrite struct {
	N   int
	Err error
}

// Error gives the inner error's text.
func (e *PartialWrite) Error() string { return e.Err.Error() }

// Unwrap gives the inner error.
func (e *PartialWrite) Unwrap() error { return e.Err }

// Fault is an FS that asks an Injector before every operation.
type Fault struct {
	fs     FS
	inject Injector
}

// NewFault wraps an FS.
func NewFault(fsys FS, inject Injector) *Fault { return &Fault{fs: fsys, inject: inject} }

// check asks the injector and dresses its error as the real one would be.
func (f *Fault) check(op Op) error {
	err := f.inject(op)
	var partial *PartialWrite
	if err == nil || errors.As(err, &partial) {
		return err
	}
	return &fs.PathError{Op: op.Kind.String(), Path: f.fs.Path() + "/" + op.Name, Err: err}
}

// Path is the inner path.
func (f *Fault) Path() string { return f.fs.Path() }

// Close closes the inner FS.
func (f *Fault) Close() error { return f.fs.Close() }

// OpenFile asks as OpCreate when the flag may create, else as OpOpen.
func (f *Fault) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	kind := OpOpen
	if flag&os.O_CREATE != 0 {
		kind = OpCreate
	}
	if err := f.check(Op{Kind: kind, Name: name}); err != nil {
		return nil, err
	}
	inner, err := f.fs.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{fs: f, name: name, inner: inner}, nil
}

// Mkdir asks as OpMkdir.
func (f *Fault) Mkdir(name string, perm fs.FileMode) error {
	return f.do(Op{Kind: OpMkdir, Name: name}, func() error { return f.fs.Mkdir(name, perm) })
}

// MkdirAll asks as OpMkdir.
func (f *Fault) MkdirAll(name string, perm fs.FileMode) error {
	return f.do(Op{Kind: OpMkdir, Name: name}, func() error { return f.fs.MkdirAll(name, perm) })
}

// Remove asks as OpRemove.
func (f *Fault) Remove(name string) error {
	return f.do(Op{Kind: OpRemove, Name: name}, func() error { return f.fs.Remove(name) })
}

// RemoveAll asks as OpRemove, once for the whole tree.
func (f *Fault) RemoveAll(name string) error {
	return f.do(Op{Kind: OpRemove, Name: name}, func() error { return f.fs.RemoveAll(name) })
}

// Rename asks as OpRename.
func (f *Fault) Rename(oldName, newName string) error {
	return f.do(Op{Kind: OpRename, Name: oldName, NewName: newName}, func() error { return f.fs.Rename(oldName, newName) })
}

// Stat asks as OpStat.
func (f *Fault) Stat(name string) (fs.FileInfo, error) {
	if err := f.check(Op{Kind: OpStat, Name: name}); err != nil {
		return nil, err
	}
	return f.fs.Stat(name)
}

// ReadDir asks as OpReadDir.
func (f *Fault) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.check(Op{Kind: OpReadDir, Name: name}); err != nil {
		return nil, err
	}
	return f.fs.ReadDir(name)
}

// SyncDir asks as OpSyncDir.
func (f *Fault) SyncDir(name string) error {
	return f.do(Op{Kind: OpSyncDir, Name: name}, func() error { return f.fs.SyncDir(name) })
}

// SyncAll asks as OpSyncAll.
func (f *Fault) SyncAll() error { return f.do(Op{Kind: OpSyncAll}, f.fs.SyncAll) }

// Lock asks as OpLock.
func (f *Fault) Lock(name string) (io.Closer, error) {
	if err := f.check(Op{Kind: OpLock, Name: name}); err != nil {
		return nil, err
	}
	return f.fs.Lock(name)
}

// Usage asks as OpUsage.
func (f *Fault) Usage() (Usage, error) {
	if err := f.check(Op{Kind: OpUsage}); err != nil {
		return Usage{}, err
	}
	return f.fs.Usage()
}

func (f *Fault) do(op Op, run func() error) error {
	if err := f.check(op); err != nil {
		return err
	}
	return run()
}

// faultFile asks before every operation on an open file.
type faultFile struct {
	fs    *Fault
	name  string
	inner File
}

func (f *faultFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.check(Op{Kind: OpRead, Name: f.name, Offset: off, Bytes: len(b)}); err != nil {
		return 0, err
	}
	return f.inner.ReadAt(b, off)
}

func (f *faultFile) WriteAt(b []byte, off int64) (int, error) {
	err := f.fs.check(Op{Kind: OpWrite, Name: f.name, Offset: off, Bytes: len(b)})
	var partial *PartialWrite
	if errors.As(err, &partial) {
		n, werr := f.inner.WriteAt(b[:min(partial.N, len(b))], off)
		return n, errors.Join(&fs.PathError{Op: "write", Path: f.fs.Path() + "/" + f.name, Err: partial.Err}, werr)
	}
	if err != nil {
		return 0, err
	}
	return f.inner.WriteAt(b, off)
}

func (f *faultFile) Sync() error {
	return f.fs.do(Op{Kind: OpSync, Name: f.name}, f.inner.Sync)
}

func (f *faultFile) Truncate(size int64) error {
	return f.fs.do(Op{Kind: OpTruncate, Name: f.name, Offset: size}, func() error { return f.inner.Truncate(size) })
}

func (f *faultFile) Size() (int64, error) {
	if err := f.fs.check(Op{Kind: OpSize, Name: f.name}); err != nil {
		return 0, err
	}
	return f.inner.Size()
}

func (f *faultFile) Close() error { return f.inner.Close() }
