package commitlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

// Manager holds all logs of a broker (Kafka: LogManager). Safe for concurrent use.
type Manager struct {
	o    Options
	log  *slog.Logger
	dirs []*logDir

	mu        sync.RWMutex // guards the fields below and logDir.logs; no IO under it
	logs      map[cluster.TopicPartition]*Log
	futures   map[cluster.TopicPartition]*Log   // copies on their way to another dir
	preferred map[cluster.TopicPartition]string // where a log that does not exist yet is wanted
	loaded    []*Log                            // by Open, until placeLoaded gives them their places

	closed  atomic.Bool
	ahead   sync.WaitGroup // what SyncAhead began
	queue   workQueue
	removal removals
}

// DirStatus describes a log dir.
type DirStatus struct {
	Path   string
	Online bool
	Err    error     // why it is offline
	Usage  vfs.Usage // of its volume; -1 where unknown
	Logs   int       // number of logs in it
}

// Get returns a partition's log. Logs of a failed dir are not found.
func (m *Manager) Get(tp cluster.TopicPartition) (*Log, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	l, ok := m.logs[tp]
	if !ok || l.gone.Load() || !l.dir.online() {
		return nil, false
	}
	return l, true
}

// GetOrCreate returns the partition's log, or a new one in the dir that PreferDir named, else in the online dir with the fewest logs. A replica that is not new (isNew false) is
// not created while a dir is offline, since it may lie there: *StorageError. A log without topic id takes the given one (zero is allowed and
// means unknown); another id is ErrInconsistentTopicID. No file is touched before the first append.
func (m *Manager) GetOrCreate(tp cluster.TopicPartition, id cluster.TopicID, isNew bool) (*Log, error) {
	for {
		l, err := m.findOrAdd(tp, id, isNew)
		if err != nil {
			return nil, err
		}
		l.mu.Lock() // a deletion under way holds it until the name is free
		gone := l.gone.Load()
		l.mu.Unlock()
		if gone {
			m.forget(l)
			continue
		}
		if !id.IsZero() {
			if err := l.AssignTopicID(id); err != nil {
				return nil, err
			}
		}
		return l, nil
	}
}

func (m *Manager) findOrAdd(tp cluster.TopicPartition, id cluster.TopicID, isNew bool) (*Log, error) {
	m.mu.RLock()
	l, ok := m.logs[tp]
	m.mu.RUnlock()
	if ok && l.dir.online() {
		return l, nil
	}
	cfg := m.o.LogConfig(tp.Topic)
	m.mu.Lock()
	defer m.mu.Unlock()
	if l, ok = m.logs[tp]; ok && l.dir.online() {
		return l, nil
	}
	var best *logDir
	for _, d := range m.dirs {
		if !d.online() {
			if !isNew {
				return nil, &StorageError{Dir: d.path, Err: fmt.Errorf("can't create log for %s because the log dir is offline and may hold it: %w", tp, d.failure.Load().Err)}
			}
			continue
		}
		if best == nil || d.logs < best.logs {
			best = d
		}
	}
	if d := m.dirOf(m.preferred[tp]); d != nil && d.online() {
		best = d
	}
	if best == nil {
		return nil, &StorageError{Dir: m.dirs[0].path, Err: fmt.Errorf("no log dir is online")}
	}
	delete(m.preferred, tp)
	l = newLog(m, best, tp, id, cfg)
	m.addLocked(l)
	return l, nil
}

func (m *Manager) addLocked(l *Log) {
	m.logs[l.tp] = l
	l.dir.logs++
}

// forget takes a log out of the map, unless another has taken its place.
func (m *Manager) forget(l *Log) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, in := range []map[cluster.TopicPartition]*Log{m.logs, m.futures} {
		if in[l.tp] == l {
			delete(in, l.tp)
			l.dir.logs--
		}
	}
}

// Logs returns all logs in online dirs, sorted by partition.
func (m *Manager) Logs() []*Log {
	out := m.liveLogs()
	slices.SortFunc(out, func(a, b *Log) int { return a.tp.Compare(b.tp) })
	return out
}

// liveLogs is Logs in no order, for work that is done often.
func (m *Manager) liveLogs() []*Log {
	m.mu.RLock()
	out := slices.AppendSeq(make([]*Log, 0, len(m.logs)), maps.Values(m.logs))
	m.mu.RUnlock()
	return slices.DeleteFunc(out, func(l *Log) bool { return l.gone.Load() || !l.dir.online() })
}

// logsIn returns the logs of a dir, copies on their way into it among them.
func (m *Manager) logsIn(d *logDir) []*Log {
	return slices.DeleteFunc(append(m.liveLogs(), m.Futures()...), func(l *Log) bool { return l.dir != d })
}

// Dirs describes the log dirs in configured order.
func (m *Manager) Dirs() []DirStatus {
	out := make([]DirStatus, 0, len(m.dirs))
	for _, d := range m.dirs {
		s := DirStatus{Path: d.path, Online: d.online(), Usage: vfs.Usage{Total: -1, Usable: -1}}
		if e := d.failure.Load(); e != nil {
			s.Err = e.Err
		} else if u, err := d.fs.Usage(); err == nil {
			s.Usage = u
		}
		m.mu.RLock()
		s.Logs = d.logs
		m.mu.RUnlock()
		out = append(out, s)
	}
	return out
}

// IsDirOnline reports whether the log dir of that path works.
func (m *Manager) IsDirOnline(path string) bool {
	d := m.dirOf(path)
	return d != nil && d.online()
}

// dirOf finds a log dir by its path, nil when there is none.
func (m *Manager) dirOf(path string) *logDir {
	for _, d := range m.dirs {
		if d.path == path {
			return d
		}
	}
	return nil
}

// HasOfflineDir reports whether any log dir has failed: then an unknown replica may lie in it.
func (m *Manager) HasOfflineDir() bool {
	return slices.ContainsFunc(m.dirs, func(d *logDir) bool { return !d.online() })
}

// UpdateConfig re-reads the configuration of one topic's logs.
func (m *Manager) UpdateConfig(topic string) {
	cfg := m.o.LogConfig(topic)
	for _, l := range append(m.liveLogs(), m.Futures()...) {
		if l.tp.Topic == topic {
			l.cfg.Store(cfg)
		}
	}
}

// UpdateAllConfigs re-reads the configuration of all logs, after the broker's defaults changed.
func (m *Manager) UpdateAllConfigs() {
	for _, l := range append(m.liveLogs(), m.Futures()...) {
		cfg := m.o.LogConfig(l.tp.Topic)
		l.cfg.Store(cfg)
	}
}

func (m *Manager) producerExpiry() time.Duration { return m.o.ProducerIDExpiration() }

// CheckpointHighWatermarks writes replication-offset-checkpoint of every dir from the logs' high watermarks.
func (m *Manager) CheckpointHighWatermarks() error {
	if m.closed.Load() {
		return nil // Close has written them
	}
	var errs []error
	for _, d := range m.dirs {
		errs = append(errs, m.checkpointHighWatermarks(d, m.logsIn(d)))
	}
	return errors.Join(errs...)
}

func (m *Manager) checkpointHighWatermarks(d *logDir, logs []*Log) error {
	return d.writeCheckpoint(highWatermarkFile, logs, func(l *Log) (int64, bool) { return l.HighWatermark(), true })
}

// checkpointRecoveryPoints writes a dir's recovery points.
func (m *Manager) checkpointRecoveryPoints(d *logDir, logs []*Log) error {
	return d.writeCheckpoint(recoveryPointFile, logs, func(l *Log) (int64, bool) { return l.RecoveryPoint(), true })
}

// checkpointLogStarts writes the start offsets that the first segment's name does not tell.
func (m *Manager) checkpointLogStarts(d *logDir, logs []*Log) error {
	return d.writeCheckpoint(logStartFile, logs, func(l *Log) (int64, bool) {
		start := l.LogStartOffset()
		return start, start > (*l.segments.Load())[0].base
	})
}

// SyncAhead begins to make durable what has been written so far, where much of it is not: a broker that is about to stop does this while
// it still serves, and Close then has little left to sync. Close waits for it, and tells what went wrong.
func (m *Manager) SyncAhead() {
	for _, d := range m.dirs {
		if !d.online() {
			continue
		}
		behind := 0
		for _, l := range m.logsIn(d) {
			if l.recovery.Load() < l.LogEndOffset() {
				behind++
			}
		}
		if behind < manyLogs {
			continue
		}
		m.ahead.Go(func() {
			if err := d.fs.SyncAll(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				d.ahead.Store(&err)
			}
		})
	}
}

// Close makes everything durable, completes the files and leaves the clean-shutdown mark in every dir where that went well. Call it after
// Run has returned. When ctx ends first, the remaining logs are left as they are and their dirs without the mark.
func (m *Manager) Close(ctx context.Context) error {
	if m.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, d := range m.dirs {
		if d.online() {
			errs = append(errs, m.closeDir(ctx, d))
		}
		errs = append(errs, d.closeHandles())
	}
	return errors.Join(errs...)
}

// manyLogs is from how many unflushed logs on one sync of the volume is cheaper than syncing their files one by one.
const manyLogs = 16

func (m *Manager) closeDir(ctx context.Context, d *logDir) error {
	logs := m.logsIn(d)
	defer func() {
		for _, l := range logs {
			l.release()
		}
	}()
	if err := forEachLog(ctx, logs, "close", (*Log).complete); err != nil {
		return err
	}
	m.ahead.Wait()
	if err := flushCompleted(ctx, d, logs); err != nil {
		return err
	}
	err := errors.Join(m.checkpointRecoveryPoints(d, logs), m.checkpointLogStarts(d, logs), m.checkpointHighWatermarks(d, logs), m.checkpointCleaned(d, logs))
	if err != nil {
		return err
	}
	return d.writeCleanMark()
}

// flushCompleted makes the logs durable up to their ends.
func flushCompleted(ctx context.Context, d *logDir, logs []*Log) error {
	if err := d.ahead.Load(); err != nil {
		return *err // the system tells an error of writing back only once
	}
	dirty := slices.DeleteFunc(slices.Clone(logs), func(l *Log) bool { return l.recovery.Load() >= l.LogEndOffset() && !l.unsynced })
	if len(dirty) >= manyLogs {
		err := d.fs.SyncAll()
		if err == nil {
			for _, l := range dirty {
				l.recovery.Store(max(l.recovery.Load(), l.LogEndOffset()))
			}
			return nil
		}
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	return forEachLog(ctx, dirty, "flush", (*Log).flushRest)
}

// forEachLog runs work on logs in parallel: it mostly waits for the disk.
func forEachLog(ctx context.Context, logs []*Log, what string, work func(*Log) error) error {
	var g errgroup.Group
	g.SetLimit(4 * runtime.GOMAXPROCS(0))
	for _, l := range logs {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := work(l); err != nil {
				return fmt.Errorf("%s log %s: %w", what, l.tp, err)
			}
			return nil
		})
	}
	return g.Wait()
}
