package config

import (
	"slices"
	"strings"
)

// TopicSynonym is a broker key that gives a topic key its value where the topic has none of its own.
type TopicSynonym struct {
	Key    string
	Factor int64 // milliseconds per unit of the broker key; 0: the value is taken as it is
}

// TopicSynonyms lists the broker keys behind a topic key, the one that counts first in front. The caller must not change them.
func TopicSynonyms(topicKey string) []TopicSynonym { return topicSynonyms[topicKey] }

const (
	msPerMinute = 60_000
	msPerHour   = 3_600_000
)

// topicSynonyms lists, per topic key, its broker keys by precedence (Kafka: ServerTopicConfigSynonyms). Topic keys that are not
// here have no broker-wide value.
var topicSynonyms = map[string][]TopicSynonym{
	"cleanup.policy":                      {{Key: "log.cleanup.policy"}},
	"compression.gzip.level":              {{Key: "compression.gzip.level"}},
	"compression.lz4.level":               {{Key: "compression.lz4.level"}},
	"compression.type":                    {{Key: "compression.type"}},
	"compression.zstd.level":              {{Key: "compression.zstd.level"}},
	"delete.retention.ms":                 {{Key: "log.cleaner.delete.retention.ms"}},
	"file.delete.delay.ms":                {{Key: "log.segment.delete.delay.ms"}},
	"flush.messages":                      {{Key: "log.flush.interval.messages"}},
	"flush.ms":                            {{Key: "log.flush.interval.ms"}, {Key: "log.flush.scheduler.interval.ms"}},
	"index.interval.bytes":                {{Key: "log.index.interval.bytes"}},
	"local.retention.bytes":               {{Key: "log.local.retention.bytes"}},
	"local.retention.ms":                  {{Key: "log.local.retention.ms"}},
	"max.compaction.lag.ms":               {{Key: "log.cleaner.max.compaction.lag.ms"}},
	"max.message.bytes":                   {{Key: "message.max.bytes"}},
	"message.downconversion.enable":       {{Key: "log.message.downconversion.enable"}},
	"message.format.version":              {{Key: "log.message.format.version"}},
	"message.timestamp.after.max.ms":      {{Key: "log.message.timestamp.after.max.ms"}},
	"message.timestamp.before.max.ms":     {{Key: "log.message.timestamp.before.max.ms"}},
	"message.timestamp.difference.max.ms": {{Key: "log.message.timestamp.difference.max.ms"}},
	"message.timestamp.type":              {{Key: "log.message.timestamp.type"}},
	"min.cleanable.dirty.ratio":           {{Key: "log.cleaner.min.cleanable.ratio"}},
	"min.compaction.lag.ms":               {{Key: "log.cleaner.min.compaction.lag.ms"}},
	"min.insync.replicas":                 {{Key: "min.insync.replicas"}},
	"preallocate":                         {{Key: "log.preallocate"}},
	"retention.bytes":                     {{Key: "log.retention.bytes"}},
	"retention.ms":                        {{Key: "log.retention.ms"}, {Key: "log.retention.minutes", Factor: msPerMinute}, {Key: "log.retention.hours", Factor: msPerHour}},
	"segment.bytes":                       {{Key: "log.segment.bytes"}},
	"segment.index.bytes":                 {{Key: "log.index.size.max.bytes"}},
	"segment.jitter.ms":                   {{Key: "log.roll.jitter.ms"}, {Key: "log.roll.jitter.hours", Factor: msPerHour}},
	"segment.ms":                          {{Key: "log.roll.ms"}, {Key: "log.roll.hours", Factor: msPerHour}},
	"unclean.leader.election.enable":      {{Key: "unclean.leader.election.enable"}},
}

var compressionTypes = []string{"uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"}

// topicDefinitions are the topic keys, sorted by name.
var topicDefinitions = byName([]*Definition{
	def("cleanup.policy", List, "delete", Medium, oneOf("compact", "delete"), "What happens to old segments: delete drops them by age and size, compact keeps the newest record of every key, both together do both."),
	def("compression.gzip.level", Int, "-1", Medium, gzipLevel, "Level for compression.type=gzip: 1 to 9, -1 is the library's choice."),
	def("compression.lz4.level", Int, "9", Medium, between(1, "17"), "Level for compression.type=lz4."),
	def("compression.type", String, "producer", Medium, oneOf(compressionTypes...), "Compression of stored batches; producer keeps each batch as it was sent."),
	def("compression.zstd.level", Int, "3", Medium, between(-131072, "22"), "Level for compression.type=zstd."),
	def("delete.retention.ms", Long, "86400000", Medium, atLeast(0), "How long a compacted topic keeps tombstones, so that slow readers still see them."),
	def("file.delete.delay.ms", Long, "60000", Medium, atLeast(0), "Wait between taking a segment out of the log and removing its files."),
	def("flush.messages", Long, "9223372036854775807", Medium, atLeast(1), "Records after which the log is forced to disk; replication normally makes this needless."),
	def("flush.ms", Long, "9223372036854775807", Medium, atLeast(0), "Time after which the log is forced to disk; replication normally makes this needless."),
	def("follower.replication.throttled.replicas", List, "", Medium, throttledReplicas, "Replicas whose fetching is throttled, as partition:broker pairs, or * for all."),
	def("index.interval.bytes", Int, "4096", Medium, atLeast(0), "Bytes between two entries of the offset index."),
	def("leader.replication.throttled.replicas", List, "", Medium, throttledReplicas, "Replicas whose serving to followers is throttled, as partition:broker pairs, or * for all."),
	def("local.retention.bytes", Long, "-2", Medium, atLeast(-2), "Local size limit of a topic with remote storage; -2 takes retention.bytes."),
	def("local.retention.ms", Long, "-2", Medium, atLeast(-2), "Local age limit of a topic with remote storage; -2 takes retention.ms."),
	def("max.compaction.lag.ms", Long, "9223372036854775807", Medium, atLeast(1), "Longest time a record of a compacted topic stays out of reach of compaction."),
	def("max.message.bytes", Int, "1048588", Medium, atLeast(0), "Largest record batch accepted, after compression."),
	def("message.downconversion.enable", Boolean, "true", Low, nil, "Whether batches are converted down for consumers too old for the format; without it they get UNSUPPORTED_VERSION."),
	def("message.format.version", String, "3.0-IV1", Medium, protocolVersion, "Ignored since 3.0: batches are always written in the newest format."),
	def("message.timestamp.after.max.ms", Long, "9223372036854775807", Medium, atLeast(0), "How far in the future a producer's timestamp may lie."),
	def("message.timestamp.before.max.ms", Long, "9223372036854775807", Medium, atLeast(0), "How far in the past a producer's timestamp may lie."),
	def("message.timestamp.difference.max.ms", Long, "9223372036854775807", Medium, atLeast(0), "Older form of the two limits above, used for each that is not set."),
	def("message.timestamp.type", String, "CreateTime", Medium, oneOf("CreateTime", "LogAppendTime"), "Who stamps records: the producer (CreateTime) or the broker (LogAppendTime)."),
	def("min.cleanable.dirty.ratio", Double, "0.5", Medium, between(0, "1"), "Share of uncompacted bytes from which compaction starts."),
	def("min.compaction.lag.ms", Long, "0", Medium, atLeast(0), "Shortest time a record stays uncompacted."),
	def("min.insync.replicas", Int, "1", Medium, atLeast(1), "In-sync replicas that a produce with acks=all needs."),
	def("preallocate", Boolean, "false", Medium, nil, "Whether a new segment file takes its full size at once."),
	def("remote.log.copy.disable", Boolean, "false", Medium, nil, "Stops copying to remote storage while keeping what is there."),
	def("remote.log.delete.on.disable", Boolean, "false", Medium, nil, "Whether switching remote storage off removes the remote data."),
	def("remote.storage.enable", Boolean, "false", Medium, nil, "Whether segments move to remote storage; klamm has none."),
	def("retention.bytes", Long, "-1", Medium, nil, "Size of a partition from which its oldest segments are dropped; -1 for no limit."),
	def("retention.ms", Long, "604800000", Medium, atLeast(-1), "Age from which segments are dropped; -1 for no limit."),
	def("segment.bytes", Int, "1073741824", Medium, atLeast(14), "Size at which a new segment is started."),
	def("segment.index.bytes", Int, "10485760", Medium, atLeast(4), "Largest size of an index file."),
	def("segment.jitter.ms", Long, "0", Medium, atLeast(0), "Random part taken off segment.ms, so that segments do not all roll at once."),
	def("segment.ms", Long, "604800000", Medium, atLeast(1), "Age at which a new segment is started even if the old one is not full."),
	def("unclean.leader.election.enable", Boolean, "false", Medium, nil, "Whether a replica outside the ISR may lead when no other is left, at the price of lost records."),
})

var topicIndex = indexByName(topicDefinitions)

// TopicKeys returns the topic keys sorted by name. The caller must not change them.
func TopicKeys() []*Definition { return topicDefinitions }

// LookupTopic finds a topic key.
func LookupTopic(name string) (*Definition, bool) {
	d, ok := topicIndex[name]
	return d, ok
}

func def(name string, t Type, def string, imp Importance, check validator, doc string) *Definition {
	return &Definition{Name: name, Type: t, Default: def, HasDefault: true, Importance: imp, check: check, Doc: doc}
}

func byName(list []*Definition) []*Definition {
	slices.SortFunc(list, func(a, b *Definition) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func indexByName(list []*Definition) map[string]*Definition {
	m := make(map[string]*Definition, len(list))
	for _, d := range list {
		if m[d.Name] != nil {
			panic("config: key defined twice: " + d.Name)
		}
		m[d.Name] = d
	}
	return m
}
