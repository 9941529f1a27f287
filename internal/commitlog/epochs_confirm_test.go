package commitlog

import (
	"path"
	"slices"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/vfs"
)

func TestRecoveredBatchesCorrectTheEpochCache(t *testing.T) {
	file := []epochEntry{{3, 0}, {5, 10}, {7, 20}}
	for _, tc := range []struct {
		name  string
		epoch cluster.LeaderEpoch
		at    int64
		want  []epochEntry
	}{
		{"as the file says", 5, 15, file},
		{"at an epoch's start", 7, 20, file},
		{"an older epoch than the file says: its entry goes, the epoch's own start stays", 5, 20, []epochEntry{{3, 0}, {5, 10}}},
		{"an older epoch in the middle", 3, 12, []epochEntry{{3, 0}}},
		{"an epoch that the file lacks", 8, 30, []epochEntry{{3, 0}, {5, 10}, {7, 20}, {8, 30}}},
		{"an epoch that began later than the file says", 6, 25, []epochEntry{{3, 0}, {5, 10}, {6, 25}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := epochCache{entries: slices.Clone(file)}
			if c.confirm(tc.epoch, tc.at); !slices.Equal(c.entries, tc.want) {
				t.Errorf("entries %v, want %v", c.entries, tc.want)
			}
		})
	}
}

// A leader that wrote nothing in its epoch and follows then drops the epoch from memory alone; no later opening of the log knows it.
func TestAnEpochWithoutBatchesCostsNoFileWhenItEnds(t *testing.T) {
	for _, end := range []struct {
		name string
		stop func(b *broker)
	}{{"closed", func(b *broker) { b.close() }}, {"killed", func(b *broker) { b.kill() }}} {
		t.Run(end.name, func(t *testing.T) {
			renames := 0
			b := newBroker(t, vfs.NewFault(vfs.NewMem(), func(op vfs.Op) error {
				if op.Kind == vfs.OpRename && path.Base(op.Name) == leaderEpochFile+".tmp" {
					renames++
				}
				return nil
			}))
			b.open()
			l := b.log("t", 0)
			mustAppend(t, l, batchOf(2, 100, nowMs))
			if err := l.AssignLeaderEpochStart(7, 2); err != nil {
				t.Fatal(err)
			}
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
			known, before := l.epochs.entries[0], renames
			if cut, err := l.TruncateTo(2); cut || err != nil {
				t.Fatalf("cut %v, %v", cut, err)
			}
			want := []epochEntry{known}
			if !slices.Equal(l.epochs.entries, want) {
				t.Errorf("after the truncation: %v", l.epochs.entries)
			}
			end.stop(b)
			if renames != before {
				t.Errorf("the epoch file was written %d times", renames-before)
			}
			b.open()
			l, _ = b.Get(tp("t", 0))
			if !slices.Equal(l.epochs.entries, want) {
				t.Errorf("after opening: %v", l.epochs.entries)
			}
			b.close()
		})
	}
}
