package zkstore

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Jute is ZooKeeper's serialization: big-endian numbers, buffers and strings with a length of four bytes (-1 = null),
// vectors with a count of four bytes. Records have no framing of their own.

func appendInt(b []byte, v int32) []byte  { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendLong(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// appendBuffer writes nil as null, which ZooKeeper keeps apart from empty data.
func appendBuffer(b, v []byte) []byte {
	if v == nil {
		return appendInt(b, -1)
	}
	return append(appendInt(b, int32(len(v))), v...)
}

func appendString(b []byte, v string) []byte { return append(appendInt(b, int32(len(v))), v...) }

// errShort reports a record that ends early or has an impossible length.
var errShort = errors.New("record of the server is cut short")

// decoder reads a record. After the first fault everything reads as zero and err says what is wrong.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		if d.err == nil {
			d.err = fmt.Errorf("%w: %d of %d bytes", errShort, len(d.b), n)
		}
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) int() int32 {
	if v := d.take(4); v != nil {
		return int32(binary.BigEndian.Uint32(v))
	}
	return 0
}

func (d *decoder) long() int64 {
	if v := d.take(8); v != nil {
		return int64(binary.BigEndian.Uint64(v))
	}
	return 0
}

func (d *decoder) bool() bool {
	v := d.take(1)
	return v != nil && v[0] != 0
}

// buffer aliases the record; null is nil.
func (d *decoder) buffer() []byte {
	n := d.int()
	if n == -1 || d.err != nil {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) string() string { return string(d.buffer()) }

// strings reads a vector of strings. The count is not trusted for allocation: each string takes four bytes or more.
func (d *decoder) strings() []string {
	n := int(d.int())
	if n > len(d.b)/4 {
		d.err = fmt.Errorf("%w: a vector of %d strings in %d bytes", errShort, n, len(d.b))
	}
	if n <= 0 || d.err != nil {
		return nil
	}
	out := make([]string, 0, n)
	for range n {
		out = append(out, d.string())
	}
	if d.err != nil {
		return nil
	}
	return out
}
