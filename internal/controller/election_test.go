package controller

import (
	"slices"
	"testing"

	"klamm/internal/cluster"
)

// TestElectionsFollowTheDecisionTables tries every assignment order, ISR order, set of online and of shutting-down
// replicas of up to four, for all strategies, against the tables written as sentences.
func TestElectionsFollowTheDecisionTables(t *testing.T) {
	cases := 0
	for n := 0; n <= 4; n++ {
		all := ids(1, 2, 3, 4)[:n]
		for _, assignment := range permutations(all) {
			for _, isr := range sublists(all) {
				for state := range pow(3, n) { // online, shutting down, dead
					c := candidates{Assignment: assignment, ISR: isr}
					for i, s := 0, state; i < n; i, s = i+1, s/3 {
						switch s % 3 {
						case 0:
							c.Online = append(c.Online, all[i])
						case 1:
							c.ShuttingDown = append(c.ShuttingDown, all[i])
						}
					}
					for _, unclean := range []bool{false, true} {
						c.UncleanAllowed = unclean
						checkElections(t, c)
						cases++
					}
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	t.Logf("%d cases", cases)
}

func checkElections(t *testing.T, c candidates) {
	t.Helper()
	for s := OfflineStrategy; s <= ControlledShutdownStrategy; s++ {
		got, ok := electLeader(s, c)
		want, wantOK := expected(s, c)
		if ok != wantOK || ok && (got.Leader != want.Leader || got.Unclean != want.Unclean || !slices.Equal(got.ISR, want.ISR) || !slices.Equal(got.Recipients, want.Recipients)) {
			t.Errorf("%s on %+v: %+v %v, want %+v %v", s, c, got, ok, want, wantOK)
		}
		if ok && (!slices.Contains(got.ISR, got.Leader) || !slices.Contains(c.Assignment, got.Leader)) {
			t.Errorf("%s on %+v: leader %d is not in ISR %v or assignment", s, c, got.Leader, got.ISR)
		}
	}
}

// expected is the table again, written the slow way.
func expected(s ElectionStrategy, c candidates) (elected, bool) {
	var e elected
	for _, id := range c.Assignment {
		online, inISR, leaving := slices.Contains(c.Online, id), slices.Contains(c.ISR, id), slices.Contains(c.ShuttingDown, id)
		if (s == OfflineStrategy && online) || (s == ControlledShutdownStrategy && (online || leaving)) || s == ReassignStrategy || s == PreferredReplicaStrategy {
			e.Recipients = append(e.Recipients, id)
		}
		if e.Leader == 0 && online && inISR && (s != PreferredReplicaStrategy || id == c.Assignment[0]) {
			e.Leader = id
		}
	}
	for _, id := range c.ISR {
		online, leaving := slices.Contains(c.Online, id), slices.Contains(c.ShuttingDown, id)
		if s == ReassignStrategy || s == PreferredReplicaStrategy || s == OfflineStrategy && online || s == ControlledShutdownStrategy && !leaving {
			e.ISR = append(e.ISR, id)
		}
	}
	if s == OfflineStrategy && e.Leader == 0 && c.UncleanAllowed {
		for _, id := range c.Assignment {
			if slices.Contains(c.Online, id) {
				e.Leader, e.ISR, e.Unclean = id, ids(id), true
				break
			}
		}
	}
	return e, e.Leader != 0
}

func TestAnUncleanElectionIsNeededOnlyWithoutOnlineISRMember(t *testing.T) {
	for _, c := range []struct {
		isr, online []cluster.BrokerID
		want        bool
	}{
		{ids(1), ids(1, 2), false},
		{ids(1), ids(2), true},
		{ids(1), nil, false},
		{ids(1, 2), ids(2), false},
	} {
		if got := (candidates{Assignment: ids(1, 2), ISR: c.isr, Online: c.online}).needsUnclean(); got != c.want {
			t.Errorf("ISR %v, online %v: %v", c.isr, c.online, got)
		}
	}
}

func pow(b, e int) int {
	n := 1
	for range e {
		n *= b
	}
	return n
}

func permutations(list []cluster.BrokerID) [][]cluster.BrokerID {
	if len(list) == 0 {
		return [][]cluster.BrokerID{nil}
	}
	var out [][]cluster.BrokerID
	for i, id := range list {
		rest := slices.Delete(slices.Clone(list), i, i+1)
		for _, p := range permutations(rest) {
			out = append(out, append(ids(id), p...))
		}
	}
	return out
}

// sublists gives every sublist in every order.
func sublists(list []cluster.BrokerID) [][]cluster.BrokerID {
	var out [][]cluster.BrokerID
	for mask := range 1 << len(list) {
		var sub []cluster.BrokerID
		for i, id := range list {
			if mask>>i&1 == 1 {
				sub = append(sub, id)
			}
		}
		out = append(out, permutations(sub)...)
	}
	return out
}

// The recovery state with every election of up to four replicas: RECOVERING after an unclean election where the protocol version knows it,
// else what it was; the leader epoch grows by one, and the partition epoch is the node's.
func TestElectionsWriteTheRecoveryState(t *testing.T) {
	cases, unclean := 0, 0
	for n := 1; n <= 4; n++ {
		for mask := 1; mask < 1<<n; mask++ {
			for state := range pow(3, n) {
				for flags := range 8 {
					for s := OfflineStrategy; s <= UncleanStrategy; s++ {
						e := recoveryCase{strategy: s, all: ids(1, 2, 3, 4)[:n], mask: mask, state: state, known: flags&2 == 0, allowed: flags&4 == 0}
						if flags&1 == 0 {
							e.before = cluster.Recovering
						}
						cases++
						if e.check(t) {
							unclean++
						}
					}
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	if unclean == 0 || unclean == cases {
		t.Errorf("%d of %d elections were unclean", unclean, cases)
	}
}

// recoveryCase is one election. State has a digit for each replica: online, shutting down, dead.
type recoveryCase struct {
	strategy    ElectionStrategy
	all         []cluster.BrokerID
	mask, state int // who is in the ISR, and how everybody is
	before      cluster.LeaderRecoveryState
	known       bool // the protocol version has recovery states
	allowed     bool // unclean.leader.election.enable
}

// check reports whether the election was unclean.
func (e recoveryCase) check(t *testing.T) bool {
	t.Helper()
	r := newRig(t)
	r.c.cfg.UseLeaderRecoveryState, r.c.cfg.UncleanLeaderElectionEnable = e.known, e.allowed
	var isr []cluster.BrokerID
	for i, st := 0, e.state; i < len(e.all); i, st = i+1, st/3 {
		if st%3 < 2 {
			r.c.ctx.addBroker(cluster.Broker{ID: e.all[i], Epoch: 1})
			r.c.ctx.shuttingDown[e.all[i]] = st%3 == 1
		}
		if e.mask>>i&1 == 1 {
			isr = append(isr, e.all[i])
		}
	}
	old := cluster.LeaderAndISR{Leader: isr[0], LeaderEpoch: 3, ISR: isr, PartitionEpoch: 7, ControllerEpoch: 4, Recovery: e.before}
	p := r.topic("t", e.all, &old)
	p.state = OfflinePartition
	elect := func() error {
		_, err := r.c.changePartitionStates([]*partitionContext{p}, OnlinePartition, e.strategy)
		return err
	}
	if err := r.do(elect); err != nil {
		t.Fatal(err)
	}
	if p.state != OnlinePartition {
		if !p.leadership.Equal(old) {
			t.Errorf("%+v: no leader, and now %s", e, p.leadership)
		}
		return false
	}
	unclean := !slices.Contains(isr, p.leadership.Leader)
	want := e.before
	if unclean && e.known {
		want = cluster.Recovering
	}
	mayBe := e.strategy == UncleanStrategy || e.strategy == OfflineStrategy && e.allowed
	if l := p.leadership; l.Recovery != want || l.LeaderEpoch != 4 || l.PartitionEpoch != 8 || l.ControllerEpoch != 5 || unclean && (!mayBe || len(l.ISR) != 1) {
		t.Errorf("%+v: %s", e, l)
	}
	return unclean
}
