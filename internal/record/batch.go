// Package record reads, checks, edits and builds Kafka record batches (message format 2) as plain bytes, and converts
// the older formats up and down.
//
// A batch is a 61-byte header followed by its records, which are compressed as one block when the batch has a codec:
//
//	offset size field
//	     0    8 base offset
//	     8    4 length of everything after this field
//	    12    4 partition leader epoch
//	    16    1 magic, 2
//	    17    4 CRC32C of everything from the attributes to the end
//	    21    2 attributes: 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
//	    23    4 last offset delta
//	    27    8 base timestamp
//	    35    8 max timestamp
//	    43    8 producer id
//	    51    2 producer epoch
//	    53    4 base sequence
//	    57    4 number of records
//
// Base offset and leader epoch lie outside the checksum, so a leader assigns both without touching it.
//
// The package does no IO, reads no clock and never allocates by a length that the bytes only claim: all memory it takes is
// bounded by bytes that are really there or by an explicit cap on decompression. Functions are safe for concurrent use on
// distinct buffers; a Reader or Builder belongs to one goroutine.
package record

import (
	"encoding/binary"
	"hash/crc32"
	"io"
)

// Sizes of the fixed parts of a batch.
const (
	// HeaderSize is the number of bytes before the records of a magic-2 batch.
	HeaderSize = 61
	// LogOverhead is the number of bytes that the length field does not count.
	LogOverhead = 12
)

// Values that mean "none" in a batch.
const (
	NoTimestamp     int64 = -1
	NoProducerID    int64 = -1
	NoProducerEpoch int16 = -1
	NoSequence      int32 = -1
	NoLeaderEpoch   int32 = -1
)

const (
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offBaseTimestamp   = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offNumRecords      = 57
)

const currentMagic = 2

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// TimestampType says who set the timestamps of a batch.
type TimestampType int8

// The two timestamp types.
const (
	CreateTime    TimestampType = 0 // by the producer
	LogAppendTime TimestampType = 1 // by the broker, one for the whole batch: the header's max timestamp
)

// String gives Kafka's spelling, as message.timestamp.type has it.
func (t TimestampType) String() string {
	if t == LogAppendTime {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// Attributes are the flags of a batch.
type Attributes int16

const (
	codecMask         Attributes = 0x07
	flagLogAppendTime Attributes = 0x08
	flagTransactional Attributes = 0x10
	flagControl       Attributes = 0x20
	flagDeleteHorizon Attributes = 0x40
)

// Codec is the compression of the records; it may be a number that no codec has.
func (a Attributes) Codec() Codec { return Codec(a & codecMask) }

// TimestampType says who set the timestamps.
func (a Attributes) TimestampType() TimestampType { return TimestampType(a & flagLogAppendTime >> 3) }

// IsTransactional reports whether the batch is part of a transaction.
func (a Attributes) IsTransactional() bool { return a&flagTransactional != 0 }

// IsControl reports whether the batch holds a transaction marker rather than data.
func (a Attributes) IsControl() bool { return a&flagControl != 0 }

// HasDeleteHorizon reports whether the base timestamp is the time after which tombstones of the batch may go (KIP-534).
func (a Attributes) HasDeleteHorizon() bool { return a&flagDeleteHorizon != 0 }

// BatchHeader is the fixed part of a batch.
type BatchHeader struct {
	BaseOffset           int64
	Length               int32 // bytes after the length field
	PartitionLeaderEpoch int32
	Magic                int8
	CRC                  uint32
	Attributes           Attributes
	LastOffsetDelta      int32
	BaseTimestamp        int64 // ms; the delete horizon when Attributes.HasDeleteHorizon
	MaxTimestamp         int64 // ms
	ProducerID           int64
	ProducerEpoch        int16
	BaseSequence         int32
	NumRecords           int32
}

// Size is the length of the whole batch in bytes.
func (h *BatchHeader) Size() int { return LogOverhead + int(h.Length) }

// LastOffset is the offset of the last record, or of where it was before compaction.
func (h *BatchHeader) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is the offset after the batch.
func (h *BatchHeader) NextOffset() int64 { return h.LastOffset() + 1 }

// HasProducerID reports whether an idempotent or transactional producer wrote the batch.
func (h *BatchHeader) HasProducerID() bool { return h.ProducerID > NoProducerID }

// LastSequence is the sequence number of the last record, NoSequence when the batch has none.
// Numbers wrap from the largest int32 to 0 (Kafka: DefaultRecordBatch.incrementSequence).
func (h *BatchHeader) LastSequence() int32 {
	if h.BaseSequence == NoSequence {
		return NoSequence
	}
	return int32((int64(h.BaseSequence) + int64(h.LastOffsetDelta)) & 0x7fffffff)
}

// Codec is the compression of the records.
func (h *BatchHeader) Codec() Codec { return h.Attributes.Codec() }

// TimestampType says who set the timestamps.
func (h *BatchHeader) TimestampType() TimestampType { return h.Attributes.TimestampType() }

// IsTransactional reports whether the batch is part of a transaction.
func (h *BatchHeader) IsTransactional() bool { return h.Attributes.IsTransactional() }

// IsControl reports whether the batch holds a transaction marker rather than data.
func (h *BatchHeader) IsControl() bool { return h.Attributes.IsControl() }

// ParseHeader reads the header at the start of b. It returns ErrShort when b is too short to tell, and a *BatchError when
// length or magic are impossible: CORRUPT_MESSAGE, or UNSUPPORTED_FOR_MESSAGE_FORMAT for the old formats 0 and 1.
// It does not look at the checksum.
func ParseHeader(b []byte) (BatchHeader, error) {
	if len(b) <= offMagic {
		return BatchHeader{}, ErrShort
	}
	length, magic := int32(binary.BigEndian.Uint32(b[offLength:])), int8(b[offMagic])
	if err := checkFrame(length, magic); err != nil {
		return BatchHeader{}, err
	}
	if len(b) < HeaderSize {
		return BatchHeader{}, ErrShort
	}
	return BatchHeader{
		BaseOffset:           int64(binary.BigEndian.Uint64(b)),
		Length:               length,
		PartitionLeaderEpoch: int32(binary.BigEndian.Uint32(b[offLeaderEpoch:])),
		Magic:                magic,
		CRC:                  binary.BigEndian.Uint32(b[offCRC:]),
		Attributes:           Attributes(binary.BigEndian.Uint16(b[offAttributes:])),
		LastOffsetDelta:      int32(binary.BigEndian.Uint32(b[offLastOffsetDelta:])),
		BaseTimestamp:        int64(binary.BigEndian.Uint64(b[offBaseTimestamp:])),
		MaxTimestamp:         int64(binary.BigEndian.Uint64(b[offMaxTimestamp:])),
		ProducerID:           int64(binary.BigEndian.Uint64(b[offProducerID:])),
		ProducerEpoch:        int16(binary.BigEndian.Uint16(b[offProducerEpoch:])),
		BaseSequence:         int32(binary.BigEndian.Uint32(b[offBaseSequence:])),
		NumRecords:           int32(binary.BigEndian.Uint32(b[offNumRecords:])),
	}, nil
}

// Batch is one whole batch. Raw aliases the caller's bytes and is exactly Size long.
type Batch struct {
	BatchHeader
	Raw []byte
}

// NextBatch cuts the first batch off b. It returns io.EOF when b is empty, ErrShort when b ends inside the batch (the usual end of
// a fetched buffer), or the error of ParseHeader.
func NextBatch(b []byte) (batch Batch, rest []byte, err error) {
	if len(b) == 0 {
		return Batch{}, nil, io.EOF
	}
	h, err := ParseHeader(b)
	if err != nil {
		return Batch{}, b, err
	}
	n := h.Size()
	if n > len(b) {
		return Batch{}, b, ErrShort
	}
	return Batch{h, b[:n:n]}, b[n:], nil
}

// ChecksumOK reports whether the checksum of the batch in raw, which must be exactly one batch, is right.
func ChecksumOK(raw []byte) bool {
	return len(raw) >= HeaderSize && binary.BigEndian.Uint32(raw[offCRC:]) == checksum(raw)
}

func checksum(raw []byte) uint32 { return crc32.Checksum(raw[offAttributes:], castagnoli) }

// VerifyCRC returns a *BatchError with CORRUPT_MESSAGE when the checksum is wrong.
func (b Batch) VerifyCRC() error {
	if sum := checksum(b.Raw); sum != b.CRC {
		return corrupt("Record is corrupt (stored crc = %d, computed crc = %d)", b.CRC, sum)
	}
	return nil
}

// Validate checks what every stored or replicated batch must satisfy: the checksum, a known codec, and an offset range that does
// not run backwards. The number of records may be smaller than the range: compaction leaves gaps.
func (b Batch) Validate() error {
	if err := b.VerifyCRC(); err != nil {
		return err
	}
	if !b.Codec().known() {
		return corrupt("Unknown compression type id: %d", b.Codec())
	}
	if b.BaseOffset < 0 || b.LastOffsetDelta < 0 || b.LastOffset() < b.BaseOffset {
		return corrupt("Batch has an invalid offset range: [%d, %d]", b.BaseOffset, b.LastOffset())
	}
	if b.NumRecords < 0 || int64(b.NumRecords) > int64(b.LastOffsetDelta)+1 {
		return corrupt("Batch of offsets [%d, %d] claims %d records", b.BaseOffset, b.LastOffset(), b.NumRecords)
	}
	return nil
}

// SetBaseOffset writes the base offset; the checksum does not cover it.
func SetBaseOffset(raw []byte, offset int64) { binary.BigEndian.PutUint64(raw, uint64(offset)) }

// SetLeaderEpoch writes the partition leader epoch; the checksum does not cover it.
func SetLeaderEpoch(raw []byte, epoch int32) {
	binary.BigEndian.PutUint32(raw[offLeaderEpoch:], uint32(epoch))
}

// SetAppendTime marks the batch, which raw must hold exactly, as stamped by the broker at nowMs, and renews the checksum.
func SetAppendTime(raw []byte, nowMs int64) { setTimestamp(raw, LogAppendTime, nowMs) }

func setTimestamp(raw []byte, t TimestampType, maxMs int64) {
	a := Attributes(binary.BigEndian.Uint16(raw[offAttributes:]))&^flagLogAppendTime | Attributes(t)<<3
	binary.BigEndian.PutUint16(raw[offAttributes:], uint16(a))
	binary.BigEndian.PutUint64(raw[offMaxTimestamp:], uint64(maxMs))
	binary.BigEndian.PutUint32(raw[offCRC:], checksum(raw))
}

// Assign gives the validated batches of b consecutive offsets from firstOffset on, sets their leader epoch and, when appendTimeMs
// is not negative, stamps them with it. It returns the offset after the last record. It panics when b is not whole batches.
func Assign(b []byte, firstOffset int64, leaderEpoch int32, appendTimeMs int64) (nextOffset int64) {
	next := firstOffset
	for len(b) > 0 {
		batch, rest, err := NextBatch(b)
		if err != nil {
			panic("record: Assign on bytes that were not validated: " + err.Error())
		}
		SetBaseOffset(batch.Raw, next)
		SetLeaderEpoch(batch.Raw, leaderEpoch)
		if appendTimeMs >= 0 {
			SetAppendTime(batch.Raw, appendTimeMs)
		}
		next += int64(batch.LastOffsetDelta) + 1
		b = rest
	}
	return next
}
