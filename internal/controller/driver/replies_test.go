package driver

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
	"testing/synctest"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// requestKinds makes every event that carries a reply.
var requestKinds = map[string]func(controller.ReplyToken) controller.Event{
	"AlterPartition": func(t controller.ReplyToken) controller.Event { return controller.AlterPartition{Reply: t, Broker: 1} },
	"AllocateProducerIDs": func(t controller.ReplyToken) controller.Event {
		return controller.AllocateProducerIDs{Reply: t, Broker: 1}
	},
	"ControlledShutdown": func(t controller.ReplyToken) controller.Event {
		return controller.ControlledShutdown{Reply: t, Broker: 2, BrokerEpoch: cluster.NoBrokerEpoch}
	},
	"AlterPartitionReassignments": func(t controller.ReplyToken) controller.Event {
		return controller.AlterPartitionReassignments{Reply: t, Partitions: []controller.PartitionReassignment{{TopicPartition: cluster.TopicPartition{Topic: "t"}, Target: on1}}}
	},
	"ListPartitionReassignments": func(t controller.ReplyToken) controller.Event {
		return controller.ListPartitionReassignments{Reply: t, All: true}
	},
	"ElectLeaders": func(t controller.ReplyToken) controller.Event {
		return controller.ElectLeaders{Reply: t, Partitions: []cluster.TopicPartition{{Topic: "t"}}}
	},
	"UpdateFeatures": func(t controller.ReplyToken) controller.Event {
		return controller.UpdateFeatures{Reply: t, Updates: []controller.FeatureUpdate{{Feature: "f", Level: 1, Type: controller.UpgradeFeature}}}
	},
}

// askAll makes one request of each kind and returns how often each was answered so far.
func (b *testBroker) askAll() map[string]*int {
	answers := map[string]*int{}
	for name, event := range requestKinds {
		n := new(int)
		answers[name] = n
		b.request(event, func(v controller.ReplyValue) {
			if v == nil {
				b.c.t.Errorf("%s is answered with nothing", name)
			}
			*n++
		})
	}
	return answers
}

func wantEach(t *testing.T, when string, answers map[string]*int, want int) {
	t.Helper()
	for name, n := range answers {
		if *n != want {
			t.Errorf("%s: %s has %d answers, want %d", when, name, *n, want)
		}
	}
}

// hold keeps the owner busy until the returned function is called.
func (b *testBroker) hold() (release func()) {
	gate := make(chan struct{})
	b.queue.putOwn(&item{query: func() { <-gate }})
	synctest.Wait()
	return func() { close(gate); synctest.Wait() }
}

// W3, W19: whatever drops a request, its caller is answered, once.
func TestEveryKindOfRequestIsAnsweredWhateverDropsIt(t *testing.T) {
	for _, name := range requestTypes(t) {
		if requestKinds[name] == nil {
			t.Errorf("request %s is not tried", name)
		}
	}
	small := func(c *Config) { c.EventQueueMax = 1 }
	for _, c := range []struct {
		name   string
		config func(*Config)
		// drop has the requests dropped; ask makes them. It returns their answers and how many each has before release.
		drop func(b *testBroker, ask func() map[string]*int) map[string]*int
	}{
		{"the session expires while they wait", nil, func(b *testBroker, ask func() map[string]*int) map[string]*int {
			release := b.hold()
			defer release()
			answers := ask()
			b.c.engine.ExpireSession(b.session.Load().ID())
			synctest.Wait()
			wantEach(b.c.t, "while the owner is still busy", answers, 1)
			return answers
		}},
		{"the broker stops while they wait", nil, func(b *testBroker, ask func() map[string]*int) map[string]*int {
			release := b.hold()
			answers := ask()
			b.cancel()
			synctest.Wait()
			wantEach(b.c.t, "while the owner is still busy", answers, 1)
			release()
			return answers
		}},
		{"another broker is the controller by the time they are looked at", nil, func(b *testBroker, ask func() map[string]*int) map[string]*int {
			release := b.hold()
			b.queue.putOwn(&item{event: controller.Expire{}})
			answers := ask()
			wantEach(b.c.t, "before", answers, 0)
			release()
			return answers
		}},
		{"the core breaks before it sees them", nil, func(b *testBroker, ask func() map[string]*int) map[string]*int {
			release := b.hold()
			b.queue.putOwn(&item{event: unknownEvent{}})
			answers := ask()
			release()
			return answers
		}},
		{"the queue is full", small, func(b *testBroker, ask func() map[string]*int) map[string]*int {
			release := b.hold()
			defer release()
			b.queue.offer(controller.TopicUncleanLeaderElectionEnable{})
			answers := ask()
			wantEach(b.c.t, "at once", answers, 1)
			return answers
		}},
		{"the driver has ended", nil, func(b *testBroker, ask func() map[string]*int) map[string]*int {
			b.cancel()
			synctest.Wait()
			return ask()
		}},
		{"nothing drops them", nil, func(_ *testBroker, ask func() map[string]*int) map[string]*int {
			return ask()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, cl *testCluster) {
				b := cl.addBroker(1, brokerOptions{config: c.config}).run()
				defer b.stop()
				synctest.Wait()
				cl.createTopic("t", on1)
				synctest.Wait()
				answers := c.drop(b, b.askAll)
				synctest.Wait()
				wantEach(t, "at last", answers, 1)
				if len(b.replies.mu.waiting) != 0 {
					t.Errorf("%d callers are kept", len(b.replies.mu.waiting))
				}
			})
		})
	}
}

// requestTypes lists the core's event types that carry a reply.
func requestTypes(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../event.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if body, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range body.Fields.List {
				if fmt.Sprint(f.Type) == "ReplyToken" {
					names = append(names, spec.Name.Name)
				}
			}
		}
		return true
	})
	if len(names) == 0 {
		t.Fatal("no requests")
	}
	return names
}
