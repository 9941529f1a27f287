package coord

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"klamm/internal/cluster"
)

// StateWrite is a partition's next state, written by its leader; State.PartitionEpoch is the one that is expected.
type StateWrite struct {
	TP    cluster.TopicPartition
	State cluster.LeaderAndISR
}

// StateWriteResult is what became of a StateWrite: State is valid when Err is nil, and has the new partition epoch. Err is
// ErrBadVersion when another writer was there, ErrNoNode when the node is gone.
type StateWriteResult struct {
	State cluster.LeaderAndISR
	Err   error
}

// WriteStates writes states on the condition of their partition epochs, not fenced by a controller epoch: that is how
// leaders change their ISR below inter.broker.protocol.version 2.7-IV2. A write that finds its own content at a newer
// version was applied before, and its answer lost (Kafka: ReplicationUtils.updateLeaderAndIsr). The error is for the call as a
// whole: some of the writes may have been applied, and all may be made again.
func WriteStates(ctx context.Context, s Store, writes []StateWrite) ([]StateWriteResult, error) {
	ops := make([]Op, len(writes))
	for i, w := range writes {
		ops[i] = Set(PartitionStatePath(w.TP), EncodePartitionState(w.State), int32(w.State.PartitionEpoch))
	}
	done, err := s.Batch(ctx, nil, ops)
	if err != nil {
		return nil, fmt.Errorf("write partition states: %w", err)
	}
	out := make([]StateWriteResult, len(writes))
	var doubtful []int
	for i, r := range done {
		switch {
		case r.Err == nil:
			out[i].State = writes[i].State
			out[i].State.PartitionEpoch = cluster.PartitionEpoch(r.Stat.Version)
		case errors.Is(r.Err, ErrBadVersion):
			doubtful = append(doubtful, i)
		case errors.Is(r.Err, ErrNoNode):
			out[i].Err = r.Err
		default:
			return nil, fmt.Errorf("write the state of %s: %w", writes[i].TP, r.Err)
		}
	}
	return out, lookUpStates(ctx, s, writes, out, doubtful)
}

// lookUpStates finds out which of the writes that met another version had been applied already.
func lookUpStates(ctx context.Context, s Store, writes []StateWrite, out []StateWriteResult, doubtful []int) error {
	if len(doubtful) == 0 {
		return nil
	}
	paths := make([]string, len(doubtful))
	for k, i := range doubtful {
		paths[k] = PartitionStatePath(writes[i].TP)
	}
	reads, err := s.GetMany(ctx, paths)
	if err != nil {
		return fmt.Errorf("read partition states: %w", err)
	}
	for k, i := range doubtful {
		out[i].Err = ErrBadVersion
		if reads[k].Err != nil {
			out[i].Err = reads[k].Err
			continue
		}
		now, err := DecodePartitionState(reads[k].Node.Data, reads[k].Node.Stat.Version)
		if err == nil && sameState(now, writes[i].State) {
			out[i] = StateWriteResult{State: now}
		}
	}
	return nil
}

func sameState(a, b cluster.LeaderAndISR) bool {
	return a.Leader == b.Leader && a.LeaderEpoch == b.LeaderEpoch && a.ControllerEpoch == b.ControllerEpoch && a.Recovery == b.Recovery &&
		slices.Equal(a.ISR, b.ISR)
}

// NotifyISRChange leaves the controller a note of partitions whose states their leader has written.
func NotifyISRChange(ctx context.Context, s Store, tps []cluster.TopicPartition) error {
	if _, err := s.Multi(ctx, CreateSequential(ISRChangePrefix, EncodeISRChange(tps))); err != nil {
		return fmt.Errorf("notify of isr changes: %w", err)
	}
	return nil
}
