//go:build !race

package record

import "testing"

// The race detector makes pools forget at random, so these counts hold without it only.

func TestValidationAllocatesNothing(t *testing.T) {
	for _, c := range []Codec{None, Snappy, Zstd, Gzip, LZ4} {
		raw := sample(t, c, 200)
		o := options()
		allocs := testing.AllocsPerRun(50, func() {
			if _, err := ValidateProduce(raw, o); err != nil {
				t.Fatal(err)
			}
			Assign(raw, 0, 1, -1)
		})
		// pierrec's lz4 reader starts each frame with a few objects of its own, whatever the number of records.
		if limit := map[Codec]float64{LZ4: 6, Gzip: 1}[c]; allocs > limit {
			t.Errorf("%s: %v allocations for 200 records", c, allocs)
		}
	}
}
