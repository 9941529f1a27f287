package replica

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/wire"
)

func sessionPart(i int, offset int64) FetchPartition {
	return FetchPartition{TP: testTP(i), CurrentLeaderEpoch: -1, LastFetchedEpoch: -1, FetchOffset: offset, LogStartOffset: -1, MaxBytes: 100}
}

func quiet(hw int64) FetchResult { return FetchResult{HighWatermark: hw, LastStableOffset: hw} }

func withRecords(hw int64) FetchResult {
	r := quiet(hw)
	r.Records = wire.BytesSource("records")
	return r
}

// fetchInSession runs one request through the cache and returns the order of partitions read and the answer.
func fetchInSession(c *FetchSessionCache, req FetchSessionRequest, results func(FetchPartition) FetchResult) ([]int32, FetchSessionAnswer) {
	req.Version = max(req.Version, 12)
	ctx := c.Begin(req)
	var order []int32
	var rs []FetchResult
	for _, part := range ctx.Partitions() {
		order = append(order, part.TP.Partition)
		rs = append(rs, results(part))
	}
	return order, ctx.Finish(rs)
}

func TestFetchSessionCarriesDifferencesOnly(t *testing.T) {
	c := NewFetchSessionCache(10, time.Minute)
	hw := map[int32]int64{0: 5, 1: 5, 2: 5}
	read := func(p FetchPartition) FetchResult { return quiet(hw[p.TP.Partition]) }
	order, a := fetchInSession(c, FetchSessionRequest{Partitions: []FetchPartition{sessionPart(0, 0), sessionPart(1, 0), sessionPart(2, 0)}}, read)
	if diff := cmp.Diff([]int32{0, 1, 2}, order); diff != "" || a.Err != cluster.None || a.SessionID == NoFetchSession || !slices.Equal(a.Include, []int{0, 1, 2}) {
		t.Fatalf("full request: order %v, answer %+v", order, a)
	}
	id := a.SessionID
	step := func(name string, req FetchSessionRequest, read func(FetchPartition) FetchResult, wantOrder []int32, want FetchSessionAnswer) {
		t.Helper()
		req.SessionID = id
		order, a := fetchInSession(c, req, read)
		if diff := cmp.Diff(wantOrder, order); diff != "" {
			t.Errorf("%s: partitions read (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(want, a); diff != "" {
			t.Errorf("%s: answer (-want +got):\n%s", name, diff)
		}
	}
	step("nothing new is not sent", FetchSessionRequest{Epoch: 1}, read, []int32{0, 1, 2}, FetchSessionAnswer{SessionID: id, Include: []int{}})
	hw[1] = 6
	step("a moved high watermark is", FetchSessionRequest{Epoch: 2}, read, []int32{0, 1, 2}, FetchSessionAnswer{SessionID: id, Include: []int{1}})
	step("records are sent and their partition goes to the end", FetchSessionRequest{Epoch: 3}, func(p FetchPartition) FetchResult {
		if p.TP.Partition == 0 {
			return withRecords(hw[0])
		}
		return read(p)
	}, []int32{0, 1, 2}, FetchSessionAnswer{SessionID: id, Include: []int{0}})
	step("forgotten and added partitions", FetchSessionRequest{
		Epoch: 4, Partitions: []FetchPartition{sessionPart(3, 7)}, Forgotten: []ForgottenPartition{{TP: testTP(1)}},
	}, read, []int32{2, 0, 3}, FetchSessionAnswer{SessionID: id, Include: []int{2}})
	failing := func(p FetchPartition) FetchResult {
		if p.TP.Partition == 2 {
			return FetchResult{Err: cluster.NotLeaderOrFollower, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1}
		}
		return read(p)
	}
	step("errors are always sent", FetchSessionRequest{Epoch: 5}, failing, []int32{2, 0, 3}, FetchSessionAnswer{SessionID: id, Include: []int{0}})
	step("again", FetchSessionRequest{Epoch: 6}, failing, []int32{2, 0, 3}, FetchSessionAnswer{SessionID: id, Include: []int{0}})
	step("and the watermark after them", FetchSessionRequest{Epoch: 7}, read, []int32{2, 0, 3}, FetchSessionAnswer{SessionID: id, Include: []int{0}})
	step("an unexpected epoch", FetchSessionRequest{Epoch: 7}, read, nil, FetchSessionAnswer{Err: cluster.InvalidFetchSessionEpoch})
	step("another way to name topics", FetchSessionRequest{Epoch: 8, Version: 13}, read, nil, FetchSessionAnswer{Err: cluster.FetchSessionTopicIDError})
	step("the last partition forgotten closes the session", FetchSessionRequest{
		Epoch: 8, Forgotten: []ForgottenPartition{{TP: testTP(0)}, {TP: testTP(2)}, {TP: testTP(3)}},
	}, read, nil, FetchSessionAnswer{Include: []int{}})
	step("and it is gone", FetchSessionRequest{Epoch: 9}, read, nil, FetchSessionAnswer{Err: cluster.FetchSessionIDNotFound})
	if s := c.Stats(); s != (FetchSessionStats{}) {
		t.Errorf("left behind: %+v", s)
	}
}

// A partition that a request lists twice is read once, as it is listed last: each place would be one that every append to it has to look at
// while the fetch waits.
func TestAPartitionListedTwiceIsReadOnce(t *testing.T) {
	id := cluster.NewTopicID()
	byID := func(i int, offset int64) FetchPartition {
		p := sessionPart(i, offset)
		p.TopicID, p.TP.Topic = id, ""
		return p
	}
	for name, part := range map[string]func(int, int64) FetchPartition{"by name": sessionPart, "by an id that is not known": byID} {
		for _, epoch := range []int32{InitialFetchEpoch, FinalFetchEpoch} {
			c := NewFetchSessionCache(10, time.Minute)
			ctx := c.Begin(FetchSessionRequest{Version: 13, Epoch: epoch, Partitions: []FetchPartition{part(1, 5), part(0, 1), part(1, 6), part(1, 7)}})
			if diff := cmp.Diff([]FetchPartition{part(1, 7), part(0, 1)}, ctx.Partitions()); diff != "" {
				t.Errorf("%s, epoch %d (-want +got):\n%s", name, epoch, diff)
			}
			if a := ctx.Finish([]FetchResult{quiet(8), quiet(1)}); !slices.Equal(a.Include, []int{0, 1}) || a.SessionID == NoFetchSession != (epoch == FinalFetchEpoch) {
				t.Errorf("%s, epoch %d: %+v", name, epoch, a)
			}
		}
	}
}

func TestFetchSessionResolvesTopicIDsLater(t *testing.T) {
	c := NewFetchSessionCache(10, time.Minute)
	id := cluster.NewTopicID()
	part := FetchPartition{TP: cluster.TopicPartition{Partition: 4}, TopicID: id, MaxBytes: 10}
	unknown := func(p FetchPartition) FetchResult { return FetchResult{Err: cluster.UnknownTopicID} }
	_, a := fetchInSession(c, FetchSessionRequest{Version: 13, Partitions: []FetchPartition{part}}, unknown)
	ctx := c.Begin(FetchSessionRequest{Version: 13, SessionID: a.SessionID, Epoch: 1, TopicName: func(got cluster.TopicID) (string, bool) {
		return "orders", got == id
	}})
	part.TP.Topic = "orders"
	if diff := cmp.Diff([]FetchPartition{part}, ctx.Partitions()); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
}

func TestFullRequestClosesTheNamedSession(t *testing.T) {
	c := NewFetchSessionCache(10, time.Minute)
	read := func(FetchPartition) FetchResult { return quiet(0) }
	parts := []FetchPartition{sessionPart(0, 0)}
	_, a := fetchInSession(c, FetchSessionRequest{Partitions: parts}, read)
	_, b := fetchInSession(c, FetchSessionRequest{SessionID: a.SessionID, Partitions: parts}, read)
	_, final := fetchInSession(c, FetchSessionRequest{SessionID: b.SessionID, Epoch: FinalFetchEpoch, Partitions: parts}, read)
	if a.SessionID == b.SessionID || final.SessionID != NoFetchSession || c.Stats().Sessions != 0 || len(final.Include) != 1 {
		t.Errorf("sessions %d, %d, %d; %+v", a.SessionID, b.SessionID, final.SessionID, c.Stats())
	}
}

func TestFetchSessionEviction(t *testing.T) {
	read := func(FetchPartition) FetchResult { return quiet(0) }
	full := func(c *FetchSessionCache, follower bool, parts int) int32 {
		req := FetchSessionRequest{Follower: follower}
		for i := range parts {
			req.Partitions = append(req.Partitions, sessionPart(i, 0))
		}
		_, a := fetchInSession(c, req, read)
		return a.SessionID
	}
	type session struct {
		follower bool
		parts    int
	}
	for _, tc := range []struct {
		name    string
		old     []session
		age     time.Duration // of the old ones, when the new one comes
		used    []int         // old ones that fetch at that age
		new     session
		evicted []int // old ones that go; nil: the new one gets no session
	}{
		{"a young session is not pushed out by an equal", []session{{false, 5}}, time.Second, nil, session{false, 9}, nil},
		{"a follower pushes out a young consumer", []session{{true, 3}, {false, 5}}, time.Second, nil, session{true, 2}, []int{1}},
		{"but not a young follower", []session{{true, 3}}, time.Second, nil, session{true, 9}, nil},
		{"an old smaller session makes room", []session{{false, 5}, {false, 4}}, time.Hour, []int{0, 1}, session{false, 6}, []int{1}},
		{"an old larger one does not", []session{{false, 5}}, time.Hour, []int{0}, session{false, 4}, nil},
		{"a consumer never pushes out a follower that is in use", []session{{true, 1}}, time.Hour, []int{0}, session{false, 9}, nil},
		{"an idle session makes room for anyone", []session{{true, 50}, {true, 60}}, time.Hour, []int{1}, session{false, 1}, []int{0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := NewFetchSessionCache(len(tc.old), 2*time.Minute)
				ids := make([]int32, len(tc.old))
				for i, s := range tc.old {
					ids[i] = full(c, s.follower, s.parts)
				}
				<-time.After(tc.age)
				for _, i := range tc.used {
					fetchInSession(c, FetchSessionRequest{SessionID: ids[i], Epoch: 1}, read)
				}
				got := full(c, tc.new.follower, tc.new.parts)
				var gone []int
				for i, id := range ids {
					if c.find(id) == nil {
						gone = append(gone, i)
					}
				}
				if (got == NoFetchSession) != (tc.evicted == nil) || !slices.Equal(gone, tc.evicted) {
					t.Errorf("new session %d, gone %v, want gone %v", got, gone, tc.evicted)
				}
			})
		})
	}
}

func TestFetchEpochsFollowEachOther(t *testing.T) {
	for from, want := range map[int32]int32{-1: -1, 0: 1, 1: 2, math.MaxInt32: 1} {
		if got := nextFetchEpoch(from); got != want {
			t.Errorf("after %d comes %d, want %d", from, got, want)
		}
	}
}

// TestFollowerSessionAgreesWithTheLeaders runs both sides of a session against each other: whatever the follower wants,
// the leader reads exactly that.
func TestFollowerSessionAgreesWithTheLeaders(t *testing.T) {
	c := NewFetchSessionCache(10, time.Minute)
	ids := map[string]cluster.TopicID{"a": cluster.NewTopicID(), "b": cluster.NewTopicID()}
	part := func(topic string, p int32, offset int64) FetchPartition {
		return FetchPartition{TP: cluster.TopicPartition{Topic: topic, Partition: p}, TopicID: ids[topic], FetchOffset: offset, LastFetchedEpoch: -1, MaxBytes: 10}
	}
	again := cluster.NewTopicID()
	recreated := part("b", 0, 0)
	recreated.TopicID = again
	var s followerSession
	for i, want := range [][]FetchPartition{
		{part("a", 0, 0), part("a", 1, 0), part("b", 0, 0)},
		{part("a", 0, 5), part("a", 1, 0), part("b", 0, 0)},
		{part("a", 1, 0), part("b", 0, 3)},
		{part("a", 1, 0), part("b", 0, 3)},
		{part("a", 1, 0), recreated, part("a", 7, 1)},
	} {
		req := kmsg.NewPtrFetchRequest()
		req.Version = 17
		s.fill(req, want)
		if i == 3 && (len(req.Topics) > 0 || len(req.ForgottenTopics) > 0) {
			t.Errorf("an unchanged request carries %+v", req)
		}
		sr := FetchSessionRequest{Version: 17, SessionID: req.SessionID, Epoch: req.SessionEpoch, Follower: true}
		name := map[cluster.TopicID]string{ids["a"]: "a", ids["b"]: "b", again: "b"}
		for _, topic := range req.Topics {
			for _, p := range topic.Partitions {
				sr.Partitions = append(sr.Partitions, FetchPartition{
					TP: cluster.TopicPartition{Topic: name[topic.TopicID], Partition: p.Partition}, TopicID: topic.TopicID,
					CurrentLeaderEpoch: cluster.LeaderEpoch(p.CurrentLeaderEpoch), FetchOffset: p.FetchOffset,
					LastFetchedEpoch: cluster.LeaderEpoch(p.LastFetchedEpoch), LogStartOffset: p.LogStartOffset, MaxBytes: p.PartitionMaxBytes,
				})
			}
		}
		for _, topic := range req.ForgottenTopics {
			for _, p := range topic.Partitions {
				sr.Forgotten = append(sr.Forgotten, ForgottenPartition{TP: cluster.TopicPartition{Topic: name[topic.TopicID], Partition: p}, TopicID: topic.TopicID})
			}
		}
		ctx := c.Begin(sr)
		got := slices.Clone(ctx.Partitions())
		byTP := func(a, b FetchPartition) int { return a.TP.Compare(b.TP) }
		slices.SortFunc(got, byTP)
		sorted := slices.SortedFunc(slices.Values(want), byTP)
		if diff := cmp.Diff(sorted, got); diff != "" || ctx.Err() != cluster.None {
			t.Fatalf("request %d: error %v, partitions (-want +got):\n%s", i, ctx.Err(), diff)
		}
		a := ctx.Finish(make([]FetchResult, len(got)))
		resp := kmsg.NewPtrFetchResponse()
		resp.SessionID = a.SessionID
		if !s.answered(resp) {
			t.Fatal("answer refused")
		}
	}
}
