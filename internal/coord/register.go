package coord

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"klamm/internal/cluster"
)

// RegisterOptions says how RegisterBroker treats a node that is already there.
type RegisterOptions struct {
	// PreviousSession is the id of a session of this process that ended; its node is replaced at once. 0 = none.
	PreviousSession int64
	// Wait is how long to wait for a conflicting registration to go, as that of a broker that crashed does when its
	// session expires. It should be somewhat longer than the session's ttl. 0 refuses at once, as Kafka does.
	Wait time.Duration
}

// BrokerConflictError reports that a live broker holds the id or an endpoint that a starting broker wants.
type BrokerConflictError struct {
	ID       cluster.BrokerID   // of the starting broker
	Wanted   []cluster.Endpoint // of the starting broker
	Endpoint *cluster.Endpoint  // the endpoint both want; nil when the conflict is the id
	HolderID cluster.BrokerID
	Holder   []cluster.Endpoint
	Session  int64 // that keeps the holder's registration
}

// Error names both brokers.
func (e *BrokerConflictError) Error() string {
	if e.Endpoint != nil {
		return fmt.Sprintf("broker %d cannot advertise %s:%d: live broker %d (%s) advertises it already",
			e.ID, e.Endpoint.Host, e.Endpoint.Port, e.HolderID, formatEndpoints(e.Holder))
	}
	return fmt.Sprintf("broker id %d (%s) is in use by a live broker (%s, session %#x)",
		e.ID, formatEndpoints(e.Wanted), formatEndpoints(e.Holder), e.Session)
}

func formatEndpoints(endpoints []cluster.Endpoint) string {
	names := make([]string, len(endpoints))
	for i, e := range endpoints {
		names[i] = formatEndpoint(e)
	}
	return strings.Join(names, ",")
}

// RegisterBroker creates the broker's registration under the session; the broker epoch is the node's creation id.
// It refuses with a *BrokerConflictError when another live broker has the id or one of the advertised host:port
// pairs. A registration that this session made before is accepted as it is.
// Kafka: KafkaServer.checkDuplicateEndpoints, KafkaZkClient.CheckedEphemeral.
func RegisterBroker(ctx context.Context, s Store, sess Session, id cluster.BrokerID, n BrokerNode, o RegisterOptions) (cluster.BrokerEpoch, error) {
	w := s.NewWatcher()
	defer w.Close()
	w.Add(BrokerIDsPath, WatchChildren)
	waiting, stop := context.WithTimeout(ctx, o.Wait)
	defer stop()
	for {
		epoch, err := tryRegister(ctx, s, sess, id, n, o.PreviousSession)
		var conflict *BrokerConflictError
		if !errors.As(err, &conflict) {
			return epoch, err
		}
		if _, waitErr := w.Next(waiting); waitErr != nil {
			return cluster.NoBrokerEpoch, err
		}
	}
}

func tryRegister(ctx context.Context, s Store, sess Session, id cluster.BrokerID, n BrokerNode, previous int64) (cluster.BrokerEpoch, error) {
	if err := checkEndpoints(ctx, s, id, n); err != nil {
		return cluster.NoBrokerEpoch, err
	}
	path, data := BrokerPath(id), EncodeBroker(n)
	for {
		// Kafka creates the node empty and sets it, so that a live registration's data version is 1 or more.
		results, err := s.Multi(ctx, CreateEphemeral(path, nil, sess), Set(path, data, 0))
		if err == nil {
			return cluster.BrokerEpoch(results[1].Stat.Czxid), nil
		}
		if !errors.Is(err, ErrNodeExists) && !errors.Is(err, ErrUnknownOutcome) {
			return cluster.NoBrokerEpoch, fmt.Errorf("register broker %d: %w", id, err)
		}
		node, readErr := s.Get(ctx, path)
		switch {
		case errors.Is(readErr, ErrNoNode):
			continue // gone meanwhile, or not applied: creating twice is not possible
		case readErr != nil:
			return cluster.NoBrokerEpoch, fmt.Errorf("register broker %d: %w", id, readErr)
		case node.Stat.EphemeralOwner == sess.ID():
			return cluster.BrokerEpoch(node.Stat.Czxid), nil
		case previous != 0 && node.Stat.EphemeralOwner == previous:
			// ZOOKEEPER-2985: the engine may still hold the node of a session that this process knows to be over.
			_, delErr := s.Multi(ctx, Delete(path, node.Stat.Version))
			if delErr != nil && !errors.Is(delErr, ErrNoNode) && !errors.Is(delErr, ErrBadVersion) {
				return cluster.NoBrokerEpoch, fmt.Errorf("replace registration of broker %d: %w", id, delErr)
			}
		default:
			conflict := &BrokerConflictError{ID: id, Wanted: n.Endpoints, HolderID: id, Session: node.Stat.EphemeralOwner}
			if holder, err := DecodeBroker(node.Data); err == nil {
				conflict.Holder = holder.Endpoints
			}
			return cluster.NoBrokerEpoch, conflict
		}
	}
}

// checkEndpoints refuses to advertise a host:port that another live broker advertises.
func checkEndpoints(ctx context.Context, s Store, id cluster.BrokerID, n BrokerNode) error {
	nodes, err := readChildren(ctx, s, BrokerIDsPath)
	if err != nil {
		return fmt.Errorf("read registered brokers: %w", err)
	}
	for _, node := range nodes {
		other, isBroker := ParseBrokerPath(node.Path)
		holder, err := DecodeBroker(node.Data)
		if !isBroker || other == id || err != nil {
			continue // what is no registration that could be read advertises nothing
		}
		for _, mine := range n.Endpoints {
			for _, theirs := range holder.Endpoints {
				if mine.Host == theirs.Host && mine.Port == theirs.Port {
					return &BrokerConflictError{
						ID: id, Wanted: n.Endpoints, Endpoint: &mine,
						HolderID: other, Holder: holder.Endpoints, Session: node.Stat.EphemeralOwner,
					}
				}
			}
		}
	}
	return nil
}

// readChildren reads the direct children of a node with their data. Those that go meanwhile, or may not be read, are left out.
func readChildren(ctx context.Context, s Store, parent string) ([]Node, error) {
	names, err := s.Children(ctx, parent)
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = parent + "/" + name
	}
	reads, err := s.GetMany(ctx, paths)
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, r := range reads {
		switch {
		case r.Err == nil:
			nodes = append(nodes, r.Node)
		case !errors.Is(r.Err, ErrNoNode) && !errors.Is(r.Err, ErrNoPermission):
			return nil, r.Err
		}
	}
	return nodes, nil
}
