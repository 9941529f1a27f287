package commitlog

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

// other is the dir that a log is not in.
func (b *broker) other(l *Log) string {
	for _, d := range b.Manager.dirs {
		if d != l.dir {
			return d.path
		}
	}
	return ""
}

// startMove begins to move a log to the other dir.
func (b *broker) startMove(l *Log) *Move {
	b.t.Helper()
	to, err := b.CreateFuture(l, b.other(l))
	if err != nil {
		b.t.Fatal(err)
	}
	mv, err := NewMove(l, to)
	if err != nil {
		b.t.Fatal(err)
	}
	return mv
}

// move moves a log to the other dir and returns what is the log then.
func (b *broker) move(l *Log) *Log {
	b.t.Helper()
	if err := b.startMove(l).Finish(); err != nil {
		b.t.Fatal(err)
	}
	moved, ok := b.Get(l.tp)
	if !ok {
		b.t.Fatal("no log after the move")
	}
	return moved
}

// logView is what a log tells of itself.
type logView struct {
	Start, HW, End, Stable int64
	Epochs                 []epochEntry
	Producers              []ProducerState
	Offsets                []int64
	TopicID                cluster.TopicID
}

func viewOf(t fataler, l *Log) logView {
	t.Helper()
	records, _ := readRecords(t, l, l.LogStartOffset())
	return logView{l.LogStartOffset(), l.HighWatermark(), l.LogEndOffset(), l.LastStableOffset(), l.epochs.entries, l.ActiveProducers(), records, l.TopicID()}
}

var sameView = cmp.Options{cmp.AllowUnexported(epochEntry{}), cmpopts.EquateEmpty()}

// dirNames lists what lies in the log dirs, without checkpoints; random ids are cut to their kind.
func (b *broker) dirNames() []string {
	var out []string
	for i, d := range b.dirs {
		entries, err := d.ReadDir(".")
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range entries {
			if name := e.Name(); e.IsDir() {
				if dot := strings.LastIndexByte(name, '.'); dot > 0 {
					name = name[:dot] + name[strings.LastIndexByte(name, '-'):]
				}
				out = append(out, fmt.Sprint(i, "/", name))
			}
		}
	}
	return out
}

func TestAMovedLogIsTheSameInItsNewDir(t *testing.T) {
	b := newBroker(t, vfs.NewMem(), vfs.NewMem())
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 2000, 100
	b.open()
	l := b.log("t", 0)
	for i := range 40 {
		if _, err := l.AppendAsLeader(batchOf(2, 100, nowMs, idempotent(7, 0, int32(2*i))), AppendOptions{LeaderEpoch: cluster.LeaderEpoch(i / 15)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.AppendAsLeader(batchOf(1, 10, nowMs, transactional(8, 3, 0)), AppendOptions{LeaderEpoch: 2}); err != nil {
		t.Fatal(err)
	}
	l.MaybeIncrementHighWatermark(79)
	if err := l.MaybeIncrementLogStartOffset(21, "test"); err != nil { // in the middle of a segment
		t.Fatal(err)
	}
	if err := l.AssignLeaderEpochStart(5, 81); err != nil { // an epoch without records
		t.Fatal(err)
	}
	want := viewOf(t, l)

	moved := b.move(l)
	if moved.Dir() != "/mem/1" || l.Dir() != "/mem/0" {
		t.Errorf("moved from %s to %s", l.Dir(), moved.Dir())
	}
	if d := cmp.Diff(want, viewOf(t, moved), sameView); d != "" {
		t.Error(d)
	}
	if _, err := l.Read(21, ReadOptions{MaxBytes: 1}); Code(err) != cluster.UnknownTopicOrPartition {
		t.Errorf("the old log answers %v", err)
	}
	if d := cmp.Diff([]string{"0/t-0-delete", "1/t-0"}, b.dirNames()); d != "" {
		t.Error(d)
	}
	again, err := moved.AppendAsLeader(batchOf(2, 100, nowMs, idempotent(7, 0, 78)), AppendOptions{LeaderEpoch: 5})
	if err != nil || !again.Duplicate || again.FirstOffset != 78 {
		t.Errorf("a repeated batch: %+v, %v", again, err)
	}
	want.Epochs = want.Epochs[:3] // a start knows those with records
	for name, restart := range map[string]func(){
		"kill": func() { b.kill() }, "close": b.close, "power cut": func() { b.powerCut(1) },
	} {
		restart()
		b.open()
		got, _ := b.Get(tp("t", 0))
		if _, err := got.SetHighWatermark(79); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, viewOf(t, got), sameView); d != "" {
			t.Errorf("after %s: %s", name, d)
		}
	}
}

func TestALogWithoutRecordsMoves(t *testing.T) {
	b := newBroker(t, vfs.NewMem(), vfs.NewMem()).open()
	fresh := b.move(b.log("fresh", 0))
	emptied := b.log("emptied", 0)
	if err := emptied.TruncateFullyAndStartAt(100); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, emptied, batchOf(1, 1, nowMs))
	if err := emptied.TruncateFullyAndStartAt(200); err != nil {
		t.Fatal(err)
	}
	emptied = b.move(emptied)
	if fresh.LogEndOffset() != 0 || emptied.LogEndOffset() != 200 {
		t.Errorf("ends %d and %d", fresh.LogEndOffset(), emptied.LogEndOffset())
	}
	b.powerCut(1).open()
	if l := b.log("emptied", 0); l.LogStartOffset() != 200 || l.LogEndOffset() != 200 {
		t.Errorf("after a power cut %d to %d", l.LogStartOffset(), l.LogEndOffset())
	}
}

// TestACopyFollowsWhatHappensToItsLog changes a log at random while it moves; the copy that takes its place is equal.
func TestACopyFollowsWhatHappensToItsLog(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBroker(t, vfs.NewMem(), vfs.NewMem())
		b.opts.Log = quiet
		b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes, b.cfg.RetentionMs = 700, 100, -1
		b.open()
		l := b.log("t", 0)
		epoch, sequence := cluster.LeaderEpoch(0), int32(0)
		mv := b.startMove(l)
		check := func(err error) {
			rt.Helper()
			if err != nil {
				rt.Fatal(err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				n := rapid.IntRange(1, 4).Draw(rt, "records")
				_, err := l.AppendAsLeader(batchOf(n, rapid.IntRange(0, 120).Draw(rt, "size"), nowMs, idempotent(int64(epoch), 0, sequence)), AppendOptions{LeaderEpoch: epoch})
				check(err)
				sequence += int32(n)
			},
			"step": func(rt *rapid.T) {
				_, _, err := mv.Step(rapid.IntRange(1, 500).Draw(rt, "bytes"))
				check(err)
			},
			"high watermark": func(rt *rapid.T) {
				l.MaybeIncrementHighWatermark(rapid.Int64Range(0, l.LogEndOffset()).Draw(rt, "hw"))
			},
			"start": func(rt *rapid.T) {
				check(l.MaybeIncrementLogStartOffset(rapid.Int64Range(0, l.HighWatermark()).Draw(rt, "start"), "test"))
				_, err := l.applyRetention(nowMs)
				check(err)
			},
			"truncate": func(rt *rapid.T) {
				_, err := l.TruncateTo(rapid.Int64Range(l.LogStartOffset(), l.LogEndOffset()).Draw(rt, "to"))
				check(err)
				epoch, sequence = epoch+1, 0
			},
			"start anew": func(rt *rapid.T) {
				check(l.TruncateFullyAndStartAt(rapid.Int64Range(0, l.LogEndOffset()+10).Draw(rt, "at")))
				epoch, sequence = epoch+1, 0
			},
			"another move": func(*rapid.T) {
				var err error
				mv, err = NewMove(l, mv.to)
				check(err)
			},
			"crash": func(rt *rapid.T) {
				end := l.LogEndOffset()
				b.powerCut(rapid.Uint64().Draw(rt, "seed")).open()
				l = b.log("t", 0)
				if l.LogEndOffset() < end {
					epoch, sequence = epoch+1, 0 // what is lost is written again by another leader
				}
				mv = b.startMove(l)
			},
		})
		want := viewOf(rt, l)
		check(mv.Finish())
		moved, _ := b.Get(l.tp)
		if d := cmp.Diff(want, viewOf(rt, moved), sameView); d != "" {
			rt.Error(d)
		}
	})
}

// opCounter takes a picture of all disks before each operation once it is on.
type opCounter struct {
	mu       sync.Mutex
	on       bool
	disks    []*vfs.Mem
	pictures [][]*vfs.Mem
	fail     func(vfs.Op) error
}

func (c *opCounter) inject(op vfs.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.on {
		return nil
	}
	if c.fail != nil {
		return c.fail(op)
	}
	var now []*vfs.Mem
	for _, d := range c.disks {
		now = append(now, d.CrashClone(uint64(len(c.pictures))))
	}
	c.pictures = append(c.pictures, now)
	return nil
}

// TestAPowerCutAnywhereInAMoveLosesNothing cuts the power before every single operation of a move. Kafka does not start
// after a crash between the two renames.
func TestAPowerCutAnywhereInAMoveLosesNothing(t *testing.T) {
	c := &opCounter{disks: []*vfs.Mem{vfs.NewMem(), vfs.NewMem()}}
	b := newBroker(t, vfs.NewFault(c.disks[0], c.inject), vfs.NewFault(c.disks[1], c.inject))
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 1000, 100
	b.open()
	l := b.log("t", 0)
	for i := range 20 {
		mustAppend(t, l, batchOf(2, 100, nowMs, idempotent(7, 0, int32(2*i))))
	}
	l.MaybeIncrementHighWatermark(40)
	if err := l.MaybeIncrementLogStartOffset(5, "test"); err != nil {
		t.Fatal(err)
	}
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := b.checkpointLogStarts(l.dir, b.logsIn(l.dir)); err != nil {
		t.Fatal(err)
	}
	if err := b.CheckpointHighWatermarks(); err != nil {
		t.Fatal(err)
	}
	want := viewOf(t, l)
	c.on = true
	b.move(l)
	c.on = false
	dirs := map[string]int{}
	for i, disks := range c.pictures {
		after := newBroker(t, disks[0], disks[1])
		after.opts.Log = quiet
		after.cfg = b.cfg
		after.open()
		got, ok := after.Get(l.tp)
		if !ok {
			t.Fatalf("cut before operation %d: no log in %v", i, after.dirNames())
		}
		dirs[got.Dir()]++
		if d := cmp.Diff(want, viewOf(t, got), sameView); d != "" {
			t.Errorf("cut before operation %d: %s", i, d)
		}
		if got.Dir() == l.Dir() {
			got = after.move(got) // goes on with the copy
		}
		if got.Dir() != after.Manager.dirs[1].path {
			t.Errorf("cut before operation %d: moved to %s", i, got.Dir())
		}
		if d := cmp.Diff(want, viewOf(t, got), sameView); d != "" {
			t.Errorf("cut before operation %d, moved again: %s", i, d)
		}
		after.close()
		after.open()
	}
	if dirs[l.Dir()] < 10 || dirs[b.Manager.dirs[1].path] < 2 {
		t.Errorf("the cuts were not around the exchange: %v", dirs)
	}
}

// A dir that fails while a log moves to it fails nothing else, and one that fails while a log moves from it leaves it.
func TestAFailingDirEndsAMove(t *testing.T) {
	c := &opCounter{disks: []*vfs.Mem{vfs.NewMem(), vfs.NewMem()}}
	c.fail = func(vfs.Op) error { return errors.New("disk is gone") }
	b := newBroker(t, c.disks[0], vfs.NewFault(c.disks[1], c.inject)).open().run()
	l := b.log("t", 0)
	mustAppend(t, l, batchOf(2, 100, nowMs))
	mv := b.startMove(l)
	c.on = true
	if err := mv.Finish(); Code(err) != cluster.KafkaStorageError {
		t.Errorf("the move ends with %v", err)
	}
	if _, there := b.Future(l.tp); there {
		t.Error("there is still a copy")
	}
	mustAppend(t, l, batchOf(2, 100, nowMs))
	if got, ok := b.Get(l.tp); !ok || got != l {
		t.Error("the log is not served any more")
	}
	if _, err := b.CreateFuture(l, "/mem/1"); Code(err) != cluster.KafkaStorageError {
		t.Errorf("a copy in a failed dir: %v", err)
	}
	if _, err := b.CreateFuture(l, "/nowhere"); Code(err) != cluster.LogDirNotFound {
		t.Errorf("a copy in an unknown dir: %v", err)
	}
}

func TestDeletingAMovingLogLeavesNoCopy(t *testing.T) {
	b := newBroker(t, vfs.NewMem(), vfs.NewMem()).open()
	l := b.log("t", 0)
	mustAppend(t, l, batchOf(2, 100, nowMs))
	mv := b.startMove(l)
	if _, _, err := mv.Step(1 << 20); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"0/t-0", "1/t-0-future"}, b.dirNames()); d != "" {
		t.Error(d)
	}
	if failed := b.Delete([]cluster.TopicPartition{l.tp}); len(failed) > 0 {
		t.Fatal(failed)
	}
	if err := mv.Finish(); Code(err) != cluster.UnknownTopicOrPartition {
		t.Errorf("the move ends with %v", err)
	}
	if d := cmp.Diff([]string{"0/t-0-delete", "1/t-0-delete"}, b.dirNames()); d != "" {
		t.Error(d)
	}
	if again := b.log("t", 0); again.LogEndOffset() != 0 {
		t.Errorf("created again it ends at %d", again.LogEndOffset())
	}
}

func TestACopyThatIsGivenUpGoes(t *testing.T) {
	b := newBroker(t, vfs.NewMem(), vfs.NewMem()).open()
	l := b.log("t", 0)
	mustAppend(t, l, batchOf(2, 100, nowMs))
	if _, _, err := b.startMove(l).Step(1 << 20); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.DropFuture(l.tp), b.DropFuture(l.tp)); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"0/t-0", "1/t-0-delete"}, b.dirNames()); d != "" {
		t.Error(d)
	}
	if moved := b.move(l); moved.LogEndOffset() != 2 {
		t.Errorf("moved after all, it ends at %d", moved.LogEndOffset())
	}
}

func TestANewLogGoesWhereItIsWanted(t *testing.T) {
	b := newBroker(t, vfs.NewMem(), vfs.NewMem()).open()
	for p := range int32(4) {
		if !b.PreferDir(tp("t", p), "/mem/1") {
			t.Fatal("no room")
		}
		if l := b.log("t", p); l.Dir() != "/mem/1" {
			t.Errorf("partition %d is in %s", p, l.Dir())
		}
	}
	if len(b.preferred) > 0 {
		t.Errorf("still noted: %v", b.preferred)
	}
}

// Compaction could take a record out of the log before the copy sees the tombstone for it.
func TestCompactionWaitsForAMove(t *testing.T) {
	b := newBroker(t, vfs.NewMem(), vfs.NewMem())
	b.cfg.SegmentBytes, b.cfg.Compact, b.cfg.MinCleanableDirtyRatio = 500, true, 0.1
	b.open()
	l := b.log("t", 0)
	for range 10 {
		mustAppend(t, l, batchOf(2, 100, nowMs))
	}
	l.MaybeIncrementHighWatermark(20)
	if dirty, _ := b.dirtiest(); dirty != l {
		t.Fatal("nothing to compact")
	}
	mv := b.startMove(l)
	if dirty, _ := b.dirtiest(); dirty != nil {
		t.Error("compacted while it moves")
	}
	if err := mv.Finish(); err != nil {
		t.Fatal(err)
	}
	if dirty, _ := b.dirtiest(); dirty == nil || dirty.Dir() != "/mem/1" {
		t.Error("not compacted after the move")
	}
}
