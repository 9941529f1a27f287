package record

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"klamm/internal/cluster"
)

func options() *ProduceOptions {
	return &ProduceOptions{
		TopicPartition: cluster.TopicPartition{Topic: "orders", Partition: 3}, APIVersion: 9, MaxMessageBytes: 1 << 20,
		NowMs: 10_000, TimestampBeforeMaxMs: math.MaxInt64, TimestampAfterMaxMs: 3_600_000,
	}
}

// reseal renews the checksum after an edit.
func reseal(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[offCRC:], checksum(raw))
	return raw
}

func put16(raw []byte, off int, v int16) { binary.BigEndian.PutUint16(raw[off:], uint16(v)) }
func put32(raw []byte, off int, v int32) { binary.BigEndian.PutUint32(raw[off:], uint32(v)) }
func put64(raw []byte, off int, v int64) { binary.BigEndian.PutUint64(raw[off:], uint64(v)) }

func TestAGoodBatchPassesUnchanged(t *testing.T) {
	for _, c := range codecs {
		raw := sample(t, c, 50)
		before := bytes.Clone(raw)
		info, err := ValidateProduce(raw, options())
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		if !bytes.Equal(raw, before) {
			t.Errorf("%s: the batch was changed", c)
		}
		if info.Bytes != len(raw) || info.Records != 50 || info.MaxTimestamp != 1049 || info.OffsetDeltaOfMax != 49 || info.Header.Codec() != c {
			t.Errorf("%s: %+v", c, info)
		}
	}
}

func TestBadBatchesAreRefusedWithKafkasCode(t *testing.T) {
	type edit func(raw []byte, o *ProduceOptions) []byte
	for _, c := range []struct {
		name string
		edit edit
		code cluster.ErrorCode
		text string
	}{
		{"nothing at all", func([]byte, *ProduceOptions) []byte { return nil }, cluster.InvalidRecord, "must have at least one record batch"},
		{"half a batch", func(raw []byte, _ *ProduceOptions) []byte { return raw[:len(raw)/2] }, cluster.InvalidRecord, "must have at least one record batch"},
		{"old format", func(raw []byte, _ *ProduceOptions) []byte { raw[offMagic] = 1; return raw }, cluster.InvalidRecord, "magic version 2"},
		{"two batches", func(raw []byte, _ *ProduceOptions) []byte { return append(raw, raw...) }, cluster.InvalidRecord, "exactly one record batch"},
		{"zstd before version 7", func(_ []byte, o *ProduceOptions) []byte { o.APIVersion = 6; return sample(t, Zstd, 3) }, cluster.UnsupportedCompressionType, "version 6 are not allowed to use ZStandard"},
		{"codec 7", func(raw []byte, _ *ProduceOptions) []byte { put16(raw, offAttributes, 7); return reseal(raw) }, cluster.UnsupportedCompressionType, "Unknown compression type id: 7"},
		{"base offset", func(raw []byte, _ *ProduceOptions) []byte { put64(raw, 0, 5); return raw }, cluster.InvalidRecord, "should be 0, but it is 5"},
		{"too large", func(raw []byte, o *ProduceOptions) []byte { o.MaxMessageBytes = len(raw) - 1; return raw }, cluster.MessageTooLarge, "exceeds the maximum configured value"},
		{"wrong checksum", func(raw []byte, _ *ProduceOptions) []byte { raw[len(raw)-1]++; return raw }, cluster.CorruptMessage, "Record is corrupt (stored crc = "},
		{"negative offset delta", func(raw []byte, _ *ProduceOptions) []byte { put32(raw, offLastOffsetDelta, -1); return reseal(raw) }, cluster.InvalidRecord, "invalid offset range: [0, -1] in topic partition orders-3"},
		{"no records", func(raw []byte, _ *ProduceOptions) []byte { put32(raw, offNumRecords, 0); return reseal(raw) }, cluster.InvalidRecord, "Invalid reported count for record batch: 0"},
		{"count and offsets differ", func(raw []byte, _ *ProduceOptions) []byte { put32(raw, offNumRecords, 2); return reseal(raw) }, cluster.InvalidRecord, "Inconsistent batch offset range [0, 2] and count of records 2"},
		{"more records claimed than there are", func(raw []byte, _ *ProduceOptions) []byte {
			put32(raw, offNumRecords, math.MaxInt32)
			put32(raw, offLastOffsetDelta, math.MaxInt32-1)
			return reseal(raw)
		}, cluster.InvalidRecord, "premature EOF"},
		{"fewer records claimed than there are", func(raw []byte, _ *ProduceOptions) []byte {
			put32(raw, offNumRecords, 2)
			put32(raw, offLastOffsetDelta, 1)
			return reseal(raw)
		}, cluster.InvalidRecord, "records still remaining"},
		{"control batch", func([]byte, *ProduceOptions) []byte { return EndTxnMarker{ProducerID: 1, Type: Commit}.Batch() }, cluster.InvalidRecord, "not allowed to write control records"},
		{"producer without sequence", func(raw []byte, _ *ProduceOptions) []byte {
			put64(raw, offProducerID, 9)
			put16(raw, offProducerEpoch, 0)
			return reseal(raw)
		}, cluster.InvalidRecord, "Invalid sequence number -1 in record batch with producerId 9"},
		{"producer without epoch", func(raw []byte, _ *ProduceOptions) []byte {
			put64(raw, offProducerID, 9)
			put32(raw, offBaseSequence, 0)
			return reseal(raw)
		}, cluster.InvalidProducerEpoch, "Invalid producer epoch -1"},
		{"transactional without producer", func(raw []byte, _ *ProduceOptions) []byte {
			put16(raw, offAttributes, int16(flagTransactional))
			return reseal(raw)
		}, cluster.InvalidRecord, "without a producerId"},
		{"keyless record for a compacted topic", func(_ []byte, o *ProduceOptions) []byte {
			o.Compacted = true
			b := NewBuilder(BuilderOptions{})
			b.Append(1, []byte("k"), nil)
			b.Append(1, nil, []byte("v"))
			raw, _ := b.Build()
			return raw
		}, cluster.InvalidRecord, "One or more records have been rejected due to 1 record errors in total, and only showing the first three errors at most: " +
			"[RecordError(batchIndex=1, message='Compacted topic cannot accept message without key in topic partition orders-3.')]"},
		{"too far in the future", func(raw []byte, o *ProduceOptions) []byte { o.TimestampAfterMaxMs = 0; o.NowMs = 1001; return raw }, cluster.InvalidTimestamp, "One or more records have been rejected due to invalid timestamp"},
		{"too old", func(raw []byte, o *ProduceOptions) []byte { o.TimestampBeforeMaxMs = 10; return raw }, cluster.InvalidTimestamp, "invalid timestamp"},
		{"append time claimed by the producer", func(raw []byte, o *ProduceOptions) []byte {
			SetAppendTime(raw, 10_000)
			o.TimestampType = LogAppendTime
			return raw
		}, cluster.InvalidTimestamp, "invalid timestamp"},
		{"records that are no gzip", func(raw []byte, _ *ProduceOptions) []byte { put16(raw, offAttributes, int16(Gzip)); return reseal(raw) }, cluster.CorruptMessage, "Cannot decompress the records with gzip"},
		{"a bomb", func(_ []byte, o *ProduceOptions) []byte { o.MaxDecompressed = 100; return sample(t, Zstd, 100) }, cluster.CorruptMessage, "decompress to more than 100 bytes"},
	} {
		o := options()
		raw := c.edit(sample(t, None, 3), o)
		_, err := ValidateProduce(raw, o)
		if Code(err) != c.code || err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v %q", c.name, Code(err), err)
		}
	}
}

func TestCoordinatorsMayWriteControlBatches(t *testing.T) {
	o := options()
	o.Origin, o.Compacted = Coordinator, true
	if _, err := ValidateProduce(EndTxnMarker{ProducerID: 1, Type: Abort, TimestampMs: 10_000}.Batch(), o); err != nil {
		t.Error(err)
	}
}

func TestATornTailBehindTheBatchIsLeftOut(t *testing.T) {
	raw := sample(t, None, 3)
	info, err := ValidateProduce(append(bytes.Clone(raw), raw[:30]...), options())
	if err != nil || info.Bytes != len(raw) {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestAWrongMaxTimestampIsCorrected(t *testing.T) {
	for _, c := range codecs {
		raw := sample(t, c, 3)
		put64(raw, offMaxTimestamp, 777_777)
		reseal(raw)
		info, err := ValidateProduce(raw, options())
		if err != nil {
			t.Fatal(err)
		}
		b := first(t, raw)
		if b.MaxTimestamp != 1002 || info.Header.MaxTimestamp != 1002 || b.Validate() != nil || b.BatchHeader != info.Header {
			t.Errorf("%s: %+v %v", c, b.BatchHeader, b.Validate())
		}
	}
}

func TestAppendTimeTopicsStampTheBatch(t *testing.T) {
	o := options()
	o.TimestampType = LogAppendTime
	raw := sample(t, Snappy, 3)
	info, err := ValidateProduce(raw, o)
	if err != nil {
		t.Fatal(err)
	}
	b := first(t, raw)
	if info.MaxTimestamp != 10_000 || b.MaxTimestamp != 10_000 || b.TimestampType() != LogAppendTime || b.Validate() != nil {
		t.Errorf("%+v", b.BatchHeader)
	}
}

func TestRecordsWithoutTimestampPass(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	b.Append(NoTimestamp, nil, []byte("v"))
	raw, _ := b.Build()
	o := options()
	o.TimestampBeforeMaxMs = 1
	if info, err := ValidateProduce(raw, o); err != nil || info.MaxTimestamp != NoTimestamp {
		t.Errorf("%+v %v", info, err)
	}
}

func TestInnerOffsetsMustCountUp(t *testing.T) {
	b := NewBuilder(BuilderOptions{})
	b.AppendAt(0, 1, nil, nil)
	b.AppendAt(2, 1, nil, nil)
	raw, _ := b.Build()
	put32(raw, offLastOffsetDelta, 1)
	_, err := ValidateProduce(reseal(raw), options())
	if Code(err) != cluster.InvalidRecord || !strings.Contains(err.Error(), "offset delta 2 instead of 1") {
		t.Error(err)
	}
}

func TestAMillionBadRecordsGiveABoundedAnswer(t *testing.T) {
	b := NewBuilder(BuilderOptions{Compression: Compression{Codec: Zstd}})
	for range 100_000 {
		b.Append(1, nil, nil)
	}
	raw, _ := b.Build()
	o := options()
	o.Compacted = true
	_, err := ValidateProduce(raw, o)
	ve, ok := err.(*ValidationError)
	if !ok || len(ve.Records) != maxRecordErrors || !strings.Contains(ve.Message, "100000 record errors in total") {
		t.Errorf("%v", err)
	}
}

func BenchmarkValidateProduce(b *testing.B) {
	for _, c := range codecs {
		b.Run(c.String(), func(b *testing.B) {
			raw := sample(b, c, 1000)
			o := options()
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := ValidateProduce(raw, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkValidateProduce1KiBRecords(b *testing.B) {
	bld := NewBuilder(BuilderOptions{})
	for range 16 {
		bld.Append(1000, nil, make([]byte, 1024))
	}
	raw, _ := bld.Build()
	o := options()
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ValidateProduce(raw, o); err != nil {
			b.Fatal(err)
		}
	}
}
