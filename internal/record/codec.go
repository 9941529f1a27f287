package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"klamm/internal/cluster"
)

// Codec is a compression of batches.
type Codec int8

// The codecs by the number they have in a batch's attributes.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

var codecNames = [...]string{"none", "gzip", "snappy", "lz4", "zstd"}

func (c Codec) known() bool { return c >= None && c <= Zstd }

// String gives Kafka's name of the codec, "codec N" for one that does not exist.
func (c Codec) String() string {
	if !c.known() {
		return fmt.Sprintf("codec %d", int8(c))
	}
	return codecNames[c]
}

// ParseCodec finds a codec by Kafka's name.
func ParseCodec(name string) (Codec, bool) {
	for i, n := range codecNames {
		if n == name {
			return Codec(i), true
		}
	}
	return None, false
}

// Compression is a codec with its level.
type Compression struct {
	Codec Codec
	Level int // as compression.<codec>.level counts; 0 is the codec's default
}

// DefaultMaxDecompressed caps the decompressed size of one batch where the caller names no cap: 256 MiB.
const DefaultMaxDecompressed = 256 << 20

const (
	scratchStart = 64 << 10
	scratchKeep  = 4 << 20 // larger decompression buffers go back to the collector
)

var scratchPool = sync.Pool{New: func() any {
	b := make([]byte, 0, scratchStart)
	return &b
}}

func releaseScratch(b *[]byte) {
	if cap(*b) <= scratchKeep {
		*b = (*b)[:0]
		scratchPool.Put(b)
	}
}

// Decompress appends the decompressed src to dst. More than maxBytes of output (0 means DefaultMaxDecompressed) is an error, as is
// anything that is not the codec's format: a *BatchError, with CORRUPT_MESSAGE. Memory grows with what really comes out,
// never with what src claims to hold. On error it returns dst.
func Decompress(dst, src []byte, c Codec, maxBytes int) ([]byte, error) {
	if maxBytes <= 0 {
		maxBytes = DefaultMaxDecompressed
	}
	limit := len(dst) + maxBytes
	var out []byte
	var err error
	switch c {
	case None:
		if len(src) > maxBytes {
			err = errTooLarge
			break
		}
		out = append(dst, src...)
	case Gzip:
		out, err = gunzip(dst, src, limit)
	case Snappy:
		out, err = unsnappy(dst, src, limit)
	case LZ4:
		out, err = unlz4(dst, src, limit)
	case Zstd:
		out, err = unzstd(dst, src, limit)
	default:
		return dst, &BatchError{cluster.UnsupportedCompressionType, fmt.Sprintf("Unknown compression type id: %d", int8(c))}
	}
	if errors.Is(err, errTooLarge) {
		return dst, corrupt("Records decompress to more than %d bytes", maxBytes)
	}
	if err != nil {
		return dst, corrupt("Cannot decompress the records with %s: %v", c, err)
	}
	return out, nil
}

var (
	errTooLarge  = errors.New("decompressed size over the limit")
	errMalformed = errors.New("malformed block")
)

// readAll appends what r gives to dst, up to limit bytes in all.
func readAll(dst []byte, r io.Reader, limit int) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			if len(dst) >= limit {
				return probeEnd(dst, r)
			}
			dst = grow(dst, 4096)
		}
		n, err := r.Read(dst[len(dst):min(cap(dst), limit)])
		dst = dst[:len(dst)+n]
		switch {
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		case len(dst) >= limit:
			return probeEnd(dst, r)
		}
	}
}

// probeEnd is asked when dst holds all it may: fine if r has nothing more.
func probeEnd(dst []byte, r io.Reader) ([]byte, error) {
	var one [1]byte
	for {
		n, err := r.Read(one[:])
		switch {
		case n > 0:
			return dst, errTooLarge
		case err == io.EOF:
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}

// grow makes room for n more bytes, at least doubling.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	nb := make([]byte, len(b), max(2*cap(b), len(b)+n, scratchStart))
	copy(nb, b)
	return nb
}

type gzipReader struct {
	src bytes.Reader
	z   gzip.Reader
}

var gzipReaders = sync.Pool{New: func() any { return new(gzipReader) }}

func gunzip(dst, src []byte, limit int) ([]byte, error) {
	r := gzipReaders.Get().(*gzipReader)
	defer gzipReaders.Put(r)
	r.src.Reset(src)
	defer r.src.Reset(nil)
	if err := r.z.Reset(&r.src); err != nil {
		return dst, err
	}
	return readAll(dst, &r.z, limit)
}

type lz4Reader struct {
	src bytes.Reader
	z   *lz4.Reader
}

var lz4Readers = sync.Pool{New: func() any { return &lz4Reader{z: lz4.NewReader(nil)} }}

func unlz4(dst, src []byte, limit int) ([]byte, error) {
	r := lz4Readers.Get().(*lz4Reader)
	defer lz4Readers.Put(r)
	r.src.Reset(src)
	defer r.src.Reset(nil)
	r.z.Reset(&r.src)
	return readAll(dst, r.z, limit)
}

// xerialMagic starts the framing of Java's snappy library, which Kafka clients use; some send one bare block instead.
const xerialMagic = "\x82SNAPPY\x00"

const xerialHeaderSize = 16

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < len(xerialMagic) || string(src[:len(xerialMagic)]) != xerialMagic {
		return snappyBlock(dst, src, limit)
	}
	if len(src) < xerialHeaderSize {
		return dst, errMalformed
	}
	for src = src[xerialHeaderSize:]; len(src) > 0; {
		if len(src) < 4 {
			return dst, errMalformed
		}
		n := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(n) > uint64(len(src)) {
			return dst, errMalformed
		}
		var err error
		if dst, err = snappyBlock(dst, src[:n], limit); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, nil
}

// snappyMaxRatio bounds the growth of a snappy block: its densest element turns 3 bytes into 64.
const snappyMaxRatio = 22

func snappyBlock(dst, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil || n > snappyMaxRatio*len(block) {
		return dst, errMalformed
	}
	if n > limit-len(dst) {
		return dst, errTooLarge
	}
	dst = grow(dst, n)
	if _, err := s2.Decode(dst[len(dst):len(dst)+n], block); err != nil {
		return dst, err
	}
	return dst[:len(dst)+n], nil
}

// zstdDecoder is shared: DecodeAll keeps no state between calls. It never makes its output larger than the capacity it is handed,
// so frames cannot make it allocate by the window or content size they claim.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic("record: zstd decoder: " + err.Error())
	}
	return d
})

const zstdRetryGrowth = 4

func unzstd(dst, src []byte, limit int) ([]byte, error) {
	start := len(dst)
	dst = grow(dst, min(4*len(src), limit-start))
	for {
		room := min(cap(dst), limit)
		out, err := zstdDecoder().DecodeAll(src, dst[:start:room])
		if err == nil {
			return out, nil
		}
		if !errors.Is(err, zstd.ErrDecoderSizeExceeded) {
			return dst[:start], err
		}
		if room >= limit {
			return dst[:start], errTooLarge
		}
		// Decoding again from the start into more room costs a third more at worst, and never trusts a claimed size.
		dst = grow(dst[:start], min((room-start)*zstdRetryGrowth, limit-start))
	}
}

// Compress appends the compressed src to dst, framed as Kafka's clients expect it.
func Compress(dst, src []byte, c Compression) ([]byte, error) {
	switch c.Codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return gzipTo(dst, src, c.Level)
	case Snappy:
		return append(dst, xerial.Encode(nil, src)...), nil
	case LZ4:
		return lz4To(dst, src, c.Level)
	case Zstd:
		enc, err := zstdEncoder(c.Level)
		if err != nil {
			return dst, err
		}
		return enc.EncodeAll(src, dst), nil
	}
	return dst, &BatchError{cluster.UnsupportedCompressionType, fmt.Sprintf("Unknown compression type id: %d", int8(c.Codec))}
}

func gzipTo(dst, src []byte, level int) ([]byte, error) {
	if level == 0 {
		level = gzip.DefaultCompression
	}
	buf := bytes.NewBuffer(dst)
	w, err := gzip.NewWriterLevel(buf, level)
	if err != nil {
		return dst, fmt.Errorf("gzip level %d: %w", level, err)
	}
	if _, err := w.Write(src); err != nil {
		return dst, err
	}
	if err := w.Close(); err != nil {
		return dst, err
	}
	return buf.Bytes(), nil
}

// kafkaFastLZ4 is the level that Kafka's lz4 counts as its default: the fast compressor; other levels use the dense one.
const kafkaFastLZ4 = 9

func lz4To(dst, src []byte, level int) ([]byte, error) {
	opts := []lz4.Option{lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1)}
	if level > 0 && level != kafkaFastLZ4 {
		opts = append(opts, lz4.CompressionLevelOption(lz4.CompressionLevel(1<<(8+min(level, 9)))))
	}
	buf := bytes.NewBuffer(dst)
	w := lz4.NewWriter(buf)
	if err := w.Apply(opts...); err != nil {
		return dst, fmt.Errorf("lz4 level %d: %w", level, err)
	}
	if _, err := w.Write(src); err != nil {
		return dst, err
	}
	if err := w.Close(); err != nil {
		return dst, err
	}
	return buf.Bytes(), nil
}

const defaultZstdLevel = 3

var zstdEncoders sync.Map // zstd.EncoderLevel to *zstd.Encoder; EncodeAll is safe for concurrent use

func zstdEncoder(level int) (*zstd.Encoder, error) {
	if level == 0 {
		level = defaultZstdLevel
	}
	l := zstd.EncoderLevelFromZstd(level)
	if e, ok := zstdEncoders.Load(l); ok {
		return e.(*zstd.Encoder), nil
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(l), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("zstd level %d: %w", level, err)
	}
	kept, _ := zstdEncoders.LoadOrStore(l, e)
	return kept.(*zstd.Encoder), nil
}
