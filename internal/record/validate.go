package record

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"klamm/internal/cluster"
)

// Origin says who appends, and with it which rules hold.
type Origin uint8

// The origins of an append at the leader.
const (
	Client      Origin = iota // a produce request: no control batches, strict offsets and sequences
	Coordinator               // the broker's own coordinators and transaction markers
)

// ProduceOptions are the rules a produced batch is judged by.
type ProduceOptions struct {
	TopicPartition       cluster.TopicPartition // for error texts
	Origin               Origin
	APIVersion           int16         // of the produce request, for its own rules and error texts; 0: not from a request
	MaxMessageBytes      int           // max.message.bytes; 0: no limit
	Compacted            bool          // cleanup.policy has compact: every record needs a key
	TimestampType        TimestampType // message.timestamp.type
	NowMs                int64
	TimestampBeforeMaxMs int64 // message.timestamp.before.max.ms
	TimestampAfterMaxMs  int64 // message.timestamp.after.max.ms
	MaxDecompressed      int   // bytes one batch may decompress to; 0: DefaultMaxDecompressed
}

// ProduceInfo is what a validated batch holds.
type ProduceInfo struct {
	Header       BatchHeader // as it is after validation; its base offset is still the producer's 0
	Bytes        int         // bytes of the batch: the caller appends b[:Bytes]; a torn tail behind it is ignored, as Kafka does
	Records      int32
	MaxTimestamp int64 // ms; NowMs under LogAppendTime
	// OffsetDeltaOfMax is the offset of the record with MaxTimestamp, relative to the batch's first.
	OffsetDeltaOfMax int32
}

const minZstdProduceVersion = 7

// ValidateProduce checks the records of one partition in place by the rules of a leader (Kafka: ProduceRequest.validateRecords,
// UnifiedLog.analyzeAndValidateRecords, LogValidator), in Kafka's order. A compressed batch is decompressed, capped, to check what is in
// it. The only bytes it changes are timestamp type, max timestamp and checksum, where the producer's do not fit the topic or the records.
// It takes no lock and needs none: call it before the log's lock, and Assign under it. The error is a *ValidationError.
func ValidateProduce(b []byte, o *ProduceOptions) (ProduceInfo, error) {
	batch, err := onlyBatch(b, o)
	if err != nil {
		return ProduceInfo{}, err
	}
	if err := checkBatch(&batch, o); err != nil {
		return ProduceInfo{}, err
	}
	maxTimestamp, deltaOfMax, err := checkRecords(batch, o)
	if err != nil {
		return ProduceInfo{}, err
	}
	if o.TimestampType == LogAppendTime {
		maxTimestamp, deltaOfMax = o.NowMs, 0
	}
	if batch.MaxTimestamp != maxTimestamp || batch.TimestampType() != o.TimestampType {
		setTimestamp(batch.Raw, o.TimestampType, maxTimestamp)
		batch.MaxTimestamp, batch.CRC = maxTimestamp, binary.BigEndian.Uint32(batch.Raw[offCRC:])
		batch.Attributes = Attributes(binary.BigEndian.Uint16(batch.Raw[offAttributes:]))
	}
	return ProduceInfo{
		Header: batch.BatchHeader, Bytes: len(batch.Raw), Records: batch.NumRecords,
		MaxTimestamp: maxTimestamp, OffsetDeltaOfMax: deltaOfMax,
	}, nil
}

// onlyBatch returns the one batch that b must hold.
func onlyBatch(b []byte, o *ProduceOptions) (Batch, error) {
	batch, rest, err := NextBatch(b)
	switch {
	case err == nil:
	case err == io.EOF || err == ErrShort:
		return batch, o.reject(cluster.InvalidRecord, "%s must have at least one record batch per partition", o.request())
	case Code(err) == cluster.UnsupportedForMessageFormat:
		return batch, o.reject(cluster.InvalidRecord, "%s are only allowed to contain record batches with magic version 2", o.request())
	default:
		return batch, o.reject(Code(err), "%s in topic partition %s", err, o.TopicPartition)
	}
	if !batch.Codec().known() {
		return batch, o.reject(cluster.UnsupportedCompressionType, "Unknown compression type id: %d", int8(batch.Codec()))
	}
	if batch.Codec() == Zstd && o.APIVersion > 0 && o.APIVersion < minZstdProduceVersion {
		return batch, o.reject(cluster.UnsupportedCompressionType, "%s are not allowed to use ZStandard compression", o.request())
	}
	if _, _, err := NextBatch(rest); err != io.EOF && err != ErrShort {
		return batch, o.reject(cluster.InvalidRecord, "%s are only allowed to contain exactly one record batch per partition", o.request())
	}
	return batch, nil
}

// checkBatch judges header, size and checksum.
func checkBatch(b *Batch, o *ProduceOptions) error {
	if o.Origin == Client && b.BaseOffset != 0 {
		return o.reject(cluster.InvalidRecord, "The baseOffset of the record batch in the append to %s should be 0, but it is %d", o.TopicPartition, b.BaseOffset)
	}
	if o.MaxMessageBytes > 0 && len(b.Raw) > o.MaxMessageBytes {
		return o.reject(cluster.MessageTooLarge, "The record batch size in the append to %s is %d bytes which exceeds the maximum configured value of %d.",
			o.TopicPartition, len(b.Raw), o.MaxMessageBytes)
	}
	if err := b.VerifyCRC(); err != nil {
		return o.reject(Code(err), "%s in topic partition %s.", err, o.TopicPartition)
	}
	if b.LastOffsetDelta < 0 {
		return o.reject(cluster.InvalidRecord, "Batch has an invalid offset range: [%d, %d] in topic partition %s", b.BaseOffset, b.LastOffset(), o.TopicPartition)
	}
	if b.NumRecords <= 0 {
		return o.reject(cluster.InvalidRecord, "Invalid reported count for record batch: %d in topic partition %s", b.NumRecords, o.TopicPartition)
	}
	if int64(b.NumRecords) != int64(b.LastOffsetDelta)+1 {
		return o.reject(cluster.InvalidRecord, "Inconsistent batch offset range [%d, %d] and count of records %d in topic partition %s",
			b.BaseOffset, b.LastOffset(), b.NumRecords, o.TopicPartition)
	}
	if o.Origin == Client {
		return checkClientBatch(b, o)
	}
	return nil
}

// checkClientBatch judges what only clients can get wrong. That a transactional batch has a producer, and a producer an epoch,
// goes beyond Kafka: such batches would never become readable (CVE-2018-17196 is of this kind).
func checkClientBatch(b *Batch, o *ProduceOptions) error {
	switch {
	case b.IsControl():
		return o.reject(cluster.InvalidRecord, "Clients are not allowed to write control records in topic partition %s", o.TopicPartition)
	case b.HasProducerID() && b.BaseSequence < 0:
		return o.reject(cluster.InvalidRecord, "Invalid sequence number %d in record batch with producerId %d in topic partition %s",
			b.BaseSequence, b.ProducerID, o.TopicPartition)
	case b.HasProducerID() && b.ProducerEpoch < 0:
		return o.reject(cluster.InvalidProducerEpoch, "Invalid producer epoch %d in record batch with producerId %d in topic partition %s",
			b.ProducerEpoch, b.ProducerID, o.TopicPartition)
	case b.IsTransactional() && !b.HasProducerID():
		return o.reject(cluster.InvalidRecord, "Transactional record batch without a producerId in topic partition %s", o.TopicPartition)
	case b.Attributes.HasDeleteHorizon():
		return o.reject(cluster.InvalidRecord, "Clients are not allowed to set a delete horizon in topic partition %s", o.TopicPartition)
	}
	return nil
}

// checkRecords walks the records and returns the largest timestamp and where it is.
func checkRecords(b Batch, o *ProduceOptions) (maxTimestamp int64, deltaOfMax int32, err error) {
	r := readerPool.Get().(*Reader)
	defer func() {
		r.Close()
		readerPool.Put(r)
	}()
	if err := r.Reset(b, o.MaxDecompressed); err != nil {
		return 0, 0, o.reject(Code(err), "%s in topic partition %s", err, o.TopicPartition)
	}
	maxTimestamp = NoTimestamp
	var faults recordFaults
	var index int32
	for ; r.Next(); index++ {
		if msg, code := judgeRecord(&r.rec, &b, index, o); code != cluster.None {
			faults.add(index, code, msg)
		}
		if r.rec.Timestamp > maxTimestamp {
			maxTimestamp, deltaOfMax = r.rec.Timestamp, index
		}
	}
	if r.err != nil {
		return 0, 0, o.reject(Code(r.err), "%s in topic partition %s", r.err, o.TopicPartition)
	}
	if len(faults.records) > 0 {
		return 0, 0, faults.asError()
	}
	return maxTimestamp, deltaOfMax, nil
}

// judgeRecord returns a code other than None when the record must be refused.
func judgeRecord(r *Record, b *Batch, index int32, o *ProduceOptions) (string, cluster.ErrorCode) {
	if r.offsetDelta != index {
		// Kafka rewrites a compressed batch whose inner offsets are wrong and stores an uncompressed one as it is, which consumers then
		// cannot follow. No living client sends such batches.
		return fmt.Sprintf("Inner record has offset delta %d instead of %d in topic partition %s", r.offsetDelta, index, o.TopicPartition), cluster.InvalidRecord
	}
	if o.Compacted && r.Key == nil && !b.IsControl() {
		return fmt.Sprintf("Compacted topic cannot accept message without key in topic partition %s.", o.TopicPartition), cluster.InvalidRecord
	}
	if o.TimestampType == CreateTime && r.Timestamp != NoTimestamp {
		if o.timestampOutOfRange(r.Timestamp) {
			return fmt.Sprintf("Timestamp %d of message with offset %d is out of range. The timestamp should be within [%d, %d]",
				r.Timestamp, r.Offset, o.NowMs-o.TimestampBeforeMaxMs, o.NowMs+o.TimestampAfterMaxMs), cluster.InvalidTimestamp
		}
		return "", cluster.None
	}
	if b.TimestampType() == LogAppendTime {
		return fmt.Sprintf("Invalid timestamp type in message with offset %d. Producer should not set timestamp type to LogAppendTime.", r.Offset), cluster.InvalidTimestamp
	}
	return "", cluster.None
}

// timestampOutOfRange is Kafka's rule without its overflow at timestamps far below zero. NowMs and both bounds are never negative.
func (o *ProduceOptions) timestampOutOfRange(t int64) bool {
	return t < o.NowMs-o.TimestampBeforeMaxMs || t > o.NowMs && t-o.NowMs > o.TimestampAfterMaxMs
}

// recordFaults collects the refused records of a batch. A hostile batch of a million bad records yields a bounded answer.
type recordFaults struct {
	records   []RecordError
	total     int
	timestamp bool
}

const maxRecordErrors = 1000

func (f *recordFaults) add(index int32, code cluster.ErrorCode, msg string) {
	f.total++
	f.timestamp = f.timestamp || code == cluster.InvalidTimestamp
	if len(f.records) < maxRecordErrors {
		f.records = append(f.records, RecordError{index, msg})
	}
}

func (f *recordFaults) asError() *ValidationError {
	if f.timestamp {
		return &ValidationError{cluster.InvalidTimestamp, "One or more records have been rejected due to invalid timestamp", f.records}
	}
	shown := make([]string, 0, 3)
	for _, r := range f.records[:min(3, len(f.records))] {
		shown = append(shown, fmt.Sprintf("RecordError(batchIndex=%d, message='%s')", r.BatchIndex, r.Message))
	}
	msg := fmt.Sprintf("One or more records have been rejected due to %d record errors in total, and only showing the first three errors at most: [%s]",
		f.total, strings.Join(shown, ", "))
	return &ValidationError{cluster.InvalidRecord, msg, f.records}
}

func (o *ProduceOptions) reject(code cluster.ErrorCode, format string, args ...any) *ValidationError {
	return &ValidationError{Code: code, Message: fmt.Sprintf(format, args...)}
}

func (o *ProduceOptions) request() string {
	if o.APIVersion == 0 {
		return "Appends to " + o.TopicPartition.String()
	}
	return fmt.Sprintf("Produce requests with version %d", o.APIVersion)
}
