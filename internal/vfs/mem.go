package vfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that knows what a disk would have kept. Until File.Sync a file's writes, and until FS.SyncDir a
// directory's creates, removes and renames, may be lost; CrashClone decides by a seed which are.
//
// Locking: one mutex over the whole tree, files included; no call blocks while holding it.
type Mem struct {
	path string
	// mu guards the tree below root, every node in it and locks.
	mu    sync.Mutex
	root  *memNode
	locks map[string]bool
}

// memNode is a file or a directory. Guarded by Mem.mu.
type memNode struct {
	dir   bool
	mtime time.Time

	data    []byte    // of a file: what readers see
	durable []byte    // of a file: content at its last sync
	writes  []memEdit // of a file: edits since then, in order

	entries        map[string]*memNode // of a directory
	durableEntries map[string]*memNode
	changes        []memChange // of a directory: changes since its last sync, in order
}

// memEdit is one write (data set) or one truncation of a file.
type memEdit struct {
	off  int64 // of the write, or the size truncated to
	data []byte
}

// memChange is one change of a directory: a name now leads to node, or nowhere. A rename inside one directory is a single change.
type memChange struct {
	name string
	node *memNode
	from string // name that a rename freed, or ""
}

// NewMem returns an empty file system.
func NewMem() *Mem {
	return &Mem{path: "/mem", root: newMemDir(), locks: map[string]bool{}}
}

func newMemDir() *memNode {
	return &memNode{dir: true, mtime: time.Now(), entries: map[string]*memNode{}, durableEntries: map[string]*memNode{}}
}

// Path is "/mem".
func (m *Mem) Path() string { return m.path }

// Close does nothing; the content stays.
func (m *Mem) Close() error { return nil }

// Usage reports what the files hold of a nominal terabyte.
func (m *Mem) Usage() (Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	const total = 1 << 40
	return Usage{Total: total, Usable: total - m.root.bytes()}, nil
}

func (n *memNode) bytes() int64 {
	sum := int64(len(n.data))
	for _, c := range n.entries {
		sum += c.bytes()
	}
	return sum
}

// CrashClone returns the disk after a power cut at this moment: what was synced is there; of each directory's unsynced changes a prefix
// survives, and of each file's unsynced writes none, all, or some of them torn. The seed decides. The clone has no locks.
func (m *Mem) CrashClone(seed uint64) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{rng: rand.New(rand.NewPCG(seed, 0x6b6c616d6d)), done: map[*memNode]*memNode{}}
	return &Mem{path: m.path, root: c.node(m.root), locks: map[string]bool{}}
}

// crash clones a tree; a node met twice (a rename between directories half done) stays one node.
type crash struct {
	rng  *rand.Rand
	done map[*memNode]*memNode
}

func (c *crash) node(n *memNode) *memNode {
	if seen, ok := c.done[n]; ok {
		return seen
	}
	out := &memNode{dir: n.dir, mtime: n.mtime}
	c.done[n] = out
	if !n.dir {
		out.data = c.content(n)
		out.durable = slices.Clone(out.data)
		return out
	}
	kept := maps.Clone(n.durableEntries)
	for _, ch := range n.changes[:c.rng.IntN(len(n.changes)+1)] {
		ch.applyTo(kept)
	}
	out.entries = make(map[string]*memNode, len(kept))
	for _, name := range slices.Sorted(maps.Keys(kept)) { // sorted: the seed alone decides
		out.entries[name] = c.node(kept[name])
	}
	out.durableEntries = maps.Clone(out.entries)
	return out
}

func (c *crash) content(n *memNode) []byte {
	switch c.rng.IntN(4) {
	case 0:
		return slices.Clone(n.durable)
	case 1:
		return slices.Clone(n.data)
	}
	out := slices.Clone(n.durable)
	for _, e := range n.writes {
		switch c.rng.IntN(4) {
		case 0: // lost
		case 1: // torn at a random byte
			if e.data != nil {
				e.data = e.data[:c.rng.IntN(len(e.data)+1)]
			}
			out = e.applyTo(out)
		default:
			out = e.applyTo(out)
		}
	}
	return out
}

func (e memEdit) applyTo(b []byte) []byte {
	if e.data == nil {
		return resize(b, e.off)
	}
	if end := e.off + int64(len(e.data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[e.off:], e.data)
	return b
}

func (ch memChange) applyTo(entries map[string]*memNode) {
	if ch.from != "" {
		delete(entries, ch.from)
	}
	if ch.node == nil {
		delete(entries, ch.name)
		return
	}
	entries[ch.name] = ch.node
}

// resize cuts or extends with zeros.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	old := len(b)
	b = slices.Grow(b, int(size)-old)[:size]
	clear(b[old:])
	return b
}

func (n *memNode) change(ch memChange) {
	ch.applyTo(n.entries)
	n.changes = append(n.changes, ch)
	n.mtime = time.Now()
}

// findLocked walks to a name.
func (m *Mem) findLocked(op, name string) (*memNode, error) {
	n := m.root
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		if part == "." {
			continue
		}
		if !n.dir {
			return nil, m.fail(op, name, syscall.ENOTDIR)
		}
		next, ok := n.entries[part]
		if !ok {
			return nil, m.fail(op, name, syscall.ENOENT)
		}
		n = next
	}
	return n, nil
}

func (m *Mem) parentLocked(op, name string) (*memNode, string, error) {
	dir, base := path.Split(path.Clean(name))
	p, err := m.findLocked(op, "./"+dir)
	if err == nil && !p.dir {
		err = m.fail(op, name, syscall.ENOTDIR)
	}
	return p, base, err
}

func (m *Mem) fail(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: path.Join(m.path, name), Err: err}
}

// OpenFile opens or creates a file.
func (m *Mem) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, base, err := m.parentLocked("open", name)
	if err != nil {
		return nil, err
	}
	n, ok := p.entries[base]
	switch {
	case !ok && flag&os.O_CREATE == 0:
		return nil, m.fail("open", name, syscall.ENOENT)
	case ok && flag&os.O_EXCL != 0:
		return nil, m.fail("open", name, syscall.EEXIST)
	case ok && n.dir:
		return nil, m.fail("open", name, syscall.EISDIR)
	case !ok:
		n = &memNode{mtime: time.Now()}
		p.change(memChange{name: base, node: n})
	case flag&os.O_TRUNC != 0:
		n.edit(memEdit{off: 0})
	}
	return &memFile{fs: m, name: name, node: n}, nil
}

// Mkdir creates a directory.
func (m *Mem) Mkdir(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mkdirLocked(name)
}

func (m *Mem) mkdirLocked(name string) error {
	p, base, err := m.parentLocked("mkdir", name)
	if err != nil {
		return err
	}
	if _, ok := p.entries[base]; ok {
		return m.fail("mkdir", name, syscall.EEXIST)
	}
	p.change(memChange{name: base, node: newMemDir()})
	return nil
}

// MkdirAll creates a directory and its parents.
func (m *Mem) MkdirAll(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	prefix := "."
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		prefix = path.Join(prefix, part)
		if n, err := m.findLocked("mkdir", prefix); err == nil && n.dir {
			continue
		}
		if err := m.mkdirLocked(prefix); err != nil {
			return err
		}
	}
	return nil
}

// Remove unlinks a file or an empty directory.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, base, err := m.parentLocked("remove", name)
	if err != nil {
		return err
	}
	n, ok := p.entries[base]
	if !ok {
		return m.fail("remove", name, syscall.ENOENT)
	}
	if len(n.entries) > 0 {
		return m.fail("remove", name, syscall.ENOTEMPTY)
	}
	p.change(memChange{name: base})
	return nil
}

// RemoveAll removes a tree; a missing name is no error.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, base, err := m.parentLocked("remove", name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, ok := p.entries[base]; ok {
		p.change(memChange{name: base})
	}
	return nil
}

// Rename moves a file or directory.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	link := func(err error) error {
		return &os.LinkError{Op: "rename", Old: path.Join(m.path, oldName), New: path.Join(m.path, newName), Err: err}
	}
	from, oldBase, err := m.parentLocked("rename", oldName)
	if err != nil {
		return err
	}
	to, newBase, err := m.parentLocked("rename", newName)
	if err != nil {
		return err
	}
	n, ok := from.entries[oldBase]
	if !ok {
		return link(syscall.ENOENT)
	}
	if there, ok := to.entries[newBase]; ok && there != n {
		switch {
		case there.dir && !n.dir:
			return link(syscall.EISDIR)
		case !there.dir && n.dir:
			return link(syscall.ENOTDIR)
		case len(there.entries) > 0:
			return link(syscall.ENOTEMPTY)
		}
	}
	if from == to {
		from.change(memChange{name: newBase, node: n, from: oldBase})
		return nil
	}
	to.change(memChange{name: newBase, node: n})
	from.change(memChange{name: oldBase})
	return nil
}

// Stat describes a file.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked("stat", name)
	if err != nil {
		return nil, err
	}
	return n.info(path.Base(name)), nil
}

// ReadDir lists a directory sorted by name.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked("open", name)
	if err != nil {
		return nil, err
	}
	if !n.dir {
		return nil, m.fail("readdir", name, syscall.ENOTDIR)
	}
	out := make([]fs.DirEntry, 0, len(n.entries))
	for _, base := range slices.Sorted(maps.Keys(n.entries)) {
		out = append(out, fs.FileInfoToDirEntry(n.entries[base].info(base)))
	}
	return out, nil
}

// SyncDir makes a directory's entries durable.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked("open", name)
	if err != nil {
		return err
	}
	n.sync()
	return nil
}

// SyncAll makes everything durable.
func (m *Mem) SyncAll() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.root.syncAll()
	return nil
}

func (n *memNode) syncAll() {
	n.sync()
	for _, c := range n.entries {
		c.syncAll()
	}
}

// sync makes one node durable.
func (n *memNode) sync() {
	n.durable, n.writes = slices.Clone(n.data), nil
	n.durableEntries, n.changes = maps.Clone(n.entries), nil
}

// Lock takes a lock that only this Mem knows.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, base, err := m.parentLocked("lock", name)
	if err != nil {
		return nil, err
	}
	if m.locks[name] {
		return nil, &LockedError{Path: path.Join(m.path, name)}
	}
	if _, ok := p.entries[base]; !ok {
		p.change(memChange{name: base, node: &memNode{mtime: time.Now()}})
	}
	m.locks[name] = true
	return memLock{m, name}, nil
}

type memLock struct {
	fs   *Mem
	name string
}

// Close gives the lock back.
func (l memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locks, l.name)
	return nil
}
