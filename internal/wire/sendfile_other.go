//go:build !linux

package wire

import (
	"errors"
	"syscall"
)

// sendFile exists on Linux only; elsewhere records are copied.
func sendFile(syscall.RawConn, syscall.Conn, int64, int) (int, error) {
	return 0, errors.ErrUnsupported
}
