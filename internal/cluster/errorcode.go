package cluster

import "strconv"

// ErrorCode is a Kafka protocol error code: a value in an answer, not a Go error.
type ErrorCode int16

// The protocol's error codes (https://kafka.apache.org/protocol.html#protocol_error_codes).
const (
	UnknownServerError                 ErrorCode = -1
	None                               ErrorCode = 0
	OffsetOutOfRange                   ErrorCode = 1
	CorruptMessage                     ErrorCode = 2
	UnknownTopicOrPartition            ErrorCode = 3
	InvalidFetchSize                   ErrorCode = 4
	LeaderNotAvailable                 ErrorCode = 5
	NotLeaderOrFollower                ErrorCode = 6
	RequestTimedOut                    ErrorCode = 7
	BrokerNotAvailable                 ErrorCode = 8
	ReplicaNotAvailable                ErrorCode = 9
	MessageTooLarge                    ErrorCode = 10
	StaleControllerEpoch               ErrorCode = 11
	OffsetMetadataTooLarge             ErrorCode = 12
	NetworkException                   ErrorCode = 13
	CoordinatorLoadInProgress          ErrorCode = 14
	CoordinatorNotAvailable            ErrorCode = 15
	NotCoordinator                     ErrorCode = 16
	InvalidTopicException              ErrorCode = 17
	RecordListTooLarge                 ErrorCode = 18
	NotEnoughReplicas                  ErrorCode = 19
	NotEnoughReplicasAfterAppend       ErrorCode = 20
	InvalidRequiredAcks                ErrorCode = 21
	IllegalGeneration                  ErrorCode = 22
	InconsistentGroupProtocol          ErrorCode = 23
	InvalidGroupID                     ErrorCode = 24
	UnknownMemberID                    ErrorCode = 25
	InvalidSessionTimeout              ErrorCode = 26
	RebalanceInProgress                ErrorCode = 27
	InvalidCommitOffsetSize            ErrorCode = 28
	TopicAuthorizationFailed           ErrorCode = 29
	GroupAuthorizationFailed           ErrorCode = 30
	ClusterAuthorizationFailed         ErrorCode = 31
	InvalidTimestamp                   ErrorCode = 32
	UnsupportedSASLMechanism           ErrorCode = 33
	IllegalSASLState                   ErrorCode = 34
	UnsupportedVersion                 ErrorCode = 35
	TopicAlreadyExists                 ErrorCode = 36
	InvalidPartitions                  ErrorCode = 37
	InvalidReplicationFactor           ErrorCode = 38
	InvalidReplicaAssignment           ErrorCode = 39
	InvalidConfig                      ErrorCode = 40
	NotController                      ErrorCode = 41
	InvalidRequest                     ErrorCode = 42
	UnsupportedForMessageFormat        ErrorCode = 43
	PolicyViolation                    ErrorCode = 44
	OutOfOrderSequenceNumber           ErrorCode = 45
	DuplicateSequenceNumber            ErrorCode = 46
	InvalidProducerEpoch               ErrorCode = 47
	InvalidTxnState                    ErrorCode = 48
	InvalidProducerIDMapping           ErrorCode = 49
	InvalidTransactionTimeout          ErrorCode = 50
	ConcurrentTransactions             ErrorCode = 51
	TransactionCoordinatorFenced       ErrorCode = 52
	TransactionalIDAuthorizationFailed ErrorCode = 53
	SecurityDisabled                   ErrorCode = 54
	OperationNotAttempted              ErrorCode = 55
	KafkaStorageError                  ErrorCode = 56
	LogDirNotFound                     ErrorCode = 57
	SASLAuthenticationFailed           ErrorCode = 58
	UnknownProducerID                  ErrorCode = 59
	ReassignmentInProgress             ErrorCode = 60
	DelegationTokenAuthDisabled        ErrorCode = 61
	DelegationTokenNotFound            ErrorCode = 62
	DelegationTokenOwnerMismatch       ErrorCode = 63
	DelegationTokenRequestNotAllowed   ErrorCode = 64
	DelegationTokenAuthorizationFailed ErrorCode = 65
	DelegationTokenExpired             ErrorCode = 66
	InvalidPrincipalType               ErrorCode = 67
	NonEmptyGroup                      ErrorCode = 68
	GroupIDNotFound                    ErrorCode = 69
	FetchSessionIDNotFound             ErrorCode = 70
	InvalidFetchSessionEpoch           ErrorCode = 71
	ListenerNotFound                   ErrorCode = 72
	TopicDeletionDisabled              ErrorCode = 73
	FencedLeaderEpoch                  ErrorCode = 74
	UnknownLeaderEpoch                 ErrorCode = 75
	UnsupportedCompressionType         ErrorCode = 76
	StaleBrokerEpoch                   ErrorCode = 77
	OffsetNotAvailable                 ErrorCode = 78
	MemberIDRequired                   ErrorCode = 79
	PreferredLeaderNotAvailable        ErrorCode = 80
	GroupMaxSizeReached                ErrorCode = 81
	FencedInstanceID                   ErrorCode = 82
	EligibleLeadersNotAvailable        ErrorCode = 83
	ElectionNotNeeded                  ErrorCode = 84
	NoReassignmentInProgress           ErrorCode = 85
	GroupSubscribedToTopic             ErrorCode = 86
	InvalidRecord                      ErrorCode = 87
	UnstableOffsetCommit               ErrorCode = 88
	ThrottlingQuotaExceeded            ErrorCode = 89
	ProducerFenced                     ErrorCode = 90
	ResourceNotFound                   ErrorCode = 91
	DuplicateResource                  ErrorCode = 92
	UnacceptableCredential             ErrorCode = 93
	InconsistentVoterSet               ErrorCode = 94
	InvalidUpdateVersion               ErrorCode = 95
	FeatureUpdateFailed                ErrorCode = 96
	PrincipalDeserializationFailure    ErrorCode = 97
	SnapshotNotFound                   ErrorCode = 98
	PositionOutOfRange                 ErrorCode = 99
	UnknownTopicID                     ErrorCode = 100
	DuplicateBrokerRegistration        ErrorCode = 101
	BrokerIDNotRegistered              ErrorCode = 102
	InconsistentTopicID                ErrorCode = 103
	InconsistentClusterID              ErrorCode = 104
	TransactionalIDNotFound            ErrorCode = 105
	FetchSessionTopicIDError           ErrorCode = 106
	IneligibleReplica                  ErrorCode = 107
	NewLeaderElected                   ErrorCode = 108
	OffsetMovedToTieredStorage         ErrorCode = 109
	FencedMemberEpoch                  ErrorCode = 110
	UnreleasedInstanceID               ErrorCode = 111
	UnsupportedAssignor                ErrorCode = 112
	StaleMemberEpoch                   ErrorCode = 113
	MismatchedEndpointType             ErrorCode = 114
	UnsupportedEndpointType            ErrorCode = 115
	UnknownControllerID                ErrorCode = 116
	UnknownSubscriptionID              ErrorCode = 117
	TelemetryTooLarge                  ErrorCode = 118
	InvalidRegistration                ErrorCode = 119
	TransactionAbortable               ErrorCode = 120
)

var errorNames = map[ErrorCode]string{
	UnknownServerError:                 "UNKNOWN_SERVER_ERROR",
	None:                               "NONE",
	OffsetOutOfRange:                   "OFFSET_OUT_OF_RANGE",
	CorruptMessage:                     "CORRUPT_MESSAGE",
	UnknownTopicOrPartition:            "UNKNOWN_TOPIC_OR_PARTITION",
	InvalidFetchSize:                   "INVALID_FETCH_SIZE",
	LeaderNotAvailable:                 "LEADER_NOT_AVAILABLE",
	NotLeaderOrFollower:                "NOT_LEADER_OR_FOLLOWER",
	RequestTimedOut:                    "REQUEST_TIMED_OUT",
	BrokerNotAvailable:                 "BROKER_NOT_AVAILABLE",
	ReplicaNotAvailable:                "REPLICA_NOT_AVAILABLE",
	MessageTooLarge:                    "MESSAGE_TOO_LARGE",
	StaleControllerEpoch:               "STALE_CONTROLLER_EPOCH",
	OffsetMetadataTooLarge:             "OFFSET_METADATA_TOO_LARGE",
	NetworkException:                   "NETWORK_EXCEPTION",
	CoordinatorLoadInProgress:          "COORDINATOR_LOAD_IN_PROGRESS",
	CoordinatorNotAvailable:            "COORDINATOR_NOT_AVAILABLE",
	NotCoordinator:                     "NOT_COORDINATOR",
	InvalidTopicException:              "INVALID_TOPIC_EXCEPTION",
	RecordListTooLarge:                 "RECORD_LIST_TOO_LARGE",
	NotEnoughReplicas:                  "NOT_ENOUGH_REPLICAS",
	NotEnoughReplicasAfterAppend:       "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
	InvalidRequiredAcks:                "INVALID_REQUIRED_ACKS",
	IllegalGeneration:                  "ILLEGAL_GENERATION",
	InconsistentGroupProtocol:          "INCONSISTENT_GROUP_PROTOCOL",
	InvalidGroupID:                     "INVALID_GROUP_ID",
	UnknownMemberID:                    "UNKNOWN_MEMBER_ID",
	InvalidSessionTimeout:              "INVALID_SESSION_TIMEOUT",
	RebalanceInProgress:                "REBALANCE_IN_PROGRESS",
	InvalidCommitOffsetSize:            "INVALID_COMMIT_OFFSET_SIZE",
	TopicAuthorizationFailed:           "TOPIC_AUTHORIZATION_FAILED",
	GroupAuthorizationFailed:           "GROUP_AUTHORIZATION_FAILED",
	ClusterAuthorizationFailed:         "CLUSTER_AUTHORIZATION_FAILED",
	InvalidTimestamp:                   "INVALID_TIMESTAMP",
	UnsupportedSASLMechanism:           "UNSUPPORTED_SASL_MECHANISM",
	IllegalSASLState:                   "ILLEGAL_SASL_STATE",
	UnsupportedVersion:                 "UNSUPPORTED_VERSION",
	TopicAlreadyExists:                 "TOPIC_ALREADY_EXISTS",
	InvalidPartitions:                  "INVALID_PARTITIONS",
	InvalidReplicationFactor:           "INVALID_REPLICATION_FACTOR",
	InvalidReplicaAssignment:           "INVALID_REPLICA_ASSIGNMENT",
	InvalidConfig:                      "INVALID_CONFIG",
	NotController:                      "NOT_CONTROLLER",
	InvalidRequest:                     "INVALID_REQUEST",
	UnsupportedForMessageFormat:        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
	PolicyViolation:                    "POLICY_VIOLATION",
	OutOfOrderSequenceNumber:           "OUT_OF_ORDER_SEQUENCE_NUMBER",
	DuplicateSequenceNumber:            "DUPLICATE_SEQUENCE_NUMBER",
	InvalidProducerEpoch:               "INVALID_PRODUCER_EPOCH",
	InvalidTxnState:                    "INVALID_TXN_STATE",
	InvalidProducerIDMapping:           "INVALID_PRODUCER_ID_MAPPING",
	InvalidTransactionTimeout:          "INVALID_TRANSACTION_TIMEOUT",
	ConcurrentTransactions:             "CONCURRENT_TRANSACTIONS",
	TransactionCoordinatorFenced:       "TRANSACTION_COORDINATOR_FENCED",
	TransactionalIDAuthorizationFailed: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
	SecurityDisabled:                   "SECURITY_DISABLED",
	OperationNotAttempted:              "OPERATION_NOT_ATTEMPTED",
	KafkaStorageError:                  "KAFKA_STORAGE_ERROR",
	LogDirNotFound:                     "LOG_DIR_NOT_FOUND",
	SASLAuthenticationFailed:           "SASL_AUTHENTICATION_FAILED",
	UnknownProducerID:                  "UNKNOWN_PRODUCER_ID",
	ReassignmentInProgress:             "REASSIGNMENT_IN_PROGRESS",
	DelegationTokenAuthDisabled:        "DELEGATION_TOKEN_AUTH_DISABLED",
	DelegationTokenNotFound:            "DELEGATION_TOKEN_NOT_FOUND",
	DelegationTokenOwnerMismatch:       "DELEGATION_TOKEN_OWNER_MISMATCH",
	DelegationTokenRequestNotAllowed:   "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
	DelegationTokenAuthorizationFailed: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
	DelegationTokenExpired:             "DELEGATION_TOKEN_EXPIRED",
	InvalidPrincipalType:               "INVALID_PRINCIPAL_TYPE",
	NonEmptyGroup:                      "NON_EMPTY_GROUP",
	GroupIDNotFound:                    "GROUP_ID_NOT_FOUND",
	FetchSessionIDNotFound:             "FETCH_SESSION_ID_NOT_FOUND",
	InvalidFetchSessionEpoch:           "INVALID_FETCH_SESSION_EPOCH",
	ListenerNotFound:                   "LISTENER_NOT_FOUND",
	TopicDeletionDisabled:              "TOPIC_DELETION_DISABLED",
	FencedLeaderEpoch:                  "FENCED_LEADER_EPOCH",
	UnknownLeaderEpoch:                 "UNKNOWN_LEADER_EPOCH",
	UnsupportedCompressionType:         "UNSUPPORTED_COMPRESSION_TYPE",
	StaleBrokerEpoch:                   "STALE_BROKER_EPOCH",
	OffsetNotAvailable:                 "OFFSET_NOT_AVAILABLE",
	MemberIDRequired:                   "MEMBER_ID_REQUIRED",
	PreferredLeaderNotAvailable:        "PREFERRED_LEADER_NOT_AVAILABLE",
	GroupMaxSizeReached:                "GROUP_MAX_SIZE_REACHED",
	FencedInstanceID:                   "FENCED_INSTANCE_ID",
	EligibleLeadersNotAvailable:        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
	ElectionNotNeeded:                  "ELECTION_NOT_NEEDED",
	NoReassignmentInProgress:           "NO_REASSIGNMENT_IN_PROGRESS",
	GroupSubscribedToTopic:             "GROUP_SUBSCRIBED_TO_TOPIC",
	InvalidRecord:                      "INVALID_RECORD",
	UnstableOffsetCommit:               "UNSTABLE_OFFSET_COMMIT",
	ThrottlingQuotaExceeded:            "THROTTLING_QUOTA_EXCEEDED",
	ProducerFenced:                     "PRODUCER_FENCED",
	ResourceNotFound:                   "RESOURCE_NOT_FOUND",
	DuplicateResource:                  "DUPLICATE_RESOURCE",
	UnacceptableCredential:             "UNACCEPTABLE_CREDENTIAL",
	InconsistentVoterSet:               "INCONSISTENT_VOTER_SET",
	InvalidUpdateVersion:               "INVALID_UPDATE_VERSION",
	FeatureUpdateFailed:                "FEATURE_UPDATE_FAILED",
	PrincipalDeserializationFailure:    "PRINCIPAL_DESERIALIZATION_FAILURE",
	SnapshotNotFound:                   "SNAPSHOT_NOT_FOUND",
	PositionOutOfRange:                 "POSITION_OUT_OF_RANGE",
	UnknownTopicID:                     "UNKNOWN_TOPIC_ID",
	DuplicateBrokerRegistration:        "DUPLICATE_BROKER_REGISTRATION",
	BrokerIDNotRegistered:              "BROKER_ID_NOT_REGISTERED",
	InconsistentTopicID:                "INCONSISTENT_TOPIC_ID",
	InconsistentClusterID:              "INCONSISTENT_CLUSTER_ID",
	TransactionalIDNotFound:            "TRANSACTIONAL_ID_NOT_FOUND",
	FetchSessionTopicIDError:           "FETCH_SESSION_TOPIC_ID_ERROR",
	IneligibleReplica:                  "INELIGIBLE_REPLICA",
	NewLeaderElected:                   "NEW_LEADER_ELECTED",
	OffsetMovedToTieredStorage:         "OFFSET_MOVED_TO_TIERED_STORAGE",
	FencedMemberEpoch:                  "FENCED_MEMBER_EPOCH",
	UnreleasedInstanceID:               "UNRELEASED_INSTANCE_ID",
	UnsupportedAssignor:                "UNSUPPORTED_ASSIGNOR",
	StaleMemberEpoch:                   "STALE_MEMBER_EPOCH",
	MismatchedEndpointType:             "MISMATCHED_ENDPOINT_TYPE",
	UnsupportedEndpointType:            "UNSUPPORTED_ENDPOINT_TYPE",
	UnknownControllerID:                "UNKNOWN_CONTROLLER_ID",
	UnknownSubscriptionID:              "UNKNOWN_SUBSCRIPTION_ID",
	TelemetryTooLarge:                  "TELEMETRY_TOO_LARGE",
	InvalidRegistration:                "INVALID_REGISTRATION",
	TransactionAbortable:               "TRANSACTION_ABORTABLE",
}

// String gives the protocol's name of the code, or "ERROR_n" for one that is not known here.
func (c ErrorCode) String() string {
	if n, ok := errorNames[c]; ok {
		return n
	}
	return "ERROR_" + strconv.Itoa(int(c))
}
