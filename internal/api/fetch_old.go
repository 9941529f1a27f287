package api

import (
	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/record"
	"klamm/internal/wire"
)

// refuseTooNew takes the records back from a consumer that is too old for what the topic's settings say of them
// (Kafka: KafkaApis.maybeConvertFetchedData).
func (f *fetchAnswer) refuseTooNew(out *wire.FetchPartition, topic string) {
	settings := f.h.d.Config.LogConfig(topic)
	code := tooNew(f.version, settings)
	if code == cluster.None {
		return
	}
	f.dropRecords(out, code)
}

func tooNew(version int16, settings *config.LogConfig) cluster.ErrorCode {
	switch {
	case settings.CompressionType == record.Zstd.String():
		return cluster.UnsupportedCompressionType
	case version < 4 && !settings.DownConversion:
		return cluster.UnsupportedVersion
	}
	return cluster.None
}

// dropRecords makes a partition's answer an error.
func (f *fetchAnswer) dropRecords(out *wire.FetchPartition, code cluster.ErrorCode) {
	if out.Records != nil {
		out.Records.Release()
		out.Records = nil
	}
	partition := out.Partition
	*out = wire.NewFetchPartition(partition)
	out.ErrorCode, out.HighWatermark, out.LastStableOffset, out.LogStartOffset = int16(code), -1, -1, -1
}

// convertDown turns the records of an answer to a version before 4 into message sets. It runs on the goroutine that
// writes to the connection: it decompresses and compresses, which must hold up nobody but the client that wants it.
func (f *fetchAnswer) convertDown(resp *wire.FetchResponse) {
	magic := int8(1)
	if f.version < 2 {
		magic = 0
	}
	at := 0
	for ti := range resp.Topics {
		t := &resp.Topics[ti]
		for pi := range t.Partitions {
			out, from := &t.Partitions[pi], f.from[at]
			at++
			if out.Records == nil {
				continue
			}
			if err := f.convertPartition(out, magic, from); err != nil {
				code := record.Code(err)
				if code != cluster.UnsupportedCompressionType {
					f.h.d.Log.Error("fetch failed", "topic", t.Topic, "partition", out.Partition, "offset", from, "err", err)
				}
				f.dropRecords(out, code)
			}
		}
	}
}

func (f *fetchAnswer) convertPartition(out *wire.FetchPartition, magic int8, fromOffset int64) error {
	src := out.Records
	out.Records = nil
	defer src.Release()
	batches := make([]byte, src.Len())
	n, err := src.ReadInto(batches)
	if err != nil {
		return err
	}
	set, messages, err := record.ToMessageSet(batches[:n], magic, fromOffset)
	if err != nil {
		return err
	}
	f.h.convertedDown.Add(int64(messages))
	out.Records = wire.BytesSource(set)
	return nil
}
