package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"klamm/internal/cluster"
)

// said lists the requests to brokers among the effects, one word each: "lisr 2 new", "stop 2", "delete 2", "umr 1".
func (r *rig) said() []string {
	var out []string
	for _, e := range r.effects {
		switch e := e.(type) {
		case SendLeaderAndISR:
			s := fmt.Sprintf("lisr %d", e.Target.Broker)
			if e.Topics[0].Partitions[0].IsNew {
				s += " new"
			}
			out = append(out, s)
		case SendStopReplica:
			word := "stop"
			if e.Topics[0].Partitions[0].Delete {
				word = "delete"
			}
			out = append(out, fmt.Sprintf("%s %d", word, e.Target.Broker))
		case SendUpdateMetadata:
			out = append(out, fmt.Sprintf("umr %d", e.Target.Broker))
		}
	}
	slices.Sort(out)
	return out
}

// What each valid transition of a replica tells brokers: the effects column of the table in replica_state_machine.go.
func TestReplicaTransitionsTellBrokersWhatTheirTableSays(t *testing.T) {
	everybody := []string{"umr 1", "umr 2", "umr 3"}
	for _, c := range []struct {
		from, to ReplicaState
		led      bool
		want     string
	}{
		{NonExistentReplica, NewReplica, false, ""},
		{NonExistentReplica, NewReplica, true, "lisr 3 new, everybody"},
		{NewReplica, OnlineReplica, true, ""},
		{NewReplica, OfflineReplica, true, "stop 3, lisr 1, lisr 2, everybody"},
		{NewReplica, OfflineReplica, false, "stop 3, everybody"},
		{OnlineReplica, OnlineReplica, true, "lisr 3, everybody"},
		{OnlineReplica, OfflineReplica, true, "stop 3, lisr 1, lisr 2, everybody"},
		{OfflineReplica, OnlineReplica, true, "lisr 3, everybody"},
		{OfflineReplica, OfflineReplica, true, "stop 3, lisr 1, lisr 2, everybody"},
		{OfflineReplica, ReplicaDeletionStarted, true, "delete 3"},
		{OfflineReplica, ReplicaDeletionIneligible, true, ""},
		{ReplicaDeletionStarted, ReplicaDeletionSuccessful, true, ""},
		{ReplicaDeletionStarted, ReplicaDeletionIneligible, true, ""},
		{ReplicaDeletionSuccessful, NonExistentReplica, true, ""},
		{ReplicaDeletionIneligible, OnlineReplica, true, "lisr 3, everybody"},
		{ReplicaDeletionIneligible, OfflineReplica, true, "stop 3, lisr 1, lisr 2, everybody"},
	} {
		t.Run(fmt.Sprintf("%s to %s, led: %v", c.from, c.to, c.led), func(t *testing.T) {
			r := newRig(t, 1, 2, 3)
			var l *cluster.LeaderAndISR
			if c.led {
				l = &cluster.LeaderAndISR{Leader: 1, ISR: ids(1, 2, 3), ControllerEpoch: 4}
			}
			p := r.topic("t", ids(1, 2, 3), l)
			p.state = OnlinePartition
			if c.from != NonExistentReplica {
				p.setReplicaState(3, c.from, 0)
			}
			if err := r.do(func() error { return r.c.changeReplicaStates([]replicaRef{{p, 3}}, c.to) }); err != nil {
				t.Fatal(err)
			}
			if got := p.replicaState(3); got != c.to {
				t.Errorf("the replica is %s", got)
			}
			var want []string
			for word := range strings.SplitSeq(c.want, ", ") {
				switch word {
				case "":
				case "everybody":
					want = append(want, everybody...)
				default:
					want = append(want, word)
				}
			}
			slices.Sort(want)
			if got := r.said(); !slices.Equal(got, want) {
				t.Errorf("brokers are told %v, want %v", got, want)
			}
			if c.led && slices.Contains(p.leadership.ISR, 3) == (c.to == OfflineReplica) {
				t.Errorf("the ISR is %v", p.leadership.ISR)
			}
			if assigned := slices.Contains(p.assignment.Replicas, 3); assigned == (c.to == NonExistentReplica) {
				t.Errorf("assigned: %v", assigned)
			}
		})
	}
}

// What each way into OnlinePartition writes and tells (partition_state_machine.go).
func TestPartitionsComeOnlineByAWriteAndAreAnnounced(t *testing.T) {
	led := func(leader cluster.BrokerID, isr ...cluster.BrokerID) *cluster.LeaderAndISR {
		return &cluster.LeaderAndISR{Leader: leader, LeaderEpoch: 3, ISR: isr, PartitionEpoch: 6, ControllerEpoch: 4}
	}
	for _, c := range []struct {
		name     string
		from     PartitionState
		known    *cluster.LeaderAndISR
		strategy ElectionStrategy
		want     cluster.LeaderAndISR
		said     string
	}{
		{"a new partition", NewPartition, nil, OfflineStrategy, cluster.LeaderAndISR{Leader: 1, ISR: ids(1, 2), ControllerEpoch: 5}, "lisr 1 new,lisr 2 new"},
		{"to the preferred replica", OnlinePartition, led(2, 2, 1), PreferredReplicaStrategy,
			cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 4, ISR: ids(2, 1), PartitionEpoch: 7, ControllerEpoch: 5}, "lisr 1,lisr 2,lisr 3"},
		{"away from a broker that shuts down", OnlinePartition, led(3, 3, 1, 2), ControlledShutdownStrategy,
			cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 4, ISR: ids(1, 2), PartitionEpoch: 7, ControllerEpoch: 5}, "lisr 1,lisr 2,lisr 3"},
		{"after its leader died", OfflinePartition, led(9, 9, 2), OfflineStrategy,
			cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 4, ISR: ids(2), PartitionEpoch: 7, ControllerEpoch: 5}, "lisr 1,lisr 2"},
		{"uncleanly", OfflinePartition, led(9, 9), UncleanStrategy,
			cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 4, ISR: ids(1), Recovery: cluster.Recovering, PartitionEpoch: 7, ControllerEpoch: 5}, "lisr 1,lisr 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, 2, 3)
			r.c.ctx.shuttingDown[3] = true
			p := r.topic("t", ids(1, 2, 3), c.known)
			p.state = c.from
			err := r.do(func() error {
				_, err := r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, c.strategy)
				return err
			})
			if err != nil || p.state != OnlinePartition || !p.leadership.Equal(c.want) {
				t.Errorf("%v: %s {%s}, want {%s}", err, p.state, p.leadership, c.want)
			}
			said := slices.DeleteFunc(r.said(), func(s string) bool { return strings.HasPrefix(s, "umr") })
			if got := strings.Join(said, ","); got != c.said {
				t.Errorf("brokers are told %s, want %s", got, c.said)
			}
			if umr := len(r.said()) - len(said); umr != 3 {
				t.Errorf("%d brokers get the metadata", umr)
			}
		})
	}
}

// A state that cannot be written or read leaves the partition where it is, for the retry timer: nothing of it is announced.
func TestAPartitionWhoseStateTheStoreRefusesStaysAndIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   PartitionState
		known  *cluster.LeaderAndISR
		status ItemStatus
		retry  bool
	}{
		{"the first state is refused", NewPartition, nil, ItemFailed, true},
		{"the topic node is gone", NewPartition, nil, ItemNoNode, true},
		{"the state is unknown and cannot be read", OfflinePartition, nil, ItemFailed, true},
		{"the state node is gone", OfflinePartition, nil, ItemNoNode, false},
		{"the elected state is refused", OfflinePartition, &cluster.LeaderAndISR{Leader: 9, ISR: ids(1), ControllerEpoch: 4}, ItemFailed, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1)
			p := r.topic("t", ids(1), c.known)
			p.state = c.from
			r.answer = func(s Store) StoreResult {
				item := ItemResult{Status: c.status, Err: "refused"}
				if _, ok := s.Op.(ReadPartitionStates); ok {
					return StoreResult{Outcome: Applied, Value: StatesRead{[]ItemResult{item}}}
				}
				return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{item}}}
			}
			err := r.do(func() error {
				_, err := r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, OfflineStrategy)
				return err
			})
			if err != nil || p.state != c.from || len(r.said()) != 0 || transitionErr(r) == "" {
				t.Errorf("%v: %s, told %v, transition error %q", err, p.state, r.said(), transitionErr(r))
			}
			if timers := effectsOf[StartTimer](r); (len(timers) > 0) != c.retry {
				t.Errorf("timers %v", timers)
			}
		})
	}
}

// A store that does not answer is asked again, in the same event: the partition comes online late.
func TestAStoreThatDoesNotAnswerDelaysAnElection(t *testing.T) {
	for _, outcome := range []Outcome{Unavailable, UnknownOutcome} {
		r := newRig(t, 1)
		p := r.topic("t", ids(1), nil)
		p.state = NewPartition
		tries := 0
		r.answer = func(s Store) StoreResult {
			if tries++; tries < 3 {
				return StoreResult{Outcome: outcome, Err: "test"}
			}
			return r.accept(s)
		}
		err := r.do(func() error {
			_, err := r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, OfflineStrategy)
			return err
		})
		if err != nil || p.state != OnlinePartition || tries != 3 {
			t.Errorf("outcome %d: %v, %s after %d tries", outcome, err, p.state, tries)
		}
	}
}

// Replicas begin a term where their brokers are; what is offline leaves its ISR.
func TestReplicasBeginATermWhereTheirBrokersAre(t *testing.T) {
	led := cluster.LeaderAndISR{Leader: 1, ISR: ids(1, 2), ControllerEpoch: 4}
	for _, c := range []struct {
		name    string
		brokers []cluster.BrokerID
		known   *cluster.LeaderAndISR
		want    ReplicaState
		isr     []cluster.BrokerID
	}{
		{"its broker lives", ids(1, 2), &led, OnlineReplica, ids(1, 2)},
		{"its broker is dead", ids(1), &led, OfflineReplica, ids(1)},
		{"its broker lives, the partition never had a leader", ids(1, 2), nil, OnlineReplica, nil},
		{"its broker is dead, the partition never had a leader", ids(1), nil, OfflineReplica, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.brokers...)
			p := r.topic("t", ids(1, 2), c.known)
			p.state = OnlinePartition
			err := r.do(func() error {
				if err := r.c.startReplicas(); err != nil {
					return err
				}
				return r.c.announceReplicas(nil)
			})
			if err != nil || p.replicaState(2) != c.want {
				t.Errorf("%v: the replica is %s", err, p.replicaState(2))
			}
			if c.isr != nil && !slices.Equal(p.leadership.ISR, c.isr) {
				t.Errorf("ISR %v", p.leadership.ISR)
			}
		})
	}
}
