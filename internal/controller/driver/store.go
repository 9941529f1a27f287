package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"klamm/internal/controller"
	"klamm/internal/coord"
)

// runStore runs one operation of the core and gives its result, whatever happens: an operation cut short by the end of the
// session or of Run is Closed.
func (d *Driver) runStore(op controller.Store) controller.StoreResult {
	s := d.session.Load()
	if !wait(s.ctx, time.Duration(op.DelayMs)*time.Millisecond) {
		return controller.StoreResult{Token: op.Token, Outcome: controller.Closed, Err: "the session has ended"}
	}
	ctx, cancel := context.WithTimeout(s.ctx, d.cfg.StoreTimeout)
	defer cancel()
	var guard *coord.Guard
	if op.Fenced {
		guard = &coord.Guard{Path: coord.ControllerEpochPath, Version: op.ZkVersion}
	}
	started := time.Now()
	value, err := (&storeOp{d: d, session: s, guard: guard}).run(ctx, op.Op)
	d.status.storeTime.observe(time.Since(started))
	if err != nil {
		outcome := outcomeOf(err, s.ctx, op.Fenced || isElection(op.Op))
		return controller.StoreResult{Token: op.Token, Outcome: outcome, Err: err.Error()}
	}
	return controller.StoreResult{Token: op.Token, Outcome: controller.Applied, Value: value}
}

// wait returns true after the pause, or false as soon as ctx has ended.
func wait(ctx context.Context, pause time.Duration) bool {
	if pause <= 0 || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// isElection tells the unfenced operations that write.
func isElection(op controller.StoreOp) bool {
	switch op.(type) {
	case controller.CreateControllerEpoch, controller.Elect:
		return true
	default:
		return false
	}
}

// outcomeOf judges an operation that failed as a whole. A write that fails for an unforeseen reason may have been applied.
func outcomeOf(err error, session context.Context, writes bool) controller.Outcome {
	switch {
	case errors.Is(err, coord.ErrFenced):
		return controller.Fenced
	case session.Err() != nil, errors.Is(err, coord.ErrSessionExpired), errors.Is(err, coord.ErrClosed):
		return controller.Closed
	case errors.Is(err, coord.ErrUnknownOutcome):
		return controller.UnknownOutcome
	case errors.Is(err, coord.ErrUnavailable), !writes:
		return controller.Unavailable
	default:
		return controller.UnknownOutcome
	}
}

// storeOp runs operations of one term under one session.
type storeOp struct {
	d       *Driver
	session coord.Session
	guard   *coord.Guard // nil where the operation is not fenced
}

func (o *storeOp) run(ctx context.Context, op controller.StoreOp) (controller.StoreValue, error) {
	switch op := op.(type) {
	case controller.ReadController:
		return o.readController(ctx)
	case controller.ReadControllerEpoch:
		return o.readControllerEpoch(ctx)
	case controller.CreateControllerEpoch:
		return o.createControllerEpoch(ctx)
	case controller.Elect:
		return o.elect(ctx, op)
	case controller.DeleteController:
		return o.remove(ctx, []string{coord.ControllerPath})
	case controller.ReadBrokers:
		return o.readBrokers(ctx)
	case controller.ReadTopicNames:
		names, err := o.children(ctx, coord.TopicsPath)
		return controller.TopicNamesRead{Names: names}, err
	case controller.ReadTopics:
		return o.readTopics(ctx, op.Names)
	case controller.ReadPartitionStates:
		states, err := o.readStates(ctx, op.Partitions)
		return controller.StatesRead{States: states}, err
	case controller.ReadDeletionMarkers:
		return o.readMarkers(ctx)
	case controller.ReadTopicConfigs:
		return o.readTopicConfigs(ctx, op.Topics)
	case controller.ReadLogDirEvents:
		return o.readLogDirEvents(ctx)
	case controller.ReadISRChanges:
		return o.readISRChanges(ctx)
	case controller.ReadProducerIDBlock:
		return o.readProducerIDBlock(ctx)
	case controller.ReadReassignments:
		return o.readReassignments(ctx)
	case controller.SetReassignments:
		return o.setReassignments(ctx, op)
	case controller.ReadPreferredElection:
		return o.readPreferredElection(ctx)
	case controller.DeletePreferredElection:
		return o.deleteAt(ctx, coord.PreferredElectionPath, op.Version)
	case controller.EnsureFeatures:
		return o.ensureFeatures(ctx)
	case controller.ReadFeatures:
		return o.readFeatures(ctx)
	case controller.SetFeatures:
		return o.setFeatures(ctx, op)
	case controller.CreatePartitionStates:
		return o.createStates(ctx, op.States)
	case controller.SetPartitionStates:
		return o.setStates(ctx, op.States)
	case controller.SetTopics:
		return o.setTopics(ctx, op.Topics)
	case controller.DeleteTopicTrees:
		return o.deleteTrees(ctx, op.Topics)
	case controller.DeleteTopicConfigs:
		paths := make([]string, len(op.Topics))
		for i, t := range op.Topics {
			paths[i] = coord.ConfigEntityPath(coord.TopicConfigs, t)
		}
		return o.remove(ctx, paths)
	case controller.DeleteMarkers:
		return o.deleteMarkers(ctx, op.Markers)
	case controller.RecordLeftovers:
		return o.recordLeftovers(ctx, op.Leftovers)
	case controller.ForgetKlammBrokers:
		paths := make([]string, len(op.Brokers))
		for i, id := range op.Brokers {
			paths[i] = coord.KlammBrokerPath(id)
		}
		return o.remove(ctx, paths)
	case controller.DeleteLogDirEvents:
		return o.deleteNotifications(ctx, coord.LogDirEventPath, op.Names)
	case controller.DeleteISRChanges:
		return o.deleteNotifications(ctx, coord.ISRChangePath, op.Names)
	case controller.SetProducerIDBlock:
		return o.setProducerIDBlock(ctx, op)
	default:
		panic(fmt.Sprintf("store operation %T has no implementation", op))
	}
}
