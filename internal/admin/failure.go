package admin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"klamm/internal/cluster"
)

// failure is why a command did not do what it should, in the words of Kafka's tools.
type failure struct {
	class   string // the Java exception that Kafka's log line names
	message string
	cause   error // more for people, nil when the message says it all
}

func (f *failure) Error() string { return f.message }

func (f *failure) Unwrap() error { return f.cause }

func kafkaError(name string) string  { return "org.apache.kafka.common.errors." + name }
func serverError(name string) string { return "org.apache.kafka.server.common." + name }

func illegalArgument(format string, args ...any) error {
	return &failure{class: "java.lang.IllegalArgumentException", message: fmt.Sprintf(format, args...)}
}

// asFailure gives any error a class.
func asFailure(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return &failure{class: "java.lang.RuntimeException", message: err.Error()}
}

// tooOld reports whether no broker knows the request at all. The client has no exported error for it.
func tooOld(err error) bool {
	return err != nil && (errors.Is(err, kerr.UnsupportedVersion) || strings.Contains(err.Error(), "broker is too old"))
}

// refused is the failure that a broker's answer means; its own text counts more than Kafka's general one.
func refused(code cluster.ErrorCode, message *string) error {
	w, known := kafkaWords[code]
	f := &failure{class: kafkaError(w.exception), message: w.message}
	if !known {
		f.class, f.message = kafkaError("ApiException"), "The broker answered "+code.String()+"."
	}
	if message != nil && *message != "" {
		f.message = *message
	}
	return f
}

// unanswered is the failure of a call that got no answer. When the broker, or the client itself, refused who is at the other end, it says so
// (Kafka: NetworkClient.processDisconnection); else no broker was found in time, in Kafka's text, which names the call.
func unanswered(call string, err error) *failure {
	for _, refusal := range []*kerr.Error{kerr.SaslAuthenticationFailed, kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState} {
		if errors.Is(err, refusal) {
			w := kafkaWords[cluster.ErrorCode(refusal.Code)]
			f := &failure{class: kafkaError(w.exception), message: w.message}
			if _, said, ok := strings.Cut(err.Error(), refusal.Error()+": "); ok {
				f.message = said
			}
			return f
		}
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return &failure{class: kafkaError("SslAuthenticationException"), message: "SSL handshake failed", cause: err}
	}
	return &failure{class: kafkaError("TimeoutException"), message: "Timed out waiting for a node assignment. Call: " + call, cause: err}
}

// kafkaWords are exception and general text of the codes that answers to the tool's requests, or to its authentication, carry.
var kafkaWords = map[cluster.ErrorCode]struct{ exception, message string }{
	cluster.UnknownServerError:         {"UnknownServerException", "The server experienced an unexpected error when processing the request."},
	cluster.UnknownTopicOrPartition:    {"UnknownTopicOrPartitionException", "This server does not host this topic-partition."},
	cluster.LeaderNotAvailable:         {"LeaderNotAvailableException", "There is no leader for this topic-partition as we are in the middle of a leadership election."},
	cluster.RequestTimedOut:            {"TimeoutException", "The request timed out."},
	cluster.BrokerNotAvailable:         {"BrokerNotAvailableException", "The broker is not available."},
	cluster.StaleControllerEpoch:       {"ControllerMovedException", "The controller moved to another broker."},
	cluster.InvalidTopicException:      {"InvalidTopicException", "The request attempted to perform an operation on an invalid topic."},
	cluster.TopicAuthorizationFailed:   {"TopicAuthorizationException", "Topic authorization failed."},
	cluster.ClusterAuthorizationFailed: {"ClusterAuthorizationException", "Cluster authorization failed."},
	cluster.UnsupportedVersion:         {"UnsupportedVersionException", "The version of API is not supported."},
	cluster.TopicAlreadyExists:         {"TopicExistsException", "Topic with this name already exists."},
	cluster.InvalidPartitions:          {"InvalidPartitionsException", "Number of partitions is below 1."},
	cluster.InvalidReplicationFactor:   {"InvalidReplicationFactorException", "Replication factor is below 1 or larger than the number of available brokers."},
	cluster.InvalidReplicaAssignment:   {"InvalidReplicaAssignmentException", "Replica assignment is invalid."},
	cluster.InvalidConfig:              {"InvalidConfigurationException", "Configuration is invalid."},
	cluster.NotController:              {"NotControllerException", "This is not the correct controller for this cluster."},
	cluster.InvalidRequest:             {"InvalidRequestException", "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details."},
	cluster.PolicyViolation:            {"PolicyViolationException", "Request parameters do not satisfy the configured policy."},
	cluster.ReassignmentInProgress:     {"ReassignmentInProgressException", "A partition reassignment is in progress."},
	cluster.TopicDeletionDisabled:      {"TopicDeletionDisabledException", "Topic deletion is disabled."},
	cluster.ThrottlingQuotaExceeded:    {"ThrottlingQuotaExceededException", "The throttling quota has been exceeded."},
	cluster.UnsupportedSASLMechanism:   {"UnsupportedSaslMechanismException", "The broker does not support the requested SASL mechanism."},
	cluster.IllegalSASLState:           {"IllegalSaslStateException", "Request is not valid given the current SASL state."},
	cluster.SASLAuthenticationFailed:   {"SaslAuthenticationException", "SASL Authentication failed."},
	cluster.UnknownTopicID:             {"UnknownTopicIdException", "This server does not host this topic ID."},
}
