package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"klamm/internal/cluster"
)

// ErrControllerMoved reports that another broker is, or meanwhile became, the controller.
var ErrControllerMoved = errors.New("another broker became the controller")

// Term is one time in office of a controller. Every write that the controller makes is guarded by EpochVersion, so
// none can be applied once a newer controller was elected.
type Term struct {
	Controller   cluster.BrokerID
	Epoch        cluster.ControllerEpoch
	EpochVersion int32 // data version of /controller_epoch
}

// Guard fences a Batch or DeleteTree by the term.
func (t Term) Guard() *Guard { return &Guard{Path: ControllerEpochPath, Version: t.EpochVersion} }

// ActiveController reads who is the controller; NoBroker when nobody is.
func ActiveController(ctx context.Context, s Store) (cluster.BrokerID, error) {
	node, err := s.Get(ctx, ControllerPath)
	if errors.Is(err, ErrNoNode) {
		return cluster.NoBroker, nil
	}
	if err != nil {
		return cluster.NoBroker, fmt.Errorf("read controller: %w", err)
	}
	n, err := DecodeController(node.Data)
	if err != nil {
		return cluster.NoBroker, err
	}
	return n.BrokerID, nil
}

// TryElect makes the broker the controller if there is none: it creates /controller and increments
// /controller_epoch in one transaction. ErrControllerMoved when another broker won. Any other error leaves open
// whether the broker was elected: Kafka then moves the controller on (Resign with the last known term).
// Kafka: KafkaZkClient.registerControllerAndIncrementControllerEpoch.
func TryElect(ctx context.Context, s Store, sess Session, id cluster.BrokerID) (Term, error) {
	epoch, version, err := readOrCreateControllerEpoch(ctx, s)
	if err != nil {
		return Term{}, fmt.Errorf("elect controller: %w", err)
	}
	me := EncodeController(ControllerNode{BrokerID: id, TimestampMs: time.Now().UnixMilli(), KRaftEpoch: NoKRaftEpoch})
	results, err := s.Multi(ctx,
		CreateEphemeral(ControllerPath, me, sess),
		Set(ControllerEpochPath, EncodeControllerEpoch(epoch+1), version))
	switch {
	case err == nil:
		return Term{id, epoch + 1, results[1].Stat.Version}, nil
	case errors.Is(err, ErrNodeExists) || errors.Is(err, ErrBadVersion) || errors.Is(err, ErrUnknownOutcome):
		return verifyElection(ctx, s, sess, id, epoch+1, err)
	}
	return Term{}, fmt.Errorf("elect controller: %w", err)
}

// verifyElection finds out whether an election that was refused or not answered is nevertheless ours: an earlier
// try may have been applied and its answer lost.
func verifyElection(ctx context.Context, s Store, sess Session, id cluster.BrokerID, want cluster.ControllerEpoch, cause error) (Term, error) {
	reads, err := s.GetMany(ctx, []string{ControllerPath, ControllerEpochPath})
	if err != nil {
		return Term{}, fmt.Errorf("verify election: %w", err)
	}
	if reads[0].Err != nil {
		if errors.Is(cause, ErrUnknownOutcome) {
			// Not applied so far, and it may still be: only a new try can tell.
			return Term{}, fmt.Errorf("elect controller: %w", cause)
		}
		return Term{}, fmt.Errorf("%w: it is gone already", ErrControllerMoved)
	}
	n, err := DecodeController(reads[0].Node.Data)
	if err != nil {
		return Term{}, fmt.Errorf("verify election: %w", err)
	}
	if n.BrokerID != id {
		return Term{}, fmt.Errorf("%w: broker %d", ErrControllerMoved, n.BrokerID)
	}
	if reads[0].Node.Stat.EphemeralOwner != sess.ID() {
		// Kafka looks at the id only. The node of my own previous session has my id and will soon be gone.
		return Term{}, fmt.Errorf("%w: broker %d in session %#x", ErrControllerMoved, n.BrokerID, reads[0].Node.Stat.EphemeralOwner)
	}
	if reads[1].Err != nil {
		return Term{}, fmt.Errorf("verify election: read controller epoch: %w", reads[1].Err)
	}
	epoch, err := DecodeControllerEpoch(reads[1].Node.Data)
	if err != nil {
		return Term{}, fmt.Errorf("verify election: %w", err)
	}
	if epoch != want {
		return Term{}, fmt.Errorf("%w: the controller epoch is %d, not %d", ErrControllerMoved, epoch, want)
	}
	return Term{id, epoch, reads[1].Node.Stat.Version}, nil
}

// readOrCreateControllerEpoch returns the epoch of the last election with the node's data version; 0 at first.
func readOrCreateControllerEpoch(ctx context.Context, s Store) (cluster.ControllerEpoch, int32, error) {
	node, err := s.Get(ctx, ControllerEpochPath)
	if errors.Is(err, ErrNoNode) {
		_, err = s.Multi(ctx, Create(ControllerEpochPath, EncodeControllerEpoch(0)))
		if err == nil {
			return 0, 0, nil
		}
		if errors.Is(err, ErrNodeExists) || errors.Is(err, ErrUnknownOutcome) {
			node, err = s.Get(ctx, ControllerEpochPath)
		}
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read controller epoch: %w", err)
	}
	epoch, err := DecodeControllerEpoch(node.Data)
	return epoch, node.Stat.Version, err
}

// Resign deletes /controller while the term still holds, so that every broker tries to be elected. ErrFenced when a
// newer controller exists. Without a /controller there is nothing to do.
func Resign(ctx context.Context, s Store, t Term) error {
	results, err := s.Batch(ctx, t.Guard(), []Op{Delete(ControllerPath, AnyVersion)})
	if err == nil {
		err = results[0].Err
	}
	if err != nil && !errors.Is(err, ErrNoNode) {
		return fmt.Errorf("resign as controller: %w", err)
	}
	return nil
}
