package controller

import (
	"slices"
	"strings"
	"testing"

	"klamm/internal/cluster"
)

// office drives a core by Step alone, against a store that knows only who is in office.
type office struct {
	t       *testing.T
	c       *Core
	now     Time
	holder  cluster.BrokerID
	epoch   cluster.ControllerEpoch
	version int32
	// spoil, when set, answers instead of the store.
	spoil func(Store) (StoreResult, bool)
	// trace is the types of the store operations run.
	elections int
	effects   []Effect
}

func newOffice(t *testing.T) *office {
	return &office{t: t, c: New(Config{Broker: 1}), holder: cluster.NoBroker, now: 1000}
}

func (o *office) feed(ev Event) {
	out := o.c.Step(o.now, ev)
	for {
		o.effects = append(o.effects, out...)
		if !o.c.AwaitsStore() {
			return
		}
		s := out[len(out)-1].(Store)
		out = o.c.Step(o.now, o.run(s))
	}
}

func (o *office) run(s Store) StoreResult {
	if o.spoil != nil {
		if r, ok := o.spoil(s); ok {
			r.Token = s.Token
			return r
		}
	}
	r := StoreResult{Token: s.Token, Outcome: Applied}
	switch op := s.Op.(type) {
	case ReadController:
		r.Value = ControllerRead{o.holder}
	case ReadControllerEpoch:
		r.Value = ControllerEpochRead{Exists: true, Epoch: o.epoch, Version: o.version}
	case Elect:
		o.elections++
		o.holder, o.epoch, o.version = op.Broker, op.Epoch, o.version+1
		r.Value = ElectResult{ItemOK, o.version}
	case ReadReassignments:
		r.Value = ReassignmentsRead{}
	case ReadPreferredElection:
		r.Value = PreferredElectionRead{}
	case DeleteController:
		o.holder = cluster.NoBroker
		r.Value = Written{itemsOK(1)}
	case ReadBrokers:
		r.Value = BrokersRead{}
	case ReadTopicNames:
		r.Value = TopicNamesRead{}
	case ReadDeletionMarkers:
		r.Value = MarkersRead{}
	case EnsureFeatures:
		r.Value = FeaturesRead{}
	default:
		r.Value = Written{itemsOK(1)}
	}
	return r
}

func (o *office) timer(id TimerID) (ms int64, ok bool) {
	for _, e := range o.effects {
		if e, is := e.(StartTimer); is && e.Timer == id {
			ms, ok = e.AfterMs, true
		}
	}
	return ms, ok
}

// W2: a term that cannot be taken up makes the next election wait, longer each time, instead of electing in a loop.
func TestElectionsAfterFailedTermsAreSpaced(t *testing.T) {
	o := newOffice(t)
	o.spoil = func(s Store) (StoreResult, bool) {
		_, features := s.Op.(EnsureFeatures)
		if features {
			o.holder = cluster.NoBroker // somebody else was elected and has gone again
		}
		return StoreResult{Outcome: Fenced}, features
	}
	o.feed(Startup{})
	var pauses []int64
	for range 5 {
		o.effects = nil
		o.feed(ControllerChange{})
		ms, ok := o.timer(TimerElection)
		if !ok || o.c.IsActive() {
			t.Fatalf("no pause after %d elections", o.elections)
		}
		pauses = append(pauses, ms)
		o.now += Time(ms)
		o.feed(TimerFired{TimerElection})
	}
	if !slices.Equal(pauses, []int64{100, 200, 400, 800, 1600}) || o.elections != 6 {
		t.Errorf("pauses %v, %d elections", pauses, o.elections)
	}
	o.spoil = nil
	o.now += 10_000
	o.feed(ControllerChange{})
	if !o.c.IsActive() {
		t.Error("not in office after the trouble is over")
	}
	// Now that a term went through, the next election is tried at once.
	o.holder, o.effects = cluster.NoBroker, nil
	o.feed(ControllerChange{})
	if _, paused := o.timer(TimerElection); paused || !o.c.IsActive() {
		t.Error("the pause outlives the trouble")
	}
}

// W17: whoever takes /controller away, the term ends with Resigned, and nothing of it is left for the next.
func TestLosingTheNodeEndsTheTerm(t *testing.T) {
	for name, holder := range map[string]cluster.BrokerID{"to another": 2, "to nobody": cluster.NoBroker} {
		t.Run(name, func(t *testing.T) {
			o := newOffice(t)
			o.feed(Startup{})
			o.effects, o.holder = nil, holder
			o.feed(ControllerChange{})
			resigned := 0
			for _, e := range o.effects {
				if _, ok := e.(Resigned); ok {
					resigned++
				}
			}
			if resigned != 1 || o.c.IsActive() != (holder == cluster.NoBroker) {
				t.Errorf("resigned %d times, active %v", resigned, o.c.IsActive())
			}
		})
	}
}

func TestShutdownGivesUpOfficeForGood(t *testing.T) {
	o := newOffice(t)
	o.feed(Startup{})
	o.feed(Shutdown{})
	if o.c.IsActive() || o.holder != cluster.NoBroker {
		t.Errorf("active %v, /controller %d", o.c.IsActive(), o.holder)
	}
	o.feed(ControllerChange{})
	if o.c.IsActive() || o.elections != 1 {
		t.Errorf("elected again after shutdown")
	}
}

func TestAnEventFedIntoAnUnansweredStoreEffectIsABrokenInvariant(t *testing.T) {
	c := New(Config{Broker: 1})
	defer c.Close()
	c.Step(1, Startup{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	c.Step(2, BrokerChange{})
}

// strangeEvent is an event that no core knows.
type strangeEvent struct{ Event }

func TestABrokenInvariantNamesTheHandlerThatBrokeIt(t *testing.T) {
	c := New(Config{Broker: 1})
	defer func() {
		broken, ok := recover().(*BrokenInvariant)
		if !ok || !strings.Contains(broken.Stack, "controller.(*Core).handle(") || !strings.Contains(broken.Error(), "unknown event") {
			t.Errorf("panic with %+v", broken)
		}
	}()
	c.ctx = newContext(1, 1)
	c.Step(1, strangeEvent{})
}

func TestAStoreResultWithAnotherTokenIsABrokenInvariant(t *testing.T) {
	c := New(Config{Broker: 1})
	defer c.Close()
	c.Step(1, Startup{})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	c.Step(2, StoreResult{Token: 99, Outcome: Applied, Value: ControllerRead{}})
}

func TestACoreThatIsClosedInTheMiddleOfAnEventAsksForNothing(t *testing.T) {
	c := New(Config{Broker: 1})
	c.Step(1, Startup{})
	c.Close()
	c.Close()
	if c.AwaitsStore() || c.IsActive() {
		t.Error("still waiting")
	}
}

func TestEveryRegularEventIsHandledOutOfOffice(t *testing.T) {
	c := New(Config{Broker: 1})
	for _, ev := range []Event{BrokerChange{}, BrokerModifications{}, TopicChange{}, PartitionModifications{}, TopicDeletion{},
		LogDirEventNotification{}, ISRChangeNotification{}, LeaderAndISRReply{}, UpdateMetadataReply{}, StopReplicaReply{},
		TopicUncleanLeaderElectionEnable{}, UncleanLeaderElectionEnable{}, TopicDeletionEnable{}, TopicDeletionEnable{true}, TimerFired{TimerDeletionRetry}, TimerFired{TimerPartitionRetry}, Expire{}} {
		if out := c.Step(1, ev); len(out) != 0 {
			t.Errorf("%T out of office has effects %v", ev, out)
		}
	}
}
