package wire

import (
	"encoding/binary"
)

// reader walks a message. The first read beyond the end makes it bad; from then on it returns zeros.
type reader struct {
	b   []byte
	bad bool
}

// span takes n bytes.
func (r *reader) span(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	s := r.b[:n:n]
	r.b = r.b[n:]
	return s
}

func (r *reader) int16() int16 {
	if s := r.span(2); s != nil {
		return int16(binary.BigEndian.Uint16(s))
	}
	return 0
}

func (r *reader) int32() int32 {
	if s := r.span(4); s != nil {
		return int32(binary.BigEndian.Uint32(s))
	}
	return 0
}

// uvarint takes an unsigned varint of at most 32 bits.
func (r *reader) uvarint() uint32 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := r.b[0]
		r.b = r.b[1:]
		return uint32(v)
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 || n > 5 || v > 1<<32-1 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return uint32(v)
}

// length takes a nullable length, -1 for null: an int32, or a compact one.
func (r *reader) length(compact bool) int {
	if compact {
		return int(r.uvarint()) - 1
	}
	return int(r.int32())
}

// nullableBytes takes bytes behind a nullable length; nil for null.
func (r *reader) nullableBytes(compact bool) []byte {
	n := r.length(compact)
	if n < 0 {
		return nil
	}
	return r.span(n)
}

// nullableBytes16 takes bytes behind an int16 length; nil for null.
func (r *reader) nullableBytes16() []byte {
	n := r.int16()
	if n < 0 {
		return nil
	}
	return r.span(int(n))
}

// str takes a string's bytes; ok is false for null.
func (r *reader) str(compact bool) (s []byte, ok bool) {
	var n int
	if compact {
		n = int(r.uvarint()) - 1
	} else {
		n = int(r.int16())
	}
	if n < 0 {
		return nil, false
	}
	return r.span(n), !r.bad
}

// arrayLen takes an array's length, 0 for null. Every element takes at least minSize bytes, so a length beyond
// what is left makes the reader bad before anyone believes it.
func (r *reader) arrayLen(compact bool, minSize int) int {
	n := r.length(compact)
	if n > len(r.b)/minSize {
		r.bad, r.b = true, nil
		return 0
	}
	return max(n, 0)
}

// skipTags walks over tagged fields.
func (r *reader) skipTags() {
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		r.uvarint()
		r.span(int(r.uvarint()))
	}
}
