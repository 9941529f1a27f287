package coord

import (
	"net/url"
	"strconv"
	"strings"

	"klamm/internal/cluster"
)

// Nodes with fixed paths (Kafka: ZkData.scala).
const (
	ConsumersPath              = "/consumers"
	ControllerPath             = "/controller"
	ControllerEpochPath        = "/controller_epoch"
	ClusterIDPath              = "/cluster/id"
	FeaturePath                = "/feature"
	BrokerIDsPath              = "/brokers/ids"
	BrokerSequencePath         = "/brokers/seqid"
	TopicsPath                 = "/brokers/topics"
	DeleteTopicsPath           = "/admin/delete_topics"
	ReassignPartitionsPath     = "/admin/reassign_partitions"
	PreferredElectionPath      = "/admin/preferred_replica_election"
	ISRChangePath              = "/isr_change_notification"
	LogDirEventPath            = "/log_dir_event_notification"
	ConfigPath                 = "/config"
	ConfigChangesPath          = "/config/changes"
	ProducerIDBlockPath        = "/latest_producer_id_block"
	ACLPath                    = "/kafka-acl"
	ACLExtendedPath            = "/kafka-acl-extended"
	ACLChangesPath             = "/kafka-acl-changes"
	ACLExtendedChangesPath     = "/kafka-acl-extended-changes"
	DelegationTokensPath       = "/delegation_token/tokens"
	DelegationTokenChangesPath = "/delegation_token/token_changes"
	MigrationPath              = "/migration"
)

// Prefixes of sequential nodes, for CreateSequential.
const (
	ISRChangePrefix         = ISRChangePath + "/isr_change_"
	LogDirEventPrefix       = LogDirEventPath + "/log_dir_event_"
	ConfigChangePrefix      = ConfigChangesPath + "/config_change_"
	ACLChangePrefix         = ACLChangesPath + "/acl_changes_"
	ACLExtendedChangePrefix = ACLExtendedChangesPath + "/acl_changes_"
	TokenChangePrefix       = DelegationTokenChangesPath + "/token_change_"
)

// Types of config entities (the path element below /config), and the entity that stands for all others.
const (
	TopicConfigs  = "topics"
	BrokerConfigs = "brokers"
	ClientConfigs = "clients"
	UserConfigs   = "users"
	IPConfigs     = "ips"
	DefaultEntity = "<default>"
)

// PersistentPaths lists the nodes that every broker creates at start if they are absent, parents first
// (Kafka: ZkData.PersistentZkPaths).
func PersistentPaths() []string {
	return []string{
		ConsumersPath,
		"/brokers", BrokerIDsPath, TopicsPath,
		ConfigPath, ConfigChangesPath,
		"/admin", DeleteTopicsPath,
		BrokerSequencePath,
		ISRChangePath,
		ProducerIDBlockPath,
		LogDirEventPath,
		ConfigTypePath(TopicConfigs), ConfigTypePath(ClientConfigs), ConfigTypePath(UserConfigs), ConfigTypePath(BrokerConfigs), ConfigTypePath(IPConfigs),
	}
}

// BrokerPath is the registration node of a broker.
func BrokerPath(id cluster.BrokerID) string { return BrokerIDsPath + "/" + strconv.Itoa(int(id)) }

// TopicPath is the node with a topic's id and assignment.
func TopicPath(topic string) string { return TopicsPath + "/" + topic }

// PartitionsPath is the parent of a topic's partition nodes.
func PartitionsPath(topic string) string { return TopicPath(topic) + "/partitions" }

// PartitionPath is the parent of a partition's state node.
func PartitionPath(tp cluster.TopicPartition) string {
	return PartitionsPath(tp.Topic) + "/" + strconv.Itoa(int(tp.Partition))
}

// PartitionStatePath is the node with a partition's leadership; its data version is the partition epoch.
func PartitionStatePath(tp cluster.TopicPartition) string { return PartitionPath(tp) + "/state" }

// DeleteTopicPath is the marker that asks for a topic's deletion.
func DeleteTopicPath(topic string) string { return DeleteTopicsPath + "/" + topic }

// ConfigTypePath is the parent of all config entities of a type.
func ConfigTypePath(entityType string) string { return ConfigPath + "/" + entityType }

// ConfigEntityPath is the node with an entity's configs. Names of clients, users and ips must be sanitized.
func ConfigEntityPath(entityType, entity string) string {
	return ConfigTypePath(entityType) + "/" + entity
}

// ACLResourcePath is the node with the ACLs of a resource. Literal patterns have the classic root, the others
// a root per lower-case pattern type.
func ACLResourcePath(patternType, resourceType, name string) string {
	if strings.EqualFold(patternType, "literal") {
		return ACLPath + "/" + resourceType + "/" + name
	}
	return ACLExtendedPath + "/" + strings.ToLower(patternType) + "/" + resourceType + "/" + name
}

// DelegationTokenPath is the node of a delegation token.
func DelegationTokenPath(tokenID string) string { return DelegationTokensPath + "/" + tokenID }

// ParseBrokerPath is the inverse of BrokerPath.
func ParseBrokerPath(path string) (cluster.BrokerID, bool) {
	name, ok := strings.CutPrefix(path, BrokerIDsPath+"/")
	if !ok {
		return 0, false
	}
	return ParseBrokerName(name)
}

// ParseBrokerName reads the name of a child of BrokerIDsPath.
func ParseBrokerName(name string) (cluster.BrokerID, bool) {
	id, ok := parseID(name)
	return cluster.BrokerID(id), ok
}

// ParseTopicPath is the inverse of TopicPath.
func ParseTopicPath(path string) (string, bool) {
	topic, ok := strings.CutPrefix(path, TopicsPath+"/")
	return topic, ok && topic != "" && !strings.Contains(topic, "/")
}

// ParsePartitionStatePath is the inverse of PartitionStatePath.
func ParsePartitionStatePath(path string) (cluster.TopicPartition, bool) {
	rest, ok := strings.CutPrefix(path, TopicsPath+"/")
	if !ok {
		return cluster.TopicPartition{}, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 4 || parts[0] == "" || parts[1] != "partitions" || parts[3] != "state" {
		return cluster.TopicPartition{}, false
	}
	p, ok := parseID(parts[2])
	return cluster.TopicPartition{Topic: parts[0], Partition: p}, ok
}

// parseID reads a non-negative int32 in canonical decimal form.
func parseID(s string) (int32, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != s {
		return 0, false
	}
	return int32(n), true
}

// ParentPath returns the path one level up; the parent of a first-level node is "/".
func ParentPath(path string) string {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/"
	}
	return path[:i]
}

// BaseName returns the last element of a path.
func BaseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// Depth counts the elements of a path; the root has depth 0.
func Depth(path string) int {
	if path == "/" {
		return 0
	}
	return strings.Count(path, "/")
}

// ValidPath reports whether a path is absolute, has no empty element and no trailing slash. The root is valid.
func ValidPath(path string) bool {
	if path == "/" {
		return true
	}
	return strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") && !strings.Contains(path, "//") && !strings.Contains(path, "\x00")
}

// sequenceDigits is the width of the counter that ends the name of a sequential node.
const sequenceDigits = 10

// SequentialPath is the path of the sequential node with number n.
func SequentialPath(prefix string, n int64) string {
	digits := strconv.FormatInt(n, 10)
	if pad := sequenceDigits - len(digits); pad > 0 {
		digits = "0000000000"[:pad] + digits
	}
	return prefix + digits
}

// SequenceNumber reads the counter at the end of a sequential node's name or path.
func SequenceNumber(name string) (int64, bool) {
	i := len(name)
	for i > 0 && name[i-1] >= '0' && name[i-1] <= '9' {
		i--
	}
	if len(name)-i < sequenceDigits {
		return 0, false
	}
	n, err := strconv.ParseInt(name[i:], 10, 64)
	return n, err == nil
}

// SanitizeEntity makes the name of a client, user or ip fit for a path element: URL-encoded UTF-8 with "*" and
// the blank escaped too (Kafka: Sanitizer.sanitize). DefaultEntity stays as it is.
func SanitizeEntity(name string) string {
	if name == DefaultEntity {
		return name
	}
	return SanitizeName(name)
}

// SanitizeName is SanitizeEntity for what is a name for certain, also one that looks like DefaultEntity.
func SanitizeName(name string) string {
	s := strings.ReplaceAll(url.QueryEscape(name), "+", "%20")
	// Java's URLEncoder escapes "~", Go's does not.
	return strings.ReplaceAll(s, "~", "%7E")
}

// DesanitizeEntity is the inverse of SanitizeEntity.
func DesanitizeEntity(s string) (string, error) {
	if s == DefaultEntity {
		return s, nil
	}
	return url.QueryUnescape(s)
}
