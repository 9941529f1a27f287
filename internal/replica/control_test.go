package replica

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

var ignoreTags = cmpopts.IgnoreTypes(kmsg.Tags{})

// R10: a controller counts with an epoch that is no lower than the highest seen.
func TestControlRequestsPassTheEpochGates(t *testing.T) {
	const own = 50
	for _, tc := range []struct {
		name            string
		brokerEpoch     int64
		controllerEpoch int32
		want            cluster.ErrorCode
	}{
		{"no broker epoch, the known controller epoch", -1, 7, cluster.None},
		{"own broker epoch, a newer controller", own, 8, cluster.None},
		{"a newer broker epoch: the controller learned of the registration first", own + 1, 7, cluster.None},
		{"an older broker epoch", own - 1, 9, cluster.StaleBrokerEpoch},
		{"an older controller", own, 6, cluster.StaleControllerEpoch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{epoch: own})
			first := leaderAndISRRequest(7)
			first.ControllerEpoch, first.BrokerEpoch = 7, own
			b.HandleLeaderAndISR(first)

			id := cluster.NewTopicID()
			for _, version := range []int16{4, 7} {
				lisr := leaderAndISRRequest(version, leadState{topic: "t", id: id, partition: 3, leader: 1, isr: []int32{1}})
				lisr.ControllerEpoch, lisr.BrokerEpoch = tc.controllerEpoch, tc.brokerEpoch
				resp := b.HandleLeaderAndISR(lisr)
				want := kmsg.NewPtrLeaderAndISRResponse()
				want.Version, want.ErrorCode = version, int16(tc.want)
				p := kmsg.NewLeaderAndISRResponseTopicPartition()
				p.Partition, p.ErrorCode = 3, int16(tc.want)
				if version < 5 {
					p.Topic = "t"
					want.Partitions = append(want.Partitions, p)
				} else {
					topic := kmsg.NewLeaderAndISRResponseTopic()
					topic.TopicID, topic.Partitions = id, append(topic.Partitions, p)
					if tc.want == cluster.None {
						topic.Partitions[0].ErrorCode = int16(cluster.StaleControllerEpoch) // the same state came before
					}
					want.Topics = append(want.Topics, topic)
				}
				if diff := cmp.Diff(want, resp, ignoreTags); diff != "" {
					t.Errorf("LeaderAndIsr v%d (-want +got):\n%s", version, diff)
				}
			}

			sr := stopRequest(3, false, stop{tp: testTP(9), epoch: -1})
			sr.ControllerEpoch, sr.BrokerEpoch = tc.controllerEpoch, tc.brokerEpoch
			stopped := b.HandleStopReplica(sr)
			if refused := tc.want != cluster.None; stopped.ErrorCode != int16(tc.want) || refused != (len(stopped.Partitions) == 0) {
				t.Errorf("StopReplica answered %+v", stopped)
			}

			umr := kmsg.NewPtrUpdateMetadataRequest()
			umr.Version, umr.ControllerID, umr.ControllerEpoch, umr.BrokerEpoch = 8, 77, tc.controllerEpoch, tc.brokerEpoch
			updated := b.HandleUpdateMetadata(umr)
			if applied := b.cache.Image().Controller() == 77; updated.ErrorCode != int16(tc.want) || applied != (tc.want == cluster.None) {
				t.Errorf("UpdateMetadata answered %v, applied %v", cluster.ErrorCode(updated.ErrorCode), applied)
			}
		})
	}
}

func TestLeaderAndISRTable(t *testing.T) {
	id, otherID := cluster.NewTopicID(), cluster.NewTopicID()
	leading := leadState{topic: "t", id: id, leader: 1, le: 4, pe: 9, isr: []int32{1, 2}, isNew: true}
	following := leadState{topic: "t", id: id, leader: 2, le: 4, pe: 9, isr: []int32{1, 2}, isNew: true}
	withoutID := func(s leadState) leadState { s.id = cluster.TopicID{}; return s }
	type state struct {
		Hosted   HostedState
		IsLeader bool
		Leader   cluster.BrokerID
		LE       cluster.LeaderEpoch
		PE       cluster.PartitionEpoch
		ISR      []cluster.BrokerID
		ID       cluster.TopicID
	}
	none := state{}
	led := state{HostedOnline, true, 1, 4, 9, []cluster.BrokerID{1, 2}, id}
	followed := state{HostedOnline, false, 2, 4, 9, nil, id}
	change := func(s state, f func(*state)) state { f(&s); return s }
	for _, tc := range []struct {
		name    string
		offline bool // a log dir is offline
		before  []leadState
		diskBad bool // the disk fails after before
		kraft   bool
		request leadState
		want    cluster.ErrorCode
		after   state
	}{
		{name: "new partition, led here", request: leading, after: led},
		{name: "new partition, led elsewhere", request: following, after: followed},
		{name: "new partition, not a replica", request: leadState{topic: "t", id: id, leader: 2, le: 4, isr: []int32{2, 3}}, want: cluster.UnknownTopicOrPartition, after: none},
		{name: "new to this broker, but a log dir is offline and may have it", offline: true, request: leadState{topic: "t", id: id, leader: 1, le: 4, isr: []int32{1}}, want: cluster.KafkaStorageError, after: state{Hosted: HostedOffline}},
		{name: "really new, a log dir is offline", offline: true, request: leading, after: led},
		{name: "offline partition", offline: true, before: []leadState{{topic: "t", id: id, leader: 1, le: 4, isr: []int32{1}}}, request: leading, want: cluster.KafkaStorageError, after: state{Hosted: HostedOffline}},
		{name: "another topic id", before: []leadState{leading}, request: leadState{topic: "t", id: otherID, leader: 1, le: 5, isr: []int32{1}}, want: cluster.InconsistentTopicID, after: led},
		{name: "greater leader epoch, leader stays", before: []leadState{leading}, request: leadState{topic: "t", id: id, leader: 1, le: 5, pe: 10, isr: []int32{1}},
			after: state{HostedOnline, true, 1, 5, 10, []cluster.BrokerID{1}, id}},
		{name: "greater leader epoch, becomes follower", before: []leadState{leading}, request: leadState{topic: "t", id: id, leader: 2, le: 5, pe: 10, isr: []int32{2}, replicas: []int32{1, 2}},
			after: state{HostedOnline, false, 2, 5, 10, nil, id}},
		{name: "greater leader epoch, becomes leader", before: []leadState{following}, request: leadState{topic: "t", id: id, leader: 1, le: 5, pe: 10, isr: []int32{1, 2}},
			after: state{HostedOnline, true, 1, 5, 10, []cluster.BrokerID{1, 2}, id}},
		{name: "greater leader epoch without a topic id", before: []leadState{leading}, request: leadState{topic: "t", leader: 1, le: 5, pe: 10, isr: []int32{1}},
			after: state{HostedOnline, true, 1, 5, 10, []cluster.BrokerID{1}, id}},
		{name: "greater leader epoch, no longer a replica", before: []leadState{leading}, request: leadState{topic: "t", id: id, leader: 2, le: 5, isr: []int32{2}}, want: cluster.UnknownTopicOrPartition, after: led},
		{name: "greater leader epoch but smaller partition epoch", before: []leadState{leading}, request: leadState{topic: "t", id: id, leader: 1, le: 5, pe: 8, isr: []int32{1}}, after: led},
		{name: "smaller leader epoch", before: []leadState{leading}, request: leadState{topic: "t", id: id, leader: 2, le: 3, pe: 10, isr: []int32{1, 2}}, want: cluster.StaleControllerEpoch, after: led},
		{name: "equal leader epoch", before: []leadState{leading}, request: leading, want: cluster.StaleControllerEpoch, after: led},
		{name: "equal leader epoch from a KRaft controller", before: []leadState{leading}, kraft: true, request: leadState{topic: "t", id: id, leader: 1, le: 4, pe: 10, isr: []int32{1}, replicas: []int32{1, 2}},
			after: state{HostedOnline, true, 1, 4, 10, []cluster.BrokerID{1}, id}},
		{name: "equal leader epoch brings the topic id, leader", before: []leadState{withoutID(leading)}, request: leading, after: led},
		{name: "equal leader epoch brings the topic id, follower", before: []leadState{withoutID(following)}, request: following, after: followed},
		{name: "equal leader epoch without the id that the log has, follower", before: []leadState{following}, request: withoutID(following), after: followed},
		{name: "equal leader epoch without the id that the log has, leader", before: []leadState{leading}, request: withoutID(leading), want: cluster.StaleControllerEpoch, after: led},
		{name: "no leader: only the log is opened, no epoch is taken over", request: leadState{topic: "t", id: id, leader: -1, le: 6, isr: []int32{1, 2}, isNew: true},
			after: state{HostedOnline, false, -1, -1, -1, nil, id}},
		{name: "leader not alive: only the log is opened", request: leadState{topic: "t", id: id, leader: 3, le: 6, isr: []int32{1, 3}, isNew: true},
			after: state{HostedOnline, false, -1, -1, -1, nil, id}},
		{name: "no leader any more", before: []leadState{leading}, request: leadState{topic: "t", id: id, leader: -1, le: 6, pe: 12, isr: []int32{1, 2}},
			after: change(led, func(*state) {})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{offlineDir: tc.offline})
			b.alive(1, 2)
			for _, s := range tc.before {
				b.HandleLeaderAndISR(leaderAndISRRequest(7, s))
			}
			req := leaderAndISRRequest(7, tc.request)
			req.IsKRaftController = tc.kraft
			resp := b.HandleLeaderAndISR(req)
			if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
				t.Fatalf("answer %+v", resp)
			}
			if got := cluster.ErrorCode(resp.Topics[0].Partitions[0].ErrorCode); got != tc.want {
				t.Errorf("code %v, want %v", got, tc.want)
			}
			p, hosted := b.Partition(cluster.TopicPartition{Topic: "t"})
			after := state{Hosted: hosted}
			if p != nil {
				s := p.State()
				after = state{hosted, s.IsLeader, s.Leader, s.LeaderEpoch, s.PartitionEpoch, s.ISR, s.TopicID}
			}
			if diff := cmp.Diff(tc.after, after, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLeaderAndISRVersionsBeforeTwoAreFlat(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	resp := b.HandleLeaderAndISR(leaderAndISRRequest(1, leadState{topic: "t", partition: 2, leader: 1, isr: []int32{1}, isNew: true}, leadState{topic: "u", leader: 1, isr: []int32{1}, isNew: true}))
	var got []string
	for _, p := range resp.Partitions {
		got = append(got, fmt.Sprint(p.Topic, p.Partition, p.ErrorCode))
	}
	if !slices.Equal(got, []string{"t 2 0", "u 0 0"}) && !slices.Equal(got, []string{"t2 0", "u0 0"}) {
		t.Errorf("answer %q", got)
	}
	if m := b.Metrics(); m.LeaderCount != 2 || m.PartitionCount != 2 {
		t.Errorf("metrics %+v", m)
	}
}

func TestPartitionFollowsOnceItsLeaderBecomesKnown(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1)
	b.lead(leadState{topic: "t", leader: 3, le: 6, isr: []int32{1, 3}, isNew: true})
	b.alive(1, 3)
	p, _ := b.Partition(cluster.TopicPartition{Topic: "t"})
	if s := p.State(); s.Leader != 3 || s.LeaderEpoch != 6 {
		t.Errorf("state %+v", s)
	}
	b.alive(1)
	b.lead(leadState{topic: "u", leader: 4, le: 2, isr: []int32{1, 4}, isNew: true})
	b.HandleStopReplica(stopRequest(3, false, stop{tp: cluster.TopicPartition{Topic: "u"}, epoch: -2, delete: true}))
	b.alive(1, 4)
	if _, hosted := b.Partition(cluster.TopicPartition{Topic: "u"}); hosted != HostedNone {
		t.Error("a deleted partition came back with its leader")
	}
}

// stopRequest builds a StopReplica request; before version 3 all partitions share the delete flag.
func stopRequest(version int16, deleteAll bool, stops ...stop) *kmsg.StopReplicaRequest {
	req := kmsg.NewPtrStopReplicaRequest()
	req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch, req.DeletePartitions = version, 1, 1, -1, deleteAll
	for _, s := range stops {
		t := kmsg.NewStopReplicaRequestTopic()
		t.Topic = s.tp.Topic
		switch {
		case version == 0:
			t.Partition = s.tp.Partition
		case version < 3:
			t.Partitions = []int32{s.tp.Partition}
		default:
			p := kmsg.NewStopReplicaRequestTopicPartitionState()
			p.Partition, p.LeaderEpoch, p.Delete = s.tp.Partition, int32(s.epoch), s.delete
			t.PartitionStates = append(t.PartitionStates, p)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// W13: an unknown partition is answered KAFKA_STORAGE_ERROR while a log dir is offline.
func TestStopReplicaTable(t *testing.T) {
	leading := leadState{topic: "t", leader: 1, le: 4, isr: []int32{1}, isNew: true}
	tp := cluster.TopicPartition{Topic: "t"}
	for _, tc := range []struct {
		name    string
		offline bool
		before  []leadState
		written bool // a record lies in the log
		version int16
		epoch   cluster.LeaderEpoch
		delete  bool
		want    cluster.ErrorCode
		hosted  HostedState
		log     bool
	}{
		{name: "leader epoch of a deletion", before: []leadState{leading}, version: 3, epoch: -2, delete: true},
		{name: "a written log is deleted", before: []leadState{leading}, written: true, version: 3, epoch: -2, delete: true},
		{name: "no leader epoch", before: []leadState{leading}, version: 3, epoch: -1, delete: true},
		{name: "equal leader epoch", before: []leadState{leading}, version: 3, epoch: 4, delete: true},
		{name: "greater leader epoch", before: []leadState{leading}, version: 4, epoch: 5, delete: true},
		{name: "smaller leader epoch", before: []leadState{leading}, version: 4, epoch: 3, delete: true, want: cluster.FencedLeaderEpoch, hosted: HostedOnline, log: true},
		{name: "without deletion nothing but the fetcher stops", before: []leadState{leading}, version: 4, epoch: -2, hosted: HostedOnline, log: true},
		{name: "version 0 deletes", before: []leadState{leading}, version: 0, delete: true},
		{name: "version 1 stops only", before: []leadState{leading}, version: 1, hosted: HostedOnline, log: true},
		{name: "version 2 deletes", before: []leadState{leading}, version: 2, delete: true},
		{name: "unknown partition", version: 3, epoch: 0, delete: true},
		{name: "unknown partition, a log dir is offline (W13)", offline: true, version: 3, epoch: 0, delete: true, want: cluster.KafkaStorageError},
		{name: "unknown partition, a log dir is offline, no deletion", offline: true, version: 3, epoch: 0},
		{name: "known partition, another log dir is offline", offline: true, before: []leadState{leading}, version: 3, epoch: -2, delete: true},
		{name: "offline partition", offline: true, before: []leadState{{topic: "t", leader: 1, le: 4, isr: []int32{1}}}, version: 3, epoch: -2, delete: true, want: cluster.KafkaStorageError, hosted: HostedOffline},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{offlineDir: tc.offline})
			b.alive(1)
			for _, s := range tc.before {
				b.HandleLeaderAndISR(leaderAndISRRequest(7, s))
			}
			if tc.written {
				if r, _ := b.produce(1, tp, "x").result(); r.Err != cluster.None {
					t.Fatal(r.Err)
				}
			}
			resp := b.HandleStopReplica(stopRequest(tc.version, tc.delete, stop{tp: tp, epoch: tc.epoch, delete: tc.delete}))
			want := kmsg.NewPtrStopReplicaResponse()
			want.Version = tc.version
			p := kmsg.NewStopReplicaResponsePartition()
			p.Topic, p.ErrorCode = "t", int16(tc.want)
			want.Partitions = append(want.Partitions, p)
			if diff := cmp.Diff(want, resp, ignoreTags); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			_, hosted := b.Partition(tp)
			if _, log := b.logs.Get(tp); hosted != tc.hosted || log != tc.log {
				t.Errorf("hosted %v, log known %v", hosted, log)
			}
		})
	}
}

func TestStopReplicaDeletesALogThatIsNotHosted(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	tp := cluster.TopicPartition{Topic: "left", Partition: 1}
	if _, err := b.logs.GetOrCreate(tp, cluster.TopicID{}, true); err != nil {
		t.Fatal(err)
	}
	resp := b.HandleStopReplica(stopRequest(3, false, stop{tp: tp, epoch: -2, delete: true}))
	if _, known := b.logs.Get(tp); known || resp.Partitions[0].ErrorCode != 0 {
		t.Errorf("log known %v, answer %+v", known, resp.Partitions[0])
	}
}

func TestCoordinatorTopicsChangeHandsThroughHooks(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1, 2)
	offsets := func(p, leader, le int32) leadState {
		return leadState{topic: cluster.GroupOffsetsTopic, partition: p, leader: leader, le: le, isr: []int32{1, 2}, isNew: true}
	}
	b.lead(offsets(0, 1, 3), offsets(1, 2, 4), leadState{topic: "plain", leader: 1, isr: []int32{1}, isNew: true})
	b.lead(offsets(0, 2, 5), offsets(1, 1, 6))
	stops := stopRequest(3, false, stop{tp: cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic}, epoch: -2, delete: true},
		stop{tp: cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic, Partition: 1}, epoch: 6, delete: true})
	b.HandleStopReplica(stops)
	at := func(p int32, e cluster.LeaderEpoch) PartitionEpoch {
		return PartitionEpoch{cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic, Partition: p}, e}
	}
	if diff := cmp.Diff([]PartitionEpoch{at(0, 3), at(1, 6)}, b.elected); diff != "" {
		t.Errorf("elected (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]PartitionEpoch{at(1, 4), at(0, 5), at(0, -1), at(1, 6)}, b.resigned); diff != "" {
		t.Errorf("resigned (-want +got):\n%s", diff)
	}
}

func TestUpdateMetadataTellsWhichPartitionsWentAway(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	update := func(leader int32) {
		req := kmsg.NewPtrUpdateMetadataRequest()
		req.Version, req.BrokerEpoch = 8, -1
		topic := kmsg.NewUpdateMetadataRequestTopicState()
		topic.Topic = "t"
		for i := range int32(2) {
			p := kmsg.NewUpdateMetadataRequestTopicPartition()
			p.Partition, p.Leader = i, leader
			topic.PartitionStates = append(topic.PartitionStates, p)
		}
		req.TopicStates = append(req.TopicStates, topic)
		b.HandleUpdateMetadata(req)
	}
	update(1)
	update(-2)
	if !slices.Equal(b.removed, []cluster.TopicPartition{{Topic: "t"}, {Topic: "t", Partition: 1}}) {
		t.Errorf("removed %v", b.removed)
	}
}
