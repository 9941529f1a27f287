package wire

import (
	"testing"
)

func TestBuffersHaveTheRoomAskedFor(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 4096, 1 << 20, 1<<22 - 1, 1 << 22, 1<<22 + 1, 9 << 20} {
		for range 3 {
			b := getBuffer(n)
			if len(b.b) != 0 || cap(b.b) < n {
				t.Fatalf("asked for %d, got %d of %d", n, len(b.b), cap(b.b))
			}
			b.b = append(b.b, 1)
			b.release()
		}
	}
}

func TestABufferThatGrewKeepsItsPoolsPromise(t *testing.T) {
	b := getBuffer(512)
	b.b = append(b.b, make([]byte, 3000)...)
	b.release()
	for range 100 {
		if b := getBuffer(4096); cap(b.b) < 4096 {
			t.Fatalf("asked for 4096, got %d", cap(b.b))
		}
	}
}

func TestReleasingABufferTwicePanics(t *testing.T) {
	b := getBuffer(1)
	b.retain()
	b.release()
	b.release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.release()
}
