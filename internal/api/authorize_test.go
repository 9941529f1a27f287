package api

import (
	"maps"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/record"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// withAuthorizer is a broker that refuses what no rule allows. The client is User:ANONYMOUS.
var withAuthorizer = map[string]string{"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}

// grant lets the client do an operation to a resource.
func (b *testBroker) grant(op acl.Operation, t acl.ResourceType, name string) {
	b.t.Helper()
	rule := acl.Binding{Pattern: acl.Pattern{Type: t, Name: name, Kind: acl.Literal},
		Entry: acl.Entry{Principal: "User:ANONYMOUS", Host: acl.Wildcard, Operation: op, Permission: acl.Allow}}
	if err := b.h.d.Authorizer.Create(b.ctx, []acl.Binding{rule})[0]; err != nil {
		b.t.Fatal(err)
	}
}

// revoke takes back every rule about an operation.
func (b *testBroker) revoke(op acl.Operation) {
	b.h.d.Authorizer.Delete(b.ctx, []acl.Filter{{Type: acl.AnyResource, Kind: acl.AnyPattern, Operation: op, Permission: acl.AnyPermission}})
}

const topicRefused, groupRefused, clusterRefused = cluster.TopicAuthorizationFailed, cluster.GroupAuthorizationFailed, cluster.ClusterAuthorizationFailed

// guardedRequest is a request, what it needs, and where its answer tells of a refusal.
type guardedRequest struct {
	version int16
	req     kmsg.Request
	op      acl.Operation
	on      acl.ResourceType
	refused cluster.ErrorCode
	code    func(resp kmsg.Response) int16
}

const guardedTopic, guardedGroup = "t", "g"

func guardedName(on acl.ResourceType) string {
	return map[acl.ResourceType]string{acl.Topic: guardedTopic, acl.Group: guardedGroup, acl.Cluster: acl.ClusterName}[on]
}

func guardedTopicRequests(t *testing.T) []guardedRequest {
	one := []string{guardedTopic}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: guardedTopic, Partitions: []kmsg.FetchRequestTopicPartition{kmsg.NewFetchRequestTopicPartition()}}}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: guardedTopic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{{Timestamp: -1, CurrentLeaderEpoch: -1}}}}
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: &one[0]}}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: guardedTopic, NumPartitions: 1, ReplicationFactor: 1}}
	remove := kmsg.NewPtrDeleteTopicsRequest()
	remove.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &one[0]}}
	add := kmsg.NewPtrCreatePartitionsRequest()
	add.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: guardedTopic, Count: 2}}
	records := kmsg.NewPtrDeleteRecordsRequest()
	records.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: guardedTopic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{}}}}
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epochs.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: guardedTopic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{{}}}}
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: guardedTopic, Partitions: []int32{0}}}
	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: guardedTopic}}
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: guardedTopic}}
	partitions := kmsg.NewPtrDescribeTopicPartitionsRequest()
	partitions.ResponsePartitionLimit = 10
	partitions.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: guardedTopic}}
	return []guardedRequest{
		{9, produceRequest(guardedTopic, 1, batch(t, record.BuilderOptions{}, "v")), acl.Write, acl.Topic, topicRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
		}},
		{12, fetch, acl.Read, acl.Topic, topicRefused, func(r kmsg.Response) int16 { return r.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode }},
		{7, list, acl.Describe, acl.Topic, topicRefused, func(r kmsg.Response) int16 { return r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode }},
		{12, metadata, acl.Describe, acl.Topic, topicRefused, func(r kmsg.Response) int16 { return r.(*kmsg.MetadataResponse).Topics[0].ErrorCode }},
		{7, create, acl.Create, acl.Topic, topicRefused, func(r kmsg.Response) int16 { return r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode }},
		{6, remove, acl.Delete, acl.Topic, topicRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode }},
		{3, add, acl.Alter, acl.Topic, topicRefused, func(r kmsg.Response) int16 { return r.(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode }},
		{2, records, acl.Delete, acl.Topic, topicRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0].ErrorCode
		}},
		{4, epochs, acl.Describe, acl.Topic, topicRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.OffsetForLeaderEpochResponse).Topics[0].Partitions[0].ErrorCode
		}},
		{0, producers, acl.Read, acl.Topic, topicRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ErrorCode
		}},
		{4, describe, acl.DescribeConfigs, acl.Topic, topicRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeConfigsResponse).Resources[0].ErrorCode }},
		{1, alter, acl.AlterConfigs, acl.Topic, topicRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode
		}},
		{0, partitions, acl.Describe, acl.Topic, topicRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeTopicPartitionsResponse).Topics[0].ErrorCode }},
	}
}

func guardedGroupRequests() []guardedRequest {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys = []string{guardedGroup}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group = guardedGroup
	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group = guardedGroup
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group = guardedGroup
	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group = guardedGroup
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{guardedGroup}
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{guardedGroup}
	forget := kmsg.NewPtrOffsetDeleteRequest()
	forget.Group = guardedGroup
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group = guardedGroup
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: guardedTopic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{}}}}
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Groups = []kmsg.OffsetFetchRequestGroup{{Group: guardedGroup}}
	return []guardedRequest{
		{4, find, acl.Describe, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode }},
		{9, join, acl.Read, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.JoinGroupResponse).ErrorCode }},
		{5, sync, acl.Read, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.SyncGroupResponse).ErrorCode }},
		{4, beat, acl.Read, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.HeartbeatResponse).ErrorCode }},
		{5, leave, acl.Read, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.LeaveGroupResponse).ErrorCode }},
		{5, describe, acl.Describe, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeGroupsResponse).Groups[0].ErrorCode }},
		{2, remove, acl.Delete, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode }},
		{0, forget, acl.Delete, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.OffsetDeleteResponse).ErrorCode }},
		{8, commit, acl.Read, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode }},
		{8, fetch, acl.Describe, acl.Group, groupRefused, func(r kmsg.Response) int16 { return r.(*kmsg.OffsetFetchResponse).Groups[0].ErrorCode }},
	}
}

func guardedClusterRequests() []guardedRequest {
	acls := kmsg.NewPtrDescribeACLsRequest()
	acls.ResourceType, acls.ResourcePatternType, acls.Operation, acls.PermissionType = 1, 1, 1, 1
	create := kmsg.NewPtrCreateACLsRequest()
	create.Creations = []kmsg.CreateACLsRequestCreation{{ResourceType: 2, ResourceName: "x", ResourcePatternType: 3, Principal: "User:u", Host: "*", Operation: 3, PermissionType: 3}}
	remove := kmsg.NewPtrDeleteACLsRequest()
	remove.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: 7, ResourcePatternType: 3, Operation: 1, PermissionType: 1}}
	broker := kmsg.NewPtrDescribeConfigsRequest()
	broker.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "0"}}
	loggers := kmsg.NewPtrDescribeConfigsRequest()
	loggers.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBrokerLogger, ResourceName: "0"}}
	levels := kmsg.NewPtrIncrementalAlterConfigsRequest()
	levels.Resources = []kmsg.IncrementalAlterConfigsRequestResource{changes(kmsg.ConfigResourceTypeBrokerLogger, "0", set("root", "WARN"))}
	alter := kmsg.NewPtrAlterConfigsRequest()
	scramAlter := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	scramAlter.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "u", Mechanism: 1}}
	quotas := kmsg.NewPtrAlterClientQuotasRequest()
	quotas.Entries = []kmsg.AlterClientQuotasRequestEntry{{Entity: []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: new("u")}}}}
	alter.Resources = []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "0"}}
	move := kmsg.NewPtrAlterReplicaLogDirsRequest()
	move.Dirs = []kmsg.AlterReplicaLogDirsRequestDir{{Dir: "/nowhere", Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: "t", Partitions: []int32{0}}}}}
	return []guardedRequest{
		{2, move, acl.Alter, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.AlterReplicaLogDirsResponse).Topics[0].Partitions[0].ErrorCode
		}},
		{3, acls, acl.Describe, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeACLsResponse).ErrorCode }},
		{3, create, acl.Alter, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.CreateACLsResponse).Results[0].ErrorCode }},
		{3, remove, acl.Alter, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DeleteACLsResponse).Results[0].ErrorCode }},
		{5, kmsg.NewPtrDescribeLogDirsRequest(), acl.Describe, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeLogDirsResponse).ErrorCode }},
		{4, broker, acl.DescribeConfigs, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeConfigsResponse).Resources[0].ErrorCode }},
		{4, loggers, acl.DescribeConfigs, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.DescribeConfigsResponse).Resources[0].ErrorCode }},
		{1, levels, acl.AlterConfigs, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode
		}},
		{2, alter, acl.AlterConfigs, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.AlterConfigsResponse).Resources[0].ErrorCode }},
		{1, kmsg.NewPtrDescribeClientQuotasRequest(), acl.DescribeConfigs, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.DescribeClientQuotasResponse).ErrorCode
		}},
		{1, quotas, acl.AlterConfigs, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.AlterClientQuotasResponse).Entries[0].ErrorCode }},
		{0, kmsg.NewPtrAlterPartitionAssignmentsRequest(), acl.Alter, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.AlterPartitionAssignmentsResponse).ErrorCode
		}},
		{0, kmsg.NewPtrListPartitionReassignmentsRequest(), acl.Describe, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.ListPartitionReassignmentsResponse).ErrorCode
		}},
		{1, kmsg.NewPtrUpdateFeaturesRequest(), acl.Alter, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.UpdateFeaturesResponse).ErrorCode }},
		{0, kmsg.NewPtrDescribeUserSCRAMCredentialsRequest(), acl.Describe, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.DescribeUserSCRAMCredentialsResponse).ErrorCode
		}},
		{0, scramAlter, acl.Alter, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 {
			return r.(*kmsg.AlterUserSCRAMCredentialsResponse).Results[0].ErrorCode
		}},
		{2, kmsg.NewPtrElectLeadersRequest(), acl.Alter, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.ElectLeadersResponse).ErrorCode }},
		{4, kmsg.NewPtrInitProducerIDRequest(), acl.IdempotentWrite, acl.Cluster, clusterRefused, func(r kmsg.Response) int16 { return r.(*kmsg.InitProducerIDResponse).ErrorCode }},
	}
}

// Each request is refused until the one permission is granted that Kafka 3.9's KafkaApis asks for, and not after.
func TestEachRequestNeedsItsPermission(t *testing.T) {
	requests := append(append(guardedTopicRequests(t), guardedGroupRequests()...), guardedClusterRequests()...)
	for _, g := range requests {
		inBubble(t, withAuthorizer, func(b *testBroker) {
			b.lead(guardedTopic, 1)
			if got := g.code(b.do(g.version, g.req)); got != int16(g.refused) {
				t.Errorf("%T: %v without a permission, want %v", g.req, cluster.ErrorCode(got), g.refused)
			}
			b.grant(g.op, g.on, guardedName(g.on))
			if got := g.code(b.do(g.version, g.req)); got == int16(g.refused) {
				t.Errorf("%T: %v though %v on %v is granted", g.req, g.refused, g.op, g.on)
			}
		})
	}
}

// A request that is served without an entry above or here would be open to everybody.
func TestNoServedRequestIsLeftOutOfAuthorization(t *testing.T) {
	elsewhere := map[int16]string{
		kmsg.OffsetCommit.Int16():            "TestEachRequestNeedsItsPermission",
		kmsg.DescribeCluster.Int16():         "open to all; operations by permission",
		kmsg.CreateDelegationToken.Int16():   "by who is known; CREATE_TOKENS for others: TestTokens... of node",
		kmsg.RenewDelegationToken.Int16():    "by owner and renewers",
		kmsg.ExpireDelegationToken.Int16():   "by owner and renewers",
		kmsg.DescribeDelegationToken.Int16(): "shows what may be described",
		kmsg.ListGroups.Int16():              "shows what may be described",
	}
	inBubble(t, withAuthorizer, func(b *testBroker) {
		guarded := map[int16]bool{}
		for _, g := range append(append(guardedTopicRequests(t), guardedGroupRequests()...), guardedClusterRequests()...) {
			guarded[g.req.Key()] = true
		}
		for _, a := range b.h.apis() {
			if key := a.key.Int16(); a.scope != wire.InterBrokerOnly && !guarded[key] && elsewhere[key] == "" {
				t.Errorf("%s: which permission does it need?", a.key.Name())
			}
		}
	})
}

func TestTheControllersRequestsNeedClusterAction(t *testing.T) {
	codes := map[kmsg.Request]func(kmsg.Response) int16{
		kmsg.NewPtrLeaderAndISRRequest():        func(r kmsg.Response) int16 { return r.(*kmsg.LeaderAndISRResponse).ErrorCode },
		kmsg.NewPtrStopReplicaRequest():         func(r kmsg.Response) int16 { return r.(*kmsg.StopReplicaResponse).ErrorCode },
		kmsg.NewPtrUpdateMetadataRequest():      func(r kmsg.Response) int16 { return r.(*kmsg.UpdateMetadataResponse).ErrorCode },
		kmsg.NewPtrAlterPartitionRequest():      func(r kmsg.Response) int16 { return r.(*kmsg.AlterPartitionResponse).ErrorCode },
		kmsg.NewPtrAllocateProducerIDsRequest(): func(r kmsg.Response) int16 { return r.(*kmsg.AllocateProducerIDsResponse).ErrorCode },
	}
	inBubble(t, withAuthorizer, func(b *testBroker) {
		inter := b.dial("b0:9093", "0")
		b.closers = append(b.closers, inter)
		for _, granted := range []bool{false, true} {
			if granted {
				b.grant(acl.ClusterAction, acl.Cluster, acl.ClusterName)
			}
			for req, code := range codes {
				_, top, _ := b.h.d.Table.Range(req.Key(), true)
				if got := cluster.ErrorCode(code(b.doOn(inter, top, req))); (got == clusterRefused) == granted {
					t.Errorf("%T: %v with the permission %v", req, got, granted)
				}
			}
		}
	})
}

// R26: what a client may not describe looks the same whether it exists or not.
func TestWhatAClientMayNotDescribeIsHidden(t *testing.T) {
	inBubble(t, withAuthorizer, func(b *testBroker) {
		b.lead("hidden", 1)
		b.lead("seen", 1)
		b.grant(acl.Read, acl.Topic, "seen") // implies DESCRIBE
		ask := func(names ...string) []kmsg.MetadataResponseTopic {
			req := kmsg.NewPtrMetadataRequest()
			for _, n := range names {
				req.Topics = append(req.Topics, kmsg.MetadataRequestTopic{Topic: &n})
			}
			req.AllowAutoTopicCreation, req.IncludeTopicAuthorizedOperations = true, true
			return b.do(12, req).(*kmsg.MetadataResponse).Topics
		}
		denied := func(name string) kmsg.MetadataResponseTopic {
			w := kmsg.NewMetadataResponseTopic()
			w.ErrorCode, w.Topic = int16(topicRefused), &name
			return w
		}
		same(t, []kmsg.MetadataResponseTopic{denied("hidden"), denied("absent")}, ask("hidden", "absent"))
		all := ask()
		if len(all) != 1 || *all[0].Topic != "seen" || all[0].AuthorizedOperations != 1<<acl.Read|1<<acl.Describe {
			t.Errorf("all topics are %+v", all)
		}
	})
}

// R26: without an authorizer an unknown topic is error 3.
func TestWithoutAnAuthorizerAnUnknownTopicIsUnknown(t *testing.T) {
	inBubble(t, map[string]string{"auto.create.topics.enable": "false"}, func(b *testBroker) {
		name := "absent"
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
		if got := b.do(12, req).(*kmsg.MetadataResponse).Topics[0].ErrorCode; got != int16(cluster.UnknownTopicOrPartition) {
			t.Errorf("code %v", cluster.ErrorCode(got))
		}
	})
}

// R26: an id does not buy its topic's name. The answers are those of ../shared/traces/cli/authorizer.txt.
func TestDeletionByIDDoesNotRevealTheName(t *testing.T) {
	inBubble(t, withAuthorizer, func(b *testBroker) {
		hidden, secret := b.lead("hidden", 1), b.lead("secret", 1)
		b.grant(acl.Describe, acl.Topic, "secret")
		for _, c := range []struct {
			id   cluster.TopicID
			name *string
		}{{hidden, nil}, {secret, new("secret")}} {
			req := kmsg.NewPtrDeleteTopicsRequest()
			req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: c.id}}
			want := kmsg.NewDeleteTopicsResponseTopic()
			want.Topic, want.TopicID, want.ErrorCode = c.name, c.id, int16(topicRefused)
			same(t, []kmsg.DeleteTopicsResponseTopic{want}, b.do(6, req).(*kmsg.DeleteTopicsResponse).Topics)
		}
		synctest.Wait()
		if _, ok := b.inStore("secret"); !ok {
			t.Error("the topic was deleted all the same")
		}
	})
}

// R26, KAFKA-2700: rules outlive the topic that they name, and count for the next of its name.
func TestRulesOutliveTheirTopic(t *testing.T) {
	inBubble(t, withAuthorizer, func(b *testBroker) {
		b.lead("t", 1)
		b.grant(acl.All, acl.Topic, "t")
		name := "t"
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TimeoutMillis, req.Topics = 5000, []kmsg.DeleteTopicsRequestTopic{{Topic: &name}}
		if got := b.do(6, req).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; got != 0 {
			t.Fatalf("delete: %v", cluster.ErrorCode(got))
		}
		synctest.Wait()
		if n := b.h.d.Authorizer.PatternsNaming(acl.Topic, "t"); n != 1 {
			t.Errorf("%d rules left, want 1", n)
		}
	})
}

func TestCreatedConfigsAreHiddenFromWhoMayNotDescribeThem(t *testing.T) {
	inBubble(t, withAuthorizer, func(b *testBroker) {
		b.grant(acl.Create, acl.Cluster, acl.ClusterName)
		req := kmsg.NewPtrCreateTopicsRequest()
		req.TimeoutMillis = 5000
		req.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
		got := b.do(7, req).(*kmsg.CreateTopicsResponse).Topics[0]
		if got.ErrorCode != 0 || got.ConfigErrorCode != int16(topicRefused) || got.NumPartitions != -1 || len(got.Configs) != 0 {
			t.Errorf("answer is %+v", got)
		}
	})
}

func TestOffsetsOfHiddenTopicsAreNotTold(t *testing.T) {
	properties := maps.Clone(groupProperties)
	maps.Copy(properties, withAuthorizer)
	inBubble(t, properties, func(b *testBroker) {
		b.lead(cluster.GroupOffsetsTopic, 5)
		b.grant(acl.Read, acl.Group, "g")
		b.grant(acl.Read, acl.Topic, "seen")
		b.lead("seen", 1)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", Topics: []kmsg.OffsetFetchRequestGroupTopic{
			{Topic: "seen", Partitions: []int32{0}}, {Topic: "hidden", Partitions: []int32{0}}}}}
		got := map[string]int16{}
		resp := b.do(8, req).(*kmsg.OffsetFetchResponse).Groups[0]
		for _, tt := range resp.Topics {
			got[tt.Topic] = tt.Partitions[0].ErrorCode
		}
		if resp.ErrorCode != 0 || len(got) != 2 || got["seen"] != 0 || got["hidden"] != int16(topicRefused) {
			t.Errorf("code %v, topics %v", resp.ErrorCode, got)
		}
	})
}

func TestWithoutAnAuthorizerThereAreNoRules(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		describe := kmsg.NewPtrDescribeACLsRequest()
		describe.ResourceType, describe.ResourcePatternType, describe.Operation, describe.PermissionType = 1, 1, 1, 1
		got := b.do(3, describe).(*kmsg.DescribeACLsResponse)
		b.wantCode("describe", got.ErrorCode, cluster.SecurityDisabled)
		if text(got.ErrorMessage) != "No Authorizer is configured on the broker" {
			t.Errorf("message %q", text(got.ErrorMessage))
		}
		create := kmsg.NewPtrCreateACLsRequest()
		create.Creations = make([]kmsg.CreateACLsRequestCreation, 2)
		for _, res := range b.do(3, create).(*kmsg.CreateACLsResponse).Results {
			b.wantCode("create", res.ErrorCode, cluster.SecurityDisabled)
		}
	})
}

// KIP-290: what a rule cannot be is refused by itself, the rules beside it are made.
func TestRulesAreJudgedOneByOne(t *testing.T) {
	inBubble(t, withAuthorizer, func(b *testBroker) {
		b.grant(acl.Alter, acl.Cluster, acl.ClusterName) // implies DESCRIBE
		good := kmsg.CreateACLsRequestCreation{ResourceType: 2, ResourceName: "t", ResourcePatternType: 4, Principal: "User:u", Host: "*", Operation: 3, PermissionType: 3}
		cluster2, matching := good, good
		cluster2.ResourceType, matching.ResourcePatternType = 4, 2
		create := kmsg.NewPtrCreateACLsRequest()
		create.Creations = []kmsg.CreateACLsRequestCreation{cluster2, good, matching}
		var codes []cluster.ErrorCode
		for _, res := range b.do(3, create).(*kmsg.CreateACLsResponse).Results {
			codes = append(codes, cluster.ErrorCode(res.ErrorCode))
		}
		same(t, []cluster.ErrorCode{cluster.InvalidRequest, cluster.None, cluster.InvalidRequest}, codes)

		describe := kmsg.NewPtrDescribeACLsRequest()
		describe.ResourceType, describe.ResourceName, describe.ResourcePatternType, describe.Operation, describe.PermissionType = 2, new("topic"), 2, 1, 1
		want := kmsg.NewDescribeACLsResponseResource()
		want.ResourceType, want.ResourceName, want.ResourcePatternType = 2, "t", 4
		want.ACLs = []kmsg.DescribeACLsResponseResourceACL{{Principal: "User:u", Host: "*", Operation: 3, PermissionType: 3}}
		same(t, []kmsg.DescribeACLsResponseResource{want}, b.do(3, describe).(*kmsg.DescribeACLsResponse).Resources)

		remove := kmsg.NewPtrDeleteACLsRequest()
		remove.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: 2, ResourcePatternType: 1, Operation: 1, PermissionType: 1},
			{ResourceType: 9, ResourcePatternType: 1, Operation: 1, PermissionType: 1}}
		results := b.do(3, remove).(*kmsg.DeleteACLsResponse).Results
		if len(results[0].MatchingACLs) != 1 || results[0].ErrorCode != 0 || results[1].ErrorCode != int16(cluster.InvalidRequest) {
			t.Errorf("deleted %+v", results)
		}
		if left := b.do(3, describe).(*kmsg.DescribeACLsResponse).Resources; len(left) != 0 {
			t.Errorf("left are %+v", left)
		}
	})
}
