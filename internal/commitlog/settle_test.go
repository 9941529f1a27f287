package commitlog

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/record"
	"klamm/internal/vfs"
)

// journal lists the operations on a file system, while on.
type journal struct {
	mu  sync.Mutex
	on  bool
	ops []string
}

func (j *journal) inject(op vfs.Op) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.on {
		j.ops = append(j.ops, op.Kind.String()+" "+op.Name)
	}
	return nil
}

func (j *journal) begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.on, j.ops = true, nil
}

// of returns the operations so far whose line contains a text.
func (j *journal) of(text string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(j.ops), func(op string) bool { return !strings.Contains(op, text) })
}

// content maps the files of a tree to what they hold.
func content(t *testing.T, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			for k, v := range content(t, fsys, name) {
				out[k] = v
			}
			continue
		}
		data, err := vfs.ReadFile(fsys, name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(data)
	}
	return out
}

// runFor does the background work for some time, and ends it as a broker that stops does.
func (b *broker) runFor(d time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	advance(d)
	cancel()
	<-done
}

// journalled is a broker, not open yet, whose operations on files are listed.
func journalled(t *testing.T) (*broker, *journal) {
	j := &journal{}
	b := newBroker(t, vfs.NewFault(vfs.NewMem(), j.inject))
	b.opts.Log = quiet
	return b, j
}

func TestACloseTouchesNoFileOfALogThatWasSettled(t *testing.T) {
	const logs = int32(manyLogs + 4)
	synctest.Test(t, func(t *testing.T) {
		stopped := func(silent time.Duration) (*broker, *journal) {
			b, j := journalled(t)
			b.cfg.SegmentBytes = 4000
			b.open()
			for p := range logs {
				for seq := range int32(30) {
					mustAppend(t, b.log("t", p), batchOf(1, 200, nowMs+int64(seq), idempotent(1, 0, seq)))
				}
				marker(t, b.log("t", p), 1, record.Abort)
			}
			b.runFor(silent)
			j.begin()
			b.close()
			return b, j
		}
		lively, _ := stopped(settleAfter - time.Second)
		idle, j := stopped(settleAfter + 2*settleInterval)
		if ops := j.of(" t-"); len(ops) > 0 {
			t.Errorf("operations on the logs' files: %v", ops)
		}
		if n := len(j.of("syncall")); n != 1 {
			t.Errorf("%d syncs of the volume", n)
		}
		want, got := content(t, lively.dirs[0], "."), content(t, idle.dirs[0], ".")
		delete(want, metaFile) // tells when it was written
		delete(got, metaFile)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("files (-closed at once +settled before):\n%s", d)
		}
		if _, ok := want[cleanShutdownFile]; !ok || len(want) < int(logs)*8 {
			t.Errorf("%d files, the clean mark is there: %v", len(want), ok)
		}
	})
}

func TestALogThatTakesARecordNowAndThenIsSettledAFewTimesOnly(t *testing.T) {
	for _, c := range []struct {
		name    string
		every   time.Duration
		settled int
	}{
		{"each second", time.Second, 0},
		{"each 8 seconds", 8 * time.Second, 1},        // after 5, not after 10
		{"each minute", time.Minute, 4},               // after 5, 10, 20, 40, not after 80
		{"each hour", time.Hour, 30},                  // each time
		{"without a producer id", 8 * time.Second, 0}, // nothing to take a snapshot of
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, j := journalled(t)
				b.opts.ProducerIDExpiration = func() time.Duration { return 1000 * time.Hour }
				b.cfg.RetentionMs, b.cfg.SegmentMs = -1, 1000*time.Hour
				b.open()
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan struct{})
				go func() { defer close(done); _ = b.Run(ctx) }()
				j.begin()
				for seq := range int32(30) {
					opts := idempotent(1, 0, seq)
					if c.name == "without a producer id" {
						opts = at(0, 0)
					}
					mustAppend(t, b.log("t", 0), batchOf(1, 10, nowMs, opts))
					advance(c.every)
				}
				if ops := j.of("create t-0/"); c.settled != count(ops, snapshotSuffix) {
					t.Errorf("%d snapshots, want %d: %v", count(ops, snapshotSuffix), c.settled, ops)
				}
				left := func() int { return count(names(t, b.dirs[0], "t-0"), snapshotSuffix) }
				if n := left(); n != min(c.settled, 1) {
					t.Errorf("%d snapshots are left", n)
				}
				cancel()
				<-done
				b.close()
				if n, producers := left(), len(b.open().log("t", 0).ActiveProducers()); n > 2*producers || left() != producers {
					t.Errorf("%d snapshots after the stop, %d after the next start, of %d producers", n, left(), producers)
				}
			})
		})
	}
}

func count(list []string, suffix string) (n int) {
	for _, s := range list {
		if strings.HasSuffix(s, suffix) {
			n++
		}
	}
	return n
}

// settleNow settles a log as if it had been silent for long.
func settleNow(l *Log) error {
	_, err := l.maybeSettle(time.Now().Add(settleAfter << settleDoublings))
	return err
}

// settledLife appends, settles, truncates and appends again. flushed is told how many records are durable; the n-th record, from 0 on, has
// the sequence n.
func settledLife(l *Log, flushed func(int64)) error {
	seq := int32(0)
	write := func() error {
		for range 5 {
			if _, err := l.AppendAsLeader(batchOf(1, 100, nowMs+int64(seq), idempotent(1, 0, seq)), AppendOptions{}); err != nil {
				return err
			}
			seq++
		}
		return nil
	}
	cut := func() error {
		flushed(0)
		seq = 12
		_, err := l.TruncateTo(12)
		return err
	}
	flush := func() error {
		err := l.Flush()
		if err == nil {
			flushed(int64(seq))
		}
		return err
	}
	settle := func() error { return settleNow(l) }
	for _, step := range []func() error{write, settle, write, flush, settle, settle, write, settle, cut, write, settle, flush, write, settle} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// checkAfterCrash opens what a crash left and goes on writing.
func checkAfterCrash(t *testing.T, fsys vfs.FS, promised int64) {
	t.Helper()
	b := newBroker(t, fsys)
	b.opts.Log = quiet
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 1500, 100
	b.open()
	l := b.log("t", 0)
	end := l.LogEndOffset()
	if end < promised {
		t.Errorf("end %d, promised %d", end, promised)
	}
	if d := cmp.Diff(offsets(0, end), readAll(t, l, 0)); d != "" {
		t.Errorf("records (-want +got):\n%s", d)
	}
	for _, p := range l.ActiveProducers() {
		if int64(p.LastSequence) != end-1 {
			t.Errorf("producer at sequence %d with %d records", p.LastSequence, end)
		}
	}
	if n := len(l.ActiveProducers()); n != int(min(end, 1)) {
		t.Errorf("%d producers with %d records", n, end)
	}
	mustAppend(t, l, batchOf(1, 100, nowMs+end, idempotent(1, 0, int32(end))))
	want := l.ActiveProducers()
	b.close()
	l = b.open().log("t", 0)
	if d := cmp.Diff(want, l.ActiveProducers()); d != "" {
		t.Errorf("producers after a clean stop (-before +after):\n%s", d)
	}
	if at := l.active().maxTimestamp; at != nowMs+end {
		t.Errorf("largest timestamp %d, want %d", at-nowMs, end)
	}
}

func TestNoPowerCutWhileLogsAreSettledLosesWhatWasFlushed(t *testing.T) {
	mem := vfs.NewMem()
	n, promised := uint64(0), int64(0)
	b := newBroker(t, vfs.NewFault(mem, func(op vfs.Op) error {
		if op.Kind != vfs.OpLock {
			n++
			checkAfterCrash(t, mem.CrashClone(n), promised)
		}
		return nil
	}))
	b.opts.Log = quiet
	b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 1500, 100
	b.open()
	if err := settledLife(b.log("t", 0), func(n int64) { promised = n }); err != nil {
		t.Fatal(err)
	}
	b.close()
	if n < 100 {
		t.Errorf("only %d operations", n)
	}
}

var errKilled = errors.New("killed")

func TestNoKillWhileLogsAreSettledLosesARecord(t *testing.T) {
	for last, over := 0, false; !over; last++ {
		mem := vfs.NewMem()
		n, written := 0, int64(0)
		b := newBroker(t, vfs.NewFault(mem, func(op vfs.Op) error {
			if n++; n > last {
				return errKilled // nothing of this process reaches the files any more
			}
			return nil
		}))
		b.opts.Log = quiet
		b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 1500, 100
		m, err := Open(t.Context(), b.options())
		if err != nil {
			continue
		}
		b.Manager = m
		l := b.log("t", 0)
		over = settledLife(l, func(n int64) { written = n }) == nil
		b.kill()
		checkAfterCrash(t, mem, written)
		if t.Failed() {
			t.Fatalf("killed after %d operations", last)
		}
		if over && last < 100 {
			t.Errorf("only %d operations", last)
		}
	}
}

func TestLateFilesAreWrittenWhenABurstOfFirstAppendsIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(t)
		b.opts.Log = quiet
		b.open().run()
		made := func() int {
			synctest.Wait()
			return count(names(t, b.dirs[0], "t-0"), indexSuffix)
		}
		burst := func(from, n int32) {
			for p := range n {
				mustAppend(t, b.log("t", from+p), batchOf(1, 10, nowMs))
				advance(burstPause / 2)
			}
		}
		burst(0, 10)
		if made() != 0 {
			t.Error("written while the burst went on")
		}
		advance(2 * burstPause)
		if made() != 1 {
			t.Error("not written after the burst")
		}
		b.log("u", 0)
		mustAppend(t, b.log("u", 0), batchOf(1, 10, nowMs))
		burst(10, int32(2*lateDelay/burstPause)+2)
		if n := count(names(t, b.dirs[0], "u-0"), indexSuffix); n != 1 {
			t.Errorf("%d index files although the burst lasts for more than %v", n, lateDelay)
		}
	})
}

func TestACleanStopOfASettledLogSurvivesAPowerCut(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		for seed := range uint64(20) {
			b := newBroker(t)
			b.opts.Log = quiet
			b.open()
			l := b.log("t", 0)
			for seq := range int32(5) {
				mustAppend(t, l, batchOf(1, 100, nowMs+int64(seq), idempotent(1, 0, seq)))
			}
			want := l.ActiveProducers()
			if err := settleNow(l); err != nil {
				t.Fatal(err)
			}
			if flushed {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
			b.close()
			files := content(t, b.dirs[0], ".")
			b.powerCut(seed)
			if d := cmp.Diff(files, content(t, b.dirs[0], ".")); d != "" {
				t.Fatalf("flushed %v, seed %d: files (-before +after the power cut):\n%s", flushed, seed, d)
			}
			if d := cmp.Diff(want, b.open().log("t", 0).ActiveProducers()); d != "" {
				t.Fatalf("flushed %v, seed %d: producers (-before +after the power cut):\n%s", flushed, seed, d)
			}
		}
	}
}

// killedWhenSettled is a dir as kill -9 leaves it after its only log was settled.
func killedWhenSettled(t *testing.T, records int32) (*broker, *journal) {
	b, j := journalled(t)
	b.cfg.IndexIntervalBytes = 100
	b.open()
	for seq := range records {
		mustAppend(t, b.log("t", 0), batchOf(1, 40, nowMs+int64(seq), idempotent(1, 0, seq)))
	}
	if err := settleNow(b.log("t", 0)); err != nil {
		t.Fatal(err)
	}
	return b.kill(), j
}

func TestRecoveryLeavesTheFilesOfASettledLogAlone(t *testing.T) {
	b, j := killedWhenSettled(t, 20)
	want := content(t, b.dirs[0], "t-0")
	j.begin()
	l := b.open().log("t", 0)
	for _, kind := range []string{"write t-0", "truncate t-0", "remove t-0", "rename t-0"} {
		if ops := j.of(kind); len(ops) > 0 {
			t.Errorf("recovery did %v", ops)
		}
	}
	if p := l.ActiveProducers(); len(p) != 1 || p[0].LastSequence != 19 {
		t.Errorf("producers %+v", p)
	}
	b.close()
	if ops := j.of("write t-0/0"); len(ops) > 0 { // leader-epoch-checkpoint is made durable by writing it again
		t.Errorf("the stop did %v", ops)
	}
	if d := cmp.Diff(want, content(t, b.dirs[0], "t-0")); d != "" {
		t.Errorf("files (-settled +recovered and closed):\n%s", d)
	}
}

func TestRecoveryRightsTheFilesOfASettledLog(t *testing.T) {
	flip := func(f vfs.File, size int64) error {
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return err
		}
		_, err := f.WriteAt([]byte{last[0] ^ 1}, size-1)
		return err
	}
	for _, c := range []struct {
		name    string
		records int32
		suffix  string
		edit    func(f vfs.File, size int64) error
	}{
		{"another offset entry", 20, indexSuffix, flip},
		{"another time entry", 20, timeIndexSuffix, flip},
		{"another producer", 20, snapshotSuffix, flip},
		{"fewer entries", 20, timeIndexSuffix, func(f vfs.File, _ int64) error { return f.Truncate(timeEntryWidth) }},
		{"no entries", 20, indexSuffix, func(f vfs.File, _ int64) error { return f.Truncate(0) }},
		{"half an entry", 20, indexSuffix, func(f vfs.File, size int64) error { return f.Truncate(size - 3) }},
		{"more entries", 20, indexSuffix, func(f vfs.File, size int64) error {
			_, err := f.WriteAt(make([]byte, 4*offsetEntryWidth), size)
			return err
		}},
		{"more entries than are held in memory", 2*tailEntries + 10, timeIndexSuffix, func(f vfs.File, size int64) error {
			_, err := f.WriteAt(make([]byte, tailEntries*timeEntryWidth), size)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, _ := killedWhenSettled(t, c.records)
			want := content(t, b.dirs[0], "t-0")
			base := int64(0)
			if c.suffix == snapshotSuffix {
				base = int64(c.records)
			}
			damage(t, b.dirs[0], path.Join("t-0", fileName(base, c.suffix)), c.edit)
			b.open().close()
			if d := cmp.Diff(want, content(t, b.dirs[0], "t-0")); d != "" {
				t.Errorf("files (-settled +recovered and closed):\n%s", d)
			}
		})
	}
}

func TestRecoveryKeepsTheSnapshotsThatItTakesAgain(t *testing.T) {
	b := newBroker(t)
	b.opts.Log = quiet
	b.cfg.SegmentBytes = 1500
	b.open()
	for seq := range int32(30) {
		mustAppend(t, b.log("t", 0), batchOf(1, 100, nowMs, idempotent(1, 0, seq)))
	}
	if err := settleNow(b.log("t", 0)); err != nil {
		t.Fatal(err)
	}
	b.kill()
	want := names(t, b.dirs[0], "t-0")
	if n := count(want, snapshotSuffix); n < 3 {
		t.Fatalf("%d snapshots", n)
	}
	b.open()
	if d := cmp.Diff(want, names(t, b.dirs[0], "t-0")); d != "" {
		t.Errorf("files (-settled +recovered):\n%s", d)
	}
}
