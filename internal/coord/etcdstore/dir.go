package etcdstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Files that klamm keeps beside etcd's "member" folder.
const (
	lockName   = "klamm.lock"
	markerName = "klamm-member"
)

// kind is what a data directory holds; its text is the content of the marker file.
type kind string

const (
	loneKind    kind = "This directory holds the coordination data of klamm (an embedded etcd member, layout 1).\n"
	clusterKind kind = "This directory holds the coordination data of klamm (a member of an etcd cluster, layout 1).\n"
)

// dataDir is a directory that this process has claimed. Closing it lets go of the lock.
type dataDir struct {
	*os.File // the lock
	path     string
	kind     kind // "" when it was empty
}

// claimDir makes sure that the directory is a klamm member's, or empty, and that no other process uses it.
func claimDir(dir string) (*dataDir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("coordination data dir: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("coordination data dir: %w", err)
	}
	d := &dataDir{File: lock, path: dir}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("coordination data dir %s is in use by another process (%s is locked)", dir, lock.Name())
	case err != nil:
		err = fmt.Errorf("lock coordination data dir %s: %w", dir, err)
	default:
		err = d.readMarker()
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// readMarker finds out what the directory holds and refuses one that is not klamm's.
func (d *dataDir) readMarker() error {
	marker := filepath.Join(d.path, markerName)
	text, err := os.ReadFile(marker)
	switch {
	case err == nil && (kind(text) == loneKind || kind(text) == clusterKind):
		d.kind = kind(text)
		return nil
	case err == nil:
		return fmt.Errorf("coordination data dir %s: %s is not of this version of klamm", d.path, marker)
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("coordination data dir: %w", err)
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("coordination data dir: %w", err)
	}
	for _, e := range entries {
		if e.Name() != lockName && e.Name() != markerName+".new" {
			return fmt.Errorf("coordination data dir %s holds %q but no %s: it is not klamm's; name an empty directory", d.path, e.Name(), markerName)
		}
	}
	return nil
}

// mark notes what the directory holds from now on.
func (d *dataDir) mark(k kind) error {
	if d.kind == k {
		return nil
	}
	marker := filepath.Join(d.path, markerName)
	if err := os.WriteFile(marker+".new", []byte(k), 0o600); err != nil {
		return fmt.Errorf("coordination data dir: %w", err)
	}
	if err := os.Rename(marker+".new", marker); err != nil {
		return fmt.Errorf("coordination data dir: %w", err)
	}
	d.kind = k
	return nil
}

// hasData reports whether a member has run in the directory: it has a log.
func (d *dataDir) hasData() bool {
	logs, err := filepath.Glob(filepath.Join(d.path, "member", "wal", "*.wal"))
	return err == nil && len(logs) > 0
}
