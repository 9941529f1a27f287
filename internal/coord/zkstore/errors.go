package zkstore

import (
	"fmt"

	"klamm/internal/coord"
)

// Codes of the server that klamm tells apart (ZooKeeper: KeeperException.Code).
const (
	codeOK               int32 = 0
	codeRolledBack       int32 = -2 // of an operation after the one that failed
	codeUnimplemented    int32 = -6
	codeNoNode           int32 = -101
	codeNoAuth           int32 = -102
	codeBadVersion       int32 = -103
	codeEphemeralParent  int32 = -108
	codeNodeExists       int32 = -110
	codeNotEmpty         int32 = -111
	codeSessionExpired   int32 = -112
	codeAuthFailed       int32 = -115
	codeSessionMoved     int32 = -118
	codeThrottled        int32 = -127
	codeOperationTimeout int32 = -7
)

// serverError is a refusal that has no meaning of its own in coord.
type serverError int32

var serverErrors = map[int32]string{
	-1: "system error", codeRolledBack: "runtime inconsistency", -3: "data inconsistency", -5: "marshalling error",
	codeUnimplemented: "operation not supported by this server", codeOperationTimeout: "operation timeout", -8: "bad arguments", -13: "new config without quorum",
	codeNoAuth: "not authorized for this node (see zookeeper.set.acl and the node's ACL)", -114: "invalid acl",
	codeAuthFailed: "authentication failed", codeSessionMoved: "session moved to another server", -119: "server is read-only",
	-122: "quota exceeded", -125: "quota exceeded", codeThrottled: "throttled",
}

// Error says what the server's code means.
func (e serverError) Error() string {
	if text, ok := serverErrors[int32(e)]; ok {
		return fmt.Sprintf("zookeeper: %s (%d)", text, int32(e))
	}
	return fmt.Sprintf("zookeeper: error %d", int32(e))
}

// codeError gives a code's meaning; nil for 0. What the server refused it has not applied.
func codeError(code int32) error {
	switch code {
	case codeOK:
		return nil
	case codeRolledBack:
		return coord.ErrAborted
	case codeNoNode:
		return coord.ErrNoNode
	case codeBadVersion:
		return coord.ErrBadVersion
	case codeEphemeralParent:
		return coord.ErrNoEphemeralChildren
	case codeNodeExists:
		return coord.ErrNodeExists
	case codeNotEmpty:
		return coord.ErrNotEmpty
	case codeSessionExpired:
		return coord.ErrSessionExpired
	case codeSessionMoved, codeThrottled:
		return fmt.Errorf("%w: %w", coord.ErrUnavailable, serverError(code))
	case codeNoAuth:
		return fmt.Errorf("%w: %w", coord.ErrNoPermission, serverError(code))
	case codeOperationTimeout:
		return fmt.Errorf("%w: %w", coord.ErrUnknownOutcome, serverError(code))
	}
	return serverError(code)
}
