package controller

import (
	"fmt"
	"runtime"
	"testing"

	"klamm/internal/cluster"
)

// serving puts topics with states as they are in a running cluster into the context.
func (r *rig) serving(topics ...TopicRead) {
	for _, topic := range topics {
		for _, p := range r.c.ctx.addTopic(topic).partitions {
			p.state = OnlinePartition
			p.leadership = &cluster.LeaderAndISR{Leader: p.assignment.Replicas[0], ISR: p.assignment.Replicas, ControllerEpoch: 4}
			for _, id := range p.assignment.Replicas {
				p.setReplicaState(id, OnlineReplica, 0)
			}
		}
	}
}

// othersOf are topics of 100 partitions beside the one that a test is about.
func othersOf(topics, brokers int) []TopicRead {
	var out []TopicRead
	for i := range topics {
		t := bigTopic(fmt.Sprintf("other%04d", i), 100, 3, brokers)
		t.ID = cluster.TopicID{1, byte(i >> 8), byte(i)}
		out = append(out, t)
	}
	return out
}

// deletionOf returns a cluster in which a topic of n partitions with three replicas each is about to be deleted, beside
// others topics of 100 partitions.
func deletionOf(n, others int) *rig {
	r := newRig(nil, 1, 2, 3)
	topic := bigTopic("big", n, 3, 3)
	r.serving(append(othersOf(others, 3), topic)...)
	r.bigStore(topic)
	return r
}

// allocated runs f and returns how many bytes it allocated.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// deletionCost returns what the first event of a deletion allocates, and what all later ones do: the brokers' answers.
func deletionCost(t testing.TB, n, others int) (start, rest int64) {
	r := deletionOf(n, others)
	start = allocated(func() { r.must(func() error { return r.c.handle(TopicDeletion{}) }) })
	rest = allocated(func() {
		for len(r.effects) > 0 {
			r.answerStops()
		}
	})
	if len(r.c.ctx.deletions) != 0 || len(r.c.ctx.topics) != others {
		t.Fatalf("%d deletions and %d topics are left", len(r.c.ctx.deletions), len(r.c.ctx.topics))
	}
	return start, rest
}

// The bounds leave room for maps and slices that grow by doubling.
func TestTheEventsOfADeletionAllocateInProportionToTheTopic(t *testing.T) {
	const factor = 8
	start, rest := deletionCost(t, 1250, 0)
	largeStart, largeRest := deletionCost(t, factor*1250, 0)
	for _, e := range []struct {
		what         string
		small, large int64
	}{{"the first event", start, largeStart}, {"the brokers' answers", rest, largeRest}} {
		if limit := e.small * factor * 3 / 2; e.large > limit {
			t.Errorf("%s: %d bytes with 1,250 partitions, %d with 10,000, want at most %d", e.what, e.small, e.large, limit)
		}
	}
}

func TestTheEventsOfADeletionDoNotAllocateForOtherTopics(t *testing.T) {
	start, rest := deletionCost(t, 1000, 0)
	besideStart, besideRest := deletionCost(t, 1000, 300) // 30,000 other partitions
	if limit := start * 3 / 2; besideStart > limit {
		t.Errorf("the first event: %d bytes alone, %d beside 30,000 other partitions, want at most %d", start, besideStart, limit)
	}
	if limit := rest * 3 / 2; besideRest > limit {
		t.Errorf("the brokers' answers: %d bytes alone, %d beside 30,000 other partitions, want at most %d", rest, besideRest, limit)
	}
}

// BenchmarkTopicDeletionEvent is the first event of the deletion of one topic with three replicas per partition.
func BenchmarkTopicDeletionEvent(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("%d partitions", n), func(b *testing.B) {
			var bytes int64
			for b.Loop() {
				b.StopTimer()
				r := deletionOf(n, 0)
				b.StartTimer()
				bytes += allocated(func() { r.must(func() error { return r.c.handle(TopicDeletion{}) }) })
			}
			b.ReportMetric(float64(bytes)/float64(b.N)/float64(n), "B/partition")
		})
	}
}
