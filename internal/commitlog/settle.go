package commitlog

import (
	"context"
	"os"
	"time"

	"klamm/internal/vfs"
)

const (
	// settleAfter is how long a log must have been silent before it is settled for the first time. Each time it is settled doubles that, up to
	// settleDoublings times: a log that takes a record now and then costs its files a dozen needless writes in the process's life, not one
	// for each record.
	settleAfter     = 5 * time.Second
	settleDoublings = 8
	// settleInterval is how often silent logs are looked for.
	settleInterval = time.Second
	// settleBurst logs are settled at once, then others have settlePause: a thousand a second at most.
	settleBurst = 32
	settlePause = 32 * time.Millisecond
)

// serveSettling does for logs that have fallen silent what Close would have to do for each of them, so that a broker that stops finds work
// in those only that were written to lately.
func (m *Manager) serveSettling(ctx context.Context) {
	for pause(ctx, settleInterval) {
		settled := 0
		for _, l := range m.liveLogs() {
			did, err := l.maybeSettle(time.Now())
			m.report(l, "settle", err)
			if !did {
				continue
			}
			if settled++; settled%settleBurst == 0 && !pause(ctx, settlePause) {
				return
			}
		}
	}
}

// maybeSettle settles the log if it has been silent for long enough. A log that somebody works on is not.
func (l *Log) maybeSettle(now time.Time) (bool, error) {
	if !l.mu.TryLock() {
		return false, nil
	}
	names, err := l.settleLocked(now)
	l.mu.Unlock()
	if err == nil {
		err = l.writeBack(names) // waits for room in the disk's queue, so not under mu
	}
	return names != nil, l.ioError(err)
}

// settleLocked completes the files as they are now and returns the names of what may not be on the disk yet, none when there is nothing
// to settle. The snapshot of the settling before goes: only the newest is of use to a clean start. With mu held.
func (l *Log) settleLocked(now time.Time) (names []string, err error) {
	silent := now.UnixMilli() - l.touchedMs
	if !l.touched || !l.onDisk.Load() || l.future.Load() || l.usable() != nil || silent < (settleAfter<<l.settled).Milliseconds() {
		return nil, nil
	}
	l.settled = min(l.settled+1, settleDoublings)
	end := l.LogEndOffset()
	base := l.active().base
	names = []string{
		fileName(base, logSuffix), fileName(base, indexSuffix), fileName(base, timeIndexSuffix), fileName(end, snapshotSuffix), leaderEpochFile,
		partitionMetaFile,
	}
	if err := l.writeRest(); err != nil {
		return names, err
	}
	return names, l.removeStraySnapshots(end)
}

// writeBack lets the system begin to write files to the disk. Nothing becomes durable by it; the sync of Close has less to wait for.
func (l *Log) writeBack(names []string) error {
	for _, name := range names {
		f, err := l.dir.fs.OpenFile(l.path(name), os.O_RDONLY, 0)
		if isNotExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		vfs.WriteBack(f)
		_ = f.Close() // only read
	}
	return nil
}
