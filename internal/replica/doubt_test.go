package replica

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
)

// doubtAfter is when a leadership is in doubt at the latest, by Kafka's defaults: two waits of a follower's fetch, and the next look.
const doubtAfter = 2*500*time.Millisecond + doubtEvery

// withSession runs a broker whose session the test takes away and gives back.
func withSession(t *testing.T, fn func(t *testing.T, b *testBroker, session *atomic.Bool)) {
	t.Helper()
	var session atomic.Bool
	session.Store(true)
	withBroker(t, brokerOptions{registered: session.Load}, func(t *testing.T, b *testBroker) {
		b.alive(1, 2, 3)
		fn(t, b, &session)
	})
}

// pass lets time pass, in which followers fetch often enough or not at all.
func (b *testBroker) pass(d time.Duration, followers ...cluster.BrokerID) {
	const step = 100 * time.Millisecond
	for end := time.Now().Add(d); time.Now().Before(end); {
		for _, id := range followers {
			b.follow(id, tpT, 0)
		}
		<-time.After(step)
	}
	synctest.Wait()
}

// asked is what clients get: the codes of a produce with each acks, a fetch, a look for the last offset, and a deletion of records.
func (b *testBroker) asked() map[string]cluster.ErrorCode {
	codes := map[string]cluster.ErrorCode{}
	for acks, name := range map[int16]string{0: "produce acks=0", 1: "produce acks=1"} {
		r, _ := b.produce(acks, tpT, "x").result()
		codes[name] = r.Err
	}
	r, _ := b.consume(0, fetchPart(tpT, 0)).result()
	codes["fetch"] = r.Err
	codes["list offsets"] = b.ListOffsets(-1, ReadUncommitted, []ListOffsetsPartition{{TP: tpT, CurrentLeaderEpoch: -1, Timestamp: LatestTimestamp}})[0].Err
	deletion := &answer[DeleteRecordsResult]{}
	b.DeleteRecords(0, false, []DeleteRecordsPartition{{TP: tpT, Offset: 0}}, deletion.set)
	synctest.Wait()
	deleted, _ := deletion.result()
	codes["delete records"] = deleted.Err
	return codes
}

// allAnswer expects the code from all. A deletion of records that is taken up waits for followers in vain.
func allAnswer(code cluster.ErrorCode) map[string]cluster.ErrorCode {
	deletion := code
	if code == cluster.None {
		deletion = cluster.RequestTimedOut
	}
	return map[string]cluster.ErrorCode{"produce acks=0": code, "produce acks=1": code, "fetch": code, "list offsets": code, "delete records": deletion}
}

func TestALeaderWithoutSessionAndFollowersSendsClientsAway(t *testing.T) {
	withSession(t, func(t *testing.T, b *testBroker, session *atomic.Bool) {
		b.lead(leadState{topic: "t", leader: 1, isr: []int32{1, 2}, replicas: []int32{1, 2, 3}, isNew: true})
		produce, fetch := b.produce(-1, tpT, "waits"), b.consume(time.Minute, fetchPart(tpT, 0))
		session.Store(false)
		b.pass(doubtAfter)
		if r, done := produce.result(); !done || r.Err != cluster.NotLeaderOrFollower {
			t.Errorf("produce that waited: answered %v, %v", done, r.Err)
		}
		if r, done := fetch.result(); !done || r.Err != cluster.NotLeaderOrFollower {
			t.Errorf("fetch that waited: answered %v, %v", done, r.Err)
		}
		if diff := cmp.Diff(allAnswer(cluster.NotLeaderOrFollower), b.asked()); diff != "" {
			t.Errorf("in doubt (-want +got):\n%s", diff)
		}
		// A follower is never sent away: that it comes is what ends the doubt.
		if r, _ := b.follow(2, tpT, 1).result(); r.Err != cluster.None {
			t.Errorf("follower: %v", r.Err)
		}
		b.pass(doubtEvery)
		if diff := cmp.Diff(allAnswer(cluster.None), b.asked()); diff != "" {
			t.Errorf("after a follower's fetch (-want +got):\n%s", diff)
		}
	})
}

func TestALeadershipIsInDoubtOnlyWhenNobodyConfirmsIt(t *testing.T) {
	for _, tc := range []struct {
		name      string
		session   bool
		isr       []int32
		followers []cluster.BrokerID
		then      func(b *testBroker, session *atomic.Bool)
		want      cluster.ErrorCode
	}{
		{name: "no session, nobody fetches", isr: []int32{1, 2}, want: cluster.NotLeaderOrFollower},
		{name: "no session, who fetches is not in sync", isr: []int32{1, 2}, followers: []cluster.BrokerID{3}, want: cluster.NotLeaderOrFollower},
		{name: "no session, one in sync fetches", isr: []int32{1, 2, 3}, followers: []cluster.BrokerID{3}},
		{name: "a session", session: true, isr: []int32{1, 2}},
		{name: "alone in the ISR", isr: []int32{1}},
		{name: "a new session", isr: []int32{1, 2}, then: func(b *testBroker, session *atomic.Bool) {
			session.Store(true)
			b.pass(doubtEvery)
		}},
		{name: "a controller says it leads", isr: []int32{1, 2}, then: func(b *testBroker, _ *atomic.Bool) {
			b.lead(leadState{topic: "t", leader: 1, le: 1, pe: 1, isr: []int32{1, 2}, replicas: []int32{1, 2, 3}})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withSession(t, func(t *testing.T, b *testBroker, session *atomic.Bool) {
				b.lead(leadState{topic: "t", leader: 1, isr: tc.isr, replicas: []int32{1, 2, 3}, isNew: true})
				session.Store(tc.session)
				b.pass(doubtAfter, tc.followers...)
				if tc.then != nil {
					tc.then(b, session)
				}
				if diff := cmp.Diff(allAnswer(tc.want), b.asked()); diff != "" {
					t.Errorf("clients' answers (-want +got):\n%s", diff)
				}
			})
		})
	}
}
