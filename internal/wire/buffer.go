package wire

import (
	"io"
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	minClassBits = 9  // 512 B, the smallest pooled buffer
	maxClassBits = 22 // 4 MiB, the largest; larger ones are left to the garbage collector
)

// buffer is a pooled, reference-counted stretch of memory. It is born with one reference; the last release
// returns it to its pool.
type buffer struct {
	b    []byte
	refs atomic.Int32
}

// pools[i] holds buffers with a capacity of at least 1<<(minClassBits+i) bytes.
var pools [maxClassBits - minClassBits + 1]sync.Pool

// getBuffer returns an empty buffer with room for at least n bytes.
func getBuffer(n int) *buffer {
	class := max(bits.Len(uint(max(n, 1)-1)), minClassBits)
	if class > maxClassBits {
		buf := &buffer{b: make([]byte, 0, n)}
		buf.refs.Store(1)
		return buf
	}
	buf, ok := pools[class-minClassBits].Get().(*buffer)
	if !ok {
		buf = &buffer{b: make([]byte, 0, 1<<class)}
	}
	buf.refs.Store(1)
	return buf
}

// retain adds a reference.
func (b *buffer) retain() {
	if b.refs.Add(1) <= 1 {
		panic("wire: buffer retained after its last release")
	}
}

// release drops a reference.
func (b *buffer) release() {
	switch left := b.refs.Add(-1); {
	case left > 0:
		return
	case left < 0:
		panic("wire: buffer released too often")
	}
	class := bits.Len(uint(cap(b.b))) - 1 // the class whose promise this capacity keeps
	if class < minClassBits || class > maxClassBits {
		return
	}
	b.b = b.b[:0]
	pools[class-minClassBits].Put(b)
}

// readFrame reads exactly n bytes. It starts with at most trusted bytes of memory and doubles as they fill, so a
// length that lies costs no more than twice what arrived. trusted is at least 1.
func readFrame(r io.Reader, n, trusted int) (*buffer, error) {
	buf := getBuffer(min(n, trusted))
	for {
		have := len(buf.b)
		want := min(n, cap(buf.b))
		if _, err := io.ReadFull(r, buf.b[have:want]); err != nil {
			buf.release()
			return nil, err
		}
		buf.b = buf.b[:want]
		if want == n {
			return buf, nil
		}
		grown := getBuffer(min(n, 2*want))
		grown.b = append(grown.b, buf.b...)
		buf.release()
		buf = grown
	}
}
