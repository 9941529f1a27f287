package coordtest

import (
	"errors"
	"testing"

	"klamm/internal/coord"
)

var sessionTests = map[string]func(*testing.T, *fixture){
	"ephemeral nodes show their owner and go with Close":      ephemeralsGo,
	"a set keeps a node ephemeral":                            setKeepsOwner,
	"a deleted ephemeral node can become persistent":          ephemeralBecomesPersistent,
	"ephemeral nodes have no children":                        noEphemeralChildren,
	"an expired session is done, its nodes gone":              sessionExpires,
	"an expired session cannot own new nodes":                 expiredSessionRefuses,
	"sessions are independent":                                sessionsAreIndependent,
	"another process ends a session by its key":               endedByKey,
	"an ephemeral node in a batch":                            ephemeralInBatch,
	"a watch tells of the nodes that went with their owner":   watchSeesExpiry,
	"closing a session twice is fine and Done stays closed":   closeTwice,
	"a failed transaction with an owner leaves nothing":       failedTransactionWithOwner,
	"an ephemeral create conflicts with a node that is there": ephemeralConflict,
}

func ephemeralsGo(t *testing.T, f *fixture) {
	f.create("/p")
	sess := f.session()
	r := f.multi(coord.CreateEphemeral("/p/e", []byte("x"), sess))[0]
	if n := f.get("/p/e"); sess.ID() == 0 || n.Stat.EphemeralOwner != sess.ID() || r.Stat.EphemeralOwner != sess.ID() {
		t.Errorf("session %d, node %+v, answer %+v", sess.ID(), n.Stat, r.Stat)
	}
	if err := sess.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.waitDone(sess)
	f.wantAbsent("/p/e")
	f.wantChildren("/p")
}

func setKeepsOwner(t *testing.T, f *fixture) {
	sess := f.session()
	f.multi(coord.CreateEphemeral("/e", nil, sess))
	r := f.multi(coord.Set("/e", []byte("1"), 0))[0]
	f.batch(nil, coord.Set("/e", []byte("2"), 1))
	if n := f.get("/e"); n.Stat.EphemeralOwner != sess.ID() || n.Stat.Version != 2 || r.Stat.EphemeralOwner != sess.ID() {
		t.Errorf("node %+v, answer %+v", n.Stat, r.Stat)
	}
	if err := sess.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.wantAbsent("/e")
}

func ephemeralBecomesPersistent(t *testing.T, f *fixture) {
	sess := f.session()
	f.multi(coord.CreateEphemeral("/e", nil, sess))
	f.multi(coord.Delete("/e", 0))
	f.create("/e")
	if err := sess.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.wantData("/e", "/e")
}

func noEphemeralChildren(t *testing.T, f *fixture) {
	sess := f.session()
	f.multi(coord.CreateEphemeral("/e", nil, sess))
	f.multiFails(0, coord.ErrNoEphemeralChildren, coord.Create("/e/c", nil))
	f.wantErrors(f.batch(nil, coord.Create("/e/c", nil)), coord.ErrNoEphemeralChildren)
}

func sessionExpires(t *testing.T, f *fixture) {
	f.create("/p")
	sess, other := f.session(), f.Connect()
	f.multi(coord.CreateEphemeral("/p/e", nil, sess))
	w := other.NewWatcher()
	defer w.Close()
	w.Add("/p", coord.WatchChildren)
	f.Expire(sess)
	f.waitFor(w, "the node goes", func() bool {
		_, err := other.Get(f.ctx, "/p/e")
		return errors.Is(err, coord.ErrNoNode)
	})
	f.waitDone(sess)
}

func expiredSessionRefuses(t *testing.T, f *fixture) {
	sess := f.session()
	f.Expire(sess)
	f.waitDone(sess)
	f.multiFails(1, coord.ErrSessionExpired, coord.Create("/a", nil), coord.CreateEphemeral("/e", nil, sess))
	f.wantErrors(f.batch(nil, coord.CreateEphemeral("/e", nil, sess)), coord.ErrSessionExpired)
	f.wantAbsent("/a", "/e")
}

func sessionsAreIndependent(t *testing.T, f *fixture) {
	a, b := f.session(), f.sessionOf(f.Connect())
	f.multi(coord.CreateEphemeral("/a", nil, struct{ coord.Session }{a})) // as a caller may keep it
	f.multi(coord.CreateEphemeral("/b", nil, b))
	if a.ID() == b.ID() {
		t.Errorf("both sessions have id %d", a.ID())
	}
	if err := a.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.wantAbsent("/a")
	f.get("/b")
	select {
	case <-b.Done():
		t.Error("the other session is done")
	default:
	}
}

// endedByKey is for engines whose stores can end a session that another process has left: one that was killed, whose connection is gone. (A
// process that lives takes its session back as fast as another takes it over.)
func endedByKey(t *testing.T, f *fixture) {
	owner, other := f.Connect(), f.Connect()
	ender, ok := other.(coord.SessionEnder)
	if !ok {
		return
	}
	sess := f.sessionOf(owner)
	f.multi(coord.CreateEphemeral("/e", nil, sess))
	key := coord.SessionKey(sess)
	if err := owner.Close(); err != nil {
		t.Fatal(err)
	}
	f.get("/e")
	for range 2 { // of a session that is gone it is no error
		if err := ender.EndSession(f.ctx, sess.ID(), key); err != nil {
			t.Fatal(err)
		}
		f.wantAbsent("/e")
	}
}

func ephemeralInBatch(t *testing.T, f *fixture) {
	sess := f.session()
	r := f.batch(nil, coord.Create("/p", nil), coord.CreateEphemeral("/p/e", []byte("x"), sess), coord.Set("/p/e", []byte("y"), 0))
	f.wantErrors(r, nil, nil, nil)
	if n := f.get("/p/e"); n.Stat.EphemeralOwner != sess.ID() || string(n.Data) != "y" {
		t.Errorf("node %+v", n)
	}
}

func watchSeesExpiry(t *testing.T, f *fixture) {
	sess := f.session()
	f.multi(coord.CreateEphemeral("/e", nil, sess))
	w := f.s.NewWatcher()
	defer w.Close()
	w.Add("/e", coord.WatchNode)
	if err := sess.Close(f.ctx); err != nil {
		t.Fatal(err)
	}
	f.wantEvents(w, coord.WatchEvent{Path: "/e", Kind: coord.WatchNode})
	f.wantAbsent("/e")
}

func closeTwice(t *testing.T, f *fixture) {
	sess := f.session()
	for range 2 {
		if err := sess.Close(f.ctx); err != nil {
			t.Error(err)
		}
		f.waitDone(sess)
	}
}

func failedTransactionWithOwner(t *testing.T, f *fixture) {
	sess := f.session()
	f.multiFails(1, coord.ErrNoNode, coord.CreateEphemeral("/e", nil, sess), coord.Set("/x", nil, 0))
	f.wantAbsent("/e")
}

func ephemeralConflict(t *testing.T, f *fixture) {
	a, b := f.session(), f.session()
	f.multi(coord.CreateEphemeral("/e", []byte("a"), a))
	f.multiFails(0, coord.ErrNodeExists, coord.CreateEphemeral("/e", []byte("b"), b))
	f.wantData("/e", "a")
}
