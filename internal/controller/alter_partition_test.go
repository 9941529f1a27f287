package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"testing"

	"klamm/internal/cluster"
)

func TestAlterPartitionAnswersByItsTable(t *testing.T) {
	known := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 7, ControllerEpoch: 4}
	recovering := known
	recovering.Recovery, recovering.ISR = cluster.Recovering, ids(1)
	for _, c := range []struct {
		name    string
		known   *cluster.LeaderAndISR
		req     AlterPartitionPartition
		from    cluster.BrokerID
		version int16
		want    cluster.ErrorCode
		written bool
	}{
		{"no leadership known", nil, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 7}, 1, 3, cluster.UnknownTopicOrPartition, false},
		{"partition epoch from the future", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 8}, 1, 3, cluster.NotController, false},
		{"leader epoch from the future", &known, AlterPartitionPartition{LeaderEpoch: 4, ISR: ids(1), PartitionEpoch: 7}, 1, 3, cluster.NotController, false},
		{"leader epoch of the past", &known, AlterPartitionPartition{LeaderEpoch: 2, ISR: ids(1), PartitionEpoch: 7}, 1, 3, cluster.FencedLeaderEpoch, false},
		{"what is so already", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 6}, 1, 3, cluster.None, false},
		{"the same members in another order", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(2, 1), PartitionEpoch: 6}, 1, 3, cluster.InvalidUpdateVersion, false},
		{"partition epoch of the past", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 6}, 1, 3, cluster.InvalidUpdateVersion, false},
		{"recovering with two members", &recovering, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 7, Recovery: cluster.Recovering}, 1, 3, cluster.InvalidRequest, false},
		{"recovering again", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 7, Recovery: cluster.Recovering}, 1, 3, cluster.InvalidRequest, false},
		{"recovered", &recovering, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 7}, 1, 3, cluster.None, true},
		{"a dead broker", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 9), PartitionEpoch: 7}, 1, 3, cluster.IneligibleReplica, false},
		{"a broker that shuts down", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 3), PartitionEpoch: 7}, 1, 2, cluster.IneligibleReplica, false},
		{"a member that has registered again", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 2), BrokerEpochs: []cluster.BrokerEpoch{-1, 99}, PartitionEpoch: 7, Recovery: cluster.Recovered}, 2, 3, cluster.IneligibleReplica, false},
		{"members in their registrations, as far as they are known", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(2, 1), BrokerEpochs: []cluster.BrokerEpoch{102, -1}, PartitionEpoch: 7}, 1, 3, cluster.None, true},
		{"a dead broker, old version", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 9), PartitionEpoch: 7}, 1, 1, cluster.OperationNotAttempted, false},
		{"a dead broker, the first version", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 9), PartitionEpoch: 7}, 1, 0, cluster.None, false},
		{"a broker that is not assigned", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 4), PartitionEpoch: 7}, 1, 3, cluster.InvalidRequest, false},
		{"an ISR without the sender, the first version", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(2), PartitionEpoch: 7}, 1, 0, cluster.None, false},
		{"an ISR without the sender", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(2), PartitionEpoch: 7}, 1, 3, cluster.InvalidRequest, false},
		{"a shrink", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 7}, 1, 3, cluster.None, true},
		{"a shrink, old version", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 7}, 1, 0, cluster.None, true},
		{"by a broker that is not the leader", &known, AlterPartitionPartition{LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 7}, 2, 3, cluster.None, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, 2, 3, 4)
			r.c.ctx.shuttingDown[3] = true
			p := r.topic("t", ids(1, 2, 3), c.known)
			ev := AlterPartition{Reply: 8, Broker: c.from, BrokerEpoch: 100 + cluster.BrokerEpoch(c.from), Version: c.version,
				Topics: []AlterPartitionTopic{{Name: "t", ID: p.topic.ID, Partitions: []AlterPartitionPartition{c.req}}}}
			got, writes := r.request(ev)
			a := got.(AlterPartitionResult).Topics[0].Partitions[0]
			// A sender that is behind is put right, as far as it takes.
			told, epoch, bumped := []cluster.BrokerID(nil), cluster.LeaderEpoch(3), false
			switch {
			case c.want == cluster.FencedLeaderEpoch:
				told = ids(c.from)
			case c.want == cluster.InvalidUpdateVersion, slices.Contains(c.req.ISR, 4):
				told, epoch, bumped = ids(1, 2, 3), 4, true
			}
			if a.Err != c.want || (writes > 0) != (c.written || bumped) {
				t.Fatalf("answer %v, %d writes", a, writes)
			}
			r.wantLeaderAndISR(p, epoch, told...)
			if c.want != cluster.None {
				return
			}
			want := cluster.LeaderAndISR{Leader: c.from, LeaderEpoch: 3, ISR: c.req.ISR, PartitionEpoch: 8, ControllerEpoch: 5}
			if !c.written {
				want = *c.known
			}
			if !a.State.Equal(want) || !p.leadership.Equal(want) {
				t.Errorf("answer {%s}, known {%s}, want {%s}", a.State, p.leadership, want)
			}
		})
	}
}

// wantLeaderAndISR: these brokers were sent LeaderAndIsr for the partition, once, with the leadership that is known and this epoch, and no others.
func (r *rig) wantLeaderAndISR(p *partitionContext, epoch cluster.LeaderEpoch, to ...cluster.BrokerID) {
	r.t.Helper()
	var told []cluster.BrokerID
	for _, e := range effectsOf[SendLeaderAndISR](r) {
		told = append(told, e.Target.Broker)
		if s := e.Topics[0].Partitions[0].State; !s.Equal(*p.leadership) || s.LeaderEpoch != epoch {
			r.t.Errorf("broker %d is told {%s}, known is {%s}, want epoch %d", e.Target.Broker, s, p.leadership, epoch)
		}
	}
	if !slices.Equal(told, to) {
		r.t.Errorf("LeaderAndIsr to %v, want %v", told, to)
	}
}

// A state node that somebody else has written is found by the write. The sender is behind, and so were the controller's own books.
func TestALeaderWhoseStateSomebodyElseWroteIsPutRight(t *testing.T) {
	for _, c := range []struct {
		name  string
		found cluster.LeaderAndISR
		epoch cluster.LeaderEpoch
		told  []cluster.BrokerID
	}{
		{"in the leader epoch", cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: ids(1, 2, 3), PartitionEpoch: 8, ControllerEpoch: 4}, 4, ids(1, 2, 3)},
		{"in a later one", cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 4, ISR: ids(2), PartitionEpoch: 9, ControllerEpoch: 4}, 4, ids(1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, 2, 3)
			p := r.topic("t", ids(1, 2, 3), &cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 7, ControllerEpoch: 4})
			conflicts := 1
			r.answer = func(s Store) StoreResult {
				if op, ok := s.Op.(SetPartitionStates); ok && conflicts > 0 && op.States[0].State.PartitionEpoch != c.found.PartitionEpoch {
					conflicts--
					return StoreResult{Token: s.Token, Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemConflict, State: c.found, HasState: true}}}}
				}
				return r.accept(s)
			}
			got, _ := r.request(AlterPartition{Reply: 8, Broker: 1, BrokerEpoch: 101, Version: 3, Topics: []AlterPartitionTopic{{Name: "t", ID: p.topic.ID,
				Partitions: []AlterPartitionPartition{{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 7}}}}})
			if a := got.(AlterPartitionResult).Topics[0].Partitions[0]; a.Err != cluster.InvalidUpdateVersion || conflicts != 0 {
				t.Errorf("answer %v", a)
			}
			r.wantLeaderAndISR(p, c.epoch, c.told...)
		})
	}
}

// Whoever is not a replica, or asks about a topic that is being deleted, is not told who leads.
func TestASenderThatHasNothingToLeadIsNotPutRight(t *testing.T) {
	for name, arrange := range map[string]func(r *rig, p *partitionContext) (from cluster.BrokerID){
		"it is not assigned":         func(*rig, *partitionContext) cluster.BrokerID { return 4 },
		"the topic is being deleted": func(r *rig, p *partitionContext) cluster.BrokerID { r.queue(p); return 1 },
	} {
		for _, req := range []AlterPartitionPartition{{LeaderEpoch: 2, ISR: ids(1), PartitionEpoch: 7}, {LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 6}} {
			r := newRig(t, 1, 2, 3, 4)
			p := r.topic("t", ids(1, 2, 3), &cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 7, ControllerEpoch: 4})
			from := arrange(r, p)
			_, writes := r.request(AlterPartition{Reply: 8, Broker: from, BrokerEpoch: 100 + cluster.BrokerEpoch(from), Version: 3,
				Topics: []AlterPartitionTopic{{Name: "t", ID: p.topic.ID, Partitions: []AlterPartitionPartition{req}}}})
			if writes != 0 || len(effectsOf[SendLeaderAndISR](r)) != 0 {
				t.Errorf("%s: %d writes, %v", name, writes, effectsOf[SendLeaderAndISR](r))
			}
		}
	}
}

// request feeds a request and returns its one answer and how many partition states were written.
func (r *rig) request(ev Event) (ReplyValue, int) {
	r.t.Helper()
	if err := r.do(func() error { r.c.dispatch(ev); return nil }); err != nil {
		r.t.Fatal(err)
	}
	replies := effectsOf[Reply](r)
	if len(replies) != 1 {
		r.t.Fatalf("%d answers: %v", len(replies), r.effects)
	}
	n := 0
	for _, s := range effectsOf[Store](r) {
		if op, ok := s.Op.(SetPartitionStates); ok {
			n += len(op.States)
		}
	}
	return replies[0].Value, n
}

func TestAlterPartitionIsRefusedAsAWhole(t *testing.T) {
	for _, c := range []struct {
		name string
		ev   AlterPartition
		want cluster.ErrorCode
	}{
		{"broker unknown", AlterPartition{Broker: 9, BrokerEpoch: 109}, cluster.StaleBrokerEpoch},
		{"broker epoch of the past", AlterPartition{Broker: 1, BrokerEpoch: 100}, cluster.StaleBrokerEpoch},
		{"broker epoch unknown", AlterPartition{Broker: 1, BrokerEpoch: -1}, cluster.StaleBrokerEpoch},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := newRig(t, 1).request(c.ev)
			if got.(AlterPartitionResult).Err != c.want {
				t.Errorf("answer %v", got)
			}
		})
	}
}

// Leaders of Kafka 2.7 to 3.1 do not get over errors that they do not know: they learn the ISR that there is.
func TestTheFirstVersionOfAlterPartitionAnswersARefusalWithWhatIs(t *testing.T) {
	known := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 7, ControllerEpoch: 4}
	for version, want := range []AlterPartitionPartitionResult{{State: known}, {Err: cluster.UnknownServerError}} {
		r := newRig(t, 1, 2)
		p := r.topic("t", ids(1, 2), &known)
		r.answer = func(s Store) StoreResult {
			return StoreResult{Token: s.Token, Outcome: Applied, Value: Written{[]ItemResult{{Status: ItemFailed, Err: "no permission"}}}}
		}
		got, writes := r.request(AlterPartition{Reply: 8, Broker: 1, BrokerEpoch: 101, Version: int16(version), Topics: []AlterPartitionTopic{{Name: "t", ID: p.topic.ID,
			Partitions: []AlterPartitionPartition{{LeaderEpoch: 3, ISR: ids(1), PartitionEpoch: 7}}}}})
		if a := got.(AlterPartitionResult).Topics[0].Partitions[0]; writes != 1 || !reflect.DeepEqual(a, want) {
			t.Errorf("version %d: %+v after %d writes", version, a, writes)
		}
	}
}

func TestAlterPartitionOfAnUnknownTopicIsAnsweredPerPartition(t *testing.T) {
	ev := AlterPartition{Broker: 1, BrokerEpoch: 101, Topics: []AlterPartitionTopic{{Name: "x", ID: cluster.TopicID{9}, Partitions: []AlterPartitionPartition{{Partition: 0}}}}}
	for version, want := range map[int16]cluster.ErrorCode{1: cluster.UnknownTopicOrPartition, 2: cluster.UnknownTopicID} {
		ev.Version = version
		got, _ := newRig(t, 1).request(ev)
		if code := got.(AlterPartitionResult).Topics[0].Partitions[0].Err; code != want {
			t.Errorf("version %d: %s", version, code)
		}
	}
}

// W3, W19: a request is answered when the term ends in the middle of it, when there is no term, and when it is preempted.
func TestARequestIsAlwaysAnswered(t *testing.T) {
	alter := AlterPartition{Reply: 1, Broker: 1, BrokerEpoch: 101, Version: 1, Topics: []AlterPartitionTopic{{Name: "t",
		Partitions: []AlterPartitionPartition{{ISR: ids(1), LeaderEpoch: 3, PartitionEpoch: 7}}}}}
	// Every request event is here: those that carry a ReplyToken.
	requests := map[string]Event{
		"UpdateFeatures":              UpdateFeatures{Reply: 1, Updates: []FeatureUpdate{{"f", 1, UpgradeFeature}}},
		"ListPartitionReassignments":  ListPartitionReassignments{Reply: 1, All: true},
		"AlterPartition":              alter,
		"AllocateProducerIDs":         AllocateProducerIDs{Reply: 1, Broker: 1, BrokerEpoch: 101},
		"ControlledShutdown":          ControlledShutdown{Reply: 1, Broker: 2, BrokerEpoch: 102},
		"ElectLeaders":                ElectLeaders{Reply: 1, Type: UncleanElection, Partitions: []cluster.TopicPartition{{Topic: "leaderless"}}},
		"AlterPartitionReassignments": AlterPartitionReassignments{Reply: 1, Partitions: []PartitionReassignment{{cluster.TopicPartition{Topic: "t"}, ids(2)}}},
	}
	for _, name := range requestEvents(t) {
		if requests[name] == nil {
			t.Errorf("request %s is not tried", name)
		}
	}
	for name, ev := range requests {
		for _, outcome := range []Outcome{Fenced, Closed} {
			r := newRig(t, 1, 2)
			r.topic("t", ids(1, 2), &cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: ids(1, 2), PartitionEpoch: 7, ControllerEpoch: 4})
			r.topic("led", ids(2, 1), &cluster.LeaderAndISR{Leader: 2, ISR: ids(2, 1), ControllerEpoch: 4}).state = OnlinePartition
			r.c.ctx.topics["led"].partitions[0].setReplicaState(2, OnlineReplica, 0)
			r.topic("leaderless", ids(1), &cluster.LeaderAndISR{Leader: cluster.NoBroker, ISR: ids(1), ControllerEpoch: 4}).state = OfflinePartition
			r.c.cfg.FeatureVersioning, r.c.cfg.SupportedFeatures = true, map[string]cluster.VersionRange{"f": {Min: 1, Max: 1}}
			for id, b := range r.c.ctx.brokers {
				b.Features = r.c.cfg.SupportedFeatures
				r.c.ctx.brokers[id] = b
			}
			r.answer = func(s Store) StoreResult {
				switch s.Op.(type) {
				case ReadProducerIDBlock:
					return StoreResult{Outcome: Applied, Value: ProducerIDBlockRead{}}
				case ReadFeatures:
					return StoreResult{Outcome: Applied, Value: FeaturesRead{}}
				}
				return StoreResult{Outcome: outcome}
			}
			got, _ := r.request(ev)
			if name == "ListPartitionReassignments" { // it asks for nothing, so nothing can end it
				if err := r.do(func() error { r.c.resign("the test says so"); return nil }); err != nil {
					t.Fatal(err)
				}
				got = ListPartitionReassignmentsResult{Err: cluster.NotController}
			}
			if r.c.IsActive() || len(effectsOf[Resigned](r)) != 1 {
				t.Errorf("%s: the term did not end", name)
			}
			r.effects = nil
			again, _ := r.request(ev)
			preempted, ok := Preempted(ev)
			if code(got) != code(again) || !ok || code(preempted.Value) != code(got) || code(got) == cluster.None {
				t.Errorf("%s: %v while it ends, %v without a term, %v preempted", name, got, again, preempted)
			}
		}
	}
}

// requestEvents lists the event types with a field of type ReplyToken.
func requestEvents(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "event.go", nil, parser.SkipObjectResolution)
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
				if kind, ok := f.Type.(*ast.Ident); ok && kind.Name == "ReplyToken" {
					names = append(names, spec.Name.Name)
				}
			}
		}
		return true
	})
	if len(names) < 7 {
		t.Fatalf("request events %v", names)
	}
	return names
}

func code(v ReplyValue) cluster.ErrorCode {
	switch v := v.(type) {
	case UpdateFeaturesResult:
		return v.Err
	case ListPartitionReassignmentsResult:
		return v.Err
	case AlterPartitionResult:
		return v.Err
	case AllocateProducerIDsResult:
		return v.Err
	case ControlledShutdownResult:
		return v.Err
	case ElectLeadersResult:
		return v.Err
	case AlterPartitionReassignmentsResult:
		return v.Err
	}
	panic("unknown answer")
}

func TestControlledShutdownIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		ev   ControlledShutdown
		want cluster.ErrorCode
	}{
		{"unknown broker with an epoch", ControlledShutdown{Broker: 9, BrokerEpoch: 109}, cluster.UnknownServerError},
		{"unknown broker without an epoch", ControlledShutdown{Broker: 9, BrokerEpoch: -1}, cluster.BrokerNotAvailable},
		{"an older registration", ControlledShutdown{Broker: 1, BrokerEpoch: 100}, cluster.StaleBrokerEpoch},
		{"a known broker without an epoch", ControlledShutdown{Broker: 1, BrokerEpoch: -1}, cluster.None},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _ := newRig(t, 1).request(c.ev)
			if got.(ControlledShutdownResult).Err != c.want {
				t.Errorf("answer %v", got)
			}
		})
	}
}

func TestProducerIDsEndWithTheRange(t *testing.T) {
	r := newRig(t, 1)
	r.answer = func(Store) StoreResult {
		return StoreResult{Outcome: Applied, Value: ProducerIDBlockRead{Exists: true, Block: ProducerIDBlock{End: 1<<63 - 500}}}
	}
	got, _ := r.request(AllocateProducerIDs{Reply: 1, Broker: 1, BrokerEpoch: 101})
	if got.(AllocateProducerIDsResult).Err != cluster.UnknownServerError {
		t.Errorf("answer %v", got)
	}
}

// A controlled shutdown is answered with the partitions that the broker still leads: nobody else can. One with a single replica is
// not among them, it stays until the process ends.
func TestControlledShutdownAnswersWithWhatCouldNotBeMoved(t *testing.T) {
	r := newRig(t, 1, 2)
	led := func(name string, isr, replicas []cluster.BrokerID) {
		p := r.topic(name, replicas, &cluster.LeaderAndISR{Leader: 2, ISR: isr, ControllerEpoch: 4})
		p.state = OnlinePartition
		for _, id := range replicas {
			p.setReplicaState(id, OnlineReplica, 0)
		}
	}
	led("moves", ids(2, 1), ids(2, 1))
	led("stays", ids(2), ids(2, 9))
	led("single", ids(2), ids(2))
	got, _ := r.request(ControlledShutdown{Reply: 8, Broker: 2, BrokerEpoch: 102})
	want := []cluster.TopicPartition{{Topic: "stays"}}
	if res := got.(ControlledShutdownResult); res.Err != cluster.None || !slices.Equal(res.Remaining, want) {
		t.Errorf("answer %+v, want %v", res, want)
	}
}
