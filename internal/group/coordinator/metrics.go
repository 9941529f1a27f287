package coordinator

import (
	"context"
	"sync/atomic"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/group"
)

// Metrics are a coordinator's figures: gauges taken at the call and counters since start.
type Metrics struct {
	Groups      map[group.State]int
	Members     int
	Offsets     int // committed, of all groups
	Partitions  int // of __consumer_offsets that are served here or are being loaded
	Loads       int64
	LoadsFailed int64
	LoadTime    time.Duration // of all loads together
	LoadTimeMax time.Duration
	Rebalances  int64 // generations begun
	// RecordsAppended counts offsets, group records and tombstones that are safe; AppendsFailed counts batches.
	RecordsAppended int64
	AppendsFailed   int64
}

type counters struct {
	loads, loadsFailed, loadNanos, loadNanosMax atomic.Int64
	records, appendsFailed, rebalances          atomic.Int64
}

func (c *counters) loaded(d time.Duration) {
	c.loads.Add(1)
	c.loadNanos.Add(int64(d))
	for {
		old := c.loadNanosMax.Load()
		if int64(d) <= old || c.loadNanosMax.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

func (c *counters) appended(records int, code cluster.ErrorCode) {
	if code != cluster.None {
		c.appendsFailed.Add(1)
		return
	}
	c.records.Add(int64(records))
}

// Metrics asks every shard and gives what is known when the context ends.
func (c *Coordinator) Metrics(ctx context.Context) Metrics {
	k := &c.counters
	m := Metrics{Groups: map[group.State]int{}, Loads: k.loads.Load(), LoadsFailed: k.loadsFailed.Load(),
		LoadTime: time.Duration(k.loadNanos.Load()), LoadTimeMax: time.Duration(k.loadNanosMax.Load()),
		Rebalances: k.rebalances.Load(), RecordsAppended: k.records.Load(), AppendsFailed: k.appendsFailed.Load()}
	shards := c.serving()
	m.Partitions = len(shards)
	answers := make(chan group.Stats, len(shards))
	for _, s := range shards {
		s.ask(group.CollectStats{}, func(v any) { answers <- v.(group.Stats) })
	}
	for range shards {
		select {
		case <-ctx.Done():
			return m
		case part := <-answers:
			for state, n := range part.Groups {
				m.Groups[state] += n
			}
			m.Members += part.Members
			m.Offsets += part.Offsets
		}
	}
	return m
}
