package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

// Open checks and writes meta.properties, locks and loads all log dirs. A dir that belongs to another cluster or broker (*MetaMismatchError),
// that another process has locked (*vfs.LockedError), or that holds a partition also found in another dir (but see Options.Deleted) stops the start; a dir that
// cannot be read or written is left offline as long as another one works.
func Open(ctx context.Context, o Options) (*Manager, error) {
	o.setDefaults()
	m := &Manager{o: o, log: o.Log, logs: map[cluster.TopicPartition]*Log{}}
	m.queue.init()
	m.removal.init()
	for _, spec := range o.Dirs {
		d := &logDir{m: m, path: spec.Path, fs: spec.FS}
		d.checkpoints.written = map[string][]byte{}
		if d.fs == nil {
			d.failure.Store(&StorageError{Dir: d.path, Err: spec.Err})
			m.log.Error("log dir cannot be opened", "dir", d.path, "err", spec.Err)
		}
		m.dirs = append(m.dirs, d)
	}
	if err := m.openDirs(ctx); err != nil {
		for _, d := range m.dirs {
			err = errors.Join(err, d.closeHandles())
		}
		return nil, err
	}
	return m, nil
}

func (m *Manager) openDirs(ctx context.Context) error {
	for _, d := range m.dirs {
		if err := m.claim(d); err != nil {
			return err
		}
	}
	var g errgroup.Group
	for _, d := range m.dirs {
		if d.online() {
			g.Go(func() error { return m.loadDir(ctx, d) })
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	var offline []error
	for _, d := range m.dirs {
		if e := d.failure.Load(); e != nil {
			offline = append(offline, e)
		}
	}
	if len(offline) == len(m.dirs) {
		return fmt.Errorf("no log dir can be used: %w", errors.Join(offline...))
	}
	return nil
}

// claim locks a dir and checks that it is ours.
func (m *Manager) claim(d *logDir) error {
	if !d.online() {
		return nil
	}
	var err error
	if d.lock, err = d.fs.Lock(lockFile); err == nil {
		err = claimMeta(d.fs, m.o.ClusterID, m.o.BrokerID)
	}
	return m.orOffline(d, err)
}

// orOffline leaves a dir offline after an error of the file system; any other error is returned and stops the start.
func (m *Manager) orOffline(d *logDir, err error) error {
	if err == nil {
		return nil
	}
	var pe *fs.PathError
	var le *os.LinkError
	var locked *vfs.LockedError
	if errors.As(err, &locked) || !errors.As(err, &pe) && !errors.As(err, &le) {
		return err
	}
	d.fail(err)
	return nil
}

// loadDir loads all logs of a dir.
func (m *Manager) loadDir(ctx context.Context, d *logDir) error {
	began := time.Now()
	clean, err := d.takeCleanMark()
	if err != nil {
		return m.orOffline(d, err)
	}
	entries, err := d.fs.ReadDir(".")
	if err != nil {
		return m.orOffline(d, err)
	}
	points, pointKnown := m.readCheckpoint(d, recoveryPointFile)
	starts, _ := m.readCheckpoint(d, logStartFile)
	marks, _ := m.readCheckpoint(d, highWatermarkFile)
	cleaned, _ := m.readCheckpoint(d, cleanerFile)

	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(m.o.RecoveryThreads)
	n := 0
	for _, e := range entries {
		tp, ok := m.partitionOf(d, e)
		if !ok {
			continue
		}
		n++
		at := loadState{clean: clean, recoveryPoint: points[tp], pointKnown: pointKnown, start: starts[tp], highWatermark: marks[tp], cleaned: cleaned[tp]}
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return m.loadLog(d, tp, at)
		})
	}
	if err := g.Wait(); err != nil {
		return m.orOffline(d, err)
	}
	m.log.Info("loaded log dir", "dir", d.path, "logs", n, "clean", clean, "duration", time.Since(began))
	return nil
}

// partitionOf tells whether an entry of a log dir is a partition to load. Directories on their way out are queued for removal.
func (m *Manager) partitionOf(d *logDir, e fs.DirEntry) (cluster.TopicPartition, bool) {
	name := e.Name()
	if !e.IsDir() {
		return cluster.TopicPartition{}, false
	}
	switch {
	case strings.HasSuffix(name, deleteDirSuffix) && isSpecialDir(name, deleteDirSuffix):
		m.removeLater(d, name)
		return cluster.TopicPartition{}, false
	case isSpecialDir(name, strayDirSuffix), isSpecialDir(name, futureDirSuffix):
		m.log.Warn("leaving a directory alone", "dir", d.path, "name", name)
		return cluster.TopicPartition{}, false
	}
	tp, ok := parsePartitionDir(name)
	if !ok {
		m.log.Warn("not a partition's directory, leaving it alone", "dir", d.path, "name", name)
	}
	return tp, ok
}

// readCheckpoint reads a checkpoint; an unreadable one is as good as none: recovery then starts at the log's start.
func (m *Manager) readCheckpoint(d *logDir, name string) (offsets map[cluster.TopicPartition]int64, readable bool) {
	offsets, err := readOffsets(d.fs, name)
	if err != nil {
		m.log.Warn("cannot read checkpoint, resetting it", "dir", d.path, "err", err)
		return nil, false
	}
	d.checkpoints.Lock()
	defer d.checkpoints.Unlock()
	d.checkpoints.written[name] = encodeOffsets(offsets)
	return offsets, true
}

func (m *Manager) loadLog(d *logDir, tp cluster.TopicPartition, at loadState) error {
	cfg := m.o.LogConfig(tp.Topic)
	l := newLog(m, d, tp, cluster.TopicID{}, cfg)
	if err := l.load(at); err != nil {
		return fmt.Errorf("load log %s/%s: %w", d.path, *l.name.Load(), err)
	}
	m.mu.Lock()
	other, twice := m.logs[tp]
	if !twice {
		m.addLocked(l)
	}
	m.mu.Unlock()
	if twice {
		return m.settleTwice(l, other)
	}
	return nil
}

// settleTwice decides about a partition that was found in two dirs: a dir was away while its topic was deleted and another one of the name
// made. The deleted topic's log goes the way of all deleted logs. Anything else stops the start.
func (m *Manager) settleTwice(l, other *Log) error {
	deleted := func(l *Log) bool {
		return m.o.Deleted != nil && !l.TopicID().IsZero() && m.o.Deleted(l.tp, l.TopicID())
	}
	var doomed *Log
	switch {
	case l.TopicID() == other.TopicID():
	case deleted(l):
		doomed = l
	case deleted(other):
		doomed = other
	}
	if doomed == nil {
		return fmt.Errorf("duplicate log directories for %s: %s/%s and %s/%s", l.tp, other.dir.path, l.tp, l.dir.path, l.tp)
	}
	if doomed == other {
		m.mu.Lock()
		if m.logs[l.tp] == other {
			other.dir.logs--
			m.addLocked(l)
		}
		m.mu.Unlock()
	}
	m.log.Info("deleting the log of a topic that was deleted while its log dir was away", "partition", l.tp.String(), "dir", doomed.dir.path, "id", doomed.TopicID())
	onDisk, err := doomed.renameAway()
	if err == nil && onDisk {
		m.removeLater(doomed.dir, *doomed.name.Load())
		err = doomed.dir.fs.SyncDir(".")
	}
	if err != nil {
		return fmt.Errorf("delete log %s/%s: %w", doomed.dir.path, doomed.tp, err)
	}
	return nil
}
