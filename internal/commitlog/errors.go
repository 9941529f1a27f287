package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

// StorageError tells that a log dir has failed, or that a replica may lie in a dir that has: KAFKA_STORAGE_ERROR.
type StorageError struct {
	Dir string // path of the log dir
	Err error
}

// Error names the dir.
func (e *StorageError) Error() string { return fmt.Sprintf("log dir %s: %v", e.Dir, e.Err) }

// Unwrap gives the cause.
func (e *StorageError) Unwrap() error { return e.Err }

// Error is a refusal with its protocol code and Kafka's words for it.
type Error struct {
	Code    cluster.ErrorCode
	Message string
	Records []record.RecordError // the records at fault, of a produce request; may be empty
}

// Error gives the message.
func (e *Error) Error() string { return e.Message }

// ErrInconsistentTopicID is returned when a log of the same name belongs to another incarnation of the topic.
var ErrInconsistentTopicID = &Error{Code: cluster.InconsistentTopicID, Message: "the log belongs to another topic id"}

// errIndexMissing is of a segment that has bytes but not all of its indexes.
var errIndexMissing = errors.New("the index is missing")

// errLogGone is returned by operations on a log that was deleted or closed meanwhile.
var errLogGone = &Error{Code: cluster.UnknownTopicOrPartition, Message: "the log was deleted or closed"}

// Code maps any error of this package to its protocol code: None for nil, UnknownServerError for errors of others.
func Code(err error) cluster.ErrorCode {
	if err == nil {
		return cluster.None
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	var se *StorageError
	if errors.As(err, &se) {
		return cluster.KafkaStorageError
	}
	return record.Code(err)
}

func refuse(code cluster.ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// removeIfThere turns "no such file" into success.
func removeIfThere(err error) error {
	if isNotExist(err) {
		return nil
	}
	return err
}

// errno gives the errno in an error's chain as text for a log attribute, or "".
func errno(err error) string {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no.Error()
	}
	return ""
}

// outOfFiles reports whether an error tells that the process or the system has too many files open. The disk is well, and what was to
// be done can be done later.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// sickDisk reports whether an error tells of the whole volume rather than of one entry on it.
func sickDisk(err error) bool {
	for _, no := range []syscall.Errno{syscall.EIO, syscall.EROFS, syscall.ENXIO, syscall.ENODEV, syscall.ESTALE, syscall.ENOSPC} {
		if errors.Is(err, no) {
			return true
		}
	}
	return errors.Is(err, os.ErrClosed)
}
