package driver

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/wire"
)

var (
	testTarget = controller.Target{Broker: 2, BrokerEpoch: 61, Controller: 1, ControllerEpoch: 9}
	testRefA   = controller.TopicRef{Name: "a", ID: cluster.TopicID{1}}
	testRefB   = controller.TopicRef{Name: "b", ID: cluster.TopicID{2}}
	testState  = cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 4, ISR: []cluster.BrokerID{2, 3}, Recovery: cluster.Recovering, PartitionEpoch: 7, ControllerEpoch: 8}
)

// plain compares messages without their (absent) unknown tags, an empty list like a missing one.
var plain = cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(kmsg.Tags{})}

// through encodes a request as it goes over the wire and decodes it again.
func through[T kmsg.Request](t *testing.T, req kmsg.Request, into T) T {
	t.Helper()
	into.SetVersion(req.GetVersion())
	if err := wire.DecodeRequestBody(into, wire.AppendRequestBody(nil, req)); err != nil {
		t.Fatalf("%T v%d: %v", req, req.GetVersion(), err)
	}
	return into
}

func TestLeaderAndIsrCarriesWhatEachVersionHas(t *testing.T) {
	effect := controller.SendLeaderAndISR{
		Target: testTarget,
		Topics: []controller.LeaderAndISRTopic{
			{TopicRef: testRefA, Partitions: []controller.LeaderAndISRPartition{
				{Partition: 0, State: testState, IsNew: true, Assignment: cluster.ReplicaAssignment{
					Replicas: []cluster.BrokerID{4, 2, 3}, Adding: []cluster.BrokerID{4}, Removing: []cluster.BrokerID{3}}},
				{Partition: 5, State: testState, Assignment: cluster.ReplicaAssignment{Replicas: []cluster.BrokerID{2, 3}}}}},
			{TopicRef: testRefB, Partitions: []controller.LeaderAndISRPartition{
				{Partition: 1, State: testState, Assignment: cluster.ReplicaAssignment{Replicas: []cluster.BrokerID{2, 3}}}}},
		},
		LiveLeaders: []cluster.Broker{
			{ID: 2, Endpoints: []cluster.Endpoint{{Listener: "OUT", Host: "x", Port: 1}, {Listener: "IN", Host: "h2", Port: 92}}},
			{ID: 3, Endpoints: []cluster.Endpoint{{Listener: "OUT", Host: "x", Port: 1}}}},
	}
	for v := range int16(8) {
		versions := Versions{LeaderAndISR: v, LeaderRecoveryState: v >= 6}
		r := newLeaderAndISR(effect)
		got := through(t, r.build(requestBuilder{versions, "IN"}), kmsg.NewPtrLeaderAndISRRequest())
		states := got.PartitionStates
		var names []string
		for _, s := range got.TopicStates {
			for range s.PartitionStates {
				names = append(names, s.Topic)
			}
			states = append(states, s.PartitionStates...)
			if wantID := map[string]cluster.TopicID{"a": testRefA.ID, "b": testRefB.ID}[s.Topic]; (cluster.TopicID(s.TopicID) == wantID) != (v >= 5) {
				t.Errorf("v%d: id of %s is %v", v, s.Topic, s.TopicID)
			}
		}
		for _, s := range got.PartitionStates {
			names = append(names, s.Topic)
		}
		if !slices.Equal(names, []string{"a", "a", "b"}) || (v < 2) != (len(got.TopicStates) == 0) {
			t.Fatalf("v%d: partitions of %v, %d topics", v, names, len(got.TopicStates))
		}
		if got.ControllerID != 1 || got.ControllerEpoch != 9 || (got.BrokerEpoch == 61) != (v >= 2) || got.Type != 0 || got.IsKRaftController {
			t.Errorf("v%d: head %+v", v, got)
		}
		want := kmsg.NewLeaderAndISRRequestTopicPartition()
		want.Topic, want.Partition = states[0].Topic, 0
		want.ControllerEpoch, want.Leader, want.LeaderEpoch, want.ZKVersion = 8, 2, 4, 7
		want.ISR, want.Replicas, want.IsNew = []int32{2, 3}, []int32{4, 2, 3}, v >= 1
		if v >= 3 {
			want.AddingReplicas, want.RemovingReplicas = []int32{4}, []int32{3}
		}
		if v >= 6 {
			want.LeaderRecoveryState = 1
		}
		if d := cmp.Diff(want, states[0], plain); d != "" {
			t.Errorf("v%d: %s", v, d)
		}
		if len(got.LiveLeaders) != 1 || got.LiveLeaders[0].Host != "h2" || got.LiveLeaders[0].Port != 92 || got.LiveLeaders[0].BrokerID != 2 {
			t.Errorf("v%d: live leaders %+v", v, got.LiveLeaders)
		}
		if r.entries() != 3 {
			t.Errorf("%d entries", r.entries())
		}
	}
}

func TestLeaderAndIsrRepliesNameTopicsInEveryVersion(t *testing.T) {
	effect := controller.SendLeaderAndISR{Target: testTarget, Topics: []controller.LeaderAndISRTopic{
		{TopicRef: testRefA, Partitions: []controller.LeaderAndISRPartition{{Partition: 0}, {Partition: 1}}}}}
	for v := range int16(8) {
		r := newLeaderAndISR(effect)
		resp := allWell(r.build(requestBuilder{Versions{LeaderAndISR: v}, "IN"})).(*kmsg.LeaderAndISRResponse)
		if v >= 5 {
			stranger := kmsg.NewLeaderAndISRResponseTopic()
			stranger.TopicID = cluster.TopicID{99}
			stranger.Partitions = []kmsg.LeaderAndISRResponseTopicPartition{{Partition: 3}}
			resp.Topics = append(resp.Topics, stranger)
			resp.Topics[0].Partitions[1].ErrorCode = 56
		} else {
			resp.Partitions[1].ErrorCode = 56
		}
		resp.ErrorCode = 11
		want := controller.LeaderAndISRReply{Request: effect, Err: cluster.StaleControllerEpoch, Partitions: []controller.PartitionError{
			{TopicPartition: cluster.TopicPartition{Topic: "a", Partition: 0}},
			{TopicPartition: cluster.TopicPartition{Topic: "a", Partition: 1}, Err: cluster.KafkaStorageError}}}
		if d := cmp.Diff(want, r.reply(resp), plain); d != "" {
			t.Errorf("v%d: %s", v, d)
		}
	}
}

func TestUpdateMetadataCarriesWhatEachVersionHas(t *testing.T) {
	update := &controller.MetadataUpdate{
		LiveBrokers: []cluster.Broker{{ID: 3, Rack: "r", Endpoints: []cluster.Endpoint{
			{Listener: "IN", SecurityProtocol: "SSL", Host: "in", Port: 1}, {Listener: "OUT", SecurityProtocol: "PLAINTEXT", Host: "out", Port: 2}}}},
		Topics: []controller.UpdateMetadataTopic{{TopicRef: testRefA, Partitions: []controller.UpdateMetadataPartition{
			{Partition: 2, State: testState, Replicas: []cluster.BrokerID{2, 3}, OfflineReplicas: []cluster.BrokerID{3}}}}},
	}
	for v := range int16(9) {
		body := newMetadataBody(update)
		b := requestBuilder{Versions{UpdateMetadata: v}, "IN"}
		other := testTarget
		other.Broker, other.BrokerEpoch = 3, 62
		first := (&updateMetadata{controller.SendUpdateMetadata{Target: testTarget, Update: update}, body}).build(b)
		second := (&updateMetadata{controller.SendUpdateMetadata{Target: other, Update: update}, body}).build(b)
		got := through(t, first, kmsg.NewPtrUpdateMetadataRequest())
		again := through(t, second, kmsg.NewPtrUpdateMetadataRequest())
		if (got.BrokerEpoch == 61 && again.BrokerEpoch == 62) != (v >= 5) || got.ControllerID != 1 || got.ControllerEpoch != 9 {
			t.Errorf("v%d: broker epochs %d and %d", v, got.BrokerEpoch, again.BrokerEpoch)
		}
		again.BrokerEpoch = got.BrokerEpoch
		if d := cmp.Diff(got, again, plain); d != "" {
			t.Errorf("v%d: two brokers are told different things: %s", v, d)
		}
		states := got.PartitionStates
		for _, s := range got.TopicStates {
			if (cluster.TopicID(s.TopicID) == testRefA.ID) != (v >= 7) || s.Topic != "a" {
				t.Errorf("v%d: topic %s id %v", v, s.Topic, s.TopicID)
			}
			states = append(states, s.PartitionStates...)
		}
		if len(states) != 1 || (v < 5) != (len(got.PartitionStates) == 1) {
			t.Fatalf("v%d: %d states", v, len(states))
		}
		want := kmsg.NewUpdateMetadataRequestTopicPartition()
		want.Topic, want.Partition = states[0].Topic, 2
		want.ControllerEpoch, want.Leader, want.LeaderEpoch, want.ZKVersion = 8, 2, 4, 7
		want.ISR, want.Replicas = []int32{2, 3}, []int32{2, 3}
		if v >= 4 {
			want.OfflineReplicas = []int32{3}
		}
		if d := cmp.Diff(want, states[0], plain); d != "" {
			t.Errorf("v%d: %s", v, d)
		}
		broker := fmt.Sprintf("%d %s:%d", got.LiveBrokers[0].ID, got.LiveBrokers[0].Host, got.LiveBrokers[0].Port)
		for _, e := range got.LiveBrokers[0].Endpoints {
			broker += fmt.Sprintf(" %s/%d %s:%d", e.ListenerName, e.SecurityProtocol, e.Host, e.Port)
		}
		if v >= 2 {
			broker += " " + *got.LiveBrokers[0].Rack
		}
		wantBroker := "3 :0 IN/1 in:1 OUT/0 out:2 r"
		switch v {
		case 0:
			wantBroker = "3 out:2"
		case 1:
			wantBroker = "3 :0 /1 in:1 /0 out:2"
		case 2:
			wantBroker = "3 :0 /1 in:1 /0 out:2 r"
		}
		if broker != wantBroker {
			t.Errorf("v%d: broker %q, want %q", v, broker, wantBroker)
		}
	}
}

func TestStopReplicaIsSplitByItsDeleteFlagBeforeVersion3(t *testing.T) {
	effect := controller.SendStopReplica{Target: testTarget, Topics: []controller.StopReplicaTopic{
		{TopicRef: testRefA, Partitions: []controller.StopReplicaPartition{
			{Partition: 0, LeaderEpoch: cluster.LeaderEpochDuringDelete, Delete: true}, {Partition: 1, LeaderEpoch: 5}}},
		{TopicRef: testRefB, Partitions: []controller.StopReplicaPartition{{Partition: 2, LeaderEpoch: 6}}},
	}}
	for v := range int16(5) {
		var got []string
		for _, part := range splitStopReplica(effect, v) {
			req := through(t, part.build(requestBuilder{Versions{StopReplica: v}, "IN"}), kmsg.NewPtrStopReplicaRequest())
			if req.ControllerID != 1 || req.ControllerEpoch != 9 || (req.BrokerEpoch == 61) != (v >= 1) || req.IsKRaftController {
				t.Errorf("v%d: head %+v", v, req)
			}
			text := fmt.Sprintf("delete=%t", req.DeletePartitions)
			for _, topic := range req.Topics {
				if v == 0 {
					text += fmt.Sprintf(" %s-%d", topic.Topic, topic.Partition)
				}
				for _, p := range topic.Partitions {
					text += fmt.Sprintf(" %s-%d", topic.Topic, p)
				}
				for _, p := range topic.PartitionStates {
					text += fmt.Sprintf(" %s-%d/%d/%t", topic.Topic, p.Partition, p.LeaderEpoch, p.Delete)
				}
			}
			got = append(got, text)
			var named []string
			reply := part.reply(allWell(req)).(controller.StopReplicaReply)
			for _, p := range reply.Partitions {
				named = append(named, p.String())
			}
			if len(named) != countStops(reply.Request) || len(named) != part.entries() {
				t.Errorf("v%d: reply names %v of request %+v", v, named, reply.Request)
			}
		}
		want := []string{"delete=true a-0", "delete=false a-1 b-2"}
		if v >= 3 {
			want = []string{"delete=false a-0/-2/true a-1/5/false b-2/6/false"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("v%d: %q, want %q", v, got, want)
		}
	}
}
