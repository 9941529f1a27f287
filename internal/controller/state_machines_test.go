package controller

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"klamm/internal/cluster"
)

// commentTable reads the table of valid previous states from a file's comment: target -> previous, by short names.
func commentTable(t *testing.T, file, kind string) map[string][]string {
	t.Helper()
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^//\t(\w+)\s{2,}((?:\w+, )*\w+)\s{1,}`)
	out := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(src), -1) {
		if m[1] == "target" {
			continue
		}
		for _, p := range strings.Split(m[2], ", ") {
			p = strings.TrimSuffix(strings.TrimPrefix(p, "Replica"), kind)
			out[m[1]] = append(out[m[1]], p)
		}
	}
	return out
}

func TestPartitionTransitionsAreThoseOfTheCommentsTable(t *testing.T) {
	table := commentTable(t, "partition_state_machine.go", "Partition")
	for target := range PartitionState(partitionStates) {
		for from := range PartitionState(partitionStates) {
			r := newRig(t, 1, 2)
			p := r.topic("t", ids(1, 2), nil)
			if from == OnlinePartition || from == OfflinePartition {
				p.leadership = &cluster.LeaderAndISR{Leader: 1, ISR: ids(1, 2), LeaderEpoch: 3, PartitionEpoch: 7, ControllerEpoch: 4}
			}
			p.state = from
			err := r.do(func() error {
				_, err := r.c.changePartitionStates([]*partitionContext{p}, target, OfflineStrategy)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Contains(table[target.String()], strings.TrimSuffix(from.String(), "Partition"))
			if got := p.state == target && transitionErr(r) == ""; got != want {
				t.Errorf("%s -> %s takes place: %v, the table says %v (%s)", from, target, got, want, transitionErr(r))
			}
			if !want && p.state != from {
				t.Errorf("%s -> %s is invalid and left %s", from, target, p.state)
			}
		}
	}
}

func TestReplicaTransitionsAreThoseOfTheCommentsTable(t *testing.T) {
	table := commentTable(t, "replica_state_machine.go", "Replica")
	for target := range ReplicaState(replicaStates) {
		for from := range ReplicaState(replicaStates) {
			r := newRig(t, 1, 2)
			p := r.topic("t", ids(1, 2), &cluster.LeaderAndISR{Leader: 1, ISR: ids(1, 2), ControllerEpoch: 4})
			p.state = OnlinePartition
			r.queue(p)
			if from != NonExistentReplica {
				p.setReplicaState(2, from, 0)
			}
			if err := r.do(func() error { return r.c.changeReplicaStates([]replicaRef{{p, 2}}, target) }); err != nil {
				t.Fatal(err)
			}
			short := strings.TrimSuffix(strings.TrimPrefix(from.String(), "Replica"), "Replica")
			want := slices.Contains(table[target.String()], short)
			if got := p.replicaState(2) == target && transitionErr(r) == ""; got != want {
				t.Errorf("%s -> %s takes place: %v, the table says %v (%s)", from, target, got, want, transitionErr(r))
			}
			if !want && p.replicaState(2) != from {
				t.Errorf("%s -> %s is invalid and left %s", from, target, p.replicaState(2))
			}
		}
	}
}

func transitionErr(r *rig) string {
	for _, e := range effectsOf[Transitions](r) {
		for _, t := range e.Records {
			if t.Err != "" {
				return t.Err
			}
		}
	}
	return ""
}

func TestAnInvalidTransitionDoesNotHoldUpTheOthersOfTheCall(t *testing.T) {
	r := newRig(t, 1)
	bad, good := r.topic("a", ids(1), nil), r.topic("b", ids(1), nil)
	bad.state, good.state = NonExistentPartition, NewPartition
	err := r.do(func() error {
		_, err := r.c.changePartitionStates([]*partitionContext{bad, good}, OnlinePartition, OfflineStrategy)
		return err
	})
	if err != nil || bad.state != NonExistentPartition || good.state != OnlinePartition {
		t.Errorf("%v: bad is %s, good is %s", err, bad.state, good.state)
	}
}

func TestTheLastISRMemberStaysWhenItsReplicaGoesOffline(t *testing.T) {
	for _, c := range []struct {
		name       string
		isr        []cluster.BrokerID
		leader     cluster.BrokerID
		wantISR    []cluster.BrokerID
		wantLeader cluster.BrokerID
		wantEpoch  cluster.LeaderEpoch
	}{
		{"a follower leaves", ids(1, 2), 1, ids(1), 1, 4},
		{"the leader leaves", ids(1, 2), 2, ids(1), cluster.NoBroker, 4},
		{"the last member stays without leader", ids(2), 2, ids(2), cluster.NoBroker, 4},
		{"one that is not in the ISR changes nothing", ids(1), 1, ids(1), 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1)
			p := r.topic("t", ids(1, 2), &cluster.LeaderAndISR{Leader: c.leader, LeaderEpoch: 3, ISR: c.isr, ControllerEpoch: 4})
			p.state = OnlinePartition
			p.setReplicaState(2, OnlineReplica, 0)
			if err := r.do(func() error { return r.c.changeReplicaStates([]replicaRef{{p, 2}}, OfflineReplica) }); err != nil {
				t.Fatal(err)
			}
			l := p.leadership
			if !slices.Equal(l.ISR, c.wantISR) || l.Leader != c.wantLeader || l.LeaderEpoch != c.wantEpoch {
				t.Errorf("leadership is %s", l)
			}
		})
	}
}

func TestAnElectionIsDecidedAgainOnTheFreshStateAfterAConflict(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	p := r.topic("t", ids(1, 2, 3), &cluster.LeaderAndISR{Leader: 9, LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 6, ControllerEpoch: 4})
	p.state = OfflinePartition
	fresh := cluster.LeaderAndISR{Leader: 9, LeaderEpoch: 4, ISR: ids(2, 3), PartitionEpoch: 7, ControllerEpoch: 4}
	tries := 0
	r.answer = func(s Store) StoreResult {
		if tries++; tries == 1 {
			return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemConflict, State: fresh, HasState: true}}}}
		}
		return r.accept(s)
	}
	n := 0
	err := r.do(func() (err error) {
		n, err = r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, OfflineStrategy)
		return err
	})
	want := cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 5, ISR: ids(2, 3), PartitionEpoch: 8, ControllerEpoch: 5}
	if err != nil || n != 1 || !p.leadership.Equal(want) {
		t.Errorf("%v: elected %d, leadership %s, want %s", err, n, p.leadership, want)
	}
}

// A partition whose state another writer changes at every attempt is given up after some rounds and left to the retry timer (W25).
func TestAnElectionThatAlwaysConflictsEnds(t *testing.T) {
	r := newRig(t, 1)
	p := r.topic("t", ids(1), &cluster.LeaderAndISR{Leader: 9, ISR: ids(1), ControllerEpoch: 4})
	p.state = OfflinePartition
	r.answer = func(s Store) StoreResult {
		st := s.Op.(SetPartitionStates).States[0].State
		st.PartitionEpoch++
		return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemConflict, State: st, HasState: true}}}}
	}
	err := r.do(func() error {
		_, err := r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, OfflineStrategy)
		return err
	})
	timers, writes := effectsOf[StartTimer](r), len(effectsOf[Store](r))
	if err != nil || p.state != OfflinePartition || len(timers) != 1 || timers[0].Timer != TimerPartitionRetry || writes != maxConflictRounds {
		t.Errorf("%v: %s after %d writes, timers %v", err, p.state, writes, timers)
	}
}

func TestAStateOfALaterControllerIsLeftAlone(t *testing.T) {
	r := newRig(t, 1)
	p := r.topic("t", ids(1), &cluster.LeaderAndISR{Leader: 9, ISR: ids(1), ControllerEpoch: 6})
	p.state = OfflinePartition
	err := r.do(func() error {
		_, err := r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, OfflineStrategy)
		return err
	})
	if err != nil || p.state != OfflinePartition || len(effectsOf[Store](r)) != 0 {
		t.Errorf("%v: %s, effects %v", err, p.state, r.effects)
	}
}

// W12: the state node of a queued partition is gone while the leadership is cached; its replica goes on to be deleted.
func TestAMissingStateNodeOfAQueuedTopicCountsAsRemoved(t *testing.T) {
	r := newRig(t, 1, 2)
	p := r.topic("t", ids(1, 2), &cluster.LeaderAndISR{Leader: 1, ISR: ids(1, 2), ControllerEpoch: 4})
	r.queue(p)
	p.setReplicaState(1, OnlineReplica, 0)
	r.answer = func(Store) StoreResult {
		return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemNoNode}}}}
	}
	err := r.do(func() error {
		if err := r.c.changeReplicaStates([]replicaRef{{p, 1}}, OfflineReplica); err != nil {
			return err
		}
		return r.c.changeReplicaStates([]replicaRef{{p, 1}}, ReplicaDeletionStarted)
	})
	if err != nil || p.replicaState(1) != ReplicaDeletionStarted {
		t.Errorf("%v: %s", err, p.replicaState(1))
	}
}

// W5: a state node that exists is adopted if an earlier or this term wrote it, and elected anew if its leader is not online.
func TestAStateNodeThatExistsIsAdopted(t *testing.T) {
	for _, c := range []struct {
		name  string
		found cluster.LeaderAndISR
		want  cluster.LeaderAndISR
		state PartitionState
	}{
		{"by this term", cluster.LeaderAndISR{Leader: 2, ISR: ids(2), ControllerEpoch: 5}, cluster.LeaderAndISR{Leader: 2, ISR: ids(2), ControllerEpoch: 5}, OnlinePartition},
		{"by an earlier term, leader online", cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 3, ISR: ids(2, 1), PartitionEpoch: 9, ControllerEpoch: 3},
			cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 3, ISR: ids(2, 1), PartitionEpoch: 9, ControllerEpoch: 3}, OnlinePartition},
		{"by an earlier term, leader dead", cluster.LeaderAndISR{Leader: 3, LeaderEpoch: 3, ISR: ids(3, 1), PartitionEpoch: 9, ControllerEpoch: 3},
			cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 4, ISR: ids(1), PartitionEpoch: 10, ControllerEpoch: 5}, OnlinePartition},
		{"by a later term", cluster.LeaderAndISR{Leader: 2, ISR: ids(2), ControllerEpoch: 6}, cluster.LeaderAndISR{}, NewPartition},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, 2)
			p := r.topic("t", ids(1, 2, 3), nil)
			p.state = NewPartition
			r.answer = func(s Store) StoreResult {
				if _, ok := s.Op.(CreatePartitionStates); ok {
					return StoreResult{Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemExists, State: c.found, HasState: true}}}}
				}
				return r.accept(s)
			}
			err := r.do(func() error {
				_, err := r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, OfflineStrategy)
				return err
			})
			got := cluster.LeaderAndISR{}
			if p.leadership != nil {
				got = *p.leadership
			}
			if err != nil || p.state != c.state || !got.Equal(c.want) {
				t.Errorf("%v: %s {%s}, want %s {%s}", err, p.state, got, c.state, c.want)
			}
		})
	}
}

// W18: a call that ends in the middle leaves nothing behind for the next one: neither the request for what it had done by then, nor one
// that came before what failed.
func TestNothingOfAFailedCallIsSentByTheNext(t *testing.T) {
	for name, fail := range map[string]func(r *rig, created, led *partitionContext) error{
		"a partition is created, then an election fails": func(r *rig, created, led *partitionContext) error {
			led.state = OfflinePartition
			_, err := r.c.changePartitionStates([]*partitionContext{created, led}, OnlinePartition, OfflineStrategy)
			return err
		},
		"a replica is stopped, then the ISR cannot be written": func(r *rig, _, led *partitionContext) error {
			led.setReplicaState(2, OnlineReplica, 0)
			return r.c.changeReplicaStates([]replicaRef{{led, 2}}, OfflineReplica)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, 2)
			created, next := r.topic("created", ids(1), nil), r.topic("next", ids(2), nil)
			led := r.topic("led", ids(1, 2), &cluster.LeaderAndISR{Leader: 9, ISR: ids(1, 2), ControllerEpoch: 4})
			created.state, next.state = NewPartition, NewPartition
			r.answer = func(s Store) StoreResult {
				if _, set := s.Op.(SetPartitionStates); set {
					return StoreResult{Outcome: Fenced}
				}
				return r.accept(s)
			}
			if err := r.do(func() error { return fail(r, created, led) }); err != errFenced {
				t.Fatalf("error %v", err)
			}
			if said := r.said(); len(said) != 0 {
				t.Errorf("the failed call has told %v", said)
			}
			err := r.do(func() error {
				_, err := r.c.changePartitionStates([]*partitionContext{next}, OnlinePartition, OfflineStrategy)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{"lisr 2 new", "umr 1", "umr 2"}; !slices.Equal(r.said(), want) {
				t.Errorf("the next call tells %v, want %v", r.said(), want)
			}
			for _, e := range effectsOf[SendUpdateMetadata](r) {
				for _, topic := range e.Update.Topics {
					if topic.Name != "next" {
						t.Errorf("the next call tells of %s", topic.Name)
					}
				}
			}
		})
	}
}
