package group

import "klamm/internal/cluster"

// Effect is one thing for the runtime to do, in order.
type Effect interface{ effect() }

type (
	// Reply answers a request.
	Reply struct {
		Token Token
		Value any // the result type that the request's comment names
	}

	// Append writes records to the partition as one batch with acks=all; answered by Appended.
	Append struct {
		ID      AppendID
		Records []Record
		Txn     *Producer // of a transactional batch; nil for a plain one
	}

	// StartTimer asks for a TimerFired at a moment; a running timer of the same name is moved.
	StartTimer struct {
		Timer Timer
		At    Time
	}
)

// StateChange is not to be done but to be known: a group went from one state to another.
type StateChange struct {
	Group      string
	From, To   State
	Generation int32
	Members    int
	Reason     string // why, in words; empty where the states say it
}

// AppendID names an Append effect; it grows by one with each.
type AppendID uint64

// Record is a key with a value; a nil value is a tombstone.
type Record struct{ Key, Value []byte }

// TimerKind says what a timer is for.
type TimerKind uint8

// Timer kinds.
const (
	TimerMember TimerKind = iota + 1 // a member's session, or a pending member's time to join
	TimerJoin                        // the end of the join phase
	TimerSync                        // the end of the sync phase
)

// Timer names a timer.
type Timer struct {
	Kind   TimerKind
	Group  string
	Member string // TimerMember only
}

func (Reply) effect()       {}
func (Append) effect()      {}
func (StartTimer) effect()  {}
func (StateChange) effect() {}

// Results of requests.
type (
	// JoinResult answers Join.
	JoinResult struct {
		Err            cluster.ErrorCode
		Generation     int32 // -1 on error
		ProtocolType   string
		ProtocolName   string
		Leader         string
		SkipAssignment bool
		MemberID       string
		Members        []JoinMember // for the leader only
	}

	// JoinMember is a member as the leader sees it.
	JoinMember struct {
		MemberID, InstanceID string
		Metadata             []byte
	}

	// SyncResult answers Sync.
	SyncResult struct {
		Err                        cluster.ErrorCode
		ProtocolType, ProtocolName string
		Assignment                 []byte
	}

	// ErrorResult answers requests that only succeed or fail.
	ErrorResult struct{ Err cluster.ErrorCode }

	// LeaveResult answers Leave; Members is parallel to the request's.
	LeaveResult struct {
		Err     cluster.ErrorCode
		Members []cluster.ErrorCode
	}

	// CommitResult answers Commit; Errs is parallel to the request's offsets.
	CommitResult struct{ Errs []cluster.ErrorCode }

	// FetchOffsetsResult answers FetchOffsets.
	FetchOffsetsResult struct {
		Err     cluster.ErrorCode
		Offsets []FetchedOffset
	}

	// FetchedOffset is one partition's committed offset; Offset -1 when there is none.
	FetchedOffset struct {
		cluster.TopicPartition
		Offset      int64
		LeaderEpoch int32
		Metadata    string
		Err         cluster.ErrorCode
	}

	// Description answers Describe. An unknown group is described as Dead.
	Description struct {
		Err          cluster.ErrorCode
		Group        string
		State        string
		ProtocolType string
		Protocol     string
		Members      []MemberDescription
	}

	// MemberDescription is one member of a Description.
	MemberDescription struct {
		MemberID, InstanceID, ClientID, ClientHost string
		Metadata, Assignment                       []byte
	}

	// ListResult answers List, sorted by group.
	ListResult struct {
		Err    cluster.ErrorCode
		Groups []Overview
	}

	// Overview is one group of a ListResult.
	Overview struct{ Group, ProtocolType, State string }

	// DeleteOffsetsResult answers DeleteOffsets; Errs is parallel to the request's partitions.
	DeleteOffsetsResult struct {
		Err  cluster.ErrorCode
		Errs []cluster.ErrorCode
	}

	// Stats answers CollectStats.
	Stats struct {
		Groups  map[State]int
		Members int
		Offsets int
	}
)
