//go:build !linux

package doctor

import (
	"io/fs"
	"time"
)

// changed is the time of modification: what tells of a rename is read on Linux only.
func changed(info fs.FileInfo) time.Time { return info.ModTime() }
