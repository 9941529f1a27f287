package commitlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"time"

	"klamm/internal/cluster"
)

// Delete takes partitions' logs away: each directory is renamed to "<topic>-<p>.<uuid>-delete" and removed after the delete delay. The result
// has the partitions whose rename failed; their logs go on serving. When it returns, the renames are durable. Partitions without a log are
// no failure here: the caller checks HasOfflineDir, since the replica may lie in a failed dir. A copy on its way to another dir goes first:
// a crash in between leaves a log, which is deleted when the controller asks again, not a copy of nothing.
func (m *Manager) Delete(tps []cluster.TopicPartition) map[cluster.TopicPartition]error {
	failed := map[cluster.TopicPartition]error{}
	renamed := map[*logDir]int{} // how many
	for _, tp := range tps {
		m.mu.RLock()
		logs := [...]*Log{m.futures[tp], m.logs[tp]}
		m.mu.RUnlock()
		for _, l := range logs {
			if l == nil {
				continue
			}
			if err := m.takeAway(l, renamed); err != nil {
				failed[tp] = err
				break
			}
		}
	}
	m.settleRenames(renamed)
	return failed
}

// takeAway deletes one log, up to the dir's settling.
func (m *Manager) takeAway(l *Log, renamed map[*logDir]int) error {
	onDisk, err := l.renameAway()
	if err != nil {
		m.log.Warn("cannot delete a log, it stays", "partition", l.tp.String(), "dir", l.dir.path, "errno", errno(err), "err", err)
		return err
	}
	m.forget(l)
	if onDisk {
		renamed[l.dir]++
		m.removeLater(l.dir, *l.name.Load())
	}
	return nil
}

func (m *Manager) settleRenames(renamed map[*logDir]int) {
	for d := range renamed {
		if err := m.settleDeletes(d); err != nil {
			m.log.Error("settle deletions", "dir", d.path, "err", err)
		}
	}
}

// settleDeletes makes renames durable and takes the deleted logs out of the checkpoints, once per dir and batch.
func (m *Manager) settleDeletes(d *logDir) error {
	if err := d.fs.SyncDir("."); err != nil {
		return d.fail(err)
	}
	logs := m.logsIn(d)
	return errors.Join(m.checkpointRecoveryPoints(d, logs), m.checkpointLogStarts(d, logs), m.checkpointCleaned(d, logs))
}

// renameAway ends the log's life. With mu held no append, roll or truncation is under way, and gone makes a flush or read that meets the
// vanished names harmless (Kafka: KAFKA-15391 failed the log dir instead).
func (l *Log) renameAway() (onDisk bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.renameAwayLocked()
}

func (l *Log) renameAwayLocked() (onDisk bool, err error) {
	if l.gone.Load() {
		return false, nil
	}
	if err := l.dir.usable(); err != nil {
		return false, err
	}
	l.gone.Store(true)
	if l.onDisk.Load() {
		err := l.rename(deleteDirName(l.tp))
		switch {
		case isNotExist(err): // somebody removed it by hand: nothing is left to delete
			l.onDisk.Store(false)
		case err != nil:
			l.gone.Store(false)
			if sickDisk(err) {
				return false, l.dir.fail(err)
			}
			return false, &StorageError{Dir: l.dir.path, Err: err}
		}
	}
	for _, s := range *l.segments.Load() {
		s.drop()
	}
	return l.onDisk.Load(), nil
}

// PendingDelete is a directory that waits for its removal.
type PendingDelete struct {
	Dir   string // path of the log dir
	Name  string
	Since time.Time // renamed, or found at start
	Err   error     // of the last try to remove it, nil before the first
}

// removal is a directory or some files on their way out.
type removal struct {
	dir   *logDir
	name  string   // of the directory, "" when files are meant
	log   *Log     // whose files
	files []string // names in the log's directory
	since time.Time
	due   time.Time
	tries int
	err   error
}

// removals is the queue of physical removals. Failed ones are tried again with growing pauses, for ever: they stop nothing.
type removals struct {
	mu   sync.Mutex // guards what follows; no IO under it
	list []*removal
	wake chan struct{}
}

// Pauses between tries to remove something.
const (
	removalRetryFirst = time.Second
	removalRetryMax   = 5 * time.Minute
	// removalPace and removalPause leave the disk to the clients: that many files, then that long nothing.
	removalPace  = 128
	removalPause = 5 * time.Millisecond
)

func (r *removals) init() { r.wake = make(chan struct{}, 1) }

func (r *removals) add(x *removal) {
	r.mu.Lock()
	r.list = append(r.list, x)
	r.mu.Unlock()
	signal(r.wake)
}

// next returns a removal that is due, or when the first one will be.
func (r *removals) next(now time.Time) (*removal, time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := never
	for _, x := range r.list {
		if !x.due.After(now) {
			return x, now
		}
		if x.due.Before(first) {
			first = x.due
		}
	}
	return nil, first
}

func (r *removals) done(x *removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(y *removal) bool { return x == y })
}

// retry puts a failed removal off.
func (r *removals) retry(x *removal, err error) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := min(removalRetryFirst<<min(x.tries, 20), removalRetryMax)
	x.tries++
	x.err, x.due = err, time.Now().Add(wait)
	return wait
}

// removeLater queues a "-delete" directory.
func (m *Manager) removeLater(d *logDir, name string) {
	now := time.Now()
	m.removal.add(&removal{dir: d, name: name, since: now, due: now.Add(m.o.DeleteDelay())})
}

// unlinkLater queues a dropped segment's files, already renamed.
func (m *Manager) unlinkLater(l *Log, s *segment, delay time.Duration) {
	now := time.Now()
	x := &removal{dir: l.dir, log: l, since: now, due: now.Add(delay)}
	for _, kind := range []string{logSuffix, indexSuffix, timeIndexSuffix, txnIndexSuffix} {
		x.files = append(x.files, fileName(s.base, kind+deletedSuffix))
	}
	m.removal.add(x)
}

// PendingDeletes lists the directories that wait for their removal, by dir and name.
func (m *Manager) PendingDeletes() []PendingDelete {
	m.removal.mu.Lock()
	var out []PendingDelete
	for _, x := range m.removal.list {
		if x.name != "" {
			out = append(out, PendingDelete{Dir: x.dir.path, Name: x.name, Since: x.since, Err: x.err})
		}
	}
	m.removal.mu.Unlock()
	slices.SortFunc(out, func(a, b PendingDelete) int {
		return slices.Compare([]string{a.Dir, a.Name}, []string{b.Dir, b.Name})
	})
	return out
}

func (m *Manager) serveRemovals(ctx context.Context) {
	if !pause(ctx, max(m.o.InitialTaskDelay, time.Millisecond)) {
		return
	}
	pacer := &pacer{ctx: ctx}
	for {
		x, due := m.removal.next(time.Now())
		if x != nil {
			m.remove(x, pacer)
			if ctx.Err() != nil {
				return
			}
			continue
		}
		t := time.NewTimer(time.Until(due))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-m.removal.wake:
			t.Stop()
		case <-t.C:
		}
	}
}

// remove tries one removal.
func (m *Manager) remove(x *removal, p *pacer) {
	if !x.dir.online() {
		m.removal.done(x) // found again at the next start
		return
	}
	var err error
	if x.name != "" {
		err = removeTree(x.dir, x.name, p)
	} else {
		for _, f := range x.files {
			err = errors.Join(err, removeIfThere(p.remove(x.dir, x.log.path(f))))
		}
	}
	if err == nil {
		m.removal.done(x)
		return
	}
	wait := m.removal.retry(x, err)
	m.log.Warn("cannot remove a deleted log's files, trying again", "dir", x.dir.path, "name", removalName(x), "errno", errno(err), "err", err, "wait", wait)
}

func removalName(x *removal) string {
	if x.name != "" {
		return x.name
	}
	return x.log.path(x.files[0])
}

// removeTree removes a partition's directory file by file.
func removeTree(d *logDir, name string, p *pacer) error {
	entries, err := d.fs.ReadDir(name)
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		inner := path.Join(name, e.Name())
		if e.IsDir() {
			errs = append(errs, removeTree(d, inner, p))
			continue
		}
		errs = append(errs, removeIfThere(p.remove(d, inner)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("empty %s: %w", name, err)
	}
	return removeIfThere(p.remove(d, name))
}

// pacer spreads removals over time.
type pacer struct {
	ctx context.Context
	n   int
}

func (p *pacer) remove(d *logDir, name string) error {
	if p.n++; p.n%removalPace == 0 && !pause(p.ctx, removalPause) {
		return &fs.PathError{Op: "remove", Path: name, Err: os.ErrDeadlineExceeded}
	}
	return d.fs.Remove(name)
}
