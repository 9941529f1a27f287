package replica

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"klamm/internal/cluster"
)

// Below inter.broker.protocol.version 2.7-IV2 controllers know no AlterPartition: leaders write the ISR into the state node of
// the partition, at the partition epoch that they know, and tell the controller afterwards by a notification with
// all partitions that were changed meanwhile (Kafka: ZkAlterPartitionManager, formerly ReplicaManager.maybePropagateIsrChanges).

// StateStore writes partition states. Safe for concurrent use.
type StateStore interface {
	// WriteStates writes each state on the condition of its partition epoch. The results, one per write in order, have the
	// new partition epoch, or a code: INVALID_UPDATE_VERSION when somebody else wrote the state, UNKNOWN_TOPIC_OR_PARTITION
	// when the node is gone. The error is for the call as a whole: nothing is known of what was applied, and the same writes
	// may be made again.
	WriteStates(ctx context.Context, writes []StateWrite) ([]StateWriteResult, error)
	// Confirm returns once the store has answered: this broker reaches it, and hears it.
	Confirm(ctx context.Context) error
	// NotifyISRChange tells the controller to read the states of the partitions.
	NotifyISRChange(ctx context.Context, tps []cluster.TopicPartition) error
}

// StateWrite is a partition's next state; State.PartitionEpoch is the one that is expected.
type StateWrite struct {
	TP    cluster.TopicPartition
	State cluster.LeaderAndISR
}

// StateWriteResult is what became of a StateWrite.
type StateWriteResult struct {
	State cluster.LeaderAndISR // as it is now
	Code  cluster.ErrorCode
}

// write is send where the leader writes itself.
func (a *alterPartitions) write(ctx context.Context, batch map[cluster.TopicPartition]*alterPartitionItem) bool {
	tps := sortedKeys(batch)
	writes := make([]StateWrite, len(tps))
	for i, tp := range tps {
		writes[i] = StateWrite{tp, batch[tp].proposed}
	}
	results, err := a.states.WriteStates(ctx, writes)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("isr changes could not be written, will be tried again", "partitions", len(writes), "err", err)
		}
		return false
	}
	again := false
	for i, tp := range tps {
		item := batch[tp]
		delete(batch, tp)
		if results[i].Code == cluster.None {
			a.notices.add(tp, time.Now())
		}
		again = again || refusalOf(results[i].Code) == refusedForNow
		item.done(results[i].State, results[i].Code)
	}
	return !again
}

// mayShrink reports whether it is the followers that are away, and not this leader: it has a session, and the store answers after they
// have fallen behind. A leader that hears nobody but is heard by the controller would take out of the ISR, just before its session ends,
// those that are to succeed it, and nobody could be elected until it is back.
func (a *alterPartitions) mayShrink(ctx context.Context) bool {
	if a.states == nil {
		return true
	}
	if !a.registered() {
		return false
	}
	try, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	err := a.states.Confirm(try)
	if err != nil && ctx.Err() == nil {
		a.log.Warn("the coordination store does not answer, isr changes wait", "err", err)
	}
	return err == nil
}

// writeShrinks writes the changes that take somebody out of an ISR, where the controller does not answer: as long as the follower is in, nothing
// is acknowledged, and the link to the controller may be the one that is lost. (Leaders of Kafka wait for the controller.) The
// conditions are the same as below 2.7-IV2, and so is what the controller makes of the notification: every version of Kafka's listens
// to it. It reports whether nothing is left of the batch.
func (a *alterPartitions) writeShrinks(ctx context.Context, batch map[cluster.TopicPartition]*alterPartitionItem) bool {
	shrinks := map[cluster.TopicPartition]*alterPartitionItem{}
	for tp, item := range batch {
		if item.shrinks {
			shrinks[tp] = item
		}
	}
	if len(shrinks) == 0 || a.states == nil {
		return false
	}
	a.log.Warn("the controller does not answer, writing isr changes without it", "partitions", len(shrinks))
	for tp := range shrinks {
		delete(batch, tp)
	}
	done := a.write(ctx, shrinks)
	maps.Copy(batch, shrinks) // what could not be written
	if len(batch) == 0 {
		a.unanswered = time.Time{} // the next change is another matter
	}
	return done && len(batch) == 0
}

// A notification makes the controller read the states and send metadata to every broker, so changes are collected: until none
// came for a while, but not for longer than the maximum. Kafka waits for 5 s and at most 60 s.
const (
	isrNoticeCheck  = 500 * time.Millisecond
	isrNoticeLinger = time.Second
	isrNoticeMax    = 10 * time.Second
	// isrNoticePartitions bounds one notification: a node of ZooKeeper's holds less than 1 MiB, and a name has up to 249 bytes.
	isrNoticePartitions = 3000
)

// isrNotices are the partitions of which the controller has to be told.
type isrNotices struct {
	sync.Mutex
	tps         map[cluster.TopicPartition]bool
	first, last time.Time // of the changes that wait
}

func (n *isrNotices) add(tp cluster.TopicPartition, now time.Time) {
	n.Lock()
	defer n.Unlock()
	if len(n.tps) == 0 {
		n.tps, n.first = map[cluster.TopicPartition]bool{}, now
	}
	n.tps[tp], n.last = true, now
}

// takeDue takes what is to be told now.
func (n *isrNotices) takeDue(now time.Time) []cluster.TopicPartition {
	n.Lock()
	defer n.Unlock()
	if len(n.tps) == 0 || now.Sub(n.last) < isrNoticeLinger && now.Sub(n.first) < isrNoticeMax {
		return nil
	}
	due := sortedKeys(n.tps)
	n.tps = nil
	return due
}

// runNotices tells the controller until the context ends. What could not be told is told with the next changes.
func (a *alterPartitions) runNotices(ctx context.Context) {
	tick := time.NewTicker(isrNoticeCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for part := range slices.Chunk(a.notices.takeDue(now), isrNoticePartitions) {
				a.notify(ctx, part, now)
			}
		}
	}
}

func (a *alterPartitions) notify(ctx context.Context, tps []cluster.TopicPartition, now time.Time) {
	err := a.states.NotifyISRChange(ctx, tps)
	if err == nil || ctx.Err() != nil {
		return
	}
	a.log.Warn("the controller could not be told of isr changes, will be tried again", "partitions", len(tps), "err", err)
	for _, tp := range tps {
		a.notices.add(tp, now)
	}
}
