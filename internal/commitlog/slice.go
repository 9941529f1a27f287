package commitlog

import (
	"fmt"
	"io"
	"sync/atomic"
	"syscall"
)

// FileSlice is a range of a segment's file, as a fetch returns it: whole batches, of which the last may be cut by the fetch's size limit.
// It keeps the file open, so the bytes stay readable after retention, truncation or deletion took the segment away, until Release.
// ReadInto may be called by one goroutine at a time.
type FileSlice struct {
	seg      *segment // nil: empty
	position int64
	length   int
	released atomic.Bool
}

// Len is the number of bytes.
func (s *FileSlice) Len() int { return s.length }

// ReadInto copies the whole slice into dst, which must hold Len bytes.
func (s *FileSlice) ReadInto(dst []byte) (int, error) {
	if s.length == 0 {
		return 0, nil
	}
	return s.ReadAt(dst[:s.length], 0)
}

// ReadAt reads from an offset within the slice.
func (s *FileSlice) ReadAt(dst []byte, off int64) (int, error) {
	if off >= int64(s.length) {
		return 0, io.EOF
	}
	whole := len(dst)
	dst = dst[:min(int64(whole), int64(s.length)-off)]
	f, err := s.seg.file(logSuffix, false)
	if err != nil {
		return 0, s.seg.log.ioError(err)
	}
	n, err := f.ReadAt(dst, s.position+off)
	switch {
	case n == len(dst) && n == whole:
		return n, nil
	case n == len(dst):
		return n, io.EOF
	case err == nil || err == io.EOF: // only a truncation of this log can cut the file below a published size
		return n, fmt.Errorf("read %s at %d: %w", s.seg.log.tp, s.position+off, io.ErrUnexpectedEOF)
	}
	return n, s.seg.log.ioError(err)
}

// File gives the open file of the operating system that holds the slice, and where it starts there, for sending it without a copy. ok is
// false when there is none; ReadInto then tells why, if it is an error.
func (s *FileSlice) File() (file syscall.Conn, position int64, ok bool) {
	if s.length == 0 {
		return nil, 0, false
	}
	f, err := s.seg.file(logSuffix, false)
	if err != nil {
		return nil, 0, false
	}
	file, ok = f.(syscall.Conn)
	return file, s.position, ok
}

// Release lets the segment's file be closed. Idempotent.
func (s *FileSlice) Release() {
	if s.seg != nil && !s.released.Swap(true) {
		s.seg.release()
	}
}
