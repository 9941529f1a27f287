package memstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/coord"
)

func TestAFaultBeforeACallChangesNothing(t *testing.T) {
	e := New()
	c := e.Client()
	c.SetHook(func(Call) Fault { return Fault{Err: coord.ErrUnavailable} })
	if _, err := c.Multi(t.Context(), coord.Create("/a", nil)); !errors.Is(err, coord.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if nodes := e.Dump(); len(nodes) != 0 {
		t.Errorf("the tree holds %v", nodes)
	}
}

func TestALostAnswerLeavesTheWriteApplied(t *testing.T) {
	e := New()
	c := e.Client()
	var seen []string
	c.SetHook(func(call Call) Fault {
		seen = append(seen, call.Method)
		return Fault{LoseAnswer: true}
	})
	_, multiErr := c.Multi(t.Context(), coord.Create("/a", nil))
	_, batchErr := c.Batch(t.Context(), nil, []coord.Op{coord.Create("/a/b", nil), coord.Create("/c", nil)})
	treeErr := c.DeleteTree(t.Context(), nil, "/a")
	for _, err := range []error{multiErr, batchErr, treeErr} {
		if !errors.Is(err, coord.ErrUnknownOutcome) {
			t.Errorf("got %v", err)
		}
	}
	if nodes := e.Dump(); len(nodes) != 1 || nodes[0].Path != "/c" {
		t.Errorf("after %v the tree holds %v", seen, nodes)
	}
}

func TestADisconnectedClientsSessionExpiresByItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New()
		c, other := e.Client(), e.Client()
		sess, err := c.OpenSession(t.Context(), 6*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Multi(t.Context(), coord.CreateEphemeral("/e", nil, sess)); err != nil {
			t.Fatal(err)
		}
		c.Disconnect()
		<-time.After(5 * time.Second)
		c.Reconnect() // in time
		<-time.After(time.Hour)
		c.Disconnect()
		if _, err := c.Get(t.Context(), "/e"); !errors.Is(err, coord.ErrUnavailable) {
			t.Errorf("a disconnected client got %v", err)
		}
		begin := time.Now()
		<-sess.Done()
		if passed := time.Since(begin); passed != 6*time.Second {
			t.Errorf("done after %v", passed)
		}
		synctest.Wait()
		if _, err := other.Get(t.Context(), "/e"); !errors.Is(err, coord.ErrNoNode) {
			t.Errorf("the node: %v", err)
		}
	})
}

func TestReconnectFiresAllWatches(t *testing.T) {
	e := New()
	c := e.Client()
	w := c.NewWatcher()
	w.Add("/a", coord.WatchNode)
	w.Add("/b", coord.WatchChildren)
	c.Disconnect()
	c.Reconnect()
	if events, err := w.Next(t.Context()); err != nil || len(events) != 2 {
		t.Errorf("events %v, %v", events, err)
	}
}

func TestAHeldCallEndsWithItsContext(t *testing.T) {
	c := New().Client()
	ctx, cancel := context.WithCancel(t.Context())
	c.SetHook(func(Call) Fault {
		cancel()
		return Fault{Wait: make(chan struct{})}
	})
	if _, err := c.Get(ctx, "/"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
