package etcdstore

import (
	"fmt"
	"testing"

	"klamm/internal/coord"
)

// A topic of 2,000 partitions as the controller writes it: parents, states, one change of every state, deletion.
func BenchmarkTopicOf2000Partitions(b *testing.B) {
	e, err := Embedded(b.Context(), EmbeddedConfig{Dir: b.TempDir(), Log: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	s := e.Store()
	create := []coord.Op{coord.Create("/t", nil), coord.Create("/t/partitions", nil)}
	var set []coord.Op
	for i := range 2000 {
		p := fmt.Sprintf("/t/partitions/%d", i)
		create = append(create, coord.Create(p, nil), coord.Create(p+"/state", make([]byte, 80)))
		set = append(set, coord.Set(p+"/state", make([]byte, 80), 0))
	}
	if _, err := s.Multi(b.Context(), coord.Create("/guard", nil)); err != nil {
		b.Fatal(err)
	}
	guard := &coord.Guard{Path: "/guard", Version: 0}
	for b.Loop() {
		for _, ops := range [][]coord.Op{create, set} {
			results, err := s.Batch(b.Context(), guard, ops)
			if err != nil || results[len(results)-1].Err != nil {
				b.Fatal(err, results[len(results)-1].Err)
			}
		}
		if err := s.DeleteTree(b.Context(), guard, "/t"); err != nil {
			b.Fatal(err)
		}
	}
}
