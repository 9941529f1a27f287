//go:build interop

package interop

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// processes is the brokers of a cluster, each a process.
type processes struct {
	t       *testing.T
	brokers []*broker // broker.id is the index plus one
	session time.Duration
}

// start starts brokers at once, as their order does not matter.
func (c *processes) start(indices ...int) {
	c.t.Helper()
	var all sync.WaitGroup
	errs := make([]error, len(c.brokers))
	for _, i := range indices {
		all.Go(func() { errs[i] = c.brokers[i].tryStart() })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		c.t.Fatalf("%v\n%s", err, c.brokers[indices[0]].stderr.tail(40))
	}
}

// others are the indices that are not the given ones.
func (c *processes) others(than ...int) (out []int) {
	for i := range c.brokers {
		if !slices.Contains(than, i) {
			out = append(out, i)
		}
	}
	return out
}
