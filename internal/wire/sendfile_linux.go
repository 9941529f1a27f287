package wire

import (
	"errors"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// sendFile moves n bytes of a file, from position on, to a socket inside the kernel, waiting for the socket as a write
// does. The kernel is told the position, so one open file serves many connections. Fewer bytes come with an error,
// io.ErrUnexpectedEOF where the file ends.
func sendFile(socket syscall.RawConn, file syscall.Conn, position int64, n int) (sent int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	var fileErr, sendErr, waitErr error
	fileErr = raw.Control(func(from uintptr) { // keeps the file open meanwhile
		waitErr = socket.Write(func(to uintptr) (done bool) {
			for sent < n {
				k, err := unix.Sendfile(int(to), int(from), &position, n-sent)
				switch {
				case err == unix.EINTR:
				case err == unix.EAGAIN:
					return false // the poller waits for room
				case err != nil:
					sendErr = err
					return true
				case k == 0:
					sendErr = io.ErrUnexpectedEOF
					return true
				default:
					sent += k
				}
			}
			return true
		})
	})
	return sent, errors.Join(fileErr, sendErr, waitErr)
}
