package record

import (
	"encoding/binary"
	"fmt"
)

// BuilderOptions are the header fields of a batch to build.
type BuilderOptions struct {
	BaseOffset  int64
	LeaderEpoch int32
	Compression Compression
	// ProducerID, ProducerEpoch and BaseSequence count only when Idempotent, Transactional or Control is set; else the batch has none.
	ProducerID    int64
	ProducerEpoch int16
	BaseSequence  int32 // of an Idempotent batch; a transactional one of the broker's own has none
	Idempotent    bool
	Transactional bool
	Control       bool
}

// Builder makes one batch of the broker's own records. It belongs to one goroutine.
type Builder struct {
	o             BuilderOptions
	records       []byte // encoded, uncompressed
	body          []byte // scratch for one record
	count         int32
	lastDelta     int32
	baseTimestamp int64
	maxTimestamp  int64
}

// NewBuilder starts a batch.
func NewBuilder(o BuilderOptions) *Builder {
	return &Builder{o: o, lastDelta: -1, baseTimestamp: NoTimestamp, maxTimestamp: NoTimestamp}
}

// Append adds a record at the next offset. A nil key or value is null.
func (b *Builder) Append(timestampMs int64, key, value []byte, headers ...Header) {
	b.AppendAt(b.o.BaseOffset+int64(b.lastDelta)+1, timestampMs, key, value, headers...)
}

// AppendAt adds a record at an offset of the caller's choice, which must be larger than the last one's; it panics otherwise.
func (b *Builder) AppendAt(offset, timestampMs int64, key, value []byte, headers ...Header) {
	delta := offset - b.o.BaseOffset
	if delta <= int64(b.lastDelta) || delta > 1<<31-1 {
		panic(fmt.Sprintf("record: offset %d appended after %d", offset, b.o.BaseOffset+int64(b.lastDelta)))
	}
	if b.count == 0 {
		b.baseTimestamp = timestampMs
	}
	b.maxTimestamp = max(b.maxTimestamp, timestampMs)
	b.lastDelta = int32(delta)
	b.count++

	body := append(b.body[:0], 0) // record attributes
	body = binary.AppendVarint(body, timestampMs-b.baseTimestamp)
	body = binary.AppendVarint(body, delta)
	body = appendBytes(body, key)
	body = appendBytes(body, value)
	body = binary.AppendVarint(body, int64(len(headers)))
	for _, h := range headers {
		body = binary.AppendVarint(body, int64(len(h.Key)))
		body = append(body, h.Key...)
		body = appendBytes(body, h.Value)
	}
	b.body = body
	b.records = binary.AppendVarint(b.records, int64(len(body)))
	b.records = append(b.records, body...)
}

func appendBytes(dst, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(v)))
	return append(dst, v...)
}

// Len is the number of records so far.
func (b *Builder) Len() int { return int(b.count) }

// Build returns the batch. The Builder is not to be used after it.
func (b *Builder) Build() ([]byte, error) {
	raw, err := Compress(make([]byte, HeaderSize, HeaderSize+len(b.records)), b.records, b.o.Compression)
	if err != nil {
		return nil, fmt.Errorf("compress a batch: %w", err)
	}
	h := BatchHeader{
		BaseOffset: b.o.BaseOffset, PartitionLeaderEpoch: b.o.LeaderEpoch, Magic: currentMagic,
		Attributes: Attributes(b.o.Compression.Codec), LastOffsetDelta: b.lastDelta,
		BaseTimestamp: b.baseTimestamp, MaxTimestamp: b.maxTimestamp,
		ProducerID: NoProducerID, ProducerEpoch: NoProducerEpoch, BaseSequence: NoSequence, NumRecords: b.count,
	}
	if b.o.Idempotent || b.o.Transactional || b.o.Control {
		h.ProducerID, h.ProducerEpoch = b.o.ProducerID, b.o.ProducerEpoch
	}
	if b.o.Idempotent {
		h.BaseSequence = b.o.BaseSequence
	}
	if b.o.Transactional {
		h.Attributes |= flagTransactional
	}
	if b.o.Control {
		h.Attributes |= flagControl
	}
	putHeader(raw, &h)
	return raw, nil
}

// putHeader writes h over the first bytes of raw, which holds exactly one batch; length and checksum are made to fit raw.
func putHeader(raw []byte, h *BatchHeader) {
	binary.BigEndian.PutUint64(raw, uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(raw[offLength:], uint32(len(raw)-LogOverhead))
	binary.BigEndian.PutUint32(raw[offLeaderEpoch:], uint32(h.PartitionLeaderEpoch))
	raw[offMagic] = byte(h.Magic)
	binary.BigEndian.PutUint16(raw[offAttributes:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(raw[offLastOffsetDelta:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(raw[offBaseTimestamp:], uint64(h.BaseTimestamp))
	binary.BigEndian.PutUint64(raw[offMaxTimestamp:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(raw[offProducerID:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(raw[offProducerEpoch:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(raw[offBaseSequence:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(raw[offNumRecords:], uint32(h.NumRecords))
	binary.BigEndian.PutUint32(raw[offCRC:], checksum(raw))
}

// Recompress returns the batches of b with another codec, and b itself when nothing changes. Control batches keep theirs, as
// in Kafka. b must be whole, valid batches; records, offsets and timestamps stay as they are.
func Recompress(b []byte, to Compression) ([]byte, error) {
	var out []byte
	changed := false
	for rest := b; len(rest) > 0; {
		batch, next, err := NextBatch(rest)
		if err != nil {
			return nil, err
		}
		if batch.Codec() == to.Codec || batch.IsControl() {
			if changed {
				out = append(out, batch.Raw...)
			}
			rest = next
			continue
		}
		if !changed {
			changed = true
			out = append(make([]byte, 0, len(b)), b[:len(b)-len(rest)]...)
		}
		if out, err = appendRecompressed(out, batch, to); err != nil {
			return nil, err
		}
		rest = next
	}
	if !changed {
		return b, nil
	}
	return out, nil
}

func appendRecompressed(out []byte, b Batch, to Compression) ([]byte, error) {
	records := b.Raw[HeaderSize:]
	if b.Codec() != None {
		scratch := scratchPool.Get().(*[]byte)
		defer releaseScratch(scratch)
		plain, err := Decompress((*scratch)[:0], records, b.Codec(), 0)
		if err != nil {
			return nil, err
		}
		*scratch, records = plain, plain
	}
	start := len(out)
	out = append(out, b.Raw[:HeaderSize]...)
	packed, err := Compress(nil, records, to)
	if err != nil {
		return nil, fmt.Errorf("recompress a batch: %w", err)
	}
	out = append(out, packed...)
	h := b.BatchHeader
	h.Attributes = h.Attributes&^codecMask | Attributes(to.Codec)
	putHeader(out[start:], &h)
	return out, nil
}
