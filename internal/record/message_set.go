package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"klamm/internal/cluster"
)

// Message sets are the formats before batches: magic 0 (Kafka 0.8) and magic 1 (0.10). Produce requests before version 3
// carry them and fetch answers before version 4 must. A log holds batches of magic 2 only, so sets are converted on
// their way in (FromMessageSet) and out (ToMessageSet).
//
//	message:  offset int64, size int32, then size bytes of
//	          crc uint32 (IEEE, over what follows), magic int8, attributes int8,
//	          [magic 1: timestamp int64], key, value (each: length int32, -1 is null, then the bytes)
//	attributes: bits 0-2 codec, bit 3 timestamp type (magic 1). With a codec the value is a compressed message set.
//
// The offsets in a compressed set are absolute with magic 0. With magic 1 they count from the set's first, and the outer
// offset is the last message's.
const (
	messageOverhead  = 12 // offset and size
	messageHeadMin   = 4 + 1 + 1 + 4 + 4
	messageCodecMask = 7
)

// FromMessageSet turns a message set into a batch of magic 2 with the set's codec, as Kafka's LogValidator does when it
// converts up. Offsets are not kept: the log gives its own. It also returns the number of messages. An error is a
// *BatchError.
func FromMessageSet(set []byte) (batch []byte, messages int, err error) {
	c := messageSetReader{left: DefaultMaxDecompressed}
	if err := c.read(set, 0); err != nil {
		return nil, 0, err
	}
	if c.builder == nil {
		return nil, 0, invalid("Message set is empty")
	}
	if batch, err = c.builder.Build(); err != nil {
		return nil, 0, corrupt("%v", err)
	}
	return batch, c.builder.Len(), nil
}

type messageSetReader struct {
	builder *Builder
	left    int // bytes that may still come out of compressed sets
}

// The errors of malformed messages carry no detail, so that a hostile set costs no formatting.
var (
	errMessage      = &BatchError{cluster.CorruptMessage, "Found a malformed message in a message set"}
	errMessageMagic = &BatchError{cluster.InvalidRecord, "Found a message of a magic that message sets cannot have"}
	errMessageCount = &BatchError{cluster.RecordListTooLarge, "Message set has too many messages"}
)

// read adds the set's messages to the builder. Compressed sets nest once.
func (c *messageSetReader) read(set []byte, depth int) error {
	for len(set) > 0 {
		if len(set) < messageOverhead+messageHeadMin {
			return errMessage
		}
		size := int64(int32(binary.BigEndian.Uint32(set[8:])))
		if size < messageHeadMin || size > int64(len(set)-messageOverhead) {
			return errMessage
		}
		end := messageOverhead + int(size)
		if err := c.readMessage(set[messageOverhead:end], depth); err != nil {
			return err
		}
		set = set[end:]
	}
	return nil
}

func (c *messageSetReader) readMessage(m []byte, depth int) error {
	if crc32.ChecksumIEEE(m[4:]) != binary.BigEndian.Uint32(m) {
		return errMessage
	}
	magic, codec := m[4], Codec(m[5]&messageCodecMask)
	timestamp := NoTimestamp
	body := m[6:]
	switch magic {
	case 0:
	case 1:
		if len(body) < 8 {
			return errMessage
		}
		timestamp = int64(binary.BigEndian.Uint64(body))
		body = body[8:]
	default:
		return errMessageMagic
	}
	key, body, ok := nullableField(body)
	if !ok {
		return errMessage
	}
	value, rest, ok := nullableField(body)
	if !ok || len(rest) > 0 {
		return errMessage
	}
	if c.builder == nil {
		c.builder = NewBuilder(BuilderOptions{Compression: Compression{Codec: codec}})
	}
	if codec == None {
		if c.builder.Len() == math.MaxInt32 {
			return errMessageCount
		}
		c.builder.Append(max(timestamp, NoTimestamp), key, value)
		return nil
	}
	if depth > 0 || codec > LZ4 || value == nil {
		return errMessage
	}
	if codec == LZ4 && magic == 0 {
		value = append([]byte(nil), value...)
		setLZ4HeaderChecksum(value, false)
	}
	inner, err := Decompress(nil, value, codec, max(c.left, 1))
	if err != nil {
		return err
	}
	c.left -= len(inner)
	return c.read(inner, depth+1)
}

// nullableField cuts a length-prefixed field off b.
func nullableField(b []byte) (field, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int64(int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	switch {
	case n == -1:
		return nil, b, true
	case n < 0 || n > int64(len(b)):
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// ToMessageSet turns batches, of which the last may be cut off, into a message set of magic 0 or 1 for a reader at
// fromOffset (Kafka: RecordsUtil.downConvert), and returns the number of messages too.
//
// Codecs are kept. Headers, and timestamps with magic 0, have no place and are lost; transaction markers are left out.
// Records below fromOffset are left out unless they are compressed with others. A reader has said how many bytes it
// takes, so the set is not longer than b unless its first message is: what does not fit is left for the next fetch.
//
// Batches of zstd have no older form (KIP-110): the set ends before one, and when it is the first the error is a
// *BatchError with UNSUPPORTED_COMPRESSION_TYPE. Where b holds no whole batch the set is TruncatedMessage, which tells
// the reader that it asked for too few bytes; where it holds markers only the set is empty.
func ToMessageSet(b []byte, magic int8, fromOffset int64) (set []byte, messages int, err error) {
	w := messageSetWriter{magic: magic, from: fromOffset, limit: len(b)}
	whole := false
	for rest := b; len(rest) > 0; {
		batch, next, err := NextBatch(rest)
		if err == ErrShort {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		whole, rest = true, next
		if batch.IsControl() {
			continue
		}
		if batch.Codec() == Zstd {
			if len(w.out) > 0 {
				break
			}
			return nil, 0, errZstdDown
		}
		if full, err := w.add(batch); err != nil || full {
			return w.out, w.messages, err
		}
	}
	if !whole && len(b) > 0 {
		return append([]byte(nil), TruncatedMessage...), 0, nil
	}
	return w.out, w.messages, nil
}

var errZstdDown = &BatchError{cluster.UnsupportedCompressionType, "Down-conversion of zstandard-compressed batches is not supported"}

// TruncatedMessage is the start of a message larger than any answer can be: old consumers take it for one that was cut off
// because they asked for too few bytes, and say so (Kafka: LazyDownConversionRecordsSend.buildOverflowBatch).
const TruncatedMessage = "\xff\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff"

type messageSetWriter struct {
	magic    int8
	from     int64
	limit    int
	out      []byte
	inner    []byte
	messages int
}

// add converts one batch. full tells that the limit was reached; the first message is taken whatever its size.
func (w *messageSetWriter) add(b Batch) (full bool, err error) {
	if b.Codec() == None {
		return w.addPlain(b)
	}
	attributes := byte(b.TimestampType()) << 3
	first, last, maxTimestamp, messages := int64(-1), int64(-1), NoTimestamp, 0
	w.inner = w.inner[:0]
	err = b.ForEach(0, func(r *Record) error {
		if first < 0 {
			first = r.Offset
		}
		last, maxTimestamp = r.Offset, max(maxTimestamp, r.Timestamp)
		messages++
		offset := r.Offset
		if w.magic > 0 {
			offset -= first
		}
		w.inner = appendMessage(w.inner, message{offset, w.magic, attributes, r.Timestamp, r.Key, r.Value})
		return nil
	})
	if err != nil || first < 0 {
		return false, err
	}
	packed, err := Compress(nil, w.inner, Compression{Codec: b.Codec()})
	if err != nil {
		return false, err
	}
	if b.Codec() == LZ4 && w.magic == 0 {
		setLZ4HeaderChecksum(packed, true)
	}
	wrapper := message{last, w.magic, attributes | byte(b.Codec()), maxTimestamp, nil, packed}
	if len(w.out) > 0 && len(w.out)+wrapper.size() > w.limit {
		return true, nil
	}
	w.out = appendMessage(w.out, wrapper)
	w.messages += messages
	return len(w.out) >= w.limit, nil
}

// errSetFull ends the walk over a batch.
var errSetFull = &BatchError{cluster.None, "message set is full"}

func (w *messageSetWriter) addPlain(b Batch) (full bool, err error) {
	attributes := byte(b.TimestampType()) << 3
	err = b.ForEach(0, func(r *Record) error {
		if r.Offset < w.from {
			return nil
		}
		m := message{r.Offset, w.magic, attributes, r.Timestamp, r.Key, r.Value}
		if len(w.out) > 0 && len(w.out)+m.size() > w.limit {
			return errSetFull
		}
		w.out = appendMessage(w.out, m)
		w.messages++
		return nil
	})
	if err == errSetFull {
		return true, nil
	}
	return false, err
}

// message is one message of a set.
type message struct {
	offset     int64
	magic      int8
	attributes byte // the timestamp type goes for magic 1 only
	timestamp  int64
	key, value []byte
}

func (m *message) size() int {
	n := messageOverhead + messageHeadMin + len(m.key) + len(m.value)
	if m.magic > 0 {
		n += 8
	}
	return n
}

func appendMessage(dst []byte, m message) []byte {
	start := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.offset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.size()-messageOverhead))
	dst = append(dst, 0, 0, 0, 0, byte(m.magic))
	if m.magic > 0 {
		dst = append(dst, m.attributes)
		dst = binary.BigEndian.AppendUint64(dst, uint64(m.timestamp))
	} else {
		dst = append(dst, m.attributes&messageCodecMask)
	}
	dst = appendField(dst, m.key)
	dst = appendField(dst, m.value)
	crc := start + messageOverhead
	binary.BigEndian.PutUint32(dst[crc:], crc32.ChecksumIEEE(dst[crc+4:]))
	return dst
}

func appendField(dst, v []byte) []byte {
	if v == nil {
		return binary.BigEndian.AppendUint32(dst, math.MaxUint32)
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(v))), v...)
}
