package commitlog

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

// A log moves to another dir of its broker through a copy beside it: "<topic>-<p>.<uuid>-future", which a Move fills and then puts in the
// log's place (Kafka: KIP-113). Checkpoints of the other dir tell of the copy under the partition's name.

// movedHereFile is an empty file in a partition's directory from just before it takes the place of the directory in another dir until that
// one has given up the name. After a crash in between, a start finds both and knows by it which to keep; Kafka refuses to start then.
// Kafka does not look at files of such a name.
const movedHereFile = "moved-here"

// maxPreferred bounds the memory of PreferDir: clients may name partitions that never come.
const maxPreferred = 1 << 16

// ErrDirUnknown tells that a path is none of the log dirs.
var ErrDirUnknown = &Error{Code: cluster.LogDirNotFound, Message: "The log dir is not found in the config."}

// Future returns the copy of a partition's log that is on its way to another dir.
func (m *Manager) Future(tp cluster.TopicPartition) (*Log, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l, ok := m.futures[tp]
	if !ok || l.gone.Load() || !l.dir.online() {
		return nil, false
	}
	return l, true
}

// Futures returns all copies on their way, in no order.
func (m *Manager) Futures() []*Log {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if len(m.futures) == 0 {
		return nil
	}
	out := slices.AppendSeq(make([]*Log, 0, len(m.futures)), maps.Values(m.futures))
	return slices.DeleteFunc(out, func(l *Log) bool { return l.gone.Load() || !l.dir.online() })
}

func (m *Manager) isMoving(tp cluster.TopicPartition) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.futures[tp] != nil
}

// CheckDir reports what keeps logs from moving to a dir: that it is unknown or offline.
func (m *Manager) CheckDir(path string) error {
	d := m.dirOf(path)
	if d == nil {
		return ErrDirUnknown
	}
	return d.usable()
}

// PreferDir notes where a partition's log is to be created, should it be, in this process's life. A log that exists is not touched. It
// reports whether there was room for the note.
func (m *Manager) PreferDir(tp cluster.TopicPartition, path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.preferred[tp]; m.logs[tp] != nil || !known && len(m.preferred) >= maxPreferred {
		return m.logs[tp] != nil
	}
	m.preferred[tp] = path
	return true
}

// MaxMovableName reports whether the name of the partition's copy is short enough for a file system.
func MaxMovableName(tp cluster.TopicPartition) bool {
	return len(futureDirName(tp)) <= maxFileName
}

// CreateFuture returns the copy of a log that moves to a dir, a new and empty one if there is none. While any dir is offline it makes none,
// since another copy may lie there: *StorageError. A copy in a third dir must have been dropped before. No file is touched before the
// first append.
func (m *Manager) CreateFuture(l *Log, path string) (*Log, error) {
	d := m.dirOf(path)
	if d == nil {
		return nil, ErrDirUnknown
	}
	cfg := m.o.LogConfig(l.tp.Topic)
	m.mu.Lock()
	defer m.mu.Unlock()
	if f := m.futures[l.tp]; f != nil {
		if f.dir != d {
			return nil, fmt.Errorf("a copy of %s is on its way to %s, not to %s", l.tp, f.dir.path, path)
		}
		return f, d.usable()
	}
	for _, d := range m.dirs {
		if err := d.usable(); err != nil {
			return nil, err
		}
	}
	f := newLog(m, d, l.tp, l.TopicID(), cfg)
	name := futureDirName(l.tp)
	f.name.Store(&name)
	f.future.Store(true)
	m.futures[l.tp] = f
	d.logs++
	return f, nil
}

// DropFuture gives up a partition's copy, if there is one. The log stays where it is.
func (m *Manager) DropFuture(tp cluster.TopicPartition) error {
	m.mu.RLock()
	f := m.futures[tp]
	m.mu.RUnlock()
	if f == nil {
		return nil
	}
	renamed := map[*logDir]int{}
	if err := m.takeAway(f, renamed); err != nil {
		return err
	}
	m.settleRenames(renamed)
	return nil
}

// placeLoaded gives the loaded logs their places. Of a partition that is found twice one goes the way of all deleted logs where it can be told
// which; else the start stops.
func (m *Manager) placeLoaded() error {
	m.mu.Lock()
	loaded := m.loaded
	m.loaded = nil
	m.mu.Unlock()
	var marked, doomed []*Log
	for _, l := range loaded {
		if l.movedHere {
			marked = append(marked, l)
		}
		loser, err := m.place(l)
		if err != nil {
			return err
		}
		if loser != nil {
			doomed = append(doomed, loser)
		}
	}
	for _, f := range m.Futures() {
		if l, ok := m.Get(f.tp); ok && differ(f, l) {
			doomed = append(doomed, f) // the copy of a deleted topic's log
		}
	}
	renamed := map[*logDir]int{}
	for _, l := range doomed {
		m.log.Info("deleting one of two logs of a partition: of a topic deleted while its log dir was away, or left by a move between log dirs",
			"partition", l.tp.String(), "dir", l.dir.path, "name", *l.name.Load(), "id", l.TopicID())
		if err := m.takeAway(l, renamed); err != nil {
			return m.orOffline(l.dir, err)
		}
	}
	m.settleRenames(renamed)
	for _, l := range marked {
		if err := l.unmarkMovedHere(); err != nil {
			return m.orOffline(l.dir, err)
		}
	}
	return nil
}

// place enters a loaded log. loser is the one of two that has to go.
func (m *Manager) place(l *Log) (loser *Log, err error) {
	in := m.logs
	if l.future.Load() {
		in = m.futures
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	other := in[l.tp]
	if other != nil {
		if loser, err = m.chooseLoser(l, other); err != nil || loser == l {
			return loser, err
		}
		other.dir.logs--
	}
	in[l.tp] = l
	l.dir.logs++
	return loser, nil
}

// chooseLoser decides between two logs of a partition: the one of a deleted topic goes, if a dir was away while the topic was deleted and
// another one of the name made; of two copies the shorter; the one that was moved away, unless it went on growing because the dir that it was
// moved to had failed.
func (m *Manager) chooseLoser(l, other *Log) (*Log, error) {
	deleted := func(l *Log) bool {
		return m.o.Deleted != nil && !l.TopicID().IsZero() && m.o.Deleted(l.tp, l.TopicID())
	}
	switch {
	case l.TopicID() != other.TopicID() && deleted(l):
		return l, nil
	case l.TopicID() != other.TopicID() && deleted(other):
		return other, nil
	case !l.future.Load() && (l.movedHere == other.movedHere || differ(l, other)):
		return nil, fmt.Errorf("duplicate log directories for %s: %s/%s and %s/%s", l.tp, other.dir.path, l.tp, l.dir.path, l.tp)
	case other.LogEndOffset() > l.LogEndOffset(), other.LogEndOffset() == l.LogEndOffset() && !l.movedHere:
		return l, nil
	default:
		return other, nil
	}
}

// differ reports whether two logs belong to different topics of one name.
func differ(a, b *Log) bool {
	return a.TopicID() != b.TopicID() && !a.TopicID().IsZero() && !b.TopicID().IsZero()
}

// markMovedHere makes movedHereFile durable.
func (l *Log) markMovedHere() error {
	f, err := l.dir.fs.OpenFile(l.path(movedHereFile), os.O_RDWR|os.O_CREATE, vfs.FilePerm)
	if err != nil {
		return err
	}
	err = f.Sync()
	_ = f.Close() // nothing was written
	if err != nil {
		return err
	}
	return l.dir.fs.SyncDir(*l.name.Load())
}

func (l *Log) unmarkMovedHere() error {
	if err := removeIfThere(l.dir.fs.Remove(l.path(movedHereFile))); err != nil {
		return err
	}
	return l.dir.fs.SyncDir(*l.name.Load())
}
