package commitlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/vfs"
)

// TestR14StartRefusesForeignDirs holds requirement R14: one message that names both values and the file.
func TestR14StartRefusesForeignDirs(t *testing.T) {
	const meta = "#\n#Sun Nov 29 21:03:00 UTC 2026\nbroker.id=%s\nversion=%s\ncluster.id=%s\n"
	tests := map[string]struct{ broker, version, cluster, want string }{
		"other cluster":      {"1", "0", "abc", `/mem/meta.properties: stored cluster.id "abc" does not match the configured "test-cluster"`},
		"other broker":       {"7", "0", "test-cluster", `/mem/meta.properties: stored broker.id "7" does not match the configured "1"`},
		"version of KRaft":   {"1", "1", "test-cluster", `/mem/meta.properties: stored version "1" does not match the configured "0"`},
		"own":                {"1", "0", "test-cluster", ""},
		"not a number":       {"x", "0", "test-cluster", `/mem/meta.properties: broker.id "x" is not a number`},
		"without cluster id": {"1", "0", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := vfs.NewMem()
			if err := vfs.WriteFile(m, metaFile, fmt.Appendf(nil, meta, tt.broker, tt.version, tt.cluster)); err != nil {
				t.Fatal(err)
			}
			_, err := Open(context.Background(), newBroker(t, m).options())
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestMetaPropertiesAreWrittenAsKafkaDoes(t *testing.T) {
	b := newBroker(t).open()
	data, err := vfs.ReadFile(b.dirs[0], metaFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	if !strings.HasPrefix(lines[1], "#") {
		t.Errorf("date line %q", lines[1])
	}
	lines[1] = "#date"
	if d := cmp.Diff([]string{"#", "#date", "broker.id=1", "version=0", "cluster.id=test-cluster", ""}, lines); d != "" {
		t.Error(d)
	}
	m, found, err := ReadMeta([]DirSpec{{}, {FS: b.dirs[0]}, {FS: vfs.NewMem()}})
	if want := (MetaProperties{ClusterID: "test-cluster", BrokerID: 1}); err != nil || !found || m != want {
		t.Errorf("read back %+v, %v, %v", m, found, err)
	}
}

func TestALockedDirStopsTheStart(t *testing.T) {
	b := newBroker(t).open()
	_, err := Open(context.Background(), b.options())
	var locked *vfs.LockedError
	if !errors.As(err, &locked) || locked.Path != "/mem/.lock" {
		t.Errorf("second start: %v", err)
	}
	b.close()
	b.open()
}

func TestTheSamePartitionInTwoDirsStopsTheStart(t *testing.T) {
	b := newBroker(t, vfs.NewMem(), vfs.NewMem())
	for _, d := range b.dirs {
		if err := d.Mkdir("t-0", vfs.DirPerm); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(context.Background(), b.options())
	if err == nil || !strings.Contains(err.Error(), "duplicate log directories for t-0: /mem/") {
		t.Error(err)
	}
}

func TestNewLogsGoToTheDirWithFewest(t *testing.T) {
	b := newBroker(t, vfs.NewMem(), vfs.NewMem(), vfs.NewMem()).open()
	count := map[string]int{}
	for p := range int32(9) {
		count[b.log("t", p).Dir()]++
	}
	if d := cmp.Diff(map[string]int{"/mem/0": 3, "/mem/1": 3, "/mem/2": 3}, count); d != "" {
		t.Error(d)
	}
	if l, err := b.GetOrCreate(tp("t", 1), cluster.TopicID{1: 1}, true); l != nil || !errors.Is(err, ErrInconsistentTopicID) || Code(err) != cluster.InconsistentTopicID {
		t.Errorf("other topic id: %v, %v", l, err)
	}
	if l, err := b.GetOrCreate(tp("t", 1), cluster.TopicID{}, false); err != nil || l.TopicID() != testID {
		t.Errorf("without topic id: %v", err)
	}
}

func TestDeletedLogsAreRenamedThenRemovedAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t).open().run()
		var tps []cluster.TopicPartition
		for p := range int32(3) {
			if p != 1 { // partition 1 is never written
				mustAppend(t, b.log("t", p), batchOf(1, 10, nowMs))
			}
			b.log("t", p)
			tps = append(tps, tp("t", p))
		}
		old := b.log("t", 0)
		r, err := old.Read(0, ReadOptions{MaxBytes: 1 << 20, Isolation: LogEnd})
		if err != nil {
			t.Fatal(err)
		}
		if failed := b.Delete(tps); len(failed) > 0 {
			t.Fatal(failed)
		}
		var dirs []string
		for _, n := range names(t, b.dirs[0], ".") {
			if strings.HasPrefix(n, "t-") {
				dirs = append(dirs, n)
				if got, ok := parsePartitionDir(n); ok || !isSpecialDir(n, deleteDirSuffix) {
					t.Errorf("%s is read as %v", n, got)
				}
			}
		}
		if len(dirs) != 2 || len(b.PendingDeletes()) != 2 {
			t.Fatalf("renamed directories: %v, pending %v", dirs, b.PendingDeletes())
		}
		if _, err := old.AppendAsLeader(batchOf(1, 1, nowMs), AppendOptions{}); Code(err) != cluster.UnknownTopicOrPartition {
			t.Errorf("append to a deleted log: %v", err)
		}
		if n, err := r.Records.ReadInto(make([]byte, r.Records.Len())); n == 0 || err != nil {
			t.Errorf("a slice of a deleted log: %d, %v", n, err)
		}
		if l, err := b.GetOrCreate(tp("t", 0), cluster.TopicID{1: 9}, true); err != nil || l == old || l.LogEndOffset() != 0 {
			t.Errorf("the same name again: %v", err)
		}
		advance(59 * time.Second)
		if n := len(b.PendingDeletes()); n != 2 {
			t.Errorf("%d pending before the delay", n)
		}
		advance(2 * time.Second)
		if n := len(b.PendingDeletes()); n != 0 {
			t.Errorf("%d pending after the delay", n)
		}
		for _, n := range names(t, b.dirs[0], ".") {
			if strings.HasPrefix(n, "t-") {
				t.Errorf("%s is still there", n)
			}
		}
		r.Records.Release()
	})
}

func TestLongNamesAreCutTo255Bytes(t *testing.T) {
	name := deleteDirName(tp(strings.Repeat("x", 249), 12345))
	if len(name) != 255 || !strings.HasSuffix(name, "-delete") || !strings.Contains(name, "x-12345.") {
		t.Errorf("%d bytes: %s", len(name), name)
	}
}

// TestR05FailingRemovalIsRetriedAndStopsNothing holds requirement R05: an error in one partition's delete is reported with path and errno and
// tried again, and the broker goes on.
// W27: Kafka tries again at the next start.
func TestR05FailingRemovalIsRetriedAndStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var logged strings.Builder
		refuse := true
		mem := vfs.NewMem()
		b := newBroker(t, vfs.NewFault(mem, func(op vfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			if refuse && op.Kind == vfs.OpRemove && strings.Contains(op.Name, "-delete") {
				return syscall.EPERM
			}
			if refuse && op.Kind == vfs.OpRename && op.Name == "stuck-0" {
				return syscall.EBUSY
			}
			return nil
		}))
		b.opts.Log = slog.New(slog.NewTextHandler(lockedWriter{&mu, &logged}, nil))
		b.open().run()
		mustAppend(t, b.log("t", 0), batchOf(1, 10, nowMs))
		stuck := b.log("stuck", 0)
		mustAppend(t, stuck, batchOf(1, 10, nowMs))
		failed := b.Delete([]cluster.TopicPartition{tp("t", 0), tp("stuck", 0)})
		if err := failed[tp("stuck", 0)]; len(failed) != 1 || Code(err) != cluster.KafkaStorageError || !errors.Is(err, syscall.EBUSY) {
			t.Errorf("failed deletes: %v", failed)
		}
		mustAppend(t, stuck, batchOf(1, 10, nowMs)) // it goes on serving
		advance(5 * time.Minute)
		pending := b.PendingDeletes()
		if len(pending) != 1 || !errors.Is(pending[0].Err, syscall.EPERM) {
			t.Errorf("pending: %v", pending)
		}
		mu.Lock()
		for _, want := range []string{`errno="operation not permitted"`, ".log: operation not permitted", `errno="device or resource busy"`} {
			if !strings.Contains(logged.String(), want) {
				t.Errorf("the log does not tell %q:\n%s", want, logged.String())
			}
		}
		refuse = false
		mu.Unlock()
		mustAppend(t, b.log("other", 0), batchOf(1, 10, nowMs))
		if !b.IsDirOnline("/mem/0") {
			t.Error("the dir went offline")
		}
		advance(10 * time.Minute)
		if n := len(b.PendingDeletes()); n != 0 {
			t.Errorf("%d pending", n)
		}
		if failed := b.Delete([]cluster.TopicPartition{tp("stuck", 0)}); len(failed) > 0 {
			t.Errorf("second try: %v", failed)
		}
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *strings.Builder
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func TestAFailedDirTakesOnlyItsOwnLogsOffline(t *testing.T) {
	for _, no := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS} {
		t.Run(no.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				broken := false
				sick := vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
					mu.Lock()
					defer mu.Unlock()
					if broken && op.Kind == vfs.OpWrite {
						return no
					}
					return nil
				})
				b := newBroker(t, sick, vfs.NewMem())
				var failures []string
				b.opts.OnDirFailure = func(dir string, err error) { failures = append(failures, fmt.Sprint(dir, " ", errors.Is(err, no))) }
				b.open().run()
				first, second := b.log("t", 0), b.log("t", 1)
				third := b.log("t", 2)
				mustAppend(t, first, batchOf(1, 10, nowMs))
				mustAppend(t, second, batchOf(1, 10, nowMs))
				mu.Lock()
				broken = true
				mu.Unlock()
				var se *StorageError
				if _, err := first.AppendAsLeader(batchOf(1, 10, nowMs), AppendOptions{}); !errors.As(err, &se) || se.Dir != "/mem/0" || Code(err) != cluster.KafkaStorageError {
					t.Errorf("append: %v", err)
				}
				if _, err := third.AppendAsLeader(batchOf(1, 10, nowMs), AppendOptions{}); Code(err) != cluster.KafkaStorageError {
					t.Errorf("append to another log of the dir: %v", err)
				}
				synctest.Wait()
				if d := cmp.Diff([]string{"/mem/0 true"}, failures); d != "" {
					t.Errorf("failures told (-want +got):\n%s", d)
				}
				if b.IsDirOnline("/mem/0") || !b.IsDirOnline("/mem/1") || !b.HasOfflineDir() {
					t.Error("dir states")
				}
				mustAppend(t, second, batchOf(1, 10, nowMs))
				if _, ok := b.Get(tp("t", 0)); ok {
					t.Error("a log of the failed dir is still found")
				}
				if _, err := b.GetOrCreate(tp("t", 0), testID, false); Code(err) != cluster.KafkaStorageError {
					t.Errorf("a replica that may lie in the failed dir: %v", err)
				}
				if l, err := b.GetOrCreate(tp("new", 0), testID, true); err != nil || l.Dir() != "/mem/1" {
					t.Errorf("a new replica: %v", err)
				}
			})
		})
	}
}

func TestADirThatCannotBeOpenedIsLeftOut(t *testing.T) {
	good := vfs.NewMem()
	o := newBroker(t, good).options()
	o.Dirs = append(o.Dirs, DirSpec{Path: "/gone", Err: syscall.ENOENT})
	m, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if d := m.Dirs(); len(d) != 2 || d[1].Online || !errors.Is(d[1].Err, syscall.ENOENT) || !m.HasOfflineDir() {
		t.Errorf("%+v", d)
	}
	o.Dirs = o.Dirs[1:]
	if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "no log dir can be used: log dir /gone") {
		t.Errorf("without any dir: %v", err)
	}
}

// TestR04DeletingUnderLoadFailsNoDir holds requirement R04: a flush or roll that races a delete's rename fails no dir, and other topics lose
// nothing.
func TestR04DeletingUnderLoadFailsNoDir(t *testing.T) {
	b := osBroker(t)
	b.cfg.SegmentBytes, b.cfg.FlushMessages = 64<<10, 200
	b.opts.InitialTaskDelay, b.opts.RetentionInterval, b.opts.CheckpointInterval = time.Millisecond, time.Millisecond, time.Millisecond
	b.opts.DeleteDelay = func() time.Duration { return time.Millisecond }
	b.open().run()
	kept := b.log("kept", 0)
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		id := cluster.TopicID{0: byte(round), 15: 1}
		var producers sync.WaitGroup
		enough := make(chan struct{}, 4)
		for p := range int32(4) {
			l, err := b.GetOrCreate(tp("doomed", p), id, true)
			if err != nil {
				t.Fatal(err)
			}
			producers.Go(func() {
				for n := 0; ; n++ {
					if n == 30 {
						enough <- struct{}{}
					}
					_, err := l.AppendAsLeader(batchOf(4, 1000, nowMs), AppendOptions{})
					if Code(err) == cluster.UnknownTopicOrPartition {
						return
					}
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
				}
			})
		}
		mustAppend(t, kept, batchOf(1, 1000, nowMs))
		for range 4 {
			<-enough
		}
		if failed := b.Delete([]cluster.TopicPartition{tp("doomed", 0), tp("doomed", 1), tp("doomed", 2), tp("doomed", 3)}); len(failed) > 0 {
			t.Fatal(failed)
		}
		producers.Wait()
	}
	if b.HasOfflineDir() {
		t.Errorf("a dir failed: %v", b.Dirs()[0].Err)
	}
	if d := cmp.Diff(offsets(0, int64(rounds)), readAll(t, kept, 0)); d != "" {
		t.Errorf("the other topic: %s", d)
	}
}

func TestConfigChangesReachTheLogs(t *testing.T) {
	b := newBroker(t).open()
	l := b.log("t", 0)
	next := *config.DefaultLogConfig()
	next.MaxMessageBytes = 100
	b.cfg = &next
	b.UpdateConfig("other")
	mustAppend(t, l, batchOf(1, 200, nowMs))
	b.UpdateConfig("t")
	if _, err := l.AppendAsLeader(batchOf(1, 200, nowMs), AppendOptions{}); Code(err) != cluster.MessageTooLarge {
		t.Errorf("batch over max.message.bytes: %v", err)
	}
	next.MaxMessageBytes, next.SegmentBytes = 1<<20, 150
	if _, err := l.AppendAsLeader(batchOf(1, 200, nowMs), AppendOptions{}); Code(err) != cluster.RecordListTooLarge {
		t.Errorf("batch over segment.bytes: %v", err)
	}
}

// R03: the old dir of a topic that was deleted while the dir was away comes back beside the log of the next topic of the name. Kafka refuses to
// start.
func TestALogOfADeletedTopicGivesWayToTheOneInAnotherDir(t *testing.T) {
	both := []vfs.FS{vfs.NewMem(), vfs.NewMem()}
	ids := []cluster.TopicID{{1: 1}, {1: 2}}
	for i, d := range both { // each dir alone: the other one is away
		b := newBroker(t, d).open()
		l, err := b.GetOrCreate(tp("t", 0), ids[i], true)
		if err != nil {
			t.Fatal(err)
		}
		for range i + 1 {
			mustAppend(t, l, batchOf(1, 10, nowMs))
		}
		b.close()
	}
	for doomed, id := range ids {
		dirs := []vfs.FS{both[0].(*vfs.Mem).CrashClone(1), both[1].(*vfs.Mem).CrashClone(1)}
		b := newBroker(t, dirs...)
		b.opts.Deleted = func(p cluster.TopicPartition, of cluster.TopicID) bool { return p == tp("t", 0) && of == id }
		b.open()
		l, ok := b.Get(tp("t", 0))
		kept := 1 - doomed
		if !ok || l.TopicID() != ids[kept] || l.LogEndOffset() != int64(kept+1) || len(b.Logs()) != 1 {
			t.Errorf("deleted %v: kept %v with id %v", id, ok, l.TopicID())
		}
		if p := b.PendingDeletes(); len(p) != 1 || !strings.HasSuffix(p[0].Name, "-delete") {
			t.Errorf("deleted %v: to be removed are %+v", id, p)
		}
		if got := b.Dirs(); got[doomed].Logs != 0 || got[kept].Logs != 1 {
			t.Errorf("deleted %v: %+v", id, got)
		}
		b.close()
		b = newBroker(t, dirs...).open() // the other one does not come back
		b.close()
	}
}
