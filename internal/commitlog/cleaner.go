package commitlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"klamm/internal/config"
)

// serveCleaner compacts logs one after another while any is dirty enough, then rests (Kafka: LogCleaner).
func (m *Manager) serveCleaner(ctx context.Context) {
	if !m.o.CleanerEnable {
		return
	}
	for pause(ctx, m.o.CleanerBackoff()) {
		for ctx.Err() == nil {
			l, job := m.dirtiest()
			if l == nil {
				break
			}
			began, before := time.Now(), l.Size()
			err := l.clean(ctx, job, m.o.CleanerDedupeBytes())
			if err != nil && !errors.Is(err, errCleanAborted) {
				m.report(l, "compact", l.ioError(err))
				l.uncleanable.Store(true) // until the next start, as Kafka marks it
				continue
			}
			if err == nil {
				m.log.Info("compacted a log", "partition", l.tp.String(), "offset", l.cleaned.Load(), "from", before, "to", l.Size(), "duration", time.Since(began))
			}
			if err := m.checkpointCleaned(l.dir, m.logsIn(l.dir)); err != nil {
				m.log.Error("write checkpoint", "dir", l.dir.path, "err", err)
			}
			if err != nil {
				break // deleted or truncated under the cleaner's hands: look again after the pause
			}
		}
	}
}

// errCleanAborted ends a cleaning whose log changed or whose broker stops. Nothing is lost but the work.
var errCleanAborted = errors.New("compaction aborted")

// cleanJob is what to compact: records from dirty up to below the upper bound are new; everything below it is rewritten.
type cleanJob struct {
	dirty, upper int64
	ratio        float64
}

// dirtiest picks the log with the largest share of dirty bytes among those that have enough, or whose records waited too long.
func (m *Manager) dirtiest() (*Log, cleanJob) {
	var best *Log
	var job cleanJob
	now := time.Now().UnixMilli()
	for _, l := range m.Logs() {
		cfg := l.cfg.Load()
		if !cfg.Compact || !l.onDisk.Load() || l.uncleanable.Load() || m.isMoving(l.tp) {
			continue
		}
		j, overdue, err := l.cleanable(cfg, now)
		if err != nil {
			m.report(l, "compact", l.ioError(err))
			continue
		}
		if j.upper <= j.dirty || j.ratio <= cfg.MinCleanableDirtyRatio && !overdue {
			continue
		}
		if best == nil || j.ratio > job.ratio {
			best, job = l, j
		}
	}
	return best, job
}

// cleanable tells what of a log can be compacted now: nothing of the active segment, nothing unstable or unreplicated, nothing younger than
// min.compaction.lag.ms (Kafka: LogCleanerManager.cleanableOffsets).
func (l *Log) cleanable(cfg *config.LogConfig, nowMs int64) (job cleanJob, overdue bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := *l.segments.Load()
	start := l.start.Load()
	job.dirty = l.cleaned.Load()
	if job.dirty < start || job.dirty > list[len(list)-1].base {
		job.dirty = start
	}
	job.upper = min(l.LastStableOffset(), list[len(list)-1].base)
	var clean, dirty int64
	for i, s := range list[:len(list)-1] {
		if list[i+1].base <= job.dirty {
			clean += s.size.Load()
			continue
		}
		if s.base >= job.upper {
			break
		}
		largest, err := s.largestTimestamp()
		if err != nil {
			return job, false, err
		}
		if lag := cfg.MinCompactionLag.Milliseconds(); lag > 0 && largest > nowMs-lag {
			job.upper = min(job.upper, s.base)
			break
		}
		if err := s.loadFirstTimestamp(); err != nil {
			return job, false, err
		}
		if first := s.firstTimestamp; first > 0 && nowMs-first > cfg.MaxCompactionLag.Milliseconds() {
			overdue = true
		}
		dirty += s.size.Load()
	}
	// The bound is a segment's start: a segment is compacted whole or not at all.
	job.upper = list[max(floorSegment(list, job.upper), 0)].base
	if dirty > 0 {
		job.ratio = float64(dirty) / float64(clean+dirty)
	}
	return job, overdue, nil
}

// clean compacts everything below the job's upper bound.
func (l *Log) clean(ctx context.Context, job cleanJob, dedupeBytes int64) error {
	done := func() error {
		if ctx.Err() != nil || l.usable() != nil {
			return errCleanAborted
		}
		return nil
	}
	list := *l.segments.Load()
	truncations := l.truncations.Load()
	latest, end, err := l.latestOffsets(list, job, dedupeBytes, done)
	if err != nil {
		return err
	}
	// What compaction rewrites must not be judged by a recovery point that is behind it: recovery takes its holes for losses where the
	// topic is no longer compacted.
	if err := l.m.checkpointRecoveryPoints(l.dir, l.m.logsIn(l.dir)); err != nil {
		return err
	}
	c := &compaction{log: l, latest: latest, below: end, upper: job.upper, nowMs: time.Now().UnixMilli(), cfg: l.cfg.Load(), done: done}
	c.txns.init()
	for _, group := range groupSegments(list, end, c.cfg) {
		if err := c.rewrite(group, truncations); err != nil {
			return err
		}
	}
	l.cleaned.Store(end)
	return nil
}

// groupSegments joins neighbouring segments below an offset whose sum fits into one (Kafka: Cleaner.groupSegmentsBySize).
func groupSegments(list []*segment, end int64, cfg *config.LogConfig) [][]*segment {
	var groups [][]*segment
	var size, offsets, times int64
	for i, s := range list {
		if s.base >= end || i == len(list)-1 {
			break
		}
		o, t := int64(s.offsets.count()*offsetEntryWidth), int64(s.times.count()*timeEntryWidth)
		n := len(groups)
		if n > 0 && size+s.size.Load() <= int64(cfg.SegmentBytes) && offsets+o <= int64(cfg.SegmentIndexBytes) &&
			times+t <= int64(cfg.SegmentIndexBytes) && groups[n-1][0].fits(list[i+1].base-1) {
			groups[n-1] = append(groups[n-1], s)
			size, offsets, times = size+s.size.Load(), offsets+o, times+t
			continue
		}
		groups = append(groups, []*segment{s})
		size, offsets, times = s.size.Load(), o, t
	}
	return groups
}

// swapIn puts a compacted segment in the place of its sources. A crash at any step leaves either them or it: loading finishes a ".swap".
// placed tells that the output is the log now, whatever error came after: its files must not be taken back.
func (l *Log) swapIn(cleaned *segment, group []*segment, truncations int64) (placed bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := *l.segments.Load()
	i := slices.Index(list, group[0])
	if l.usable() != nil || l.truncations.Load() != truncations || i < 0 || len(list) < i+len(group) || !slices.Equal(list[i:i+len(group)], group) {
		return false, errCleanAborted
	}
	if err := cleaned.rename(swapSuffix); err != nil {
		return false, err
	}
	if err := l.dir.fs.SyncDir(*l.name.Load()); err != nil {
		return false, err
	}
	// Readers must never find the group closed and nothing in its place: they would pass over what compaction has kept.
	cleaned.synced.Store(true)
	l.setSegments(slices.Replace(slices.Clone(list), i, i+len(group), cleaned))
	if err := l.discardDurably(group); err != nil {
		return true, err
	}
	if err := cleaned.rename(""); err != nil {
		return true, err
	}
	l.namesDirty.Store(true)
	gone := map[int64]bool{}
	for _, s := range group[1:] {
		gone[s.base] = true
	}
	return true, errors.Join(l.removeSnapshots(func(o int64) bool { return gone[o] }), l.dir.fs.SyncDir(*l.name.Load()))
}

// checkpointCleaned writes cleaner-offset-checkpoint.
func (m *Manager) checkpointCleaned(d *logDir, logs []*Log) error {
	return d.writeCheckpoint(cleanerFile, logs, func(l *Log) (int64, bool) {
		cleaned := l.cleaned.Load()
		return cleaned, cleaned > 0
	})
}

// removeCleaned takes back an unfinished output.
func removeCleaned(s *segment) error {
	s.drop()
	var errs []error
	for _, kind := range []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix} {
		errs = append(errs, removeIfThere(s.log.dir.fs.Remove(s.path(kind))))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove unfinished compaction: %w", err)
	}
	return nil
}
