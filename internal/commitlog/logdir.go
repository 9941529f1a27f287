package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

// logDir is one log dir.
type logDir struct {
	m    *Manager
	path string
	fs   vfs.FS // nil when the dir was offline from the start

	failure atomic.Pointer[StorageError] // set once; the dir is offline then
	lock    io.Closer
	logs    int // how many logs lie here; guarded by Manager.mu
	// ahead is what SyncAhead met; nil when all went well.
	ahead atomic.Pointer[error]

	checkpoints struct {
		sync.Mutex                   // serialises writers of the dir's checkpoint files, across the writes
		written    map[string][]byte // what the files hold; a missing file holds no entries
	}
}

func (d *logDir) online() bool { return d.failure.Load() == nil }

// usable is nil while the dir is online.
func (d *logDir) usable() error {
	if e := d.failure.Load(); e != nil {
		return e
	}
	return nil
}

// fail takes the dir offline, once, and returns the error to answer with.
func (d *logDir) fail(err error) *StorageError {
	e := &StorageError{Dir: d.path, Err: err}
	if !d.failure.CompareAndSwap(nil, e) {
		return e
	}
	d.m.dirFailed(d)
	return e
}

// writeCheckpoint replaces a checkpoint file durably, unless it holds the same already: an entry per log on disk for which offset has one.
// The offsets are read under the file's lock, so that an older picture never replaces a newer one.
func (d *logDir) writeCheckpoint(name string, logs []*Log, offset func(*Log) (int64, bool)) error {
	if !d.online() {
		return nil
	}
	d.checkpoints.Lock()
	defer d.checkpoints.Unlock()
	offsets := map[cluster.TopicPartition]int64{}
	for _, l := range logs {
		if o, ok := offset(l); ok && l.onDisk.Load() {
			offsets[l.tp] = o
		}
	}
	data := encodeOffsets(offsets)
	if last, ok := d.checkpoints.written[name]; ok && bytes.Equal(last, data) {
		return nil
	}
	if err := vfs.WriteFileAtomic(d.fs, name, data); err != nil {
		return d.fail(fmt.Errorf("write checkpoint %s: %w", name, err))
	}
	d.checkpoints.written[name] = data
	return nil
}

// takeCleanMark reports whether the last shutdown was clean, and removes the mark: a crash while loading must not count as clean.
func (d *logDir) takeCleanMark() (bool, error) {
	err := d.fs.Remove(cleanShutdownFile)
	if isNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, d.fs.SyncDir(".")
}

func (d *logDir) writeCleanMark() error {
	return errors.Join(vfs.WriteFileSync(d.fs, cleanShutdownFile, []byte(cleanShutdownMark)), d.fs.SyncDir("."))
}

// closeHandles gives the lock and the directory back.
func (d *logDir) closeHandles() error {
	var errs []error
	if d.lock != nil {
		errs = append(errs, d.lock.Close())
		d.lock = nil
	}
	if d.fs != nil {
		errs = append(errs, d.fs.Close())
	}
	return errors.Join(errs...)
}
