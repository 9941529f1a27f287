package coordtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// procedureTests run what coord builds on a Store: the answers of engines must fit together.
var procedureTests = map[string]func(*testing.T, *fixture){
	"paths are created with their parents":                     ensurePaths,
	"the cluster id is created once":                           clusterID,
	"one of several brokers is elected and epochs grow by one": election,
	"a resigned controller's term guards nothing":              resignation,
	"an election that finds its own earlier success takes it":  electionFindsItself,
	"a broker's epoch is the creation id of its registration":  registration,
	"a live broker with the same id or address is named":       registrationConflicts,
	"a registration of a dead session is waited for":           registrationWaits,
	"the registration of the own previous session is replaced": registrationReplaces,
	"a leader writes partition states and tells of them":       leaderWritesStates,
}

func ensurePaths(t *testing.T, f *fixture) {
	for range 2 {
		if err := coord.EnsurePersistentPaths(f.ctx, f.s); err != nil {
			t.Fatal(err)
		}
		if err := coord.EnsurePath(f.ctx, f.s, "/x/y/z", []byte("leaf")); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range coord.PersistentPaths() {
		f.wantData(p, "")
	}
	f.wantData("/x/y/z", "leaf")
	f.wantData("/x/y", "")
	if err := coord.CreateRecursive(f.ctx, f.s, "/x/y/z", nil); !errors.Is(err, coord.ErrNodeExists) {
		t.Errorf("an existing leaf: %v", err)
	}
}

func clusterID(t *testing.T, f *fixture) {
	first, err := coord.ClusterID(f.ctx, f.s)
	if err != nil || len(first) != 22 {
		t.Fatalf("cluster id %q, %v", first, err)
	}
	if second, err := coord.ClusterID(f.ctx, f.Connect()); err != nil || second != first {
		t.Errorf("cluster id %q, then %q, %v", first, second, err)
	}
}

func election(t *testing.T, f *fixture) {
	s1, s2 := f.session(), f.sessionOf(f.Connect())
	none, err := coord.ActiveController(f.ctx, f.s)
	if none != cluster.NoBroker || err != nil {
		t.Errorf("before any election the controller is %d, %v", none, err)
	}
	term, err := coord.TryElect(f.ctx, f.s, s1, 1)
	if err != nil || term != (coord.Term{Controller: 1, Epoch: 1, EpochVersion: 1}) {
		t.Fatalf("first term %+v, %v", term, err)
	}
	if _, err := coord.TryElect(f.ctx, f.s, s2, 2); !errors.Is(err, coord.ErrControllerMoved) {
		t.Errorf("a second controller: %v", err)
	}
	if id, err := coord.ActiveController(f.ctx, f.s); id != 1 || err != nil {
		t.Errorf("the controller is %d, %v", id, err)
	}
	if err := s1.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	term, err = coord.TryElect(f.ctx, f.s, s2, 2)
	if err != nil || term != (coord.Term{Controller: 2, Epoch: 2, EpochVersion: 2}) {
		t.Errorf("second term %+v, %v", term, err)
	}
	f.wantData(coord.ControllerEpochPath, "2")
}

func resignation(t *testing.T, f *fixture) {
	s1, s2 := f.session(), f.session()
	old, err := coord.TryElect(f.ctx, f.s, s1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing to do
		if err := coord.Resign(f.ctx, f.s, old); err != nil {
			t.Fatalf("resign: %v", err)
		}
		f.wantAbsent(coord.ControllerPath)
	}
	if _, err := coord.TryElect(f.ctx, f.s, s2, 2); err != nil {
		t.Fatal(err)
	}
	if err := coord.Resign(f.ctx, f.s, old); !errors.Is(err, coord.ErrFenced) {
		t.Errorf("resigning an old term: %v", err)
	}
	if _, err := f.s.Batch(f.ctx, old.Guard(), []coord.Op{coord.Create("/late", nil)}); !errors.Is(err, coord.ErrFenced) {
		t.Errorf("a write of an old term: %v", err)
	}
	f.wantAbsent("/late")
	if id, err := coord.ActiveController(f.ctx, f.s); id != 2 || err != nil {
		t.Errorf("the controller is %d, %v", id, err)
	}
}

func electionFindsItself(t *testing.T, f *fixture) {
	sess := f.session()
	first, err := coord.TryElect(f.ctx, f.s, sess, 1)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := coord.TryElect(f.ctx, f.s, sess, 1); err != nil || again != first {
		t.Errorf("electing the controller again gave %+v, %v; want %+v", again, err, first)
	}
	if _, err := coord.TryElect(f.ctx, f.s, f.session(), 1); !errors.Is(err, coord.ErrControllerMoved) {
		t.Errorf("the same id in another session: %v", err)
	}
	// Somebody else moved the epoch on: the node is mine, but its term is over.
	f.multi(coord.Set(coord.ControllerEpochPath, []byte("9"), first.EpochVersion))
	if _, err := coord.TryElect(f.ctx, f.s, sess, 1); !errors.Is(err, coord.ErrControllerMoved) {
		t.Errorf("a term that is over: %v", err)
	}
}

func node(host string, port int32) coord.BrokerNode {
	return coord.BrokerNode{JMXPort: -1, TimestampMs: 1, Endpoints: []cluster.Endpoint{
		{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: host, Port: port},
	}}
}

func (f *fixture) register(sess coord.Session, id cluster.BrokerID, n coord.BrokerNode) cluster.BrokerEpoch {
	f.Helper()
	epoch, err := coord.RegisterBroker(f.ctx, f.s, sess, id, n, coord.RegisterOptions{})
	if err != nil {
		f.Fatalf("register %d: %v", id, err)
	}
	return epoch
}

func registration(t *testing.T, f *fixture) {
	if err := coord.EnsurePersistentPaths(f.ctx, f.s); err != nil {
		t.Fatal(err)
	}
	sess := f.session()
	epoch := f.register(sess, 1, node("h", 1))
	got := f.get(coord.BrokerPath(1))
	if int64(epoch) != got.Stat.Czxid || got.Stat.EphemeralOwner != sess.ID() || string(got.Data) != string(coord.EncodeBroker(node("h", 1))) {
		t.Errorf("epoch %d, node %q %+v", epoch, got.Data, got.Stat)
	}
	if again := f.register(sess, 1, node("h", 1)); again != epoch {
		t.Errorf("registering again in the same session gave epoch %d, not %d", again, epoch)
	}
	if err := sess.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	if next := f.register(f.session(), 1, node("h", 1)); next <= epoch {
		t.Errorf("the next registration has epoch %d after %d", next, epoch)
	}
}

func registrationConflicts(t *testing.T, f *fixture) {
	if err := coord.EnsurePersistentPaths(f.ctx, f.s); err != nil {
		t.Fatal(err)
	}
	f.register(f.session(), 1, node("host-a", 9092))
	cases := []struct {
		id   cluster.BrokerID
		n    coord.BrokerNode
		want []string
	}{
		{1, node("host-b", 9093), []string{"1", "host-a:9092", "host-b:9093"}},
		{2, node("host-a", 9092), []string{"broker 2", "broker 1", "host-a:9092"}},
	}
	for _, c := range cases {
		_, err := coord.RegisterBroker(f.ctx, f.s, f.session(), c.id, c.n, coord.RegisterOptions{})
		var conflict *coord.BrokerConflictError
		if !errors.As(err, &conflict) {
			t.Errorf("broker %d: %v", c.id, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not name %q", err, want)
			}
		}
	}
	f.register(f.session(), 2, node("host-a", 9093))
	f.wantChildren(coord.BrokerIDsPath, "1", "2")
}

func registrationWaits(t *testing.T, f *fixture) {
	if err := coord.EnsurePersistentPaths(f.ctx, f.s); err != nil {
		t.Fatal(err)
	}
	dead := f.session()
	epoch := f.register(dead, 1, node("h", 1))
	f.Expire(dead)
	next, err := coord.RegisterBroker(f.ctx, f.s, f.session(), 1, node("h", 1), coord.RegisterOptions{Wait: patience})
	if err != nil || next <= epoch {
		t.Errorf("epoch %d after %d, %v", next, epoch, err)
	}
	_, err = coord.RegisterBroker(f.ctx, f.s, f.session(), 1, node("h", 1), coord.RegisterOptions{Wait: 50 * time.Millisecond})
	var conflict *coord.BrokerConflictError
	if !errors.As(err, &conflict) {
		t.Errorf("a live broker was waited for: %v", err)
	}
}

func registrationReplaces(t *testing.T, f *fixture) {
	if err := coord.EnsurePersistentPaths(f.ctx, f.s); err != nil {
		t.Fatal(err)
	}
	previous := f.session()
	epoch := f.register(previous, 1, node("h", 1))
	next, err := coord.RegisterBroker(f.ctx, f.s, f.session(), 1, node("h", 2), coord.RegisterOptions{PreviousSession: previous.ID()})
	if err != nil || next <= epoch {
		t.Errorf("epoch %d after %d, %v", next, epoch, err)
	}
}

// leaderWritesStates is what leaders do below inter.broker.protocol.version 2.7-IV2.
func leaderWritesStates(t *testing.T, f *fixture) {
	if err := coord.EnsurePersistentPaths(f.ctx, f.s); err != nil {
		t.Fatal(err)
	}
	state := func(epoch cluster.PartitionEpoch, isr ...cluster.BrokerID) cluster.LeaderAndISR {
		return cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 2, ISR: isr, PartitionEpoch: epoch, ControllerEpoch: 3}
	}
	tp := func(p int32) cluster.TopicPartition { return cluster.TopicPartition{Topic: "t", Partition: p} }
	for p := range int32(3) {
		if err := coord.CreateRecursive(f.ctx, f.s, coord.PartitionStatePath(tp(p)), coord.EncodePartitionState(state(0, 1))); err != nil {
			t.Fatal(err)
		}
	}
	f.multi(coord.Set(coord.PartitionStatePath(tp(1)), coord.EncodePartitionState(state(0, 1, 2)), 0)) // our write, its answer lost
	f.multi(coord.Set(coord.PartitionStatePath(tp(2)), coord.EncodePartitionState(state(0, 1, 4)), 0)) // another one's
	writes := make([]coord.StateWrite, 4)
	for p := range writes {
		writes[p] = coord.StateWrite{TP: tp(int32(p)), State: state(0, 1, 2)}
	}
	got, err := coord.WriteStates(f.ctx, f.s, writes)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range []error{nil, nil, coord.ErrBadVersion, coord.ErrNoNode} {
		if !errors.Is(got[p].Err, want) || want == nil && got[p].State.PartitionEpoch != 1 {
			t.Errorf("partition %d: %+v, want %v", p, got[p], want)
		}
	}
	for range 2 {
		if err := coord.NotifyISRChange(f.ctx, f.s, []cluster.TopicPartition{tp(0), tp(1)}); err != nil {
			t.Fatal(err)
		}
	}
	f.wantChildren(coord.ISRChangePath, "isr_change_0000000000", "isr_change_0000000001")
	if tps, err := coord.DecodeISRChange(f.get(coord.ISRChangePrefix + "0000000001").Data); err != nil || len(tps) != 2 || tps[1] != tp(1) {
		t.Errorf("notification %v, %v", tps, err)
	}
}
