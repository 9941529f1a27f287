package etcdstore

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"klamm/internal/coord"
)

func (g *group) wantStartError(i int, change func(*MemberConfig), words ...string) {
	g.t.Helper()
	c := g.config(i)
	if change != nil {
		change(&c)
	}
	e, err := StartMember(g.t.Context(), c)
	if err == nil {
		g.t.Errorf("member %d started, want an error with %q", i+1, words)
		_ = e.Close()
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			g.t.Errorf("error %q does not name %q", err, word)
		}
	}
}

func (g *group) membership() *Membership {
	g.t.Helper()
	m, err := OpenMembership(g.t.Context(), g.clientConfig())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = m.Close() })
	return m
}

// awaitVoter waits until a member that was added has caught up.
func (g *group) awaitVoter(i int) {
	g.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if !g.members[i].server.IsLearner() {
			return
		}
		if g.t.Context().Err() != nil {
			g.t.Fatal("the test ended")
		}
	}
}

func TestAMemberWhoseDataIsLostIsRefusedUntilItIsAddedAnew(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	s := g.members[0].store
	if _, err := s.Multi(t.Context(), coord.Create("/a", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	g.stop(2)
	if err := os.RemoveAll(filepath.Join(g.dir, "3")); err != nil {
		t.Fatal(err)
	}
	g.wantStartError(2, nil, "was a member of the etcd cluster before", "members remove 3", "members add "+g.peers[2].String())
	m := g.membership()
	if _, err := m.Remove(t.Context(), "3"); err != nil {
		t.Fatal(err)
	}
	g.wantStartError(2, nil, "no member at "+g.peers[2].Addr, "members add "+g.peers[2].String(), g.peers[0].String())
	if err := m.Add(t.Context(), g.peers[2]); err != nil {
		t.Fatal(err)
	}
	if err := m.Add(t.Context(), g.peers[2]); err == nil || !strings.Contains(err.Error(), "address of a member already") {
		t.Errorf("added twice: %v", err)
	}
	if err := m.Add(t.Context(), Peer{4, "127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), "does not vote yet") {
		t.Errorf("a second one added: %v", err)
	}
	g.start(2)
	g.awaitVoter(2)
	if n, err := g.members[2].store.Get(t.Context(), "/a"); err != nil || string(n.Data) != "x" {
		t.Errorf("the new member has %q, %v", n.Data, err)
	}
	members, err := m.List(t.Context())
	if err != nil || len(members) != 3 {
		t.Fatalf("members %+v, %v", members, err)
	}
	leaders := 0
	for i, info := range members {
		if info.Err != nil || info.Learner || info.Name != g.peers[i].name() || info.Addr != g.peers[i].Addr || info.Bytes == 0 {
			t.Errorf("member %+v", info)
		}
		if info.Leader {
			leaders++
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
}

func TestAMemberThatIsRemovedStopsAndSaysWhy(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	m := g.membership()
	if _, err := m.Remove(t.Context(), "9"); err == nil || !strings.Contains(err.Error(), "no member 9") {
		t.Errorf("removed a stranger: %v", err)
	}
	if _, err := m.Remove(t.Context(), g.peers[2].Addr); err != nil {
		t.Fatal(err)
	}
	gone := g.members[2]
	<-gone.Stopped()
	if err := gone.Err(); !strings.Contains(err.Error(), "was removed from the etcd cluster") || !strings.Contains(err.Error(), gone.dir.path) {
		t.Errorf("reason %v", err)
	}
	g.stop(2)
	g.wantStartError(2, nil, "was removed from the etcd cluster")
	if _, err := g.members[0].store.Multi(t.Context(), coord.Create("/a", nil)); err != nil {
		t.Errorf("the two that are left: %v", err)
	}
}

func TestTheStateOfALoneBrokerGrowsIntoAClusterStepByStep(t *testing.T) {
	g := newGroup(t, 2)
	lone := startEmbedded(t, filepath.Join(g.dir, "1"))
	if _, err := lone.Store().Multi(t.Context(), coord.Create("/a", []byte("x"))); err != nil {
		t.Fatal(err)
	}
	if err := lone.Close(); err != nil {
		t.Fatal(err)
	}
	g.wantStartError(0, nil, "state of this broker alone", "etcd.cluster="+g.peers[0].String()+" only")
	both := g.peers
	g.peers = both[:1]
	g.start(0)
	g.peers = both
	if err := g.membership().Add(t.Context(), g.peers[1]); err != nil {
		t.Fatal(err)
	}
	g.start(1)
	g.awaitVoter(1)
	if n, err := g.members[1].store.Get(t.Context(), "/a"); err != nil || string(n.Data) != "x" {
		t.Errorf("the second member has %q, %v", n.Data, err)
	}
	g.stop(1)
	g.stop(0)
	wantRefusal(t, filepath.Join(g.dir, "1"), "member of an etcd cluster", "etcd.cluster")
	g.start(0, 1)
}

func TestAMemberMayMoveToAnotherAddress(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	g.stop(1)
	l := bind(t, "127.0.0.1:0")
	g.peers[1].Addr = l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	g.start(1)
	g.stop(0)
	g.stop(2)
	g.start(0, 2) // they find it at the address they were told
	members, err := g.membership().List(t.Context())
	if err != nil || members[1].Addr != g.peers[1].Addr || members[1].Err != nil {
		t.Errorf("members %+v, %v", members, err)
	}
}

func TestAnEmptyMemberOfAKnownClusterFoundsNoNewOne(t *testing.T) {
	g := newGroup(t, 1)
	g.wantStartError(0, func(c *MemberConfig) { c.Former = true }, "log.dirs belong to a cluster", "etcd.data.dir")
	g = newGroup(t, 3)
	log := &lines{found: make(chan string, 1), want: "waiting for another etcd member"}
	c := g.config(0)
	c.Former, c.Log = true, log.logger()
	started := make(chan error, 1)
	go func() {
		e, err := StartMember(t.Context(), c)
		g.members[0] = e
		started <- err
	}()
	if line := <-log.found; !strings.Contains(line, g.peers[1].String()) {
		t.Errorf("%q names no other member", line)
	}
	g.start(1, 2) // they know it as a founder that has not started yet
	if err := <-started; err != nil {
		t.Error(err)
	}
}

func TestMembersThatAreDownAreShown(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	g.stop(2)
	members, err := g.membership().List(t.Context())
	if err != nil || members[2].Err == nil || members[0].Err != nil {
		t.Errorf("members %+v, %v", members, err)
	}
	if _, err := g.membership().Remove(t.Context(), "1"); err == nil {
		t.Error("a member was removed although no majority would be left")
	}
	g.stop(1)
	if _, err := g.members[0].store.Get(t.Context(), "/"); err != nil && !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("a read without a majority: %v", err)
	}
}
