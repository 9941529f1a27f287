package commitlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
	"sync"

	"klamm/internal/vfs"
)

// An index file is a sequence of big-endian entries sorted by both of their fields. Offset index: relative offset int32, position
// int32. Time index: timestamp int64, relative offset int32 (Kafka: OffsetIndex, TimeIndex). Kafka preallocates the active segment's
// and cuts them when it rolls or closes; these are always as long as their entries, which Kafka reads just as well.

// indexEntry is one entry: offset index {relative offset, position}, time index {timestamp, relative offset}.
type indexEntry struct {
	key int64
	val int32
}

// tailEntries is how many new entries are held in memory before they are written to the file. What is lost of them in a crash is
// rebuilt: recovery starts at the recovery point, and the indexes of a segment are durable before the recovery point passes it.
const tailEntries = 512

// searchBlock is the number of entries read at once when a search has come that near.
const searchBlock = 256

// index is one of a segment's two sparse indexes. Appending, truncating and saving belong to the holder of the log's mutex; lookups
// come from anywhere.
type index struct {
	width int    // bytes of an entry: 8 or 12
	name  string // file suffix
	seg   *segment

	mu     sync.Mutex   // guards what follows; no IO is done under it
	stored int          // entries in the file
	tail   []indexEntry // entries after those
	final  indexEntry   // the last entry, if there is one
}

const (
	offsetEntryWidth = 8
	timeEntryWidth   = 12
)

func (x *index) put(b []byte, e indexEntry) {
	if x.width == timeEntryWidth {
		binary.BigEndian.PutUint64(b, uint64(e.key))
		binary.BigEndian.PutUint32(b[8:], uint32(e.val))
		return
	}
	binary.BigEndian.PutUint32(b, uint32(e.key))
	binary.BigEndian.PutUint32(b[4:], uint32(e.val))
}

func (x *index) get(b []byte) indexEntry {
	if x.width == timeEntryWidth {
		return indexEntry{int64(binary.BigEndian.Uint64(b)), int32(binary.BigEndian.Uint32(b[8:]))}
	}
	return indexEntry{int64(int32(binary.BigEndian.Uint32(b))), int32(binary.BigEndian.Uint32(b[4:]))}
}

// encode gives the bytes of entries.
func (x *index) encode(entries []indexEntry) []byte {
	b := make([]byte, len(entries)*x.width)
	for i, e := range entries {
		x.put(b[i*x.width:], e)
	}
	return b
}

// count is the number of entries.
func (x *index) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stored + len(x.tail)
}

// full reports whether the index takes no more than its last reserved entry (Kafka: TimeIndex keeps one slot for the roll).
func (x *index) full(maxBytes int) bool {
	limit := maxBytes / x.width
	if x.width == timeEntryWidth {
		limit--
	}
	return x.count() >= limit
}

// last returns the last entry.
func (x *index) last() (indexEntry, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.final, x.stored+len(x.tail) > 0
}

// append adds an entry, spilling the tail to the file when it has grown.
func (x *index) append(e indexEntry) error {
	x.mu.Lock()
	x.tail = append(x.tail, e)
	x.final = e
	n := len(x.tail)
	x.mu.Unlock()
	if n >= tailEntries {
		return x.spill()
	}
	return nil
}

// spill writes the tail to the file, which it creates. Only the holder of the log's mutex changes tail and stored, so they may be
// read between locks.
func (x *index) spill() error {
	if len(x.tail) == 0 && x.seg.has(x.name) {
		return nil
	}
	b := x.encode(x.tail)
	err := x.seg.briefly(x.name, true, func(f vfs.File) error {
		_, err := f.WriteAt(b, int64(x.stored*x.width))
		return err
	})
	if err != nil || len(b) == 0 {
		return err
	}
	x.mu.Lock()
	x.stored += len(x.tail)
	x.tail = x.tail[:0]
	x.mu.Unlock()
	return nil
}

// seal spills, creates the file if need be and gives the tail's memory back.
func (x *index) seal() error {
	if err := x.spill(); err != nil {
		return err
	}
	x.mu.Lock()
	x.tail = nil
	x.mu.Unlock()
	return nil
}

// indexView is the picture of an index that one lookup works on. It borrows its buffer, so that lookups do not allocate.
type indexView struct {
	x      *index
	stored int
	f      vfs.File
	own    bool // f is of this view alone and ends with it
	buf    *[headerChunk]byte
}

func (x *index) view() indexView {
	x.mu.Lock()
	defer x.mu.Unlock()
	return indexView{x: x, stored: x.stored, buf: headerChunks.Get().(*[headerChunk]byte)}
}

// ownView is a view that leaves no file open: truncations look into the indexes of thousands of logs that nobody reads.
func (x *index) ownView() indexView {
	v := x.view()
	v.own = true
	return v
}

func (v *indexView) close() {
	if v.own && v.f != nil {
		_ = v.f.Close() // only read
	}
	headerChunks.Put(v.buf)
}

func (v *indexView) open() (vfs.File, error) {
	if v.own {
		return v.x.seg.log.dir.fs.OpenFile(v.x.seg.path(v.x.name), os.O_RDONLY, 0)
	}
	return v.x.seg.file(v.x.name, false)
}

// entry reads entry i.
func (v *indexView) entry(i int) (indexEntry, error) {
	if i >= v.stored {
		if e, ok := v.inMemory(i); ok {
			return e, nil
		}
	}
	b := v.buf[:v.x.width]
	if err := v.read(b, i); err != nil {
		return indexEntry{}, err
	}
	return v.x.get(b), nil
}

// inMemory returns an entry of the tail, unless it was spilled meanwhile.
func (v *indexView) inMemory(i int) (indexEntry, bool) {
	x := v.x
	x.mu.Lock()
	defer x.mu.Unlock()
	v.stored = x.stored
	switch j := i - x.stored; {
	case j < 0:
		return indexEntry{}, false
	case j < len(x.tail):
		return x.tail[j], true
	}
	return indexEntry{math.MaxInt64, math.MaxInt32}, true // truncated meanwhile: beyond any target
}

func (v *indexView) read(b []byte, from int) error {
	if v.f == nil {
		f, err := v.open()
		if err != nil {
			return err
		}
		v.f = f
	}
	n, err := v.f.ReadAt(b, int64(from*v.x.width))
	if n == len(b) || err == io.EOF {
		clear(b[n:]) // truncated meanwhile
		return nil
	}
	return err
}

// search returns the number of entries that are not after the target, given a predicate that is true for those. The caller has
// acquired the segment.
func (v *indexView) search(notAfter func(indexEntry) bool) (int, error) {
	x := v.x
	x.mu.Lock()
	v.stored = x.stored
	if len(x.tail) > 0 && notAfter(x.tail[0]) { // the common case: near the end
		n := sort.Search(len(x.tail), func(i int) bool { return !notAfter(x.tail[i]) })
		x.mu.Unlock()
		return v.stored + n, nil
	}
	x.mu.Unlock()
	lo, hi := 0, v.stored
	for hi-lo > searchBlock {
		mid := int(uint(lo+hi) >> 1)
		e, err := v.entry(mid)
		if err != nil {
			return 0, err
		}
		if notAfter(e) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == hi {
		return lo, nil
	}
	b := v.buf[:(hi-lo)*x.width]
	if err := v.read(b, lo); err != nil {
		return 0, err
	}
	for ; lo < hi && notAfter(x.get(b)); lo++ {
		b = b[x.width:]
	}
	return lo, nil
}

// floor returns the last entry whose key is at most key; ok is false when there is none.
func (x *index) floor(key int64) (e indexEntry, ok bool, err error) {
	v := x.view()
	defer v.close()
	n, err := v.search(func(e indexEntry) bool { return e.key <= key })
	if err != nil || n == 0 {
		return indexEntry{}, false, err
	}
	e, err = v.entry(n - 1)
	return e, err == nil && e.key <= key, err
}

// ceilVal returns the first entry whose value is at least val; ok is false when there is none.
func (x *index) ceilVal(val int32) (e indexEntry, ok bool, err error) {
	v := x.view()
	defer v.close()
	n, err := v.search(func(e indexEntry) bool { return e.val < val })
	if err != nil || n == x.count() {
		return indexEntry{}, false, err
	}
	e, err = v.entry(n)
	return e, err == nil, err
}

// truncate keeps the first n entries.
func (x *index) truncate(n int) error {
	if n >= x.count() {
		return nil
	}
	var final indexEntry
	if n > 0 {
		v := x.ownView()
		defer v.close()
		e, err := v.entry(n - 1)
		if err != nil {
			return err
		}
		final = e
	}
	cut := n < x.stored
	x.mu.Lock()
	if cut {
		x.stored, x.tail = n, x.tail[:0]
	} else {
		x.tail = x.tail[:n-x.stored]
	}
	x.final = final
	x.mu.Unlock()
	if !cut {
		return nil
	}
	return x.seg.briefly(x.name, true, func(f vfs.File) error { return f.Truncate(int64(n * x.width)) })
}

// truncateBelow drops entries for offsets at or after the given relative offset (Kafka: truncateTo).
func (x *index) truncateBelow(rel int64) error {
	keep := func(e indexEntry) bool { return e.key < rel }
	if x.width == timeEntryWidth {
		keep = func(e indexEntry) bool { return int64(e.val) < rel }
	}
	v := x.ownView()
	defer v.close()
	n, err := v.search(keep)
	if err != nil {
		return err
	}
	return x.truncate(n)
}

// load takes over a file of the given size. An error means that the index is corrupt or cannot be read: it wants rebuilding.
func (x *index) load(size int64) error {
	name := x.seg.path(x.name)
	if size%int64(x.width) != 0 {
		return fmt.Errorf("index %s: %d bytes are no multiple of %d", name, size, x.width)
	}
	x.stored = int(size) / x.width
	if size == 0 {
		return nil
	}
	v := x.ownView()
	defer v.close()
	first, err := v.entry(0)
	if err != nil {
		return err
	}
	if x.final, err = v.entry(x.stored - 1); err != nil {
		return err
	}
	zeros := x.width == offsetEntryWidth && x.stored > 1 && x.final.key <= 0 // preallocated, never trimmed
	if x.final.key < first.key || x.final.val < 0 || first.val < 0 || zeros {
		return fmt.Errorf("index %s: the last entry %v does not follow the first %v", name, x.final, first)
	}
	return nil
}

// reset empties the index in memory. Its file holds what it held until rebuilt is called.
func (x *index) reset() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stored, x.tail, x.final = 0, nil, indexEntry{}
}

// rebuilt makes the file, which had a size when the index was reset, agree with what recovery has filled the index with since. One that
// holds just that, as the files of a settled log do, is left alone: cutting thousands of files and writing them again takes long.
func (x *index) rebuilt(size int64) error {
	written := int64(x.stored * x.width)
	if size <= written {
		return nil
	}
	want := x.encode(x.tail)
	return x.seg.briefly(x.name, false, func(f vfs.File) error {
		if written > 0 || size != int64(len(want)) {
			return f.Truncate(written)
		}
		have := make([]byte, size)
		if _, err := f.ReadAt(have, 0); err != nil && err != io.EOF {
			return err
		}
		if !bytes.Equal(have, want) {
			return f.Truncate(0)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.stored, x.tail = len(x.tail), nil
		return nil
	})
}
