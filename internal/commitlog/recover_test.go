package commitlog

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

func damage(t *testing.T, fsys vfs.FS, name string, edit func(f vfs.File, size int64) error) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err == nil {
		err = edit(f, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRecoveryCutsAtTheFirstBadBatch(t *testing.T) {
	tests := map[string]struct {
		edit func(f vfs.File, size int64) error
		want int64
	}{
		"torn last batch": {func(f vfs.File, size int64) error { return f.Truncate(size - 7) }, 18},
		"zeros behind":    {func(f vfs.File, size int64) error { return f.Truncate(size + 5000) }, 20},
		"garbage behind": {func(f vfs.File, size int64) error {
			_, err := f.WriteAt([]byte("garbage that is longer than a batch header, which has sixty-one bytes"), size)
			return err
		}, 20},
		"flipped bit in the middle": {func(f vfs.File, size int64) error {
			_, err := f.WriteAt([]byte{0xff}, size/2+80)
			return err
		}, 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t).open()
			l := b.log("t", 0)
			for range 10 {
				mustAppend(t, l, batchOf(2, 50, nowMs))
			}
			b.kill()
			damage(t, b.dirs[0], "t-0/00000000000000000000.log", tt.edit)
			b.open()
			l, _ = b.Get(tp("t", 0))
			if l.LogEndOffset() != tt.want {
				t.Errorf("end %d, want %d", l.LogEndOffset(), tt.want)
			}
			if d := cmp.Diff(offsets(0, tt.want), readAll(t, l, 0)); d != "" {
				t.Error(d)
			}
			mustAppend(t, l, batchOf(2, 50, nowMs))
			if d := cmp.Diff(offsets(0, tt.want+2), readAll(t, l, 0)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestBadIndexesAreRebuiltAfterACleanShutdown(t *testing.T) {
	tests := map[string]func(t *testing.T, fsys vfs.FS, base string){
		"missing offset index": func(t *testing.T, fsys vfs.FS, base string) {
			if err := fsys.Remove(base + indexSuffix); err != nil {
				t.Fatal(err)
			}
		},
		"missing time index": func(t *testing.T, fsys vfs.FS, base string) {
			if err := fsys.Remove(base + timeIndexSuffix); err != nil {
				t.Fatal(err)
			}
		},
		"odd size": func(t *testing.T, fsys vfs.FS, base string) {
			damage(t, fsys, base+indexSuffix, func(f vfs.File, size int64) error { return f.Truncate(size - 3) })
		},
		"preallocated and never trimmed": func(t *testing.T, fsys vfs.FS, base string) {
			damage(t, fsys, base+indexSuffix, func(f vfs.File, size int64) error { return f.Truncate(size + 8000) })
		},
		"missing epochs": func(t *testing.T, fsys vfs.FS, _ string) {
			if err := fsys.Remove("t-0/" + leaderEpochFile); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, hurt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t)
			b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 5000, 100
			b.open()
			l := b.log("t", 0)
			for i := range 60 {
				if _, err := l.AppendAsLeader(batchOf(2, 100, nowMs+int64(i)), AppendOptions{LeaderEpoch: cluster.LeaderEpoch(i / 20)}); err != nil {
					t.Fatal(err)
				}
			}
			b.close()
			index, err := vfs.ReadFile(b.dirs[0], "t-0/00000000000000000000.index")
			if err != nil {
				t.Fatal(err)
			}
			hurt(t, b.dirs[0], "t-0/00000000000000000000")
			b.open()
			l, _ = b.Get(tp("t", 0))
			if d := cmp.Diff(offsets(0, 120), readAll(t, l, 0)); d != "" {
				t.Error(d)
			}
			if e, end := l.OffsetForLeaderEpoch(1); e != 1 || end != 80 {
				t.Errorf("epoch 1 ends at %d %d, want 80", e, end)
			}
			b.close()
			again, err := vfs.ReadFile(b.dirs[0], "t-0/00000000000000000000.index")
			if err != nil || !cmp.Equal(index, again) {
				t.Errorf("index rebuilt differently: %x, want %x (%v)", again, index, err)
			}
		})
	}
}

// An index file that was made in advance and never written to is not taken for the index.
func TestTimestampsAreFoundAfterACrashAlthoughTheIndexFilesAreEmpty(t *testing.T) {
	b := newBroker(t)
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 1500, 100
	b.open()
	l := b.log("t", 0)
	for i := range 40 {
		mustAppend(t, l, batchOf(2, 100, nowMs+int64(i)))
		if err := l.saveLater(); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	b.kill()
	for _, s := range *l.segments.Load() {
		for _, suffix := range []string{indexSuffix, timeIndexSuffix} {
			damage(t, b.dirs[0], s.path(suffix), func(f vfs.File, _ int64) error { return f.Truncate(0) })
		}
	}
	b.open()
	l, _ = b.Get(tp("t", 0))
	for i, s := range *l.segments.Load() {
		if s.maxTimestamp < nowMs || s.times.count() == 0 && s != l.active() {
			t.Errorf("segment %d: largest timestamp %d, %d entries of the time index", i, s.maxTimestamp, s.times.count())
		}
	}
	if d := cmp.Diff(offsets(0, 80), readAll(t, l, 0)); d != "" {
		t.Error(d)
	}
}

func TestFlushedRecordsSurviveAPowerCut(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			b := newBroker(t)
			b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes, b.cfg.FlushMessages = 3000, 100, 1
			b.open()
			l := b.log("t", 0)
			var acked int64
			for i := range 20 + int(seed) {
				if i == 10 {
					b.cfg.FlushMessages = 1 << 40 // from here on nothing is promised
				}
				info := mustAppend(t, l, batchOf(2, 100, nowMs, idempotent(5, 0, int32(2*i))))
				if i < 10 {
					acked = info.LastOffset + 1
				}
			}
			b.powerCut(seed).open()
			l, ok := b.Get(tp("t", 0))
			if !ok {
				t.Fatal("the log is gone")
			}
			if l.LogEndOffset() < acked {
				t.Errorf("end %d, acknowledged up to %d", l.LogEndOffset(), acked)
			}
			if l.TopicID() != testID {
				t.Errorf("topic id %s", l.TopicID())
			}
			end := l.LogEndOffset()
			if d := cmp.Diff(offsets(0, end), readAll(t, l, 0)); d != "" {
				t.Error(d)
			}
			mustAppend(t, l, batchOf(2, 100, nowMs, idempotent(5, 0, int32(end))))
			b.close()
			b.open()
			l, _ = b.Get(tp("t", 0))
			if d := cmp.Diff(offsets(0, end+2), readAll(t, l, 0)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestADeletionSurvivesAPowerCut(t *testing.T) {
	for seed := range uint64(40) {
		b := newBroker(t).open()
		doomed, kept := b.log("doomed", 0), b.log("kept", 0)
		mustAppend(t, doomed, batchOf(2, 10, nowMs))
		mustAppend(t, kept, batchOf(3, 10, nowMs))
		if err := kept.Flush(); err != nil {
			t.Fatal(err)
		}
		if seed%2 == 0 {
			if err := doomed.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if failed := b.Delete([]cluster.TopicPartition{tp("doomed", 0)}); len(failed) > 0 {
			t.Fatal(failed)
		}
		b.powerCut(seed).open()
		if _, ok := b.Get(tp("doomed", 0)); ok {
			t.Fatalf("seed %d: the deleted log is back", seed)
		}
		if n := len(b.PendingDeletes()); n != 1 {
			t.Fatalf("seed %d: %d directories to remove", seed, n)
		}
		l, ok := b.Get(tp("kept", 0))
		if !ok || l.LogEndOffset() != 3 {
			t.Fatalf("seed %d: the other log lost records", seed)
		}
	}
}

func TestEveryPowerCutMomentLeavesALogThatOpens(t *testing.T) {
	b := newBroker(t)
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 1500, 100
	// The disk is cut before every single operation.
	mem := vfs.NewMem()
	n := uint64(0)
	var promised int64
	b.dirs = []vfs.FS{vfs.NewFault(mem, func(op vfs.Op) error {
		n++
		if op.Kind == vfs.OpLock || n%3 != 0 {
			return nil
		}
		after := newBroker(t, mem.CrashClone(n))
		after.opts.Log = quiet
		after.open()
		if l, ok := after.Get(tp("t", 0)); ok {
			if l.LogEndOffset() < promised {
				t.Errorf("operation %d (%v): end %d, promised %d", n, op, l.LogEndOffset(), promised)
			}
			if d := cmp.Diff(offsets(l.LogStartOffset(), l.LogEndOffset()), readAll(t, l, l.LogStartOffset())); d != "" {
				t.Errorf("operation %d (%v): %s", n, op, d)
			}
		} else if promised > 0 {
			t.Errorf("operation %d (%v): the log is gone", n, op)
		}
		return nil
	})}
	b.opts.Log = quiet
	b.open()
	l := b.log("t", 0)
	for i := range 25 {
		info := mustAppend(t, l, batchOf(2, 100, nowMs))
		if i%4 == 3 {
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			promised = info.LastOffset + 1
		}
		if i%3 == 2 {
			if err := l.saveLater(); err != nil {
				t.Fatal(err)
			}
		}
	}
	promised = 0
	if _, err := l.TruncateTo(30); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, batchOf(2, 100, nowMs))
	b.close()
	if n < 100 {
		t.Errorf("only %d operations", n)
	}
}

// The system tells an error of writing back only once: Close must not find all well after it, also when it is told late.
func TestADiskErrorBeforeTheEndKeepsTheCleanMarkAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		sick := false
		b := newBroker(t, vfs.NewFault(mem, func(op vfs.Op) error {
			if op.Kind == vfs.OpSyncAll && sick {
				sick = false
				<-time.After(time.Second)
				return syscall.EIO
			}
			return nil
		}))
		b.opts.Log = quiet
		b.open()
		for p := range int32(manyLogs) {
			mustAppend(t, b.log("t", p), batchOf(1, 10, nowMs))
		}
		sick = true
		b.SyncAhead()
		synctest.Wait()
		if err := b.Close(t.Context()); !errors.Is(err, syscall.EIO) {
			t.Errorf("closed with %v", err)
		}
		if _, err := mem.Stat(cleanShutdownFile); !isNotExist(err) {
			t.Errorf("the clean mark is there: %v", err)
		}
	})
}
