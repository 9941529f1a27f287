package replica

import (
	"testing"
	"time"

	"klamm/internal/cluster"
)

const manyPartitions = 10_000

func manyStates(leader, le int32, isNew bool) []leadState {
	states := make([]leadState, manyPartitions)
	id := cluster.TopicID{1}
	for i := range states {
		states[i] = leadState{topic: "t", id: id, partition: int32(i), leader: leader, le: le, pe: le, isr: []int32{1, 2, 3}, isNew: isNew}
	}
	return states
}

// BenchmarkTenThousandPartitions measures the controller's requests for many new and empty partitions.
func BenchmarkTenThousandPartitions(b *testing.B) {
	create, move := leaderAndISRRequest(7, manyStates(1, 0, true)...), leaderAndISRRequest(7, manyStates(2, 1, false)...)
	stops := make([]stop, manyPartitions)
	for i := range stops {
		stops[i] = stop{tp: testTP(i), epoch: -2, delete: true}
	}
	remove := stopRequest(3, false, stops...)
	var lead, follow, del time.Duration
	for b.Loop() {
		b.StopTimer()
		broker := newTestBroker(b, brokerOptions{})
		broker.alive(1, 2, 3)
		b.StartTimer()
		start := time.Now()
		broker.HandleLeaderAndISR(create)
		led := time.Now()
		broker.HandleLeaderAndISR(move)
		followed := time.Now()
		broker.HandleStopReplica(remove)
		lead, follow, del = lead+led.Sub(start), follow+followed.Sub(led), del+time.Since(followed)
	}
	b.ReportMetric(float64(lead.Microseconds())/float64(b.N)/1000, "ms/lead")
	b.ReportMetric(float64(follow.Microseconds())/float64(b.N)/1000, "ms/follow")
	b.ReportMetric(float64(del.Microseconds())/float64(b.N)/1000, "ms/delete")
}

// BenchmarkWaitingFetchOfAThousandPartitions measures a fetch that finds nothing, waits, and is woken by one record.
func BenchmarkWaitingFetchOfAThousandPartitions(b *testing.B) {
	broker := newTestBroker(b, brokerOptions{})
	broker.alive(1)
	var states []leadState
	var parts []FetchPartition
	for i := range int32(1000) {
		states = append(states, leadState{topic: "t", partition: i, leader: 1, isr: []int32{1}, isNew: true})
		parts = append(parts, fetchPart(testTP(int(i)), 0))
	}
	broker.lead(states...)
	batch := testBatch("x")
	sent := make([]byte, len(batch))
	offset := int64(0)
	for b.Loop() {
		answered := false
		parts[500].FetchOffset = offset
		broker.Fetch(FetchRequest{ReplicaID: -1, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Hour, Partitions: parts}, func(rs []FetchResult) {
			releaseAll(rs)
			answered = true
		})
		copy(sent, batch)
		broker.Append(AppendRequest{Acks: 1, Partitions: []AppendPartition{{TP: testTP(500), Records: sent}}}, func([]AppendResult) {})
		offset++
		if !answered {
			b.Fatal("not woken")
		}
	}
}

func BenchmarkProduceOneBatch(b *testing.B) {
	broker := newTestBroker(b, brokerOptions{})
	broker.alive(1)
	broker.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, isNew: true})
	batch := testBatch("value")
	sent := make([]byte, len(batch))
	parts := []AppendPartition{{TP: tpT, Records: sent}}
	b.ReportAllocs()
	for b.Loop() {
		copy(sent, batch)
		broker.Append(AppendRequest{Acks: -1, Timeout: time.Second, Partitions: parts}, func([]AppendResult) {})
	}
}
