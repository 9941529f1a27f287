package sim

import (
	"slices"
	"strings"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// lateCopies takes a copy of every request that is on its way to a broker, as its connection would keep it that breaks now: the controller
// sends it again on another.
func lateCopies(w *World, to cluster.BrokerID) (copies []flight) {
	n := w.Active()
	for _, req := range n.links[to] {
		copies = append(copies, flight{to: to, req: req, on: n.conns[to]})
	}
	n.connect(to)
	return copies
}

// deletedAndCreatedAgain plays the deletion of a topic and the creation of another of its name, and then has the broker read what was on the
// connections that broke meanwhile. It returns what the checkers find, and the kinds of requests that came late.
func deletedAndCreatedAgain(t *testing.T, o Options) (found string, kinds map[string]bool) {
	w := New(o)
	defer w.Close()
	w.StartAll()
	w.Settle()
	w.CreateTopic("a", brokers(2, 3))
	var late []flight
	keep := func(request string) {
		if !w.RunUntil(request) {
			t.Fatalf("no controller sends %s", request)
		}
		for !slices.ContainsFunc(w.Active().links[2], func(e controller.Effect) bool { return strings.Contains(FormatEffect(e), request) }) {
			w.Step()
		}
		late = append(late, lateCopies(w, 2)...)
	}
	keep("LeaderAndIsr to 2")
	w.Settle()
	w.DeleteTopic("a", true)
	keep("UpdateMetadata to 2")
	keep("StopReplica to 2: a-0(le -2, delete)")
	w.Settle()
	w.CreateTopic("a", brokers(2, 3))
	w.Settle()
	kinds = map[string]bool{}
	for _, f := range late {
		kinds[strings.Fields(FormatEffect(f.req))[0]] = true
	}
	w.inFlight = late
	w.Settle()
	w.Final()
	return strings.Join(w.Failures(), "\n"), kinds
}

// What the broker reads of a connection after its controller has given it up is not applied. Kafka's brokers apply it: to StopReplica a topic is
// nothing but its name.
func TestWhatIsReadOfABrokenConnectionIsNotApplied(t *testing.T) {
	found, kinds := deletedAndCreatedAgain(t, Options{})
	if found != "" {
		t.Error(found)
	}
	for _, kind := range []string{"LeaderAndIsr", "UpdateMetadata", "StopReplica"} {
		if !kinds[kind] {
			t.Errorf("no %s came late", kind)
		}
	}
	found, _ = deletedAndCreatedAgain(t, Options{Kafka: brokers(2)})
	if want := "broker 2 deletes a-0 of a topic that nobody asked to delete"; !strings.Contains(found, want) {
		t.Errorf("with a broker of Kafka's: %q is not among %q", want, found)
	}
}

// A proposal that was answered can be read once more from a connection that broke, after others: it must not come true, and whoever asked is told
// where it stands.
func TestAProposalThatIsReadLateDoesNotComeTrue(t *testing.T) {
	w := New(Options{})
	defer w.Close()
	w.StartAll()
	w.Settle()
	w.CreateTopic("a", brokers(2, 3, 1))
	w.Settle()
	tp := partition("a", 0)
	var late controller.AlterPartition
	h := w.nodes[2].hosted[tp]
	w.propose(w.nodes[2], w.Active(), tp, brokers(2, 3))
	late = w.requests[h.proposed.token].ev.(controller.AlterPartition)
	w.Settle()
	w.ProposeISR(tp, 2)
	w.inFlight = []flight{{to: w.Active().id, asked: &late}}
	w.Settle()
	if isr := w.store.topics["a"].states[0].ISR; len(isr) != 1 || isr[0] != 2 {
		t.Errorf("the ISR is %v", isr)
	}
	w.CatchUp()
	w.Final()
	verify(t, w)
}
