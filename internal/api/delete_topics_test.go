package api

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// deleteByName asks for names in the form of the version.
func deleteByName(version int16, timeoutMs int32, names ...string) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis = version, timeoutMs
	for _, n := range names {
		if version >= 6 {
			req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &n})
		} else {
			req.TopicNames = append(req.TopicNames, n)
		}
	}
	return req
}

func deleteByID(timeoutMs int32, id cluster.TopicID) *kmsg.DeleteTopicsRequest {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = timeoutMs
	req.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: id}}
	return req
}

// deleted is an answer of one entry.
func deleted(version int16, results ...kmsg.DeleteTopicsResponseTopic) *kmsg.DeleteTopicsResponse {
	resp := kmsg.NewPtrDeleteTopicsResponse()
	resp.Version, resp.Topics = version, results
	return resp
}

// TestDeleteTopicsAnswersAsRecordedFromKafka holds the table recorded from Kafka 3.9.1 in ZooKeeper mode.
func TestDeleteTopicsAnswersAsRecordedFromKafka(t *testing.T) {
	for version := int16(0); version <= 6; version++ {
		disabled := cluster.InvalidRequest
		if version >= 3 {
			disabled = cluster.TopicDeletionDisabled
		}
		for _, c := range []struct {
			name      string
			names     []string
			timeoutMs int32
			enable    string // delete.topic.enable
			prepare   func(b *testBroker)
			want      cluster.ErrorCode
		}{
			{"at another broker", []string{"t"}, 1000, "true", func(b *testBroker) { b.ctl.active.Store(false) }, cluster.NotController},
			{"an unknown name", []string{"nosuch"}, 1000, "true", nil, cluster.UnknownTopicOrPartition},
			{"an illegal name", []string{"a/b"}, 1000, "true", nil, cluster.UnknownTopicOrPartition},
			{"a topic", []string{"t"}, 1000, "true", nil, cluster.None},
			{"a name twice", []string{"t", "t"}, 1000, "true", nil, cluster.None},
			{"no time", []string{"t"}, 0, "true", nil, cluster.RequestTimedOut},
			{"negative time", []string{"t"}, -1, "true", nil, cluster.RequestTimedOut},
			{"a topic whose deletion waits for a broker", []string{"stuck"}, 1000, "true", func(b *testBroker) {
				b.ctl.announces.Store(false)
				b.topic("stuck", []cluster.BrokerID{0})
				b.put(coord.Create(coord.DeleteTopicPath("stuck"), nil))
			}, cluster.UnknownTopicOrPartition},
			{"deletion turned off", []string{"nosuch"}, 1000, "false", nil, disabled},
		} {
			t.Run(c.name, func(t *testing.T) {
				inBubble(t, map[string]string{"delete.topic.enable": c.enable}, func(b *testBroker) {
					b.topic("t", []cluster.BrokerID{0})
					if c.prepare != nil {
						c.prepare(b)
					}
					var results []kmsg.DeleteTopicsResponseTopic
					for _, n := range c.names {
						results = append(results, deleteTopicResult(&n, [16]byte{}, c.want))
					}
					same(t, deleted(version, results...), b.do(version, deleteByName(version, c.timeoutMs, c.names...)))
					synctest.Wait()
					_, exists := b.inStore("t")
					isDeleted := c.names[0] == "t" && c.want != cluster.NotController && c.enable == "true"
					if exists == isDeleted {
						t.Errorf("topic exists: %v", exists)
					}
				})
			})
		}
	}
}

func TestDeleteTopicsByID(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		id := b.topic("t", []cluster.BrokerID{0})
		unknown := cluster.TopicID{1, 2, 3}
		same(t, deleted(6, deleteTopicResult(nil, unknown, cluster.UnknownTopicID)), b.do(6, deleteByID(1000, unknown)))

		both := deleteByID(1000, id)
		both.Topics[0].Topic = ptr("t")
		same(t, deleted(6, deleteTopicResult(ptr("t"), id, cluster.InvalidRequest)), b.do(6, both))

		b.ctl.active.Store(false)
		same(t, deleted(6, deleteTopicResult(nil, id, cluster.NotController)), b.do(6, deleteByID(1000, id)))

		b.ctl.active.Store(true) // R16: by id the answer has the name, too
		same(t, deleted(6, deleteTopicResult(ptr("t"), id, cluster.None)), b.do(6, deleteByID(1000, id)))
	})
}

// W11: Kafka reduces the request to the name.
func TestDeleteTopicsByIDLeavesANewerTopicOfTheNameAlone(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		old := b.topic("t", []cluster.BrokerID{0})
		// The topic was deleted and made again, and the controller has not noticed yet.
		b.ctl.announces.Store(false)
		newer := coord.EncodeTopic(coord.Topic{ID: cluster.NewTopicID(), Partitions: map[int32]cluster.ReplicaAssignment{0: {Replicas: []cluster.BrokerID{0}}}})
		b.put(coord.Delete(coord.TopicPath("t"), coord.AnyVersion))
		b.put(coord.Create(coord.TopicPath("t"), newer))
		same(t, deleted(6, deleteTopicResult(nil, old, cluster.UnknownTopicID)), b.do(6, deleteByID(1000, old)))
		if marked, _ := b.ctl.store.Children(b.ctx, coord.DeleteTopicsPath); len(marked) != 0 {
			t.Errorf("marked %v", marked)
		}
	})
}

// W14: and that is what success means, as clients expect.
func TestDeleteTopicsNeverAnswersBeforeTheNameLeftTheMetadata(t *testing.T) { // R15
	inBubble(t, nil, func(b *testBroker) {
		id := b.topic("t", []cluster.BrokerID{0})
		b.ctl.announces.Store(false)
		start := time.Now()
		answers := make(chan *kmsg.DeleteTopicsResponse, 2)
		for range 2 { // concurrent deletes of one topic
			c := b.dial("b0:9092", "deleter")
			defer func() { _ = c.Close() }()
			go func() { answers <- b.doOn(c, 6, deleteByName(6, 60_000, "t")).(*kmsg.DeleteTopicsResponse) }()
		}
		synctest.Wait()
		select {
		case got := <-answers:
			t.Fatalf("answered %+v while the topic is in the metadata", got.Topics)
		case <-time.After(5 * second):
		}
		topic, _ := b.inStore("t")
		b.ctl.announce([]kmsg.UpdateMetadataRequestTopicState{b.ctl.state("t", topic, true)})
		for range 2 {
			same(t, deleted(6, deleteTopicResult(ptr("t"), [16]byte{}, cluster.None)), <-answers)
		}
		if id != topic.ID || time.Since(start) != 5*second {
			t.Errorf("took %v", time.Since(start))
		}
	})
}

func TestDeleteTopicsTimesOutAndGoesOn(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.ctl.announces.Store(false)
		start := time.Now()
		same(t, deleted(3, deleteTopicResult(ptr("t"), [16]byte{}, cluster.RequestTimedOut)), b.do(3, deleteByName(3, 5000, "t")))
		marked, _ := b.ctl.store.Children(b.ctx, coord.DeleteTopicsPath)
		if time.Since(start) != 5*second || len(marked) != 1 {
			t.Errorf("after %v, marked %v", time.Since(start), marked)
		}
	})
}

func TestDeleteTopicsEndsWhenTheNameCameBackAsAnotherTopic(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.ctl.announces.Store(false)
		done := make(chan *kmsg.DeleteTopicsResponse, 1)
		go func() { done <- b.do(6, deleteByName(6, 60_000, "t")).(*kmsg.DeleteTopicsResponse) }()
		synctest.Wait()
		topic, _ := b.inStore("t")
		gone, back := b.ctl.state("t", topic, true), b.ctl.state("t", coord.Topic{ID: cluster.NewTopicID(), Partitions: topic.Partitions}, false)
		b.ctl.announce([]kmsg.UpdateMetadataRequestTopicState{gone, back})
		same(t, deleted(6, deleteTopicResult(ptr("t"), [16]byte{}, cluster.None)), <-done)
	})
}

// W6: Kafka answers UNKNOWN_TOPIC_OR_PARTITION.
func TestDeleteTopicsDeletesATopicThatNoBrokerHosts(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.announces.Store(false) // it never got a leader and is in nobody's metadata
		b.topic("dead", []cluster.BrokerID{9})
		same(t, deleted(6, deleteTopicResult(ptr("dead"), [16]byte{}, cluster.None)), b.do(6, deleteByName(6, 1000, "dead")))
		if marked, _ := b.ctl.store.Children(b.ctx, coord.DeleteTopicsPath); len(marked) != 1 {
			t.Errorf("marked %v", marked)
		}
	})
}

func TestDeleteTopicsTriesAgainWhenTheTopicChangedMeanwhile(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.topic("u", []cluster.BrokerID{0})
		changed := false
		b.store.SetHook(func(c memstore.Call) memstore.Fault {
			if c.Method == "Multi" && !changed {
				changed = true
				n, _ := b.ctl.store.Get(b.ctx, coord.TopicPath("t"))
				b.put(coord.Set(coord.TopicPath("t"), n.Data, coord.AnyVersion))
			}
			return memstore.Fault{}
		})
		same(t, deleted(6, deleteTopicResult(ptr("t"), [16]byte{}, cluster.None), deleteTopicResult(ptr("u"), [16]byte{}, cluster.None)),
			b.do(6, deleteByName(6, 1000, "t", "u")))
	})
}

func TestDeleteTopicsWithoutAStoreFails(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.store.Disconnect()
		same(t, deleted(6, deleteTopicResult(ptr("t"), [16]byte{}, cluster.UnknownServerError)), b.do(6, deleteByName(6, 1000, "t")))
	})
}
