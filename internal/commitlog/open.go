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
	m := &Manager{
		o: o, log: o.Log,
		logs: map[cluster.TopicPartition]*Log{}, futures: map[cluster.TopicPartition]*Log{}, preferred: map[cluster.TopicPartition]string{},
	}
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
	return m.placeLoaded()
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
		tp, future, ok := m.partitionOf(d, e)
		if !ok {
			continue
		}
		name := e.Name()
		n++
		at := loadState{clean: clean, recoveryPoint: points[tp], pointKnown: pointKnown, start: starts[tp], highWatermark: marks[tp], cleaned: cleaned[tp]}
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			l := newLog(m, d, tp, cluster.TopicID{}, m.o.LogConfig(tp.Topic))
			l.name.Store(&name)
			l.future.Store(future)
			return m.loadLog(l, at)
		})
	}
	if err := g.Wait(); err != nil {
		return m.orOffline(d, err)
	}
	m.log.Info("loaded log dir", "dir", d.path, "logs", n, "clean", clean, "duration", time.Since(began))
	return nil
}

// partitionOf tells whether an entry of a log dir is a partition to load, or the copy of one (future). Directories on their way out are
// queued for removal.
func (m *Manager) partitionOf(d *logDir, e fs.DirEntry) (tp cluster.TopicPartition, future, ok bool) {
	name := e.Name()
	if !e.IsDir() {
		return tp, false, false
	}
	if strings.HasSuffix(name, deleteDirSuffix) && isSpecialDir(name, deleteDirSuffix) {
		m.removeLater(d, name)
		return tp, false, false
	}
	if tp, future = parseFutureDir(name); future {
		return tp, true, true
	}
	if !isSpecialDir(name, strayDirSuffix) {
		tp, ok = parsePartitionDir(name)
	}
	if !ok {
		m.log.Warn("not a partition's directory, leaving it alone", "dir", d.path, "name", name)
	}
	return tp, false, ok
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

func (m *Manager) loadLog(l *Log, at loadState) error {
	if err := l.load(at); err != nil {
		return fmt.Errorf("load log %s/%s: %w", l.dir.path, *l.name.Load(), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded = append(m.loaded, l)
	return nil
}
