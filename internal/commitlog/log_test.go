package commitlog

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

func names(t *testing.T, fsys vfs.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestALogTouchesNoDiskBeforeItsFirstAppend(t *testing.T) {
	b := newBroker(t).open()
	l := b.log("t", 0)
	if err := l.AssignLeaderEpochStart(3, 0); err != nil {
		t.Fatal(err)
	}
	if got := names(t, b.dirs[0], "."); slices.Contains(got, "t-0") {
		t.Errorf("the directory exists before the first append: %v", got)
	}
	mustAppend(t, l, batchOf(1, 10, nowMs))
	want := []string{"00000000000000000000.log", "partition.metadata"}
	if d := cmp.Diff(want, names(t, b.dirs[0], "t-0")); d != "" {
		t.Errorf("files after the first append (-want +got):\n%s", d)
	}
	meta, err := vfs.ReadFile(b.dirs[0], "t-0/partition.metadata")
	if err != nil || string(meta) != "version: 0\ntopic_id: "+testID.String() {
		t.Errorf("partition.metadata %q, %v", meta, err)
	}
	b.close()
	want = []string{"00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex", "leader-epoch-checkpoint", "partition.metadata"}
	if d := cmp.Diff(want, names(t, b.dirs[0], "t-0")); d != "" {
		t.Errorf("files after close (-want +got):\n%s", d)
	}
	want = []string{".kafka_cleanshutdown", ".lock", "meta.properties", "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "t-0"}
	if d := cmp.Diff(want, names(t, b.dirs[0], ".")); d != "" {
		t.Errorf("log dir after close (-want +got):\n%s", d)
	}
}

// So that a broker that stops has no files left to create.
func TestTheBackgroundMakesTheFilesThatCloseWants(t *testing.T) {
	b := newBroker(t).open()
	l := b.log("t", 0)
	if _, err := l.AppendAsLeader(batchOf(1, 10, nowMs), AppendOptions{LeaderEpoch: 3}); err != nil {
		t.Fatal(err)
	}
	if err := l.saveLater(); err != nil {
		t.Fatal(err)
	}
	made := names(t, b.dirs[0], "t-0")
	b.close()
	if d := cmp.Diff(made, names(t, b.dirs[0], "t-0")); d != "" {
		t.Errorf("files after close (-before +after):\n%s", d)
	}
	b.open()
	l, _ = b.Get(tp("t", 0))
	if s := l.active(); s.times.count() != 1 || s.maxTimestamp != nowMs {
		t.Errorf("%d entries of the time index, largest timestamp %d", s.times.count(), s.maxTimestamp)
	}
}

func TestAppendedRecordsAreReadBackAcrossSegmentsAndRestarts(t *testing.T) {
	for _, how := range []string{"clean", "kill"} {
		t.Run(how, func(t *testing.T) {
			b := newBroker(t)
			b.cfg.SegmentBytes, b.cfg.IndexIntervalBytes = 20_000, 300
			b.open()
			l := b.log("t", 0)
			for range 200 {
				mustAppend(t, l, batchOf(3, 100, nowMs))
			}
			if n := l.Segments(); n < 4 {
				t.Fatalf("%d segments", n)
			}
			size := l.Size()
			if how == "clean" {
				b.close()
			} else {
				b.kill()
			}
			b.open()
			l, ok := b.Get(tp("t", 0))
			if !ok {
				t.Fatal("log not found")
			}
			if d := cmp.Diff(offsets(0, 600), readAll(t, l, 0)); d != "" {
				t.Error(d)
			}
			if l.Size() != size || l.TopicID() != testID {
				t.Errorf("size %d want %d, id %s", l.Size(), size, l.TopicID())
			}
			for _, from := range []int64{1, 77, 299, 599} {
				if d := cmp.Diff(offsets(from, 600), readAll(t, l, from)); d != "" {
					t.Errorf("from %d: %s", from, d)
				}
			}
			if e, ok := l.LatestEpoch(); !ok || e != 0 {
				t.Errorf("latest epoch %d %v", e, ok)
			}
		})
	}
}

func TestReadIsBoundedByTheHighWatermark(t *testing.T) {
	b := newBroker(t).open()
	l := b.log("t", 0)
	for range 10 {
		mustAppend(t, l, batchOf(5, 10, nowMs))
	}
	one := int(l.Size() / 10)
	if hw, err := l.SetHighWatermark(15); hw != 15 || err != nil {
		t.Fatal(hw, err)
	}
	read := func(offset int64, o ReadOptions) ReadResult {
		t.Helper()
		r, err := l.Read(offset, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Records.Release)
		return r
	}
	if r := read(5, ReadOptions{MaxBytes: 1 << 20, Isolation: HighWatermark}); r.Records.Len() != 2*one || r.MaxOffset != 15 {
		t.Errorf("%d bytes up to %d, want %d", r.Records.Len(), r.MaxOffset, 2*one)
	}
	if r := read(15, ReadOptions{MaxBytes: 1 << 20, Isolation: HighWatermark, MinOneMessage: true}); r.Records.Len() != 0 {
		t.Errorf("%d bytes at the high watermark", r.Records.Len())
	}
	if r := read(5, ReadOptions{MaxBytes: 10, Isolation: LogEnd, MinOneMessage: true}); r.Records.Len() != one {
		t.Errorf("%d bytes, want one batch of %d", r.Records.Len(), one)
	}
	if r := read(5, ReadOptions{MaxBytes: 10, Isolation: LogEnd}); r.Records.Len() != 10 || !r.FirstEntryIncomplete {
		t.Errorf("%d bytes, incomplete %v", r.Records.Len(), r.FirstEntryIncomplete)
	}
	if _, err := l.Read(51, ReadOptions{MaxBytes: 1}); Code(err) != cluster.OffsetOutOfRange {
		t.Errorf("beyond the end: %v", err)
	}
	if r := read(50, ReadOptions{MaxBytes: 1, Isolation: LogEnd}); r.Records.Len() != 0 {
		t.Error("bytes at the end")
	}
	if err := l.MaybeIncrementLogStartOffset(16, "test"); Code(err) != cluster.OffsetOutOfRange {
		t.Errorf("start above the high watermark: %v", err)
	}
	if err := l.MaybeIncrementLogStartOffset(12, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(11, ReadOptions{MaxBytes: 1}); Code(err) != cluster.OffsetOutOfRange {
		t.Errorf("below the start: %v", err)
	}
	if d := cmp.Diff(offsets(12, 50), readAll(t, l, 12)); d != "" {
		t.Error(d)
	}
}

// A consumer that looks for times in a partition without records must not make the broker look for a file that is not there.
func TestALogWithoutRecordsHasNoneAtAnyTime(t *testing.T) {
	b := newBroker(t).open()
	l := b.log("t", 0)
	for _, ts := range []int64{0, nowMs - 1000, nowMs + 1000_000, MaxTimestamp} {
		if found, ok, err := l.OffsetForTimestamp(ts); ok || err != nil {
			t.Errorf("at %d: %+v, %v, %v", ts, found, ok, err)
		}
	}
	if mustAppend(t, l, batchOf(1, 10, nowMs)); !b.IsDirOnline(l.Dir()) {
		t.Error("the log dir is offline")
	}
}
