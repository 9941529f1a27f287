package config

//lint:file-ignore ST1011 the fields have the names of the keys they come from

import (
	"maps"
	"math"
	"time"

	"klamm/internal/record"
)

// Unlimited is the retention that never drops anything.
const Unlimited = -1

// LogConfig is the effective configuration of one topic: its own settings over the broker's. It is shared and never changed after
// it was made.
type LogConfig struct {
	SegmentBytes       int
	SegmentMs          time.Duration // segment.ms
	SegmentJitterMs    time.Duration // segment.jitter.ms
	SegmentIndexBytes  int
	IndexIntervalBytes int
	FlushMessages      int64         // records; the largest int64 for never
	FlushMs            time.Duration // flush.ms; Forever for never
	RetentionBytes     int64         // Unlimited or bytes
	RetentionMs        time.Duration // retention.ms; negative for no limit
	// LocalRetentionBytes and LocalRetentionMs are of remote storage, which klamm has not; they are kept for describing only.
	LocalRetentionBytes                  int64
	LocalRetentionMs                     time.Duration
	FileDeleteDelay                      time.Duration
	DeleteRetention                      time.Duration
	MinCompactionLag                     time.Duration
	MaxCompactionLag                     time.Duration
	MinCleanableDirtyRatio               float64
	Delete, Compact                      bool // cleanup.policy; neither is possible and keeps everything
	MaxMessageBytes                      int
	MinInSyncReplicas                    int
	UncleanLeaderElectionEnable          bool
	Preallocate                          bool
	CompressionType                      string // producer, uncompressed, gzip, snappy, lz4, zstd
	CompressionLevel                     int    // of CompressionType, as record.Compression counts
	MessageTimestampType                 record.TimestampType
	TimestampBeforeMaxMs                 int64
	TimestampAfterMaxMs                  int64
	LeaderReplicationThrottledReplicas   []string // partition:broker pairs or "*"
	FollowerReplicationThrottledReplicas []string
	DownConversion                       bool
	Overrides                            map[string]string // the topic's own settings as they were given
}

// Forever is the duration that values in milliseconds beyond Go's range become: about 292 years.
const Forever = time.Duration(math.MaxInt64)

// millis converts a setting in milliseconds.
func millis(ms int64) time.Duration { return scaled(ms, time.Millisecond) }

// scaled converts n units; what lies beyond the range of a Duration becomes Forever.
func scaled(n int64, unit time.Duration) time.Duration {
	if n > math.MaxInt64/int64(unit) {
		return Forever
	}
	return time.Duration(n) * unit
}

// TargetCompression returns what a batch that came with source is to be stored with, and false when it stays as it is.
func (c *LogConfig) TargetCompression(source record.Codec) (record.Compression, bool) {
	if c.CompressionType == "producer" {
		return record.Compression{}, false
	}
	target := record.None
	if c.CompressionType != "uncompressed" {
		target, _ = record.ParseCodec(c.CompressionType)
	}
	return record.Compression{Codec: target, Level: c.CompressionLevel}, target != source
}

// RandomSegmentJitter is the part of segment.jitter.ms, picked by r, that a segment's age limit is shortened by.
func (c *LogConfig) RandomSegmentJitter(r uint64) time.Duration {
	jitter := min(c.SegmentJitterMs, c.SegmentMs)
	if jitter <= 0 {
		return 0
	}
	return time.Duration(r % uint64(jitter))
}

// DefaultLogConfig is the configuration of a topic without settings of its own on a broker without any.
func DefaultLogConfig() *LogConfig { return buildLogConfig(topicDefaults(), nil) }

func topicDefaults() map[string]any {
	m := make(map[string]any, len(topicDefinitions))
	for _, d := range topicDefinitions {
		m[d.Name] = d.mustParse(d.Default)
	}
	return m
}

func (d *Definition) mustParse(text string) any {
	v, err := d.parse(text)
	if err != nil {
		panic("config: " + err.Error())
	}
	return v
}

// effectiveTopic merges a topic's valid settings over the broker-wide values, both parsed. Settings that are unknown or out of range,
// as another version may have stored them, are passed over.
func effectiveTopic(base map[string]any, overrides map[string]string) map[string]any {
	m := maps.Clone(base)
	for k, text := range overrides {
		if d, ok := topicIndex[k]; ok {
			if v, err := d.parse(text); err == nil {
				m[k] = v
			}
		}
	}
	return m
}

// buildLogConfig fills the struct from parsed values of every topic key.
func buildLogConfig(v map[string]any, overrides map[string]string) *LogConfig {
	num := func(k string) int64 { return v[k].(int64) }
	flag := func(k string) bool { return v[k].(bool) }
	c := &LogConfig{
		SegmentBytes:                         int(num("segment.bytes")),
		SegmentMs:                            millis(num("segment.ms")),
		SegmentJitterMs:                      millis(num("segment.jitter.ms")),
		SegmentIndexBytes:                    int(num("segment.index.bytes")),
		IndexIntervalBytes:                   int(num("index.interval.bytes")),
		FlushMessages:                        num("flush.messages"),
		FlushMs:                              millis(num("flush.ms")),
		RetentionBytes:                       num("retention.bytes"),
		RetentionMs:                          millis(num("retention.ms")),
		LocalRetentionBytes:                  num("local.retention.bytes"),
		LocalRetentionMs:                     millis(num("local.retention.ms")),
		FileDeleteDelay:                      millis(num("file.delete.delay.ms")),
		DeleteRetention:                      millis(num("delete.retention.ms")),
		MinCompactionLag:                     millis(num("min.compaction.lag.ms")),
		MaxCompactionLag:                     millis(num("max.compaction.lag.ms")),
		MinCleanableDirtyRatio:               v["min.cleanable.dirty.ratio"].(float64),
		MaxMessageBytes:                      int(num("max.message.bytes")),
		MinInSyncReplicas:                    int(num("min.insync.replicas")),
		UncleanLeaderElectionEnable:          flag("unclean.leader.election.enable"),
		Preallocate:                          flag("preallocate"),
		CompressionType:                      v["compression.type"].(string),
		TimestampBeforeMaxMs:                 timestampLimit(num("message.timestamp.before.max.ms"), num("message.timestamp.difference.max.ms")),
		TimestampAfterMaxMs:                  timestampLimit(num("message.timestamp.after.max.ms"), num("message.timestamp.difference.max.ms")),
		LeaderReplicationThrottledReplicas:   v["leader.replication.throttled.replicas"].([]string),
		FollowerReplicationThrottledReplicas: v["follower.replication.throttled.replicas"].([]string),
		DownConversion:                       flag("message.downconversion.enable"),
		Overrides:                            overrides,
	}
	for _, p := range v["cleanup.policy"].([]string) {
		c.Delete = c.Delete || p == "delete"
		c.Compact = c.Compact || p == "compact"
	}
	if v["message.timestamp.type"] == "LogAppendTime" {
		c.MessageTimestampType = record.LogAppendTime
	}
	if level, ok := v["compression."+c.CompressionType+".level"]; ok {
		c.CompressionLevel = int(level.(int64))
	}
	return c
}

// timestampLimit prefers the newer key unless it is at its default and the older is not (Kafka: LogConfig.getMessageTimestampBeforeMaxMs).
func timestampLimit(limit, difference int64) int64 {
	if limit == math.MaxInt64 {
		return difference
	}
	return limit
}
