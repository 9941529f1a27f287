//go:build unix && !linux

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes a BSD lock: it sees other klamm processes and a second open in this one.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return true, nil
}

// writeBack is Linux's.
func (osFile) writeBack() {}

// syncVolume is Linux's; sync(2) may return before the disk has it.
func syncVolume(*os.File) error { return errors.ErrUnsupported }
