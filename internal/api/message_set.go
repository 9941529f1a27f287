package api

import (
	"encoding/binary"
	"hash/crc32"
	"math"

	"klamm/internal/cluster"
	"klamm/internal/record"
)

// Message sets are what produce requests before version 3 carry: magic 0 (Kafka 0.8) or 1 (0.10). A log holds batches
// of magic 2 only, so a set is turned into one batch here, as Kafka's LogValidator does when it converts up.
//
//	message:  offset int64, size int32, then size bytes of
//	          crc uint32 (IEEE, over what follows), magic int8, attributes int8,
//	          [magic 1: timestamp int64], key, value (each: length int32, -1 is null, then the bytes)
//	attributes: bits 0-2 codec, bit 3 timestamp type. With a codec the value is a compressed message set.
const (
	messageOverhead  = 12 // offset and size
	messageHeadMin   = 4 + 1 + 1 + 4 + 4
	messageCodecMask = 7
)

// upconvert turns a message set into a batch of magic 2 with the set's codec. Offsets are not kept: the log gives its own.
func upconvert(set []byte) ([]byte, cluster.ErrorCode) {
	c := messageSetReader{left: record.DefaultMaxDecompressed}
	if code := c.read(set, 0); code != cluster.None {
		return nil, code
	}
	if c.builder == nil {
		return nil, cluster.InvalidRecord
	}
	batch, err := c.builder.Build()
	if err != nil {
		return nil, cluster.CorruptMessage
	}
	return batch, cluster.None
}

type messageSetReader struct {
	builder *record.Builder
	left    int // bytes that may still come out of compressed sets
}

// read adds the set's messages to the builder. Compressed sets nest once.
func (c *messageSetReader) read(set []byte, depth int) cluster.ErrorCode {
	for len(set) > 0 {
		if len(set) < messageOverhead+messageHeadMin {
			return cluster.CorruptMessage
		}
		size := int64(int32(binary.BigEndian.Uint32(set[8:])))
		if size < messageHeadMin || size > int64(len(set)-messageOverhead) {
			return cluster.CorruptMessage
		}
		end := messageOverhead + int(size)
		if code := c.readMessage(set[messageOverhead:end], depth); code != cluster.None {
			return code
		}
		set = set[end:]
	}
	return cluster.None
}

func (c *messageSetReader) readMessage(m []byte, depth int) cluster.ErrorCode {
	if crc32.ChecksumIEEE(m[4:]) != binary.BigEndian.Uint32(m) {
		return cluster.CorruptMessage
	}
	magic, codec := m[4], record.Codec(m[5]&messageCodecMask)
	timestamp := record.NoTimestamp
	body := m[6:]
	switch magic {
	case 0:
	case 1:
		if len(body) < 8 {
			return cluster.CorruptMessage
		}
		timestamp = int64(binary.BigEndian.Uint64(body))
		body = body[8:]
	default:
		return cluster.InvalidRecord
	}
	key, body, ok := nullableBytes(body)
	if !ok {
		return cluster.CorruptMessage
	}
	value, rest, ok := nullableBytes(body)
	if !ok || len(rest) > 0 {
		return cluster.CorruptMessage
	}
	if c.builder == nil {
		c.builder = record.NewBuilder(record.BuilderOptions{Compression: record.Compression{Codec: codec}})
	}
	if codec == record.None {
		if c.builder.Len() == math.MaxInt32 {
			return cluster.RecordListTooLarge
		}
		c.builder.Append(max(timestamp, record.NoTimestamp), key, value)
		return cluster.None
	}
	if depth > 0 || codec > record.LZ4 || value == nil {
		return cluster.CorruptMessage
	}
	inner, err := record.Decompress(nil, value, codec, max(c.left, 1))
	if err != nil {
		return cluster.CorruptMessage
	}
	c.left -= len(inner)
	return c.read(inner, depth+1)
}

// nullableBytes cuts a length-prefixed field off b.
func nullableBytes(b []byte) (field, rest []byte, ok bool) {
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
