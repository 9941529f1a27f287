package node

import (
	"context"
	"errors"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/replica"
)

// stateStore writes the ISRs of partitions that this broker leads, where the inter-broker protocol wants that of leaders.
type stateStore struct{ store coord.Store }

// WriteStates implements replica.StateStore.
func (s stateStore) WriteStates(ctx context.Context, writes []replica.StateWrite) ([]replica.StateWriteResult, error) {
	in := make([]coord.StateWrite, len(writes))
	for i, w := range writes {
		in[i] = coord.StateWrite(w)
	}
	results, err := coord.WriteStates(ctx, s.store, in)
	if err != nil {
		return nil, err
	}
	out := make([]replica.StateWriteResult, len(results))
	for i, r := range results {
		switch {
		case r.Err == nil:
			out[i].State = r.State
		case errors.Is(r.Err, coord.ErrNoNode):
			out[i].Code = cluster.UnknownTopicOrPartition
		default:
			out[i].Code = cluster.InvalidUpdateVersion
		}
	}
	return out, nil
}

// Confirm implements replica.StateStore.
func (s stateStore) Confirm(ctx context.Context) error {
	_, err := s.store.Get(ctx, coord.ControllerPath)
	if errors.Is(err, coord.ErrNoNode) {
		return nil
	}
	return err
}

// NotifyISRChange implements replica.StateStore.
func (s stateStore) NotifyISRChange(ctx context.Context, tps []cluster.TopicPartition) error {
	return coord.NotifyISRChange(ctx, s.store, tps)
}
