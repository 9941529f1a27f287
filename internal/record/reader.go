package record

import (
	"encoding/binary"
	"math"
	"sync"

	"klamm/internal/cluster"
)

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte // nil is null
}

// Record is one record of a batch. Its slices alias the batch or decompression memory: they are valid until the Reader moves on.
type Record struct {
	Offset    int64
	Timestamp int64  // ms, of the batch under LogAppendTime; NoTimestamp when unset
	Key       []byte // nil is null
	Value     []byte // nil is null: a tombstone
	Size      int    // encoded bytes, with the length in front

	offsetDelta int32
	numHeaders  int32
	headers     []byte
}

// NumHeaders is the number of headers.
func (r *Record) NumHeaders() int { return int(r.numHeaders) }

// Headers decodes the headers; values alias the record.
func (r *Record) Headers() ([]Header, error) {
	var out []Header
	p := parser{b: r.headers}
	for range r.numHeaders {
		key := p.bytes()
		value := p.bytes()
		if p.bad {
			return nil, errRecord
		}
		out = append(out, Header{string(key), value})
	}
	return out, nil
}

// The errors of malformed records carry no detail, so that a hostile batch costs no formatting.
var (
	errRecord   = &BatchError{cluster.InvalidRecord, "Found a malformed record"}
	errTooFew   = &BatchError{cluster.InvalidRecord, "Incorrect declared batch size, premature EOF reached"}
	errTooMany  = &BatchError{cluster.InvalidRecord, "Incorrect declared batch size, records still remaining in file"}
	errNegative = &BatchError{cluster.InvalidRecord, "Found invalid record count in a record batch"}
)

// Reader walks the records of a batch, decompressing it first if need be. The zero value is ready for Reset; it keeps its memory
// between batches.
type Reader struct {
	data    []byte // records not read yet
	scratch *[]byte
	h       BatchHeader
	left    int32
	rec     Record
	err     error
}

// Reset starts on a batch. At most maxBytes are decompressed (0 means DefaultMaxDecompressed); more, or a broken block, is an error.
func (r *Reader) Reset(b Batch, maxBytes int) error {
	r.Close()
	r.h, r.left, r.err = b.BatchHeader, b.NumRecords, nil
	if b.NumRecords < 0 {
		r.err = errNegative
		return r.err
	}
	r.data = b.Raw[HeaderSize:]
	if b.Codec() == None {
		return nil
	}
	r.scratch = scratchPool.Get().(*[]byte)
	out, err := Decompress((*r.scratch)[:0], r.data, b.Codec(), maxBytes)
	*r.scratch = out
	if err != nil {
		r.err, r.data, r.left = err, nil, 0
		return err
	}
	r.data = out
	return nil
}

// Next moves to the next record and reports whether there is one. After it returned false, Err tells why.
func (r *Reader) Next() bool {
	if r.err != nil {
		return false
	}
	if r.left == 0 {
		if len(r.data) > 0 {
			r.err = errTooMany
		}
		return false
	}
	if len(r.data) == 0 {
		r.err = errTooFew
		return false
	}
	n, ok := parseRecord(r.data, &r.h, &r.rec)
	if !ok {
		r.err = errRecord
		return false
	}
	r.data = r.data[n:]
	r.left--
	return true
}

// Record is the current record, valid until the next call of Next, Reset or Close.
func (r *Reader) Record() *Record { return &r.rec }

// Err is what ended the walk early: a *BatchError, or nil at the regular end.
func (r *Reader) Err() error { return r.err }

// Close gives decompression memory back. Reset opens the Reader again.
func (r *Reader) Close() {
	if r.scratch != nil {
		releaseScratch(r.scratch)
		r.scratch = nil
	}
	r.data, r.left, r.rec = nil, 0, Record{}
}

var readerPool = sync.Pool{New: func() any { return new(Reader) }}

// ForEach calls fn for every record, decompressing at most maxBytes (0 means DefaultMaxDecompressed). It stops at fn's first error and
// returns it; a broken batch gives a *BatchError. The record is valid during the call only.
func (b Batch) ForEach(maxBytes int, fn func(*Record) error) error {
	r := readerPool.Get().(*Reader)
	defer func() {
		r.Close()
		readerPool.Put(r)
	}()
	if err := r.Reset(b, maxBytes); err != nil {
		return err
	}
	for r.Next() {
		if err := fn(&r.rec); err != nil {
			return err
		}
	}
	return r.err
}

// parseRecord reads the record at the start of b into rec and returns its encoded size.
func parseRecord(b []byte, h *BatchHeader, rec *Record) (size int, ok bool) {
	p := parser{b: b}
	length := p.varint()
	if p.bad || length < 0 || int(length) > len(p.b) {
		return 0, false
	}
	size = len(b) - len(p.b) + int(length)
	p.b = p.b[:length]
	p.byte() // record attributes: unused so far, Kafka ignores them too
	timestampDelta := p.varlong()
	rec.offsetDelta = p.varint()
	rec.Key = p.bytes()
	rec.Value = p.bytes()
	rec.numHeaders = p.varint()
	rec.headers = p.b
	if p.bad || rec.numHeaders < 0 || int(rec.numHeaders) > len(p.b) {
		return 0, false
	}
	for range rec.numHeaders {
		p.header()
	}
	if p.bad || len(p.b) != 0 {
		return 0, false
	}
	rec.Size = size
	rec.Offset = h.BaseOffset + int64(rec.offsetDelta)
	rec.Timestamp = h.BaseTimestamp + timestampDelta
	if h.Attributes&flagLogAppendTime != 0 {
		rec.Timestamp = h.MaxTimestamp
	}
	return size, true
}

// parser cuts fields off b. After the first impossible field bad is set and every result is zero.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) byte() {
	if len(p.b) == 0 {
		p.bad = true
		return
	}
	p.b = p.b[1:]
}

// varint reads a zigzag varint of 32 bits.
func (p *parser) varint() int32 {
	if len(p.b) > 0 && p.b[0] < 0x80 { // one byte: most lengths and deltas
		v := uint32(p.b[0])
		p.b = p.b[1:]
		return int32(v>>1) ^ -int32(v&1)
	}
	v := p.uvarint()
	if v > math.MaxUint32 {
		p.bad = true
		return 0
	}
	return int32(uint32(v)>>1) ^ -int32(v&1)
}

func (p *parser) varlong() int64 {
	v := p.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.bad, p.b = true, nil
		return 0
	}
	p.b = p.b[n:]
	return v
}

// bytes reads a length and as many bytes; length -1 is null.
func (p *parser) bytes() []byte {
	n := p.varint()
	if n == -1 {
		return nil
	}
	if n < 0 || int(n) > len(p.b) {
		p.bad, p.b = true, nil
		return nil
	}
	v := p.b[:n:n]
	p.b = p.b[n:]
	return v
}

// header skips a header; its key must not be null.
func (p *parser) header() {
	if p.bytes() == nil {
		p.bad = true
	}
	p.bytes()
}
