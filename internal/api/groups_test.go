package api

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
)

var groupProperties = map[string]string{"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "5",
	"group.initial.rebalance.delay.ms": "10", "auto.create.topics.enable": "false"}

// inGroupBubble runs a test with a broker that coordinates all groups and leads topic t with two partitions.
func inGroupBubble(t *testing.T, test func(b *testBroker)) {
	t.Helper()
	inBubble(t, groupProperties, func(b *testBroker) {
		b.lead(cluster.GroupOffsetsTopic, 5)
		b.lead("t", 2)
		test(b)
	})
}

func joinRequest(id, memberID string, instance *string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID = id, memberID, instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 10_000, 20_000, "consumer"
	req.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 1, 0, 1, 't'}}}
	return req
}

// join joins a group alone, in two steps where the version wants it.
func (b *testBroker) join(version int16, id string, instance *string) *kmsg.JoinGroupResponse {
	b.t.Helper()
	resp := b.do(version, joinRequest(id, "", instance)).(*kmsg.JoinGroupResponse)
	if version >= 4 && instance == nil {
		b.wantCode("first join", resp.ErrorCode, cluster.MemberIDRequired)
		resp = b.do(version, joinRequest(id, resp.MemberID, nil)).(*kmsg.JoinGroupResponse)
	}
	b.wantCode("join", resp.ErrorCode, cluster.None)
	return resp
}

func (b *testBroker) sync(version int16, id string, j *kmsg.JoinGroupResponse, protocolType, protocol *string) *kmsg.SyncGroupResponse {
	b.t.Helper()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation, req.ProtocolType, req.Protocol = id, j.MemberID, j.Generation, protocolType, protocol
	req.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: j.MemberID, MemberAssignment: []byte("mine")}}
	return b.do(version, req).(*kmsg.SyncGroupResponse)
}

func (b *testBroker) wantCode(what string, got int16, want cluster.ErrorCode) {
	b.t.Helper()
	if cluster.ErrorCode(got) != want {
		b.t.Errorf("%s: %v, want %v", what, cluster.ErrorCode(got), want)
	}
}

func pointer[T any](v T) *T { return &v }

func commitRequest(id, topic string, offsets ...int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = id
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	for i, o := range offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = int32(i), o, 4, pointer("note")
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = []kmsg.OffsetCommitRequestTopic{t}
	return req
}

func (b *testBroker) commit(version int16, id, topic string, offsets ...int64) []kmsg.OffsetCommitResponseTopicPartition {
	b.t.Helper()
	return b.do(version, commitRequest(id, topic, offsets...)).(*kmsg.OffsetCommitResponse).Topics[0].Partitions
}

func TestAMemberLivesInEveryVersion(t *testing.T) {
	inGroupBubble(t, func(b *testBroker) {
		for v := range int16(10) {
			id := fmt.Sprint("v", v)
			j := b.join(v, id, nil)
			want := kmsg.NewJoinGroupResponse()
			want.Version, want.Generation, want.LeaderID, want.MemberID, want.Protocol = v, 1, j.MemberID, j.MemberID, pointer("range")
			want.Members = []kmsg.JoinGroupResponseMember{{MemberID: j.MemberID, ProtocolMetadata: joinRequest("", "", nil).Protocols[0].Metadata}}
			if v >= 7 {
				want.ProtocolType = pointer("consumer")
			}
			same(t, &want, j)
			if !regexp.MustCompile(`^tester-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(j.MemberID) {
				t.Errorf("member id %q", j.MemberID)
			}

			sv := min(v, 5)
			s := b.sync(sv, id, j, pointer("consumer"), pointer("range"))
			wantSync := kmsg.NewSyncGroupResponse()
			wantSync.Version, wantSync.MemberAssignment = sv, []byte("mine")
			if sv >= 5 {
				wantSync.ProtocolType, wantSync.Protocol = pointer("consumer"), pointer("range")
			}
			same(t, &wantSync, s)

			hb := kmsg.NewPtrHeartbeatRequest()
			hb.Group, hb.MemberID, hb.Generation = id, j.MemberID, 1
			b.wantCode("heartbeat", b.do(min(v, 4), hb).(*kmsg.HeartbeatResponse).ErrorCode, cluster.None)

			leave := kmsg.NewPtrLeaveGroupRequest()
			leave.Group, leave.MemberID = id, j.MemberID
			leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: j.MemberID}, {MemberID: "nobody"}}
			wantLeave := kmsg.NewLeaveGroupResponse()
			wantLeave.Version = min(v, 5)
			if v >= 3 {
				wantLeave.Members = []kmsg.LeaveGroupResponseMember{{MemberID: j.MemberID}, {MemberID: "nobody", ErrorCode: int16(cluster.UnknownMemberID)}}
			}
			same(t, &wantLeave, b.do(min(v, 5), leave))
			if v < 3 {
				b.wantCode("second leave", b.do(v, leave).(*kmsg.LeaveGroupResponse).ErrorCode, cluster.UnknownMemberID)
			}
		}
	})
}

func TestOffsetsLiveInEveryVersion(t *testing.T) {
	inGroupBubble(t, func(b *testBroker) {
		for v := int16(1); v <= 9; v++ {
			id := fmt.Sprint("v", v)
			for i, p := range b.commit(v, id, "t", 10, 11, 12) { // partition 2 does not exist
				b.wantCode("commit", p.ErrorCode, []cluster.ErrorCode{0, 0, cluster.UnknownTopicOrPartition}[i])
			}
			epoch := int32(-1)
			if v >= 6 {
				epoch = 4
			}
			b.wantOffsets(v, id, epoch)
		}
		b.wantCode("unknown topic", b.commit(9, "g", "nosuch", 1)[0].ErrorCode, cluster.UnknownTopicOrPartition)
	})
}

// wantOffsets fetches partitions 1 and 7 of t in the version, and all where it can.
func (b *testBroker) wantOffsets(v int16, id string, epoch int32) {
	b.t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = id
	req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{1, 7}}}
	req.Groups = []kmsg.OffsetFetchRequestGroup{
		{Group: id, MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", Partitions: []int32{1, 7}}}},
		{Group: id, MemberEpoch: -1},
		{Group: "nosuch", MemberEpoch: -1},
	}
	got := b.do(v, req)
	want := kmsg.NewOffsetFetchResponse()
	want.Version = v
	stored := func(p int32, offset int64) kmsg.OffsetFetchResponseGroupTopicPartition {
		return kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p, Offset: offset, LeaderEpoch: epoch, Metadata: pointer("note")}
	}
	none := kmsg.OffsetFetchResponseGroupTopicPartition{Partition: 7, Offset: -1, LeaderEpoch: -1, Metadata: pointer("")}
	if v >= 8 {
		want.Groups = []kmsg.OffsetFetchResponseGroup{
			{Group: id, Topics: []kmsg.OffsetFetchResponseGroupTopic{{Topic: "t", Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{stored(1, 11), none}}}},
			{Group: id, Topics: []kmsg.OffsetFetchResponseGroupTopic{{Topic: "t", Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{stored(0, 10), stored(1, 11)}}}},
			{Group: "nosuch"},
		}
		same(b.t, &want, got)
		return
	}
	if v < 5 {
		epoch = -1
	}
	want.Topics = []kmsg.OffsetFetchResponseTopic{{Topic: "t", Partitions: []kmsg.OffsetFetchResponseTopicPartition{
		{Partition: 1, Offset: 11, LeaderEpoch: epoch, Metadata: pointer("note")}, {Partition: 7, Offset: -1, LeaderEpoch: -1, Metadata: pointer("")}}}}
	same(b.t, &want, got)
	if v >= 2 {
		req.Topics = nil
		if all := b.do(v, req).(*kmsg.OffsetFetchResponse).Topics; len(all) != 1 || len(all[0].Partitions) != 2 {
			b.t.Errorf("version %d, all: %+v", v, all)
		}
	}
}

func TestErrorsOfTheGroupTakeTheFormOfTheVersion(t *testing.T) {
	inBubble(t, groupProperties, func(b *testBroker) { // leads nothing
		b.lead("t", 1)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group, req.Topics = "g", []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{0}}}
		req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1}}
		b.wantCode("fetch v1", b.do(1, req).(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].ErrorCode, cluster.NotCoordinator)
		b.wantCode("fetch v2", b.do(2, req).(*kmsg.OffsetFetchResponse).ErrorCode, cluster.NotCoordinator)
		b.wantCode("fetch v8", b.do(8, req).(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode, cluster.NotCoordinator)
		b.wantCode("commit", b.commit(9, "g", "t", 1)[0].ErrorCode, cluster.NotCoordinator)
		j := b.do(9, joinRequest("g", "m", nil)).(*kmsg.JoinGroupResponse)
		want := kmsg.NewJoinGroupResponse()
		want.Version, want.ErrorCode, want.Generation, want.MemberID = 9, int16(cluster.NotCoordinator), -1, "m"
		same(t, &want, j)
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group, leave.Members = "g", []kmsg.LeaveGroupRequestMember{{MemberID: "m"}}
		b.wantCode("leave", b.do(5, leave).(*kmsg.LeaveGroupResponse).ErrorCode, cluster.NotCoordinator)
		describe := kmsg.NewPtrDescribeGroupsRequest()
		describe.Groups = []string{"g"}
		b.wantCode("describe", b.do(5, describe).(*kmsg.DescribeGroupsResponse).Groups[0].ErrorCode, cluster.NotCoordinator)
		b.wantCode("list", b.do(5, kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse).ErrorCode, cluster.None)
		b.wantCode("empty id", b.do(9, joinRequest("", "", nil)).(*kmsg.JoinGroupResponse).ErrorCode, cluster.InvalidGroupID)
	})
}

func TestSyncNamesTheProtocolFromVersionFive(t *testing.T) {
	inGroupBubble(t, func(b *testBroker) {
		j := b.join(9, "g", nil)
		b.wantCode("none", b.sync(5, "g", j, nil, nil).ErrorCode, cluster.InconsistentGroupProtocol)
		b.wantCode("other type", b.sync(5, "g", j, pointer("connect"), pointer("range")).ErrorCode, cluster.InconsistentGroupProtocol)
		b.wantCode("other name", b.sync(5, "g", j, pointer("consumer"), pointer("sticky")).ErrorCode, cluster.InconsistentGroupProtocol)
		b.wantCode("right", b.sync(5, "g", j, pointer("consumer"), pointer("range")).ErrorCode, cluster.None)
	})
}

func TestAStaticLeaderSkipsTheAssignmentFromVersionNine(t *testing.T) {
	inGroupBubble(t, func(b *testBroker) {
		first := b.join(5, "g", pointer("i"))
		b.wantCode("sync", b.sync(5, "g", first, pointer("consumer"), pointer("range")).ErrorCode, cluster.None)
		old := b.do(8, joinRequest("g", "", pointer("i"))).(*kmsg.JoinGroupResponse)
		if old.LeaderID != first.MemberID || old.MemberID == first.MemberID || old.SkipAssignment {
			t.Errorf("version 8: %+v", old)
		}
		again := b.do(9, joinRequest("g", "", pointer("i"))).(*kmsg.JoinGroupResponse)
		if again.LeaderID != again.MemberID || !again.SkipAssignment || len(again.Members) != 1 || *again.Members[0].InstanceID != "i" {
			t.Errorf("version 9: %+v", again)
		}
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group, hb.MemberID, hb.Generation, hb.InstanceID = "g", old.MemberID, 1, pointer("i")
		b.wantCode("the one before", b.do(4, hb).(*kmsg.HeartbeatResponse).ErrorCode, cluster.FencedInstanceID)
	})
}

func TestGroupsAreListedDescribedAndDeleted(t *testing.T) {
	inGroupBubble(t, func(b *testBroker) {
		j := b.join(9, "busy", nil)
		b.wantCode("sync", b.sync(5, "busy", j, pointer("consumer"), pointer("range")).ErrorCode, cluster.None)
		b.commit(9, "idle", "t", 1, 2)

		list := func(v int16, states, types []string) string {
			req := kmsg.NewPtrListGroupsRequest()
			req.StatesFilter, req.TypesFilter = states, types
			out := ""
			for _, g := range b.do(v, req).(*kmsg.ListGroupsResponse).Groups {
				out += fmt.Sprintf("%s/%s/%s/%s ", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
			}
			return out
		}
		for _, c := range []struct {
			version       int16
			states, types []string
			want          string
		}{
			{0, nil, nil, "busy/consumer// idle/// "},
			{3, nil, nil, "busy/consumer// idle/// "},
			{4, nil, nil, "busy/consumer/Stable/ idle//Empty/ "},
			{4, []string{"STABLE"}, nil, "busy/consumer/Stable/ "},
			{5, []string{"Stable", "empty"}, []string{"Classic"}, "busy/consumer/Stable/classic idle//Empty/classic "},
			{5, nil, []string{"consumer"}, ""},
		} {
			if got := list(c.version, c.states, c.types); got != c.want {
				t.Errorf("version %d, states %v, types %v: %q, want %q", c.version, c.states, c.types, got, c.want)
			}
		}

		for v := range int16(6) {
			req := kmsg.NewPtrDescribeGroupsRequest()
			req.Groups, req.IncludeAuthorizedOperations = []string{"busy", "nosuch"}, v == 4
			want := kmsg.NewDescribeGroupsResponse()
			want.Version = v
			busy, nosuch := kmsg.NewDescribeGroupsResponseGroup(), kmsg.NewDescribeGroupsResponseGroup()
			busy.Group, busy.State, busy.ProtocolType, busy.Protocol = "busy", "Stable", "consumer", "range"
			busy.Members = []kmsg.DescribeGroupsResponseGroupMember{{MemberID: j.MemberID, ClientID: "tester", ClientHost: "/127.0.0.1",
				ProtocolMetadata: joinRequest("", "", nil).Protocols[0].Metadata, MemberAssignment: []byte("mine")}}
			nosuch.Group, nosuch.State = "nosuch", "Dead"
			if v == 4 {
				busy.AuthorizedOperations, nosuch.AuthorizedOperations = supportedOperations[acl.Group], supportedOperations[acl.Group]
			}
			want.Groups = []kmsg.DescribeGroupsResponseGroup{busy, nosuch}
			same(t, &want, b.do(v, req))
		}

		offsets := kmsg.NewPtrOffsetDeleteRequest()
		offsets.Group = "idle"
		offsets.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}, {Partition: 5}}}}
		od := b.do(0, offsets).(*kmsg.OffsetDeleteResponse)
		b.wantCode("offset delete", od.Topics[0].Partitions[0].ErrorCode, cluster.None)
		b.wantCode("of no partition", od.Topics[0].Partitions[1].ErrorCode, cluster.UnknownTopicOrPartition)
		offsets.Group = "busy"
		b.wantCode("subscribed", b.do(0, offsets).(*kmsg.OffsetDeleteResponse).Topics[0].Partitions[0].ErrorCode, cluster.GroupSubscribedToTopic)
		offsets.Group = "nosuch"
		b.wantCode("no group", b.do(0, offsets).(*kmsg.OffsetDeleteResponse).ErrorCode, cluster.GroupIDNotFound)

		for v := range int16(3) {
			b.commit(9, "idle", "t", 1)
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Groups = []string{"idle", "busy", "nosuch", "idle"}
			want := kmsg.NewDeleteGroupsResponse()
			want.Version, want.Groups = v, []kmsg.DeleteGroupsResponseGroup{{Group: "idle"}, {Group: "busy", ErrorCode: int16(cluster.NonEmptyGroup)},
				{Group: "nosuch", ErrorCode: int16(cluster.GroupIDNotFound)}}
			same(t, &want, b.do(v, req))
		}
	})
}

func TestFindCoordinatorMakesTheOffsetsTopic(t *testing.T) {
	for v := range int16(7) {
		t.Run(fmt.Sprint("v", v), func(t *testing.T) {
			inBubble(t, groupProperties, func(b *testBroker) {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", "h"}
				resp := b.do(v, req).(*kmsg.FindCoordinatorResponse)
				topic, _ := b.inStore(cluster.GroupOffsetsTopic)
				leader := int32(topic.Partitions[b.groups.PartitionFor("g")].Replicas[0])
				want := kmsg.NewFindCoordinatorResponse()
				want.Version = v
				if v < 4 {
					want.NodeID, want.Host, want.Port = leader, "b"+fmt.Sprint(leader), 9092
					if v > 0 {
						want.ErrorMessage = pointer("NONE")
					}
					same(t, &want, resp)
				} else if len(resp.Coordinators) != 2 || resp.Coordinators[0].NodeID != leader || resp.Coordinators[1].ErrorCode != 0 || resp.Coordinators[1].Key != "h" {
					t.Errorf("%+v", resp)
				}
				if got := b.storedConfig("topics", cluster.GroupOffsetsTopic); got["cleanup.policy"] != "compact" || got["compression.type"] != "producer" || got["segment.bytes"] != "104857600" {
					t.Errorf("configs: %v", got)
				}
				if len(topic.Partitions) != 5 {
					t.Errorf("%d partitions", len(topic.Partitions))
				}
			})
		})
	}
}

func TestFindCoordinatorKnowsNoOtherCoordinators(t *testing.T) {
	inGroupBubble(t, func(b *testBroker) {
		for _, c := range []struct {
			version int16
			kind    int8
			want    cluster.ErrorCode
		}{
			{1, 1, cluster.TransactionalIDAuthorizationFailed}, {6, 1, cluster.TransactionalIDAuthorizationFailed},
			{5, 2, cluster.InvalidRequest}, {6, 2, cluster.CoordinatorNotAvailable}, {6, 9, cluster.InvalidRequest},
		} {
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = c.kind, "x", []string{"x"}
			resp := b.do(c.version, req).(*kmsg.FindCoordinatorResponse)
			code := resp.ErrorCode
			if c.version >= 4 {
				code = resp.Coordinators[0].ErrorCode
			}
			b.wantCode(fmt.Sprintf("version %d kind %d", c.version, c.kind), code, c.want)
		}
	})
}

func TestACoordinatorThatCannotBeMadeIsNotAvailable(t *testing.T) {
	inBubble(t, map[string]string{"offsets.topic.replication.factor": "7"}, func(b *testBroker) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = "g"
		resp := b.do(3, req).(*kmsg.FindCoordinatorResponse)
		want := kmsg.NewFindCoordinatorResponse()
		want.Version, want.ErrorCode, want.NodeID, want.Port = 3, int16(cluster.CoordinatorNotAvailable), -1, -1
		want.ErrorMessage = pointer("The coordinator is not available.")
		same(t, &want, resp)
	})
}
