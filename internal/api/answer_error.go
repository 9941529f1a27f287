package api

import (
	"context"
	"errors"
	"fmt"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// answerError is an error of one item of a request as the answer carries it (Kafka: ApiError). The zero value is success.
type answerError struct {
	Code    cluster.ErrorCode
	Message string // empty is sent as null
}

// failed reports whether the item has an error.
func (e answerError) failed() bool { return e.Code != cluster.None }

// message gives the nullable text of the answer.
func (e answerError) message() *string {
	if e.Message == "" {
		return nil
	}
	return &e.Message
}

func errorf(code cluster.ErrorCode, format string, args ...any) answerError {
	return answerError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// storeError maps an error of the coordination engine. A write whose outcome is unknown and a deadline are answered as
// a time-out, which clients retry, and what a migration to KRaft forbids as Kafka does; the rest has no text, as Kafka's
// UNKNOWN_SERVER_ERROR has none.
func storeError(err error) answerError {
	switch {
	case err == nil:
		return answerError{}
	case errors.Is(err, coord.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		return answerError{Code: cluster.RequestTimedOut}
	case errors.Is(err, coord.ErrMigrating):
		return answerError{Code: cluster.StaleControllerEpoch, Message: err.Error()}
	default:
		return answerError{Code: cluster.UnknownServerError}
	}
}
