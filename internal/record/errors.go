package record

import (
	"errors"
	"fmt"

	"klamm/internal/cluster"
)

// ErrShort says that the bytes end before the batch does. That is no corruption: a fetched buffer usually ends so.
var ErrShort = errors.New("bytes end inside a record batch")

// legacyMinLength is the smallest length field of the formats 0 and 1: Kafka names a smaller one corrupt before it looks at the magic.
const legacyMinLength = 14

// BatchError says why bytes are not a usable batch.
type BatchError struct {
	Code    cluster.ErrorCode
	Message string
}

// Error gives the message.
func (e *BatchError) Error() string { return e.Message }

// ValidationError says why a produce was refused.
type ValidationError struct {
	Code    cluster.ErrorCode
	Message string
	Records []RecordError // the records at fault, if single ones are (produce v8+)
}

// RecordError names one refused record of a batch by its index.
type RecordError struct {
	BatchIndex int32
	Message    string
}

// Error gives the message.
func (e *ValidationError) Error() string { return e.Message }

// Code maps an error of this package to the protocol's code.
func Code(err error) cluster.ErrorCode {
	if err == nil {
		return cluster.None
	}
	var be *BatchError
	var ve *ValidationError
	switch {
	case errors.As(err, &be):
		return be.Code
	case errors.As(err, &ve):
		return ve.Code
	case errors.Is(err, ErrShort):
		return cluster.CorruptMessage
	}
	return cluster.UnknownServerError
}

func corrupt(format string, args ...any) *BatchError {
	return &BatchError{cluster.CorruptMessage, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) *BatchError {
	return &BatchError{cluster.InvalidRecord, fmt.Sprintf(format, args...)}
}

// checkFrame judges the two fields that tell whether bytes can be a batch at all (Kafka: ByteBufferLogInputStream).
func checkFrame(length int32, magic int8) error {
	switch {
	case length < legacyMinLength:
		return corrupt("Record size %d is less than the minimum record overhead (%d)", length, legacyMinLength)
	case magic < 0 || magic > currentMagic:
		return corrupt("Invalid magic found in record: %d", magic)
	case magic < currentMagic:
		return &BatchError{cluster.UnsupportedForMessageFormat, fmt.Sprintf("message format %d is not supported, only %d is", magic, currentMagic)}
	case length < HeaderSize-LogOverhead:
		return corrupt("Record batch is corrupted (the size %d is smaller than the minimum allowed overhead %d)", int64(length)+LogOverhead, HeaderSize)
	}
	return nil
}
