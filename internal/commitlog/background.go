package commitlog

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"klamm/internal/cluster"
)

// A log's leader-epoch and index files may lag behind: a burst of first appends, or of new leaders, should not pay for them. They are written
// when burstPause has gone by without another log, and after lateDelay at the latest.
const (
	burstPause = 250 * time.Millisecond
	lateDelay  = 2 * time.Second
)

// workQueue holds what appends and failures leave to Run. Each log is in a set at most once, so the queue is bounded by the logs.
type workQueue struct {
	mu       sync.Mutex // guards what follows
	failed   []*logDir
	flush    map[*Log]int64 // flush up to this offset
	late     map[*Log]struct{}
	wake     chan struct{} // failed or flush has grown
	lateWake chan struct{}
}

func (q *workQueue) init() {
	q.flush, q.late = map[*Log]int64{}, map[*Log]struct{}{}
	q.wake, q.lateWake = make(chan struct{}, 1), make(chan struct{}, 1)
}

// signal makes the receiver look again; a signal that is already pending is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (m *Manager) dirFailed(d *logDir) {
	m.queue.mu.Lock()
	m.queue.failed = append(m.queue.failed, d)
	m.queue.mu.Unlock()
	signal(m.queue.wake)
}

// flushSoon asks for a log to be flushed up to an offset, after a roll.
func (m *Manager) flushSoon(l *Log, offset int64) {
	if l.future.Load() {
		return // its Move flushes it
	}
	m.queue.mu.Lock()
	m.queue.flush[l] = max(m.queue.flush[l], offset)
	m.queue.mu.Unlock()
	signal(m.queue.wake)
}

// later asks for a log's leader-epoch file to be written in a while.
func (m *Manager) later(l *Log) {
	m.queue.mu.Lock()
	m.queue.late[l] = struct{}{}
	m.queue.mu.Unlock()
	signal(m.queue.lateWake)
}

func (q *workQueue) take() (failed []*logDir, flush map[*Log]int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	failed, flush = q.failed, q.flush
	q.failed, q.flush = nil, map[*Log]int64{}
	return failed, flush
}

func (q *workQueue) takeLate() map[*Log]struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	late := q.late
	q.late = map[*Log]struct{}{}
	return late
}

// Run does the background work until ctx ends: flushes after rolls and by time, retention, checkpoints, removal of deleted directories and
// segments, compaction, and what follows from a dir's failure. Errors of single logs fail their dirs, not Run.
func (m *Manager) Run(ctx context.Context) error {
	for _, d := range m.dirs {
		if e := d.failure.Load(); e != nil && d.fs == nil {
			m.o.OnDirFailure(d.path, e.Err)
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { m.serveQueue(ctx); return nil })
	g.Go(func() error { m.serveLate(ctx); return nil })
	g.Go(func() error { m.serveSettling(ctx); return nil })
	g.Go(func() error { m.serveRemovals(ctx); return nil })
	g.Go(func() error { m.serveCleaner(ctx); return nil })
	periodic := func(interval time.Duration, work func(*Log)) {
		g.Go(func() error { m.every(ctx, interval, work); return nil })
	}
	periodic(m.o.RetentionInterval, m.retain)
	periodic(m.o.FlushInterval, func(l *Log) { m.report(l, "flush", l.maybeFlushByTime(time.Now().UnixMilli())) })
	periodic(m.o.ProducerIDCheckInterval, func(l *Log) { l.expireProducers(time.Now().UnixMilli(), m.producerExpiry()) })
	g.Go(func() error { m.checkpointEvery(ctx, m.o.CheckpointInterval, m.checkpointRecoveryPoints); return nil })
	g.Go(func() error {
		m.checkpointEvery(ctx, m.o.LogStartCheckpointInterval, m.checkpointLogStarts)
		return nil
	})
	return g.Wait()
}

// every calls work for every log: first after the initial task delay, then at the interval.
func (m *Manager) every(ctx context.Context, interval time.Duration, work func(*Log)) {
	for delay := max(m.o.InitialTaskDelay, time.Millisecond); pause(ctx, delay); delay = interval {
		for _, l := range m.liveLogs() {
			if ctx.Err() != nil {
				return
			}
			work(l)
		}
	}
}

func (m *Manager) checkpointEvery(ctx context.Context, interval time.Duration, write func(*logDir, []*Log) error) {
	for delay := max(m.o.InitialTaskDelay, time.Millisecond); pause(ctx, delay); delay = interval {
		for _, d := range m.dirs {
			if err := write(d, m.logsIn(d)); err != nil {
				m.log.Error("write checkpoint", "dir", d.path, "err", err)
			}
		}
	}
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// report logs an error of background work on a log. What was deleted meanwhile is no error.
func (m *Manager) report(l *Log, what string, err error) {
	if err == nil || l.gone.Load() {
		return
	}
	m.log.Error(what, "partition", l.tp.String(), "dir", l.dir.path, "errno", errno(err), "err", err)
}

func (m *Manager) retain(l *Log) {
	n, err := l.applyRetention(time.Now().UnixMilli())
	m.report(l, "retention", err)
	if n > 0 {
		m.log.Info("deleted old segments", "partition", l.tp.String(), "segments", n, "offset", l.LogStartOffset())
	}
}

func (m *Manager) serveQueue(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.queue.wake:
		}
		failed, flush := m.queue.take()
		for _, d := range failed {
			m.leaveDir(d)
		}
		for l, offset := range flush {
			if l.usable() == nil {
				m.report(l, "flush", l.ioError(l.flushTo(offset)))
			}
		}
	}
}

// leaveDir drops a failed dir's logs.
func (m *Manager) leaveDir(d *logDir) {
	cause := d.failure.Load().Err
	var dropped []*Log
	m.mu.Lock()
	for _, in := range []map[cluster.TopicPartition]*Log{m.logs, m.futures} {
		for tp, l := range in {
			if l.dir == d {
				dropped = append(dropped, l)
				delete(in, tp)
			}
		}
	}
	d.logs = 0
	m.mu.Unlock()
	m.log.Error("log dir failed, its replicas are offline", "dir", d.path, "logs", len(dropped), "errno", errno(cause), "err", cause)
	for _, l := range dropped {
		for _, s := range *l.segments.Load() {
			s.drop()
		}
	}
	if err := d.closeHandles(); err != nil {
		m.log.Warn("close a failed log dir", "dir", d.path, "err", err)
	}
	m.o.OnDirFailure(d.path, cause)
}

func (m *Manager) serveLate(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.queue.lateWake:
		}
		if !m.awaitBurst(ctx) {
			return
		}
		for l := range m.queue.takeLate() {
			m.report(l, "write leader-epoch-checkpoint", l.ioError(l.saveLater()))
		}
	}
}

// awaitBurst returns once no log has asked for its late files for a while; false when ctx ended first.
func (m *Manager) awaitBurst(ctx context.Context) bool {
	for end := time.Now().Add(lateDelay); time.Now().Before(end); {
		if !pause(ctx, burstPause) {
			return false
		}
		select {
		case <-m.queue.lateWake:
		default:
			return true
		}
	}
	return true
}

// never is a time that does not come.
var never = time.UnixMilli(math.MaxInt64 / 2)
