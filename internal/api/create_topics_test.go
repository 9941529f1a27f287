package api

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

func ptr[T any](v T) *T { return &v }

// newTopic is a topic of a CreateTopics request; opts change it.
func newTopic(name string, partitions int32, rf int16, opts ...func(*kmsg.CreateTopicsRequestTopic)) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, rf
	for _, o := range opts {
		o(&t)
	}
	return t
}

func withConfig(key string, value *string) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		t.Configs = append(t.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: key, Value: value})
	}
}

func withReplicas(partition int32, replicas ...int32) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: partition, Replicas: replicas})
	}
}

func createRequest(timeoutMs int32, topics ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = topics, timeoutMs
	return req
}

// failedTopic is the answer to a topic that was not created.
func failedTopic(name string, code cluster.ErrorCode, message string) kmsg.CreateTopicsResponseTopic {
	return createTopicError(name, answerError{code, message})
}

func TestCreateTopicsRefusesInKafkasOrderAndWords(t *testing.T) {
	long := string(make([]byte, 250))
	for _, c := range []struct {
		name  string
		topic kmsg.CreateTopicsRequestTopic
		code  cluster.ErrorCode
		text  string
	}{
		{"a known topic comes before everything else", newTopic("known", 0, 0, withConfig("nope", nil), withReplicas(0, 9)),
			cluster.TopicAlreadyExists, "Topic 'known' already exists."},
		{"a null config comes before bad numbers", newTopic("n", 0, 0, withConfig("retention.ms", nil), withConfig("x", nil)),
			cluster.InvalidConfig, "Null value not supported for topic configs: retention.ms,x"},
		{"numbers and an assignment", newTopic("n", 1, -1, withReplicas(0, 0)), cluster.InvalidRequest,
			"Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same time."},
		{"no partitions comes before a bad name", newTopic("bad name", 0, 1), cluster.InvalidPartitions, "Number of partitions must be larger than 0."},
		{"negative partitions", newTopic("n", -2, 1), cluster.InvalidPartitions, "Number of partitions must be larger than 0."},
		{"no replicas", newTopic("n", 1, 0), cluster.InvalidReplicationFactor, "Replication factor must be larger than 0."},
		{"more replicas than brokers", newTopic("n", 1, 9), cluster.InvalidReplicationFactor, "Replication factor: 9 larger than available brokers: 3."},
		{"an absurd number of partitions", newTopic("n", 1<<30, 1), cluster.InvalidPartitions, "One request can create at most 100000 partitions."},
		{"a bad name", newTopic("bad name", 1, 1), cluster.InvalidTopicException,
			"Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		{"an empty name", newTopic("", 1, 1), cluster.InvalidTopicException, "Topic name is invalid: the empty string is not allowed"},
		{"two dots", newTopic("..", 1, 1), cluster.InvalidTopicException, "Topic name is invalid: '..' is not allowed"},
		{"a path", newTopic("a/../b", 1, 1), cluster.InvalidTopicException,
			"Topic name is invalid: 'a/../b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		{"a long name", newTopic(long, 1, 1), cluster.InvalidTopicException,
			"Topic name is invalid: the length of '" + long + "' is longer than the max allowed length 249"},
		{"a topic being deleted", newTopic("marked", 1, 1), cluster.TopicAlreadyExists, "Topic 'marked' is marked for deletion."},
		{"a topic that only the store knows", newTopic("hidden", 1, 1), cluster.TopicAlreadyExists, "Topic 'hidden' already exists."},
		{"a collision", newTopic("a_b_c", 1, 1), cluster.InvalidTopicException, "Topic 'a_b_c' collides with existing topics: a.b_c"},
		{"uneven replica lists", newTopic("n", -1, -1, withReplicas(0, 0, 1), withReplicas(1, 0)), cluster.InvalidReplicaAssignment,
			"All partitions should have the same number of replicas"},
		{"a replica twice", newTopic("n", -1, -1, withReplicas(0, 1, 1)), cluster.InvalidReplicaAssignment,
			"Duplicate replica assignment found: Map(0 -> (1, 1))"},
		{"a gap in the partitions", newTopic("n", -1, -1, withReplicas(0, 0), withReplicas(2, 1)), cluster.InvalidReplicaAssignment,
			"partitions should be a consecutive 0-based integer sequence"},
		{"a broker that is not live", newTopic("n", -1, -1, withReplicas(0, 9, 1), withReplicas(1, 2, 8)), cluster.InvalidReplicaAssignment,
			"Replica assignment names brokers that are not live: 8, 9. Live brokers: 0, 1, 2."},
		{"no replicas by hand", newTopic("n", -1, -1, withReplicas(0)), cluster.InvalidReplicaAssignment, "Every partition needs at least one replica."},
		{"an unknown config (R25)", newTopic("n", 1, 1, withConfig("no.such", ptr("1"))), cluster.InvalidConfig, "Unknown topic config name: no.such"},
		{"a bad config value", newTopic("n", 1, 1, withConfig("retention.ms", ptr("abc"))), cluster.InvalidConfig,
			"Invalid value abc for configuration retention.ms: Not a number of type LONG"},
		{"KRaft's own topic", newTopic("__cluster_metadata", 1, 1), cluster.InvalidRequest, "Creation of internal topic __cluster_metadata is prohibited."},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				b.topic("known", []cluster.BrokerID{0})
				b.topic("a.b_c", []cluster.BrokerID{0})
				b.ctl.announces.Store(false)
				b.topic("hidden", []cluster.BrokerID{0})
				b.put(coord.Create(coord.DeleteTopicPath("marked"), nil))
				want := createRequest(0).ResponseKind().(*kmsg.CreateTopicsResponse)
				want.Version = 7
				want.Topics = []kmsg.CreateTopicsResponseTopic{failedTopic(c.topic.Topic, c.code, c.text)}
				before := b.engine.Dump()
				same(t, want, b.do(7, createRequest(10_000, c.topic)).(*kmsg.CreateTopicsResponse))
				if after := b.engine.Dump(); len(after) != len(before) {
					t.Errorf("the refusal changed the store from %d to %d nodes", len(before), len(after))
				}
			})
		})
	}
}

func TestCreateTopicsWaitsForTheEndOfADeletionOfTheName(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.announces.Store(false)
		b.put(coord.Create(coord.DeleteTopicPath("again"), nil))
		began := time.Now()
		gone := time.AfterFunc(300*time.Millisecond, func() {
			b.ctl.announces.Store(true)
			b.put(coord.Delete(coord.DeleteTopicPath("again"), coord.AnyVersion))
		})
		defer gone.Stop()
		got := b.do(7, createRequest(30_000, newTopic("again", 1, 1), newTopic("bad name", 1, 1))).(*kmsg.CreateTopicsResponse)
		if got.Topics[0].ErrorCode != 0 || got.Topics[1].ErrorCode != int16(cluster.InvalidTopicException) {
			t.Errorf("answered with %d and %d", got.Topics[0].ErrorCode, got.Topics[1].ErrorCode)
		}
		if took := time.Since(began); took < 300*time.Millisecond || took > 400*time.Millisecond {
			t.Errorf("answered after %v", took)
		}
	})
}

func TestCreateTopicsRefusesANameWhoseDeletionDoesNotEnd(t *testing.T) {
	for _, c := range []struct {
		name         string
		timeout      int32
		validateOnly bool
		want         time.Duration
	}{
		{"after two seconds", 30_000, false, deletionGrace},
		{"within the request's timeout", 500, false, 500 * time.Millisecond},
		{"at once without a timeout", 0, false, 0},
		{"at once when only validating", 30_000, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				b.ctl.announces.Store(false)
				b.ctl.blocked.Store(true)
				b.put(coord.Create(coord.DeleteTopicPath("stuck"), nil))
				req := createRequest(c.timeout, newTopic("stuck", 1, 1))
				req.ValidateOnly = c.validateOnly
				began := time.Now()
				got := b.do(7, req).(*kmsg.CreateTopicsResponse).Topics[0]
				if got.ErrorCode != int16(cluster.TopicAlreadyExists) || *got.ErrorMessage != "Topic 'stuck' is marked for deletion." {
					t.Errorf("answered with %d", got.ErrorCode)
				}
				if took := time.Since(began); took < c.want || took > c.want+2*deletionPoll {
					t.Errorf("answered after %v, want %v", took, c.want)
				}
			})
		})
	}
}

// R01: while a broker that died unnoticed is waited for, a creation waits too; once the deletion is blocked it is refused.
func TestCreateTopicsWaitsForADeletionThatIsUnderWay(t *testing.T) {
	for _, ends := range []bool{true, false} {
		inBubble(t, nil, func(b *testBroker) {
			b.ctl.announces.Store(false)
			b.put(coord.Create(coord.DeleteTopicPath("slow"), nil))
			began := time.Now()
			timer := time.AfterFunc(9*time.Second, func() {
				if ends {
					b.ctl.announces.Store(true)
					b.put(coord.Delete(coord.DeleteTopicPath("slow"), coord.AnyVersion))
				} else {
					b.ctl.blocked.Store(true)
				}
			})
			defer timer.Stop()
			got := b.do(7, createRequest(30_000, newTopic("slow", 1, 1))).(*kmsg.CreateTopicsResponse).Topics[0]
			want := cluster.None
			if !ends {
				want = cluster.TopicAlreadyExists
			}
			if took := time.Since(began); cluster.ErrorCode(got.ErrorCode) != want || took < 9*time.Second || took > 9*time.Second+2*deletionSlowPoll {
				t.Errorf("error %d after %v, want %s", got.ErrorCode, took, want)
			}
		})
	}
}

func TestCreateTopicsElsewhereIsNotController(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.active.Store(false)
		for version := int16(0); version <= 7; version++ {
			want := kmsg.NewPtrCreateTopicsResponse()
			want.Version = version
			want.Topics = []kmsg.CreateTopicsResponseTopic{failedTopic("a", cluster.NotController, ""), failedTopic("b", cluster.NotController, "")}
			if version < 5 { // not in these versions: the decoder's defaults
				for i := range want.Topics {
					want.Topics[i].Configs = nil
				}
			}
			same(t, want, b.do(version, createRequest(1000, newTopic("a", 1, 1), newTopic("b", 1, 1))).(*kmsg.CreateTopicsResponse))
		}
	})
}

func TestCreateTopicsAnswersWhenTheTopicHasLeaders(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		got := b.do(7, createRequest(30_000, newTopic("t", 3, 2, withConfig("cleanup.policy", ptr("compact"))))).(*kmsg.CreateTopicsResponse)
		stored, ok := b.inStore("t")
		if !ok || stored.ID.IsZero() {
			t.Fatalf("topic is in the store: %v, with id %v", ok, stored.ID)
		}
		created := got.Topics[0]
		if created.ErrorCode != 0 || created.NumPartitions != 3 || created.ReplicationFactor != 2 || cluster.TopicID(created.TopicID) != stored.ID {
			t.Errorf("answer is %+v, the stored id %v", created, stored.ID)
		}
		same(t, map[int32]cluster.ReplicaAssignment{
			0: {Replicas: []cluster.BrokerID{0, 1}}, 1: {Replicas: []cluster.BrokerID{1, 2}}, 2: {Replicas: []cluster.BrokerID{2, 0}}}, stored.Partitions)
		same(t, map[string]string{"cleanup.policy": "compact"}, b.storedConfig(coord.TopicConfigs, "t"))
		if !hasLeaders(b.cache.Image(), "t", stored.ID, 3) {
			t.Error("answered before the cache had the leaders")
		}
		// R25: the answer has the whole config.
		entries := b.config.DescribeTopicWith(map[string]string{"cleanup.policy": "compact"}, nil)
		same(t, createdConfigs(entries), created.Configs)
	})
}

func TestCreateTopicsTakesBrokerDefaultsForMinusOne(t *testing.T) {
	inBubble(t, map[string]string{"num.partitions": "4", "default.replication.factor": "2"}, func(b *testBroker) {
		for version := int16(0); version <= 7; version++ { // R25: the server does it in every version
			name := fmt.Sprintf("t%d", version)
			got := b.do(version, createRequest(30_000, newTopic(name, -1, -1))).(*kmsg.CreateTopicsResponse)
			stored, _ := b.inStore(name)
			if got.Topics[0].ErrorCode != 0 || len(stored.Partitions) != 4 || len(stored.Partitions[0].Replicas) != 2 {
				t.Errorf("version %d: answer %+v, stored %+v", version, got.Topics[0], stored)
			}
		}
	})
}

func TestCreateTopicsWithoutTimeAnswersAtOnceAndCreates(t *testing.T) {
	for _, timeoutMs := range []int32{0, -1} {
		inBubble(t, nil, func(b *testBroker) {
			b.ctl.announces.Store(false)
			start := time.Now()
			got := b.do(7, createRequest(timeoutMs, newTopic("t", 1, 1), newTopic("bad name", 1, 1))).(*kmsg.CreateTopicsResponse)
			stored, ok := b.inStore("t")
			first := failedTopic("t", cluster.RequestTimedOut, "")
			first.TopicID = stored.ID
			want := kmsg.NewPtrCreateTopicsResponse()
			want.Version = 7
			want.Topics = []kmsg.CreateTopicsResponseTopic{first, failedTopic("bad name", cluster.InvalidTopicException,
				"Topic name is invalid: 'bad name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")}
			same(t, want, got)
			if !ok || time.Since(start) != 0 {
				t.Errorf("topic is in the store: %v, after %v", ok, time.Since(start))
			}
		})
	}
}

func TestCreateTopicsTimesOutAndStaysCreated(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.announces.Store(false)
		start := time.Now()
		got := b.do(4, createRequest(5000, newTopic("t", 1, 1))).(*kmsg.CreateTopicsResponse)
		if _, ok := b.inStore("t"); !ok || got.Topics[0].ErrorCode != int16(cluster.RequestTimedOut) || time.Since(start) != 5*second {
			t.Errorf("topic is in the store: %v, code %d, after %v", ok, got.Topics[0].ErrorCode, time.Since(start))
		}
	})
}

func TestCreateTopicsValidatesOnly(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		req := createRequest(30_000, newTopic("t", 2, 1), newTopic("u", 1, 9))
		req.ValidateOnly = true
		got := b.do(7, req).(*kmsg.CreateTopicsResponse)
		if _, ok := b.inStore("t"); ok || got.Topics[0].ErrorCode != 0 || got.Topics[0].NumPartitions != 2 || got.Topics[0].TopicID != [16]byte{} {
			t.Errorf("created: %v, answer %+v", ok, got.Topics[0])
		}
		same(t, failedTopic("u", cluster.InvalidReplicationFactor, "Replication factor: 9 larger than available brokers: 3."), got.Topics[1])
	})
}

func TestCreateTopicsRefusesANameThatIsThereTwice(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		got := b.do(7, createRequest(30_000, newTopic("t", 1, 1), newTopic("u", 1, 1), newTopic("t", 2, 1))).(*kmsg.CreateTopicsResponse)
		twice := failedTopic("t", cluster.InvalidRequest, "Found multiple entries for this topic.")
		same(t, twice, got.Topics[0])
		same(t, twice, got.Topics[2])
		if got.Topics[1].ErrorCode != 0 {
			t.Errorf("the other topic has %+v", got.Topics[1])
		}
	})
}

func TestCreateTopicsSeesCollisionsWithinARequest(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		got := b.do(7, createRequest(30_000, newTopic("x.y", 1, 1), newTopic("x_y", 1, 1))).(*kmsg.CreateTopicsResponse)
		if got.Topics[0].ErrorCode != 0 {
			t.Errorf("the first has %+v", got.Topics[0])
		}
		same(t, failedTopic("x_y", cluster.InvalidTopicException, "Topic 'x_y' collides with existing topics: x.y"), got.Topics[1])
	})
}

func TestCreateTopicsOfAThousandTopicsIsAFewStoreCalls(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		var topics []kmsg.CreateTopicsRequestTopic
		for i := range 1000 {
			topics = append(topics, newTopic(fmt.Sprintf("topic-%d", i), 2, 3))
		}
		b.calls.Store(0)
		got := b.do(7, createRequest(30_000, topics...)).(*kmsg.CreateTopicsResponse)
		for _, c := range got.Topics {
			if c.ErrorCode != 0 {
				t.Fatalf("%s: %v", c.Topic, cluster.ErrorCode(c.ErrorCode))
			}
		}
		if n := b.calls.Load(); n > 6 {
			t.Errorf("took %d store calls", n)
		}
	})
}

func TestCreateTopicsWhoseAnswerFromTheStoreWasLost(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.store.SetHook(func(c memstore.Call) memstore.Fault { return memstore.Fault{LoseAnswer: c.Method == "Multi"} })
		got := b.do(7, createRequest(30_000, newTopic("t", 1, 1))).(*kmsg.CreateTopicsResponse)
		if got.Topics[0].ErrorCode != 0 {
			t.Errorf("applied and answered %v", cluster.ErrorCode(got.Topics[0].ErrorCode))
		}
	})
}

func TestCreateTopicsLosesARaceWithoutLeavingItsConfig(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.store.SetHook(func(c memstore.Call) memstore.Fault {
			if c.Method == "Multi" { // another broker creates the topic between our check and our write
				b.store.SetHook(nil)
				b.put(coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, "t"), coord.EncodeConfig(map[string]string{"retention.ms": "1"})),
					coord.Create(coord.TopicPath("t"), coord.EncodeTopic(coord.Topic{ID: cluster.NewTopicID(),
						Partitions: map[int32]cluster.ReplicaAssignment{0: {Replicas: []cluster.BrokerID{1}}}})))
			}
			return memstore.Fault{}
		})
		got := b.do(7, createRequest(30_000, newTopic("t", 1, 1, withConfig("retention.ms", ptr("2"))), newTopic("u", 1, 1))).(*kmsg.CreateTopicsResponse)
		same(t, failedTopic("t", cluster.TopicAlreadyExists, "Topic 't' already exists."), got.Topics[0])
		same(t, map[string]string{"retention.ms": "1"}, b.storedConfig(coord.TopicConfigs, "t"))
		if _, ok := b.inStore("u"); !ok || got.Topics[1].ErrorCode != 0 {
			t.Errorf("the other topic of the transaction: stored %v, %+v", ok, got.Topics[1])
		}
	})
}

func TestCreateTopicsWithoutAStoreFails(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.store.Disconnect()
		got := b.do(7, createRequest(30_000, newTopic("t", 1, 1))).(*kmsg.CreateTopicsResponse)
		same(t, failedTopic("t", cluster.UnknownServerError, ""), got.Topics[0])
	})
}

func TestCreateTopicsWaitsForItsOwnTopicNotForTheName(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.announces.Store(false)
		done := make(chan *kmsg.CreateTopicsResponse, 1)
		go func() { done <- b.do(7, createRequest(5000, newTopic("t", 1, 1))).(*kmsg.CreateTopicsResponse) }()
		synctest.Wait()
		b.ctl.announce([]kmsg.UpdateMetadataRequestTopicState{b.ctl.state("t", coord.Topic{ID: cluster.NewTopicID(),
			Partitions: map[int32]cluster.ReplicaAssignment{0: {Replicas: []cluster.BrokerID{0}}}}, false)})
		if got := <-done; got.Topics[0].ErrorCode != int16(cluster.RequestTimedOut) {
			t.Errorf("an older topic of the name satisfied the wait: %+v", got.Topics[0])
		}
	})
}

// The controller's broker stops while a topic that was written has no leaders yet: its client is told that the topic is there.
// R20: who creates a topic or partitions may use them at once, at any broker: the answer comes when all have been told, except those that do not
// answer the controller.
func TestCreationsAreAnsweredWhenTheBrokersHaveBeenTold(t *testing.T) {
	for name, tc := range map[string]struct {
		timeoutMs int32
		hearAfter time.Duration // 0: never
		want      time.Duration
	}{
		"they answer after a while": {30_000, 200 * time.Millisecond, 200 * time.Millisecond},
		"one does not answer":       {30_000, 0, toldWaitMax},
		"nor within the timeout":    {100, 0, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				told := func(what string, ask func() int16) {
					t.Helper()
					b.ctl.deafen()
					if tc.hearAfter > 0 {
						hear := time.AfterFunc(tc.hearAfter, b.ctl.hear)
						defer hear.Stop()
					}
					began := time.Now()
					code := cluster.ErrorCode(ask())
					if took := time.Since(began); code != cluster.None || took != tc.want {
						t.Errorf("%s: %v after %v, want %v after %v", what, code, took, cluster.None, tc.want)
					}
					b.ctl.hear()
				}
				told("create topics", func() int16 {
					return b.do(7, createRequest(tc.timeoutMs, newTopic("t", 1, 1))).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
				})
				told("create partitions", func() int16 {
					req := kmsg.NewPtrCreatePartitionsRequest()
					req.TimeoutMillis = tc.timeoutMs
					req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "t", Count: 3}}
					return b.do(3, req).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode
				})
			})
		})
	}
}

func TestCreateTopicsIsAnsweredWhenTheBrokerStops(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.announces.Store(false)
		ctx, stop := context.WithCancel(b.ctx)
		ended := make(chan error, 1)
		go func() { ended <- b.h.EndWaits(ctx) }()
		time.AfterFunc(time.Second, stop)
		began := time.Now()
		for range 2 { // the second comes when waits are over
			name := fmt.Sprint("t", time.Since(began))
			got := b.do(7, createRequest(30_000, newTopic(name, 1, 1))).(*kmsg.CreateTopicsResponse)
			if _, stored := b.inStore(name); !stored || got.Topics[0].ErrorCode != 0 {
				t.Errorf("stored %v, error code %d", stored, got.Topics[0].ErrorCode)
			}
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("answered after %v", took)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
