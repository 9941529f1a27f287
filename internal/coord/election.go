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
// /controller_epoch in one transaction. ErrControllerMoved when another broker won. After any other error the broker
// may have been elected without knowing; TryElect again then finds that term and returns it.
// Kafka: KafkaZkClient.registerControllerAndIncrementControllerEpoch.
func TryElect(ctx context.Context, s Store, sess Session, id cluster.BrokerID) (Term, error) {
	epoch, version, err := readOrCreateControllerEpoch(ctx, s)
	if err != nil {
		return Term{}, fmt.Errorf("elect controller: %w", err)
	}
	me := EncodeController(ControllerNode{BrokerID: id, TimestampMs: time.Now().UnixMilli(), KRaftEpoch: NoKRaftEpoch})
	for {
		results, err := s.Multi(ctx,
			CreateEphemeral(ControllerPath, me, sess),
			Set(ControllerEpochPath, EncodeControllerEpoch(epoch+1), version))
		unknown := errors.Is(err, ErrUnknownOutcome)
		switch {
		case err == nil:
			return Term{id, epoch + 1, results[1].Stat.Version}, nil
		case !unknown && !errors.Is(err, ErrNodeExists) && !errors.Is(err, ErrBadVersion):
			return Term{}, fmt.Errorf("elect controller: %w", err)
		}
		term, elected, err := findTerm(ctx, s, sess, id)
		switch {
		case err != nil:
			return Term{}, fmt.Errorf("verify election: %w", err)
		case elected:
			return term, nil
		case !unknown:
			return Term{}, fmt.Errorf("%w: it is gone already", ErrControllerMoved)
		}
		// Not applied so far. The same transaction can be sent again: the epoch's version lets only one through.
	}
}

// findTerm tells whether this session's broker is the controller: it may have been elected by a try whose answer was
// lost. ErrControllerMoved when somebody else is; false when nobody is.
func findTerm(ctx context.Context, s Store, sess Session, id cluster.BrokerID) (Term, bool, error) {
	reads, err := s.GetMany(ctx, []string{ControllerPath, ControllerEpochPath})
	if err != nil {
		return Term{}, false, err
	}
	if errors.Is(reads[0].Err, ErrNoNode) {
		return Term{}, false, nil
	}
	if err := errors.Join(reads[0].Err, reads[1].Err); err != nil {
		return Term{}, false, err
	}
	n, err := DecodeController(reads[0].Node.Data)
	if err != nil {
		return Term{}, false, err
	}
	owner, epochNode := reads[0].Node.Stat.EphemeralOwner, reads[1].Node
	if n.BrokerID != id || owner != sess.ID() {
		// Kafka looks at the id only. But the node of my own previous session has my id, too, and will soon be gone.
		return Term{}, false, fmt.Errorf("%w: broker %d in session %#x", ErrControllerMoved, n.BrokerID, owner)
	}
	epoch, err := DecodeControllerEpoch(epochNode.Data)
	if err != nil {
		return Term{}, false, err
	}
	// Kafka compares the epoch with the one it wanted to write. One transaction writes both nodes of an election, so
	// their change ids tell the same, also to a later call that does not know what the former wanted.
	if epochNode.Stat.Mzxid != reads[0].Node.Stat.Czxid {
		return Term{}, false, fmt.Errorf("%w: the controller epoch moved to %d", ErrControllerMoved, epoch)
	}
	return Term{id, epoch, epochNode.Stat.Version}, true, nil
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
