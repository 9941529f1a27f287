package controller

import (
	"testing"

	"klamm/internal/cluster"
)

// Offline partitions count from the moment they are offline until they are led again, or until the deletion of their topic
// has started; while it is only queued they count.
func TestOfflinePartitionsCountUntilTheyAreLedOrTheirDeletionStarts(t *testing.T) {
	r := newRig(t, 1, 2)
	p := r.topic("t", ids(1, 2), nil)
	q := r.topic("u", ids(2), nil)
	move := func(p *partitionContext, target PartitionState) {
		t.Helper()
		err := r.do(func() error {
			_, err := r.c.changePartitionStates([]*partitionContext{p}, target, OfflineStrategy)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"nothing was created yet", func() {}, 0},
		{"one is new: unlike in Kafka it counts, nobody can use it (W6)", func() { move(p, NewPartition) }, 1},
		{"it is led", func() { move(p, OnlinePartition) }, 0},
		{"both are led", func() { move(q, NewPartition); move(q, OnlinePartition) }, 0},
		{"one is offline", func() { move(p, OfflinePartition) }, 1},
		{"still offline", func() { move(p, OfflinePartition) }, 1},
		{"the other one too", func() { move(q, OfflinePartition) }, 2},
		{"it is led again", func() { move(p, OnlinePartition) }, 1},
		{"its deletion is queued", func() { r.queue(q) }, 1},
		{"its deletion has started", func() { q.topic.deletion.started = true }, 0},
		{"it does not exist any more", func() { move(q, NonExistentPartition) }, 0},
		{"the other one's deletion takes it offline", func() { r.queue(p); p.topic.deletion.started = true; move(p, OfflinePartition) }, 0},
	} {
		step.do()
		if got := r.c.Metrics().OfflinePartitionsCount; got != step.want {
			t.Errorf("%s: %d offline, want %d", step.name, got, step.want)
		}
	}
}

func TestPartitionsLedByAnotherThanTheirFirstReplicaAreImbalanced(t *testing.T) {
	r := newRig(t, 1, 2, 3)
	led := func(leader cluster.BrokerID, isr ...cluster.BrokerID) *cluster.LeaderAndISR {
		return &cluster.LeaderAndISR{Leader: leader, ISR: isr}
	}
	a := r.topic("a", ids(1, 2, 3), nil)
	b := r.topic("b", ids(1, 2, 3), nil)
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"nobody leads", func() {}, 0},
		{"the first replica leads", func() { a.leadership = led(1, 1, 2, 3) }, 0},
		{"another leads", func() { b.leadership = led(2, 2, 3, 1) }, 1},
		{"of both another leads", func() { a.leadership = led(3, 3) }, 2},
		{"nobody leads any more", func() { a.leadership = led(cluster.NoBroker, 3) }, 2},
		{"the first again", func() { a.leadership = led(1, 1) }, 1},
		{"a reassignment adds another first replica", func() { a.assignment = reassignTo(a.assignment, ids(4, 2)) }, 1},
		{"which is in the ISR now", func() { a.leadership = led(1, 1, 4) }, 2},
		{"and leads", func() { a.leadership = led(4, 1, 4) }, 1},
		{"the other topic is queued for deletion", func() { r.queue(b) }, 0},
		{"and queued once more", func() { r.queue(b) }, 0},
		{"and gone", func() { r.c.ctx.removeTopic(b.topic) }, 0},
	} {
		step.do()
		if got := r.c.Metrics().PreferredReplicaImbalanceCount; got != step.want {
			t.Errorf("%s: %d imbalanced, want %d", step.name, got, step.want)
		}
	}
}

func TestMetricsAreZeroOutOfOffice(t *testing.T) {
	r := newRig(t, 1)
	r.topic("t", ids(1), nil).state = OfflinePartition
	if m := r.c.Metrics(); m.ActiveControllerCount != 1 || m.OfflinePartitionsCount != 1 || m.GlobalTopicCount != 1 {
		t.Errorf("in office: %+v", m)
	}
	r.c.resign("test")
	if m := r.c.Metrics(); m != (Metrics{}) {
		t.Errorf("out of office: %+v", m)
	}
}
