package driver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// stateChangesMax bounds the records that wait to be written. A controller with 100,000 partitions makes about twice as many at a failover.
const stateChangesMax = 500_000

// stateChangeLog writes transitions of partitions and replicas on a goroutine of its own, so that no decision waits for the log: a debug
// record each, a failed one at warn, with the time of the transition. When more wait than it holds, the newest are left out and counted in
// one record. Safe for concurrent use.
type stateChangeLog struct {
	to  *slog.Logger
	max int
	mu  struct {
		sync.Mutex
		waiting []stateChanges
		records int // in waiting
		missed  int // since the last record that told it
	}
	wake chan struct{} // holds a token while there may be something to write
}

// stateChanges are the transitions of one effect.
type stateChanges struct {
	at      time.Time
	epoch   cluster.ControllerEpoch
	records []controller.Transition
}

func newStateChangeLog(to *slog.Logger) *stateChangeLog {
	return &stateChangeLog{to: to, max: stateChangesMax, wake: make(chan struct{}, 1)}
}

// add takes over the records. It does not block.
func (l *stateChangeLog) add(epoch cluster.ControllerEpoch, records []controller.Transition) {
	if !l.to.Enabled(context.Background(), slog.LevelDebug) {
		records = failedOnes(records)
	}
	if len(records) == 0 {
		return
	}
	l.mu.Lock()
	fits := min(len(records), l.max-l.mu.records)
	l.mu.missed += len(records) - fits
	records = records[:fits]
	l.mu.records += len(records)
	l.mu.waiting = append(l.mu.waiting, stateChanges{time.Now(), epoch, records})
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func failedOnes(records []controller.Transition) []controller.Transition {
	var out []controller.Transition
	for i := range records {
		if records[i].Err != "" {
			out = append(out, records[i])
		}
	}
	return out
}

// run writes until ctx ends, and then what still waits.
func (l *stateChangeLog) run(ctx context.Context) {
	for {
		select {
		case <-l.wake:
			l.write()
		case <-ctx.Done():
			l.write()
			return
		}
	}
}

func (l *stateChangeLog) write() {
	l.mu.Lock()
	waiting, missed := l.mu.waiting, l.mu.missed
	l.mu.waiting, l.mu.missed = nil, 0
	l.mu.Unlock()
	for _, c := range waiting {
		for i := range c.records {
			l.writeOne(&c, &c.records[i])
		}
		l.mu.Lock()
		l.mu.records -= len(c.records)
		l.mu.Unlock()
	}
	if missed > 0 {
		l.to.Warn("state changes are missing in the log: it is written too slowly", "records", missed)
	}
}

func (l *stateChangeLog) writeOne(c *stateChanges, t *controller.Transition) {
	level := slog.LevelDebug
	if t.Err != "" {
		level = slog.LevelWarn
	}
	if !l.to.Enabled(context.Background(), level) {
		return
	}
	r := slog.NewRecord(c.at, level, "state change", 0)
	r.AddAttrs(slog.String("topic", t.Topic), slog.Int("partition", int(t.Partition)))
	if t.Replica != cluster.NoBroker {
		r.AddAttrs(slog.Int("replica", int(t.Replica)))
	}
	r.AddAttrs(slog.String("from", t.From), slog.String("to", t.To), slog.Int("controller_epoch", int(c.epoch)))
	if t.State != nil {
		r.AddAttrs(slog.Int("leader", int(t.State.Leader)), slog.Int("leader_epoch", int(t.State.LeaderEpoch)),
			slog.Any("isr", t.State.ISR), slog.Int("partition_epoch", int(t.State.PartitionEpoch)))
	}
	if t.Err != "" {
		r.AddAttrs(slog.String("err", t.Err))
	}
	_ = l.to.Handler().Handle(context.Background(), r) // as slog.Logger does: there is nowhere to tell it
}
