//go:build linux || darwin

package vfs

import (
	"os"

	"golang.org/x/sys/unix"
)

func volumeUsage(dir string) (Usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := int64(st.Bsize)
	return Usage{Total: int64(st.Blocks) * block, Usable: int64(st.Bavail) * block}, nil
}
