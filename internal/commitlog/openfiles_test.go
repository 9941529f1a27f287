package commitlog

import (
	"io/fs"
	"sync"
	"syscall"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

// countingFS counts the files that are open, and the most that ever were.
type countingFS struct {
	vfs.FS
	count *openFiles
}

type openFiles struct {
	mu        sync.Mutex
	now, most int
}

func (c *openFiles) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += n
	c.most = max(c.most, c.now)
}

func (c countingFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	c.count.add(1)
	return countedFile{f, c.count}, nil
}

type countedFile struct {
	vfs.File
	count *openFiles
}

func (f countedFile) Close() error {
	f.count.add(-1)
	return f.File.Close()
}

// One descriptor for each log and a few in passing: 10,000 partitions fit the limit of a usual shell.
func TestALogKeepsOneFileOpenThroughStopAndCrash(t *testing.T) {
	const partitions, passing = 100, 40
	count := &openFiles{}
	b := newBroker(t, countingFS{vfs.NewMem(), count})
	b.opts.Log = quiet
	b.open()
	logs := func(do func(l *Log) error) {
		for p := range int32(partitions) {
			if err := do(b.log("t", p)); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(l *Log) error {
		_, err := l.AppendAsLeader(batchOf(2, 100, nowMs), AppendOptions{})
		return err
	}
	logs(write)
	logs((*Log).saveLater)
	b.close()
	b.open()
	logs(write)
	b.kill()
	for _, l := range b.liveLogs() {
		l.release()
	}
	b.open()
	logs(write)
	logs(func(l *Log) error { _, err := l.TruncateTo(1); return err })
	if count.most > partitions+passing {
		t.Errorf("%d files open at once with %d logs", count.most, partitions)
	}
	b.close()
	if count.now != 0 {
		t.Errorf("%d files are open after close", count.now)
	}
}

func TestALogDirStaysOnlineWhenTooManyFilesAreOpen(t *testing.T) {
	full := false
	b := newBroker(t, vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
		if full && (op.Kind == vfs.OpOpen || op.Kind == vfs.OpCreate) {
			return syscall.EMFILE
		}
		return nil
	}))
	b.opts.Log = quiet
	b.open()
	full = true
	if _, err := b.log("t", 0).AppendAsLeader(batchOf(1, 10, nowMs), AppendOptions{}); Code(err) != cluster.KafkaStorageError {
		t.Errorf("append with too many open files: %v", err)
	}
	full = false
	mustAppend(t, b.log("t", 0), batchOf(1, 10, nowMs))
	b.close()
	b.open()
	if end := b.log("t", 0).LogEndOffset(); end != 1 {
		t.Errorf("the log ends at %d", end)
	}
}
