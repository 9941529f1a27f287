package commitlog

import (
	"slices"
	"testing"

	"klamm/internal/cluster"
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
