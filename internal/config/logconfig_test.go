package config

import (
	"math"
	"testing"
	"time"

	"klamm/internal/record"
)

func TestTheDefaultTopicIsKafkas(t *testing.T) {
	c := DefaultLogConfig()
	for _, x := range []struct {
		name      string
		got, want any
	}{
		{"segment.bytes", c.SegmentBytes, 1 << 30},
		{"segment.ms", c.SegmentMs, 7 * 24 * time.Hour},
		{"retention.ms", c.RetentionMs, 7 * 24 * time.Hour},
		{"retention.bytes", c.RetentionBytes, int64(Unlimited)},
		{"flush.ms", c.FlushMs, Forever},
		{"flush.messages", c.FlushMessages, int64(math.MaxInt64)},
		{"file.delete.delay.ms", c.FileDeleteDelay, time.Minute},
		{"max.message.bytes", c.MaxMessageBytes, 1048588},
		{"cleanup.policy", [2]bool{c.Delete, c.Compact}, [2]bool{true, false}},
		{"message.timestamp.after.max.ms", c.TimestampAfterMaxMs, int64(math.MaxInt64)},
		{"min.insync.replicas", c.MinInSyncReplicas, 1},
	} {
		if x.got != x.want {
			t.Errorf("%s: %v, want %v", x.name, x.got, x.want)
		}
	}
}

func TestTopicSettingsWinAndBrokenOnesAreIgnored(t *testing.T) {
	c := buildLogConfig(effectiveTopic(topicDefaults(), map[string]string{
		"cleanup.policy": "compact, delete", "retention.ms": "-1", "segment.bytes": "1", "nope": "1",
		"message.timestamp.type": "LogAppendTime", "message.timestamp.difference.max.ms": "5",
	}), nil)
	if !c.Delete || !c.Compact || c.RetentionMs >= 0 || c.SegmentBytes != 1<<30 || c.MessageTimestampType != record.LogAppendTime ||
		c.TimestampBeforeMaxMs != 5 || c.TimestampAfterMaxMs != 5 {
		t.Errorf("%+v", c)
	}
}

func TestBatchesAreRecompressedOnlyWhenTheTopicSaysSo(t *testing.T) {
	for _, c := range []struct {
		topicType string
		source    record.Codec
		want      record.Compression
		change    bool
	}{
		{"producer", record.Gzip, record.Compression{}, false},
		{"uncompressed", record.None, record.Compression{}, false},
		{"uncompressed", record.Gzip, record.Compression{}, true},
		{"zstd", record.Zstd, record.Compression{Codec: record.Zstd, Level: 3}, false},
		{"gzip", record.None, record.Compression{Codec: record.Gzip, Level: -1}, true},
		{"lz4", record.Snappy, record.Compression{Codec: record.LZ4, Level: 9}, true},
	} {
		lc := buildLogConfig(effectiveTopic(topicDefaults(), map[string]string{"compression.type": c.topicType}), nil)
		got, change := lc.TargetCompression(c.source)
		if got != c.want || change != c.change {
			t.Errorf("%s from %s: %v %v", c.topicType, c.source, got, change)
		}
	}
}
