package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock takes an open-file-description lock: it conflicts with the POSIX locks that Java takes in another process and with a second
// open in this one, which plain POSIX locks would not.
func tryLock(f *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return true, nil
}

// writeBack begins the writing of dirty pages. It touches no journal, so that writers of other files are not held up.
func (f osFile) writeBack() {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE) // what it cannot write the next sync tells
}

// syncVolume makes everything on the file system that d lies on durable.
func syncVolume(d *os.File) error {
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return &os.PathError{Op: "syncfs", Path: d.Name(), Err: err}
	}
	return nil
}
