package group

import (
	"fmt"

	"klamm/internal/cluster"
)

// Refusal is the answer to a request that no core works on, of the type that the request's comment names: where the
// coordinator is elsewhere, or not ready.
func Refusal(r Request, code cluster.ErrorCode) any {
	switch e := r.(type) {
	case Join:
		return joinError(code, e.MemberID)
	case Sync:
		return SyncResult{Err: code}
	case Heartbeat, DeleteGroup:
		return ErrorResult{code}
	case Leave:
		return LeaveResult{Err: code}
	case Commit:
		return commitError(e, code)
	case FetchOffsets:
		return FetchOffsetsResult{Err: code}
	case Describe:
		return Description{Err: code, Group: e.Group}
	case List:
		return ListResult{Err: code}
	case DeleteOffsets:
		return DeleteOffsetsResult{Err: code}
	case CollectStats:
		return Stats{}
	}
	panic(fmt.Sprintf("group: no refusal for %T", r))
}

// whileLoading is the answer to a request that comes while the partition's records are being read.
func whileLoading(r Request) any {
	switch r.(type) {
	case Heartbeat:
		// Kafka lets members live while their group is being loaded: the heartbeat is taken as received.
		return Refusal(r, cluster.None)
	case Sync:
		// The rebalance that it belongs to is lost. Kafka: this code sends the member back to a join without a new search
		// for the coordinator, and old clients know it, unlike COORDINATOR_LOAD_IN_PROGRESS.
		return Refusal(r, cluster.RebalanceInProgress)
	}
	return Refusal(r, cluster.CoordinatorLoadInProgress)
}

// tokenOf is the name of a request.
func tokenOf(r Request) Token {
	switch e := r.(type) {
	case Join:
		return e.Token
	case Sync:
		return e.Token
	case Heartbeat:
		return e.Token
	case Leave:
		return e.Token
	case Commit:
		return e.Token
	case FetchOffsets:
		return e.Token
	case Describe:
		return e.Token
	case List:
		return e.Token
	case DeleteGroup:
		return e.Token
	case DeleteOffsets:
		return e.Token
	case CollectStats:
		return e.Token
	}
	panic(fmt.Sprintf("group: %T has no token", r))
}

// GroupID implements Request.
func (e Join) GroupID() string { return e.Group }

// WithToken implements Request.
func (e Join) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (e Sync) GroupID() string { return e.Group }

// WithToken implements Request.
func (e Sync) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (e Heartbeat) GroupID() string { return e.Group }

// WithToken implements Request.
func (e Heartbeat) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (e Leave) GroupID() string { return e.Group }

// WithToken implements Request.
func (e Leave) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (e Commit) GroupID() string { return e.Group }

// WithToken implements Request.
func (e Commit) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (e FetchOffsets) GroupID() string { return e.Group }

// WithToken implements Request.
func (e FetchOffsets) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (e Describe) GroupID() string { return e.Group }

// WithToken implements Request.
func (e Describe) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (e DeleteGroup) GroupID() string { return e.Group }

// WithToken implements Request.
func (e DeleteGroup) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (e DeleteOffsets) GroupID() string { return e.Group }

// WithToken implements Request.
func (e DeleteOffsets) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (List) GroupID() string { return "" }

// WithToken implements Request.
func (e List) WithToken(t Token) Request { e.Token = t; return e }

// GroupID implements Request.
func (CollectStats) GroupID() string { return "" }

// WithToken implements Request.
func (e CollectStats) WithToken(t Token) Request { e.Token = t; return e }
