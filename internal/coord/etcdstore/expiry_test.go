package etcdstore

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/server/v3/lease"

	"klamm/internal/coord"
)

// sourceLessor has leases that have run out; nothing else of it is used.
type sourceLessor struct {
	lease.Lessor
	expired chan []*lease.Lease
}

func (s sourceLessor) ExpiredLeasesC() <-chan []*lease.Lease { return s.expired }

// expiryRig runs a checkedLessor whose peers confirm, or not.
func expiryRig(t *testing.T, confirm func(ctx context.Context, leads *atomic.Bool) error) (in chan<- []*lease.Lease, out <-chan []*lease.Lease) {
	source := make(chan []*lease.Lease, 1)
	l := &checkedLessor{Lessor: sourceLessor{expired: source}, expired: make(chan []*lease.Lease)}
	var leads atomic.Bool
	leads.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.run(ctx, leads.Load, func(ctx context.Context) error { return confirm(ctx, &leads) })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return source, l.ExpiredLeasesC()
}

// passed reports whether anything comes out, once nothing moves any more.
func passed(out <-chan []*lease.Lease) bool {
	synctest.Wait()
	select {
	case <-out:
		return true
	default:
		return false
	}
}

func TestLeasesExpireOnceAMajorityConfirmsTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := expiryRig(t, func(context.Context, *atomic.Bool) error { return nil })
		in <- []*lease.Lease{{ID: 1}}
		if got := <-out; len(got) != 1 || got[0].ID != 1 {
			t.Errorf("got %v", got)
		}
	})
}

// A leader that was frozen takes itself for the leader until it has heard of its successor, and all leases for expired.
func TestALeaderThatWasFrozenEndsNoLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, out := expiryRig(t, func(_ context.Context, leads *atomic.Bool) error { leads.Store(false); return nil })
		in <- []*lease.Lease{{ID: 1}}
		if passed(out) {
			t.Error("leases were passed on after the peers had told of another leader")
		}
	})
}

func TestALeaderWithoutAMajorityAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		in, out := expiryRig(t, func(ctx context.Context, _ *atomic.Bool) error {
			if asked++; asked == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			if asked == 2 {
				return errors.New("leader changed")
			}
			return nil
		})
		in <- []*lease.Lease{{ID: 1}}
		if passed(out) {
			t.Error("leases were passed on without a majority")
		}
		<-out
		if asked != 3 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// The field of etcd's server that checkExpiry replaces is there, and sessions of brokers that died end through it.
func TestASessionThatDiedEndsInACluster(t *testing.T) {
	g := newGroup(t, 3)
	g.start(0, 1, 2)
	s, err := g.members[0].store.OpenSession(t.Context(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	other := g.members[1].store
	if _, err := other.Multi(t.Context(), coord.CreateEphemeral("/e", nil, s)); err != nil {
		t.Fatal(err)
	}
	w := other.NewWatcher()
	defer w.Close()
	w.Add("/e", coord.WatchNode)
	s.(*session).quit() // no more heartbeats, as of a process that died
	for g.members[1].exists(t, "/e") {
		if _, err := w.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
