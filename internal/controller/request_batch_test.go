package controller

import (
	"reflect"
	"slices"
	"testing"

	"klamm/internal/cluster"
)

// batchRig has brokers 1, 2 and 3, of which 3 shuts down, and two led topics of which "q" is queued for deletion.
func batchRig(t *testing.T) (r *rig, led, queued, leaderless *partitionContext) {
	r = newRig(t, 1, 2, 3)
	r.c.ctx.shuttingDown[3] = true
	led = r.topic("a", ids(1, 2, 9), &cluster.LeaderAndISR{Leader: 2, LeaderEpoch: 4, ISR: ids(2, 1), PartitionEpoch: 6, ControllerEpoch: 3})
	queued = r.topic("q", ids(1, 3), &cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 4, ISR: ids(1), PartitionEpoch: 6, ControllerEpoch: 3})
	r.queue(queued)
	leaderless = r.topic("n", ids(9), nil)
	return r, led, queued, leaderless
}

func (r *rig) send(fill func(b *requestBatch)) []Effect {
	if err := r.do(func() error {
		b := r.c.newBatch()
		fill(b)
		b.send()
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return r.effects
}

func kinds(effects []Effect) []string {
	var out []string
	for _, e := range effects {
		out = append(out, reflect.TypeOf(e).Name())
	}
	return out
}

func TestLeaderAndISRGoesToLiveAndShuttingDownBrokersAndMetadataToAll(t *testing.T) {
	r, led, _, _ := batchRig(t)
	r.send(func(b *requestBatch) { b.addLeaderAndISR(led, ids(1, 3, 9, -1), false) })
	var to, told []cluster.BrokerID
	for _, e := range effectsOf[SendLeaderAndISR](r) {
		to = append(to, e.Target.Broker)
		want := Target{Broker: e.Target.Broker, BrokerEpoch: 100 + cluster.BrokerEpoch(e.Target.Broker), Controller: 1, ControllerEpoch: 5}
		if e.Target != want || len(e.LiveLeaders) != 1 || e.LiveLeaders[0].ID != 2 {
			t.Errorf("target %+v, leaders %+v", e.Target, e.LiveLeaders)
		}
		if p := e.Topics[0].Partitions[0]; !p.State.Equal(*led.leadership) || p.IsNew || !slices.Equal(p.Assignment.Replicas, ids(1, 2, 9)) {
			t.Errorf("partition %+v", p)
		}
	}
	for _, e := range effectsOf[SendUpdateMetadata](r) {
		told = append(told, e.Target.Broker)
		if p := e.Update.Topics[0].Partitions[0]; !p.State.Equal(*led.leadership) || !slices.Equal(p.OfflineReplicas, ids(9)) || len(e.Update.LiveBrokers) != 3 {
			t.Errorf("metadata %+v", e.Update)
		}
	}
	if !slices.Equal(to, ids(1, 3)) || !slices.Equal(told, ids(1, 2, 3)) {
		t.Errorf("LeaderAndIsr to %v, UpdateMetadata to %v", to, told)
	}
}

func TestRequestsLeaveInTheOrderLeaderAndISRMetadataStopReplica(t *testing.T) {
	r, led, queued, _ := batchRig(t)
	got := kinds(r.send(func(b *requestBatch) {
		b.addStopReplica(queued, 1, true)
		b.addUpdateMetadata(ids(2))
		b.addLeaderAndISR(led, ids(2), false)
	}))
	want := []string{"SendLeaderAndISR", "SendUpdateMetadata", "SendUpdateMetadata", "SendUpdateMetadata", "SendStopReplica"}
	if !slices.Equal(got, want) {
		t.Errorf("order %v", got)
	}
}

func TestIsNewAndDeleteAreSticky(t *testing.T) {
	r, led, queued, _ := batchRig(t)
	r.send(func(b *requestBatch) {
		b.addLeaderAndISR(led, ids(1), true)
		b.addLeaderAndISR(led, ids(1), false)
		b.addStopReplica(queued, 1, true)
		b.addStopReplica(queued, 1, false)
	})
	if !effectsOf[SendLeaderAndISR](r)[0].Topics[0].Partitions[0].IsNew {
		t.Error("isNew is lost")
	}
	want := StopReplicaPartition{LeaderEpoch: cluster.LeaderEpochDuringDelete, Delete: true, ForTopicDeletion: true}
	if got := effectsOf[SendStopReplica](r)[0].Topics[0].Partitions[0]; got != want {
		t.Errorf("stop %+v", got)
	}
}

func TestStopReplicaCarriesTheSentinelsOfItsPartition(t *testing.T) {
	r, led, queued, leaderless := batchRig(t)
	r.send(func(b *requestBatch) {
		for _, p := range []*partitionContext{led, queued, leaderless} {
			b.addStopReplica(p, 2, false)
			b.addStopReplica(p, 9, false) // not registered
		}
	})
	stops := effectsOf[SendStopReplica](r)
	got := map[string]cluster.LeaderEpoch{}
	for _, topic := range stops[0].Topics {
		got[topic.Name] = topic.Partitions[0].LeaderEpoch
	}
	want := map[string]cluster.LeaderEpoch{"a": 4, "q": cluster.LeaderEpochDuringDelete, "n": cluster.NoLeaderEpoch}
	if len(stops) != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("%d requests, epochs %v", len(stops), got)
	}
}

// W16 and W6: a queued topic gets no LeaderAndIsr and is told as deleted; a partition that never had a leader is told with none.
func TestMetadataOfQueuedAndOfLeaderlessPartitions(t *testing.T) {
	r, _, queued, leaderless := batchRig(t)
	r.send(func(b *requestBatch) {
		b.addLeaderAndISR(queued, ids(1, 3), true)
		b.addUpdateMetadata(ids(2), queued, leaderless)
	})
	if n := len(effectsOf[SendLeaderAndISR](r)); n != 0 {
		t.Errorf("%d LeaderAndIsr", n)
	}
	updates := effectsOf[SendUpdateMetadata](r)
	states := map[string]cluster.LeaderAndISR{}
	for _, topic := range updates[0].Update.Topics {
		states[topic.Name] = topic.Partitions[0].State
	}
	if len(updates) != 1 ||
		!states["q"].Equal(cluster.LeaderAndISR{Leader: cluster.LeaderDuringDelete, ISR: ids(1), ControllerEpoch: 3}) ||
		!states["n"].Equal(cluster.LeaderAndISR{Leader: cluster.NoBroker, ControllerEpoch: 5}) {
		t.Errorf("%d requests, states %v", len(updates), states)
	}
}

func TestMetadataWithoutPartitionsTellsTheLiveBrokers(t *testing.T) {
	r, _, _, _ := batchRig(t)
	r.send(func(b *requestBatch) { b.addUpdateMetadata(ids(1, 9)) })
	updates := effectsOf[SendUpdateMetadata](r)
	if len(updates) != 1 || len(updates[0].Update.Topics) != 0 || len(updates[0].Update.LiveBrokers) != 3 {
		t.Errorf("%+v", updates)
	}
}
