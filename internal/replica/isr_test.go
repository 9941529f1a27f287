package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

func (b *testBroker) state(tp cluster.TopicPartition) PartitionState {
	p, _ := b.Partition(tp)
	return p.State()
}

func TestHighWatermarkRules(t *testing.T) {
	type follower struct {
		id     cluster.BrokerID
		offset int64
	}
	for _, tc := range []struct {
		name     string
		state    leadState
		minISR   int
		alive    []int32
		fetches  []follower
		wait     time.Duration // before the last fetch
		wantHW   int64
		wantISR  []cluster.BrokerID
		proposed bool
	}{
		{name: "only replica", state: leadState{isr: []int32{1}}, wantHW: 3, wantISR: []cluster.BrokerID{1}},
		{name: "followers have not fetched", state: leadState{isr: []int32{1, 2}}, wantISR: []cluster.BrokerID{1, 2}},
		{name: "the slowest member decides", state: leadState{isr: []int32{1, 2, 3}}, fetches: []follower{{2, 3}, {3, 1}}, wantHW: 1, wantISR: []cluster.BrokerID{1, 2, 3}},
		{name: "a replica out of sync does not hold it", state: leadState{isr: []int32{1, 2}, replicas: []int32{1, 2, 3}}, fetches: []follower{{2, 2}}, wantHW: 2, wantISR: []cluster.BrokerID{1, 2}},
		{name: "below min.insync.replicas it stands", minISR: 2, state: leadState{isr: []int32{1}, replicas: []int32{1, 2}}, wantISR: []cluster.BrokerID{1}},
		{name: "a follower at the watermark joins; with it in the maximal ISR it moves on only with it", state: leadState{isr: []int32{1, 2}, replicas: []int32{1, 2, 3}},
			fetches: []follower{{2, 1}, {3, 1}, {2, 3}}, wantHW: 1, wantISR: []cluster.BrokerID{1, 2}, proposed: true},
		{name: "a follower whose broker is not live does not join", alive: []int32{1, 2}, state: leadState{isr: []int32{1, 2}, replicas: []int32{1, 2, 3}},
			fetches: []follower{{2, 1}, {3, 1}, {2, 3}}, wantHW: 3, wantISR: []cluster.BrokerID{1, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withBroker(t, brokerOptions{logConfig: minISR(max(tc.minISR, 1))}, func(t *testing.T, b *testBroker) {
				if tc.alive == nil {
					tc.alive = []int32{1, 2, 3}
				}
				b.alive(tc.alive...)
				tc.state.topic, tc.state.leader, tc.state.isNew = "t", 1, true
				b.lead(tc.state)
				b.produce(1, tpT, "a", "b", "c")
				for _, f := range tc.fetches {
					b.follow(f.id, tpT, f.offset)
				}
				s := b.state(tpT)
				if s.HighWatermark != tc.wantHW || !cmp.Equal(s.ISR, tc.wantISR) || s.ISRPending != tc.proposed {
					t.Errorf("high watermark %d, ISR %v, pending %v", s.HighWatermark, s.ISR, s.ISRPending)
				}
			})
		})
	}
}

// isrOf flattens proposals to their ISRs.
func isrOf(reqs []*kmsg.AlterPartitionRequest) (out [][]int32) {
	for _, r := range reqs {
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				isr := append([]int32(nil), p.NewISR...)
				for _, e := range p.NewEpochISR {
					isr = append(isr, e.BrokerID)
				}
				out = append(out, isr)
			}
		}
	}
	return out
}

func TestISRExpandsAndShrinks(t *testing.T) {
	c := &scriptedController{}
	for range 2 {
		c.answers = append(c.answers, answerAll(cluster.None))
	}
	withBroker(t, brokerOptions{controller: c}, func(t *testing.T, b *testBroker) {
		b.alive(1, 2, 3)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2}, replicas: []int32{1, 2, 3}, isNew: true})
		b.produce(1, tpT, "a")
		b.follow(2, tpT, 1)
		b.follow(3, tpT, 0)
		if s := b.state(tpT); s.ISRPending {
			t.Fatal("a follower below the high watermark joins")
		}
		b.follow(3, tpT, 1)
		synctest.Wait()
		if s := b.state(tpT); !cmp.Equal(s.ISR, []cluster.BrokerID{1, 2, 3}) || s.PartitionEpoch != 1 || s.ISRPending {
			t.Fatalf("after the join: %+v", s)
		}
		// Broker 3 stops fetching and broker 2 goes on; at the end of the log both count as caught up.
		<-time.After(time.Minute)
		synctest.Wait()
		if s := b.state(tpT); len(s.ISR) != 3 {
			t.Fatalf("idle followers left the ISR: %v", s.ISR)
		}
		acked := b.produce(-1, tpT, "b")
		b.follow(2, tpT, 2)
		if _, done := acked.result(); done {
			t.Fatal("acked without broker 3")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if s := b.state(tpT); !cmp.Equal(s.ISR, []cluster.BrokerID{1, 2}) || s.HighWatermark != 2 {
			t.Fatalf("after the shrink: %+v", s)
		}
		if diff := cmp.Diff([][]int32{{1, 2, 3}, {1, 2}}, isrOf(c.requests())); diff != "" {
			t.Errorf("proposals (-want +got):\n%s", diff)
		}
		if m := b.Metrics(); m.ISRExpands != 1 || m.ISRShrinks != 1 || m.UnderReplicated != 1 || m.AtMinISR != 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}

// R10: an answer by which a controller that is out of date fences a leader does not freeze the ISR: the leader asks again.
func TestControllersAnswerToAnISRChange(t *testing.T) {
	for _, tc := range []struct {
		code     cluster.ErrorCode
		pending  bool // right after the answer
		requests int  // within a second
		later    int  // after the next periodic check
		isr      []cluster.BrokerID
	}{
		{code: cluster.None, requests: 1, later: 1, isr: []cluster.BrokerID{1, 2}},
		{code: cluster.OperationNotAttempted, requests: 1, later: 1, isr: []cluster.BrokerID{1}},
		{code: cluster.IneligibleReplica, requests: 1, later: 1, isr: []cluster.BrokerID{1}},
		{code: cluster.UnknownTopicOrPartition, pending: true, requests: 1, later: 2, isr: []cluster.BrokerID{1}},
		{code: cluster.UnknownTopicID, pending: true, requests: 1, later: 2, isr: []cluster.BrokerID{1}},
		{code: cluster.FencedLeaderEpoch, pending: true, requests: 1, later: 2, isr: []cluster.BrokerID{1}},
		{code: cluster.InvalidUpdateVersion, pending: true, requests: 1, later: 2, isr: []cluster.BrokerID{1}},
		{code: cluster.InvalidRequest, pending: true, requests: 1, later: 2, isr: []cluster.BrokerID{1}},
		{code: cluster.NotController, pending: true, requests: 2, later: 4, isr: []cluster.BrokerID{1}},
		{code: cluster.UnknownServerError, pending: true, requests: 2, later: 4, isr: []cluster.BrokerID{1}},
	} {
		t.Run(tc.code.String(), func(t *testing.T) {
			// The second answer never comes, so that no more than one repetition is seen in a second, and then one every 7.5 s: a
			// quarter of replica.lag.time.max.ms.
			c := &scriptedController{answers: []func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error){answerAll(tc.code)}}
			withBroker(t, brokerOptions{controller: c}, func(t *testing.T, b *testBroker) {
				b.alive(1, 2)
				b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, replicas: []int32{1, 2}, isNew: true})
				b.follow(2, tpT, 0)
				<-time.After(time.Second)
				synctest.Wait()
				if s := b.state(tpT); s.ISRPending != tc.pending || !cmp.Equal(s.ISR, tc.isr) || len(c.requests()) != tc.requests {
					t.Errorf("pending %v, ISR %v, %d requests", s.ISRPending, s.ISR, len(c.requests()))
				}
				<-time.After(20 * time.Second)
				synctest.Wait()
				if len(c.requests()) != tc.later {
					t.Errorf("%d requests after the periodic check, want %d", len(c.requests()), tc.later)
				}
			})
		})
	}
}

func TestAnswersToAnISRChangeOfAnEarlierLeadershipAreIgnored(t *testing.T) {
	b := newTestBroker(t, brokerOptions{})
	b.alive(1, 2)
	b.lead(leadState{topic: "t", leader: 1, isr: []int32{1}, replicas: []int32{1, 2}, isNew: true})
	b.follow(2, tpT, 0)
	p, _ := b.Partition(tpT)
	change := p.mu.isr.pending
	b.lead(leadState{topic: "t", leader: 1, le: 1, pe: 4, isr: []int32{1}, replicas: []int32{1, 2}})
	p.isrAnswered(change, cluster.LeaderAndISR{LeaderEpoch: 0, ISR: []cluster.BrokerID{1, 2}, PartitionEpoch: 1}, cluster.None)
	if s := p.State(); !cmp.Equal(s.ISR, []cluster.BrokerID{1}) || s.PartitionEpoch != 4 {
		t.Errorf("state %+v", s)
	}
}

// A broker that stops is alive until its registration goes, so it may be on its way into the ISR of a new leader when it
// dies. Producers wait for it then, until the next controller refuses it, and not for their next append.
func TestProducersGoOnWhenTheFollowerTheyWaitForIsRefused(t *testing.T) {
	c := &scriptedController{answers: []func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error){
		func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
			<-time.After(time.Second)
			return answerAll(cluster.IneligibleReplica)(req)
		},
	}}
	withBroker(t, brokerOptions{controller: c}, func(t *testing.T, b *testBroker) {
		b.alive(1, 2, 3)
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2}, replicas: []int32{1, 2, 3}, isNew: true})
		b.follow(3, tpT, 0)
		acked := b.produce(-1, tpT, "a")
		b.follow(2, tpT, 1)
		b.alive(1, 2)
		synctest.Wait()
		if _, done := acked.result(); done {
			t.Fatal("acknowledged although broker 3 may be in the ISR")
		}
		<-time.After(time.Second)
		synctest.Wait()
		if _, done := acked.result(); !done {
			t.Error("not acknowledged after the controller refused broker 3")
		}
	})
}
