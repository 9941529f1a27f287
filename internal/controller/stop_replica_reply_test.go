package controller

import (
	"testing"

	"klamm/internal/cluster"
)

// W26: what an answer to a deletion means is decided by the state of now, and everything but a plain success is a failure that is
// tried again (W8).
func TestStopReplicaAnswersCountByTheStateOfNow(t *testing.T) {
	target := Target{Broker: 2, BrokerEpoch: 102, Controller: 1, ControllerEpoch: 5}
	answered := []PartitionError{{TopicPartition: cluster.TopicPartition{Topic: "t"}}}
	failed := []PartitionError{{TopicPartition: cluster.TopicPartition{Topic: "t"}, Err: cluster.KafkaStorageError}}
	for _, c := range []struct {
		name    string
		change  func(*StopReplicaReply)
		state   ReplicaState // before
		want    ReplicaState
		wantErr cluster.ErrorCode
	}{
		{"success", func(*StopReplicaReply) {}, ReplicaDeletionStarted, ReplicaDeletionSuccessful, cluster.None},
		{"failure", func(r *StopReplicaReply) { r.Partitions = failed }, ReplicaDeletionStarted, OfflineReplica, cluster.KafkaStorageError},
		{"refused as a whole, as Kafka's brokers do without partitions", func(r *StopReplicaReply) { r.Err, r.Partitions = cluster.StaleBrokerEpoch, nil },
			ReplicaDeletionStarted, OfflineReplica, cluster.StaleBrokerEpoch},
		{"partition left out", func(r *StopReplicaReply) { r.Partitions = nil }, ReplicaDeletionStarted, OfflineReplica, cluster.UnknownServerError},
		{"of an earlier registration", func(r *StopReplicaReply) { r.Request.Target.BrokerEpoch = 90 }, ReplicaDeletionStarted, ReplicaDeletionStarted, cluster.None},
		{"of an earlier term", func(r *StopReplicaReply) { r.Request.Target.ControllerEpoch = 4 }, ReplicaDeletionStarted, ReplicaDeletionStarted, cluster.None},
		{"of a broker that is gone", func(r *StopReplicaReply) { r.Request.Target.Broker = 9 }, ReplicaDeletionStarted, ReplicaDeletionStarted, cluster.None},
		{"of another incarnation", func(r *StopReplicaReply) { r.Request.Topics[0].ID = cluster.TopicID{9} }, ReplicaDeletionStarted, ReplicaDeletionStarted, cluster.None},
		{"of the removal of a stray", func(r *StopReplicaReply) { r.Request.Topics[0].Partitions[0].ForTopicDeletion = false },
			ReplicaDeletionStarted, ReplicaDeletionStarted, cluster.None},
		{"failure of a replica that is deleted already", func(r *StopReplicaReply) { r.Partitions = failed }, ReplicaDeletionSuccessful, ReplicaDeletionSuccessful, cluster.None},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, 1, 2)
			p := r.topic("t", ids(1, 2), nil)
			r.queue(p)
			p.state, p.topic.deletion.started = NonExistentPartition, true
			p.setReplicaState(1, ReplicaDeletionSuccessful, 0)
			p.setReplicaState(2, c.state, 0)
			p.topic.deletion.toForget = map[cluster.BrokerID]bool{1: true} // holds back the end, which is not what is tested
			reply := StopReplicaReply{Request: SendStopReplica{Target: target, Topics: []StopReplicaTopic{{TopicRef: p.topic.TopicRef,
				Partitions: []StopReplicaPartition{{LeaderEpoch: cluster.LeaderEpochDuringDelete, Delete: true, ForTopicDeletion: true}}}}}, Partitions: answered}
			c.change(&reply)
			if err := r.do(func() error { return r.c.handle(reply) }); err != nil {
				t.Fatal(err)
			}
			entry := p.replica(2)
			if entry.state != c.want || entry.lastError != c.wantErr {
				t.Errorf("replica is %s with %s, want %s with %s", entry.state, entry.lastError, c.want, c.wantErr)
			}
			if wantsRetry := c.want == OfflineReplica; wantsRetry != (p.topic.deletion.retryAt != 0) || wantsRetry != (len(effectsOf[StartTimer](r)) == 1) {
				t.Errorf("retry at %d, timers %v", p.topic.deletion.retryAt, effectsOf[StartTimer](r))
			}
			if err := r.c.CheckInvariants(); err != nil {
				t.Error(err)
			}
		})
	}
}
