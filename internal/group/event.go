// Package group is the pure core of the group coordinator: classic consumer groups (KIP-62, KIP-345, KIP-394, KIP-814)
// and committed offsets, as state machines without IO, clock or randomness.
//
// A Core holds the groups of one partition of __consumer_offsets. It takes one event at a time and answers with effects:
// replies, record batches to append to that partition, timers. Requests that wait (a join for its generation, a sync for
// its leader, a commit for its append) are answered by a later Step. Time comes with the event; ids of new members come
// with the join. The package coordinator carries effects out.
//
// Behaviour is that of Kafka 3.9's GroupCoordinator, GroupMetadata and GroupMetadataManager.
package group

import "klamm/internal/cluster"

// Time is a moment in milliseconds since the Unix epoch.
type Time int64

// Token names a waiting request to the runtime; the core only hands it back, exactly once, in a Reply.
type Token uint64

// Event is one thing that happened. Events are plain values.
type Event interface{ event() }

// Request is an event that is answered by exactly one Reply with its Token.
type Request interface {
	Event
	// GroupID is the group that the request is about; empty for a List or CollectStats, which are about all.
	GroupID() string
	// WithToken gives the request its name.
	WithToken(Token) Request
}

// Requests.
type (
	// Join asks for membership in the next generation. Answer: JoinResult.
	Join struct {
		Token              Token
		Group              string
		MemberID           string // empty for a member that has none yet
		InstanceID         string // static membership (KIP-345); empty for dynamic members
		ClientID           string
		ClientHost         string
		NewMemberID        string // a fresh unique id, used if the member needs one
		SessionTimeoutMs   int64
		RebalanceTimeoutMs int64
		ProtocolType       string
		Protocols          []Protocol
		// RequireKnownMember makes a first join of a dynamic member answer MEMBER_ID_REQUIRED (v4+, KIP-394).
		RequireKnownMember bool
		Reason             string // the client's (v8+, KIP-800), for the log
		// SupportsSkippingAssignment lets a returning static leader keep the assignment (v9+, KIP-814).
		SupportsSkippingAssignment bool
	}

	// Sync asks for the assignment of a generation; the leader brings it. Answer: SyncResult.
	Sync struct {
		Token        Token
		Group        string
		MemberID     string
		InstanceID   string
		Generation   int32
		ProtocolType string // empty below v5: not checked
		ProtocolName string // empty below v5: not checked
		Assignments  []Assignment
	}

	// Heartbeat keeps a member alive. Answer: ErrorResult.
	Heartbeat struct {
		Token      Token
		Group      string
		MemberID   string
		InstanceID string
		Generation int32
	}

	// Leave takes members out at once. Answer: LeaveResult.
	Leave struct {
		Token   Token
		Group   string
		Members []MemberIdentity
	}

	// Commit stores offsets. Answer: CommitResult.
	Commit struct {
		Token      Token
		Group      string
		MemberID   string
		InstanceID string
		Generation int32 // negative for commits from outside the group's protocol
		Offsets    []CommitOffset
		// Txn is the producer of a transactional commit: the offsets count once its transaction commits, see TxnEnded.
		Txn *Producer
	}

	// FetchOffsets reads committed offsets. Answer: FetchOffsetsResult.
	FetchOffsets struct {
		Token Token
		Group string
		All   bool // every committed partition; Partitions is ignored
		// Partitions asked for, in order.
		Partitions []cluster.TopicPartition
		// RequireStable answers UNSTABLE_OFFSET_COMMIT for partitions with commits that are not decided yet: offsets of an
		// open transaction (KIP-447), or an append under way.
		RequireStable bool
	}

	// Describe reads a group. Answer: Description.
	Describe struct {
		Token Token
		Group string
	}

	// List reads an overview of all groups. Answer: ListResult.
	List struct {
		Token  Token
		States []string // empty for all; compared without case
	}

	// DeleteGroup removes an empty group with its offsets. Answer: ErrorResult.
	DeleteGroup struct {
		Token Token
		Group string
	}

	// DeleteOffsets removes committed offsets (KIP-496). Answer: DeleteOffsetsResult.
	DeleteOffsets struct {
		Token      Token
		Group      string
		Partitions []cluster.TopicPartition
	}

	// CollectStats counts what the core holds. Answer: Stats.
	CollectStats struct{ Token Token }
)

// Events without an answer.
type (
	// PartitionsDeleted says that partitions are gone: their committed offsets go too. While records are being loaded it
	// takes effect when that has ended.
	PartitionsDeleted struct{ Partitions []cluster.TopicPartition }

	// ExpireOffsets removes offsets and groups whose time is over; the runtime feeds it every
	// offsets.retention.check.interval.ms.
	ExpireOffsets struct{}

	// TimerFired says that a timer has run out. Late and repeated ones do no harm.
	TimerFired struct{ Timer Timer }

	// Appended answers an Append effect: the batch is committed by all in-sync replicas, or it failed.
	Appended struct {
		Append AppendID
		Err    cluster.ErrorCode
	}

	// LoadRecord feeds one record of the partition, in log order, before Loaded. An absent value is nil.
	LoadRecord struct {
		Key, Value []byte
		Txn        *Producer // of a transactional batch: the record counts once TxnEnded says so
	}

	// TxnEnded says that the marker which ends a producer's transaction is in the partition's log: read from it between
	// LoadRecord events, or appended now.
	TxnEnded struct {
		ProducerID int64
		Commit     bool
	}

	// Loaded ends the loading: the groups are served from now on.
	Loaded struct{}

	// Unload gives the partition up: every waiting request is answered NOT_COORDINATOR and the Core is empty afterwards.
	Unload struct{}
)

// Protocol is one assignment strategy that a member supports, with its metadata for it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Assignment is what the leader gives one member.
type Assignment struct {
	MemberID string
	Data     []byte
}

// Producer is a transactional producer.
type Producer struct {
	ID    int64
	Epoch int16
}

// MemberIdentity names a member in a Leave request.
type MemberIdentity struct {
	MemberID, InstanceID string
	Reason               string // the client's (v5+, KIP-800), for the log
}

// CommitOffset is one offset to commit.
type CommitOffset struct {
	cluster.TopicPartition
	Offset      int64
	LeaderEpoch int32 // -1 unknown
	Metadata    string
	// CommitTimestamp is the client's (v1), ExpireTimestamp the one its retention gives (v2-4); negative for neither.
	CommitTimestamp int64
	ExpireTimestamp int64
}

func (Join) event()              {}
func (Sync) event()              {}
func (Heartbeat) event()         {}
func (Leave) event()             {}
func (Commit) event()            {}
func (FetchOffsets) event()      {}
func (Describe) event()          {}
func (List) event()              {}
func (DeleteGroup) event()       {}
func (DeleteOffsets) event()     {}
func (CollectStats) event()      {}
func (PartitionsDeleted) event() {}
func (ExpireOffsets) event()     {}
func (TimerFired) event()        {}
func (Appended) event()          {}
func (LoadRecord) event()        {}
func (TxnEnded) event()          {}
func (Loaded) event()            {}
func (Unload) event()            {}
