package doctor

import (
	"io/fs"
	"syscall"
	"time"
)

// changed is when a file's name, size or rights changed last: a rename does not show in the time of modification.
func changed(info fs.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return info.ModTime()
}
