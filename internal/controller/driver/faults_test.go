package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// loseFirstAnswers makes each distinct write fail with an unknown outcome the first time: applied in even cases, lost
// before it was applied in odd ones.
func loseFirstAnswers(seen map[string]bool, lost *int) func(memstore.Call) memstore.Fault {
	return func(call memstore.Call) memstore.Fault {
		if call.Method != "Multi" && call.Method != "Batch" && call.Method != "DeleteTree" {
			return memstore.Fault{}
		}
		key := fmt.Sprint(call.Method, call.Paths)
		for _, op := range call.Ops {
			key += fmt.Sprint(op.Kind, op.Path, op.Version)
		}
		if seen[key] {
			return memstore.Fault{}
		}
		seen[key] = true
		*lost++
		if *lost%2 == 0 {
			return memstore.Fault{LoseAnswer: true}
		}
		return memstore.Fault{Err: coord.ErrUnknownOutcome}
	}
}

// frozenStore is a store whose next Batch, once armed, sits on the wire until released, whatever the caller's context does: the
// write of a process that was suspended at the worst moment.
type frozenStore struct {
	coord.Store
	armed   chan struct{} // closed: hold the next Batch
	reached chan struct{} // closed when it is held
	release chan struct{} // closed: let it go
	result  chan error
}

func (s *frozenStore) Batch(ctx context.Context, guard *coord.Guard, ops []coord.Op) ([]coord.OpResult, error) {
	select {
	case <-s.armed:
	default:
		return s.Store.Batch(ctx, guard, ops)
	}
	select {
	case <-s.reached:
		return s.Store.Batch(ctx, guard, ops) // only the first one is held
	default:
	}
	close(s.reached)
	<-s.release
	results, err := s.Store.Batch(context.WithoutCancel(ctx), guard, ops)
	s.result <- err
	return results, err
}

// frozenSession hides the end of a session until it is thawed.
type frozenSession struct {
	coord.Session
	done chan struct{}
}

func (s *frozenSession) Done() <-chan struct{} { return s.done }

// R09: a controller that was held up past its session writes nothing more, and its successor keeps its node.
func TestAWriteOfAFormerControllerIsFenced(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		store := &frozenStore{armed: make(chan struct{}), reached: make(chan struct{}), release: make(chan struct{}), result: make(chan error, 1)}
		session := &frozenSession{done: make(chan struct{})}
		one := c.addBroker(1, brokerOptions{
			store:   func(s coord.Store) coord.Store { store.Store = s; return store },
			session: func(s coord.Session) coord.Session { session.Session = s; return session },
		}).run()
		defer one.stop()
		synctest.Wait()
		two := c.start(2)
		defer two.stop()
		synctest.Wait()

		close(store.armed)
		c.createTopic("t", on12)
		<-store.reached // broker 1 is about to create the partition's state, and freezes
		c.engine.ExpireSession(session.ID())
		synctest.Wait()
		if id, epoch := c.controllerNode(); id != 2 || epoch != 2 || !two.IsActive() {
			t.Fatalf("controller %d, epoch %d", id, epoch)
		}
		before, _ := c.state("t", 0)
		if before.ControllerEpoch != 2 || before.Leader != 2 {
			t.Errorf("the new controller decided %v", before)
		}
		two.fake.take()

		close(store.release) // the frozen write reaches the store
		if err := <-store.result; !errors.Is(err, coord.ErrFenced) {
			t.Errorf("the write of the former controller ended with %v", err)
		}
		synctest.Wait()
		if after, _ := c.state("t", 0); !after.Equal(before) {
			t.Errorf("the state changed from %v to %v", before, after)
		}
		if one.IsActive() {
			t.Error("the former controller still believes in its office")
		}
		for _, r := range two.fake.take() {
			if u, ok := r.(*kmsg.LeaderAndISRRequest); ok && u.ControllerEpoch == 1 {
				t.Error("the former controller sent leaderships that it could not write")
			}
		}

		close(session.done) // now broker 1 hears of it
		synctest.Wait()
		if one.IsActive() || one.ActiveControllerID() != 2 || !two.cache.Image().HasBroker(1) {
			t.Errorf("broker 1: active %t, controller %d", one.IsActive(), one.ActiveControllerID())
		}
		if id, epoch := c.controllerNode(); id != 2 || epoch != 2 {
			t.Errorf("the former controller changed the office: controller %d, epoch %d", id, epoch)
		}
		one.expectTopic("t", 1)
	})
}

// hangBatches has no batch of the broker answered until it is given another hook.
func (b *testBroker) hangBatches() {
	never := make(chan struct{})
	b.client.SetHook(func(call memstore.Call) memstore.Fault {
		if call.Method == "Batch" {
			return memstore.Fault{Wait: never}
		}
		return memstore.Fault{}
	})
}

func TestASessionThatEndsWithAWriteInFlightEndsTheTerm(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.start(1)
		defer one.stop()
		synctest.Wait()
		one.hangBatches()
		c.createTopic("t", on1)
		synctest.Wait()
		answers := 0
		req := kmsg.NewPtrAllocateProducerIDsRequest()
		one.AllocateProducerIDs(t.Context(), req, func(r *kmsg.AllocateProducerIDsResponse) {
			answers++
			if cluster.ErrorCode(r.ErrorCode) != cluster.NotController {
				t.Errorf("answer %+v", r)
			}
		})
		c.engine.ExpireSession(one.session.Load().ID())
		synctest.Wait()
		if answers != 1 {
			t.Errorf("%d answers for the request that waited", answers)
		}
		one.client.SetHook(nil)
		advance(time.Minute)
		if _, epoch := c.controllerNode(); epoch < 2 || !one.IsActive() {
			t.Errorf("epoch %d, active %t", epoch, one.IsActive())
		}
		one.expectTopic("t", 1)
	})
}

// A setting that changes while the session ends is not lost with the events that are dropped then.
func TestASettingThatChangesAsTheSessionEndsHoldsForTheNextTerm(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.start(1)
		defer one.stop()
		synctest.Wait()
		c.createTopic("t", on1)
		synctest.Wait()
		one.hangBatches()
		c.createTopic("u", on1)
		synctest.Wait()
		one.SetTopicDeletion(false) // waits behind the event that hangs
		c.engine.ExpireSession(one.session.Load().ID())
		synctest.Wait()
		one.client.SetHook(nil)
		advance(time.Minute)
		c.deleteTopic("t")
		advance(time.Minute)
		if len(c.paths(coord.DeleteTopicPath("t"))) != 0 {
			t.Error("the marker is still there")
		}
		one.expectTopic("t", 1)
	})
}

// unknownEvent is an event that no core knows.
type unknownEvent struct{ controller.Event }

func TestABrokenCoreGivesUpOfficeAndStartsAgainAfterAPause(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.start(1)
		defer one.stop()
		synctest.Wait()
		c.createTopic("t", on1)
		synctest.Wait()
		answers := 0
		one.queue.putOwn(&item{event: unknownEvent{}})
		one.AllocateProducerIDs(t.Context(), kmsg.NewPtrAllocateProducerIDsRequest(), func(*kmsg.AllocateProducerIDsResponse) { answers++ })
		synctest.Wait()
		if id, _ := c.controllerNode(); id != cluster.NoBroker || one.IsActive() || one.Metrics().CorePanics != 1 || answers != 1 {
			t.Errorf("controller %d, active %t, panics %d, %d answers", id, one.IsActive(), one.Metrics().CorePanics, answers)
		}
		if n := len(one.Status().Brokers); n != 0 {
			t.Errorf("%d senders are left", n)
		}
		c.createTopic("u", on1) // while there is no core
		advance(900 * time.Millisecond)
		if one.IsActive() {
			t.Error("elected again before the pause was over")
		}
		advance(200 * time.Millisecond)
		if id, epoch := c.controllerNode(); id != 1 || epoch != 2 || !one.IsActive() {
			t.Errorf("controller %d, epoch %d, active %t", id, epoch, one.IsActive())
		}
		one.expectTopic("t", 1)
		one.expectTopic("u", 1)

		one.queue.putOwn(&item{event: unknownEvent{}}) // the next pause is twice as long
		advance(1900 * time.Millisecond)
		if one.IsActive() {
			t.Error("elected again before the longer pause was over")
		}
		advance(200 * time.Millisecond)
		if !one.IsActive() {
			t.Error("not elected again")
		}
	})
}

func TestAnotherBrokerTakesOverFromABrokenCore(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one, two := c.startTwo()
		// The store cannot be reached when the core breaks: /controller is removed as soon as it can.
		one.client.Disconnect()
		one.queue.putOwn(&item{event: unknownEvent{}})
		synctest.Wait()
		if two.IsActive() {
			t.Fatal("two controllers")
		}
		advance(1500 * time.Millisecond)
		one.client.Reconnect()
		advance(10 * time.Second)
		if id, epoch := c.controllerNode(); id != 2 || epoch != 2 || !two.IsActive() || one.IsActive() || one.ActiveControllerID() != 2 {
			t.Errorf("controller %d, epoch %d; broker 1 knows %d", id, epoch, one.ActiveControllerID())
		}
	})
}

func TestABrokerTooFarBehindCostsTheOfficeAndNotTheMemory(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.addBroker(1, brokerOptions{config: func(cfg *Config) { cfg.BrokerQueueMax = 20 }}).run()
		defer one.stop()
		synctest.Wait()
		two := c.start(2)
		defer two.stop()
		synctest.Wait()
		two.fake.setHold(true) // broker 2 is frozen, its session is not
		for i := range 25 {
			c.createTopic(fmt.Sprintf("t%d", i), on12)
			synctest.Wait()
		}
		advance(30 * time.Second)
		if one.Metrics().QueueOverflows == 0 {
			t.Fatal("no overflow")
		}
		two.fake.setHold(false)
		advance(30 * time.Second)
		if _, epoch := c.controllerNode(); epoch < 2 {
			t.Errorf("epoch %d: office was kept", epoch)
		}
		for i := range 25 {
			one.expectTopic(fmt.Sprintf("t%d", i), 1)
			two.expectTopic(fmt.Sprintf("t%d", i), 1)
		}
	})
}

// TestADriverMayBeStoppedBeforeAnyStoreCall stops the controller before its k-th call to the store, for every k
// of a life with an election, a creation and a deletion. It must end with every goroutine, and the next controller
// must finish the work.
func TestADriverMayBeStoppedBeforeAnyStoreCall(t *testing.T) {
	total, cut := 0, 0
	for k := 0; k == 0 || k <= total; k++ {
		bubble(t, func(t *testing.T, c *testCluster) {
			one := c.addBroker(1, brokerOptions{})
			calls := 0
			one.client.SetHook(func(memstore.Call) memstore.Fault {
				calls++
				if calls == k {
					return memstore.Fault{Wait: make(chan struct{})} // until the call's context ends
				}
				return memstore.Fault{}
			})
			one.run()
			synctest.Wait()
			c.createTopic("kept", on12)
			c.createTopic("gone", on12, on21)
			synctest.Wait()
			c.deleteTopic("gone")
			synctest.Wait()
			switch {
			case k == 0:
				total = calls
			case calls < k:
				one.stop()
				return // events that came together took this life fewer calls
			default:
				cut++
			}
			answers := 0
			one.AllocateProducerIDs(t.Context(), kmsg.NewPtrAllocateProducerIDsRequest(), func(*kmsg.AllocateProducerIDsResponse) { answers++ })
			synctest.Wait()
			one.stop()
			if answers != 1 {
				t.Errorf("stopped before call %d of %d: %d answers", k, total, answers)
			}
			if id, err := coord.ActiveController(t.Context(), c.admin); err != nil || id != cluster.NoBroker {
				t.Errorf("stopped before call %d: controller is %d, %v", k, id, err)
			}
			two := c.start(2)
			synctest.Wait()
			again := c.addBroker(1, brokerOptions{}).run()
			advance(time.Minute)
			two.expectTopic("kept", 1)
			two.expectGone("gone")
			again.expectTopic("kept", 1)
			again.stop()
			two.stop()
		})
		if t.Failed() {
			t.Fatalf("failed at call %d of %d", k, total)
		}
	}
	if cut < 20 {
		t.Errorf("only %d calls were cut", cut)
	}
}

// askedStore counts what is read of it.
type askedStore struct {
	coord.Store
	asked *atomic.Int64
}

func (s askedStore) Get(ctx context.Context, path string) (coord.Node, error) {
	s.asked.Add(1)
	return s.Store.Get(ctx, path)
}

func TestOnlyABrokerThatMayHoldTheOfficeAsksForItWhenItStops(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		start := func(id cluster.BrokerID) (*testBroker, *atomic.Int64) {
			asked := &atomic.Int64{}
			b := c.addBroker(id, brokerOptions{store: func(s coord.Store) coord.Store { return askedStore{s, asked} }}).run()
			synctest.Wait()
			return b, asked
		}
		one, _ := start(1)
		two, asked := start(2)
		before := asked.Load()
		two.stopDriver()
		if n := asked.Load() - before; n != 0 {
			t.Errorf("a broker beside the controller read %d nodes when it stopped", n)
		}
		one.stopDriver() // the session lives on
		if id, _ := c.controllerNode(); id != cluster.NoBroker {
			t.Errorf("broker %d stopped and is the controller", id)
		}
		two.die()
		one.die()
	})
}
