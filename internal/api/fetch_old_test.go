package api

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

// oldMessages is a set as an old consumer gets it: messages of magic 1 are followed by those at higher offsets.
func oldMessages(magic byte, values ...string) (set []byte) {
	for i, v := range values {
		m := oldMessage(magic, int64(1000+i), []byte("k"), []byte(v))
		m[7] = byte(i) // the offset
		set = append(set, m...)
	}
	return set
}

func TestFetchByOldConsumersGivesMessageSets(t *testing.T) { // R17
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, "one", "two"))
		for version := int16(0); version <= 3; version++ {
			got := b.fetch(version, "t", 0, 0)
			want := kmsg.NewFetchResponseTopicPartition()
			want.HighWatermark, want.RecordBatches = 2, oldMessages(byte(version/2), "one", "two")
			same(t, want, got)
			same(t, want.RecordBatches[len(want.RecordBatches)/2:], b.fetch(version, "t", 0, 1).RecordBatches)
		}
		if up, down := b.h.Conversions(); up != 0 || down != 4*3 {
			t.Errorf("%d and %d messages converted", up, down)
		}
	})
}

func TestFetchByOldConsumersOfWhatTheyCannotRead(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		for _, topic := range []string{"plain", "zstd", "off", "kept"} {
			b.lead(topic, 1)
		}
		for _, topic := range []string{"plain", "zstd", "off"} {
			b.produce(9, topic, 1, batch(t, record.BuilderOptions{}, "one"))
		}
		b.produce(9, "kept", 1, batch(t, record.BuilderOptions{Compression: record.Compression{Codec: record.Zstd}}, "one"))
		b.config.ApplyTopic("zstd", map[string]string{"compression.type": "zstd"})
		b.config.ApplyTopic("off", map[string]string{"message.downconversion.enable": "false"})
		for _, c := range []struct {
			topic   string
			version int16
			want    cluster.ErrorCode
		}{
			{"plain", 3, cluster.None},
			{"zstd", 0, cluster.UnsupportedCompressionType},
			{"zstd", 9, cluster.UnsupportedCompressionType},
			{"zstd", 10, cluster.None},
			{"off", 3, cluster.UnsupportedVersion},
			{"off", 4, cluster.None},
			{"kept", 3, cluster.UnsupportedCompressionType},
			{"kept", 4, cluster.None}, // as in Kafka: the batch is sent as it is
		} {
			got := b.fetch(c.version, c.topic, 0, 0)
			if cluster.ErrorCode(got.ErrorCode) != c.want || (len(got.RecordBatches) > 0) != (c.want == cluster.None) {
				t.Errorf("%s by version %d: %v and %d bytes, want %v", c.topic, c.version, cluster.ErrorCode(got.ErrorCode), len(got.RecordBatches), c.want)
			}
			if c.want != cluster.None && got.HighWatermark != -1 {
				t.Errorf("%s by version %d: high watermark %d beside an error", c.topic, c.version, got.HighWatermark)
			}
		}
	})
}

func TestFetchBeforeVersion3KeepsToTheBytesAskedFor(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, string(make([]byte, 1000))))
		for version, want := range []int{len(record.TruncatedMessage), len(record.TruncatedMessage), len(record.TruncatedMessage), 1035} {
			req := fetchRequest(int16(version), "t", cluster.TopicID{}, 0, 0)
			req.Topics[0].Partitions[0].PartitionMaxBytes = 100
			got := b.do(int16(version), req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
			if got.ErrorCode != 0 || len(got.RecordBatches) != want {
				t.Errorf("version %d: error %d, %d bytes, want %d", version, got.ErrorCode, len(got.RecordBatches), want)
			}
		}
	})
}
