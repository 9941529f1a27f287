//go:build interop

package zookeeper

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/coord"
)

// quotaOf builds a change of an entity; the name "<default>" is the default of its type. A value below zero removes.
func quotaOf(key string, value float64, pairs ...string) kmsg.AlterClientQuotasRequestEntry {
	e := kmsg.NewAlterClientQuotasRequestEntry()
	for i := 0; i < len(pairs); i += 2 {
		part := kmsg.AlterClientQuotasRequestEntryEntity{Type: pairs[i], Name: &pairs[i+1]}
		if pairs[i+1] == "<default>" {
			part.Name = nil
		}
		e.Entity = append(e.Entity, part)
	}
	e.Ops = []kmsg.AlterClientQuotasRequestEntryOp{{Key: key, Value: value, Remove: value < 0}}
	return e
}

// through is a client that asks one broker.
func (c *cluster) through(id int32, opts ...kgo.Opt) *kgo.Client {
	c.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.brokers[id].addr), kgo.RetryTimeout(30 * time.Second)}, opts...)...)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(client.Close)
	return client
}

// alterQuotas changes quotas through a broker.
func (c *cluster) alterQuotas(id int32, entries ...kmsg.AlterClientQuotasRequestEntry) {
	c.Helper()
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Entries = entries
	resp, err := c.through(id).Broker(int(id)).Request(c.Context(), req)
	if err != nil {
		c.Fatal(err)
	}
	for i, e := range resp.(*kmsg.AlterClientQuotasResponse).Entries {
		if err := kerr.ErrorForCode(e.ErrorCode); err != nil {
			c.Fatalf("quota %v through broker %d: %v", entries[i].Entity, id, err)
		}
	}
}

// alterBroker changes dynamic configs of one broker, or of all when name is empty, through a broker.
func (c *cluster) alterBroker(id int32, name, key string, value *string) {
	c.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeBroker, name
	op := kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: key, Value: value}
	if value == nil {
		op.Op = kmsg.IncrementalAlterConfigOpDelete
	}
	r.Configs = append(r.Configs, op)
	req.Resources = append(req.Resources, r)
	resp, err := c.through(id).Broker(int(id)).Request(c.Context(), req)
	if err != nil {
		c.Fatal(err)
	}
	if res := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; res.ErrorCode != 0 {
		c.Fatalf("%s of %q through broker %d: %v %v", key, name, id, kerr.ErrorForCode(res.ErrorCode), res.ErrorMessage)
	}
}

// setQuotasAndConfigs takes a lone broker through quotas of every kind of entity and dynamic configs; then it takes some of
// them away.
func (c *cluster) setQuotasAndConfigs() {
	c.alterQuotas(0,
		quotaOf("producer_byte_rate", 1024, "client-id", "a b*~c"), quotaOf("request_percentage", 12.5, "client-id", "<default>"),
		quotaOf("consumer_byte_rate", 2048, "user", "CN=me,O=x"), quotaOf("controller_mutation_rate", 1e7, "user", "<default>"),
		quotaOf("producer_byte_rate", 1, "user", "u", "client-id", "c"), quotaOf("producer_byte_rate", 2, "user", "u", "client-id", "<default>"),
		quotaOf("connection_creation_rate", 100, "ip", "10.0.0.1"), quotaOf("connection_creation_rate", 1000, "ip", "<default>"),
	)
	c.alterQuotas(0, quotaOf("consumer_byte_rate", 4096, "client-id", "a b*~c"))
	c.alterBroker(0, "", "log.retention.ms", kadm.StringPtr("86400000"))
	c.alterBroker(0, "0", "log.cleaner.threads", kadm.StringPtr("2"))
	c.alterBroker(0, "0", "follower.replication.throttled.rate", kadm.StringPtr("1000"))
}

func (c *cluster) takeQuotasAndConfigsAway() {
	c.alterQuotas(0, quotaOf("producer_byte_rate", -1, "client-id", "a b*~c"), quotaOf("consumer_byte_rate", -1, "user", "CN=me,O=x"),
		quotaOf("producer_byte_rate", -1, "user", "u", "client-id", "c"), quotaOf("connection_creation_rate", -1, "ip", "<default>"))
	c.alterBroker(0, "", "log.retention.ms", nil)
	c.alterBroker(0, "0", "follower.replication.throttled.rate", nil)
}

// throttleHook notes the throttles that brokers give.
type throttleHook struct{ most atomic.Int64 }

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (h *throttleHook) OnBrokerThrottle(_ kgo.BrokerMetadata, throttle time.Duration, _ bool) {
	h.most.Store(max(h.most.Load(), int64(throttle)))
}

// TestConfigsAndQuotasOfEitherKindHoldOnTheOther sets dynamic configs and quotas through Kafka and through klamm and looks
// for their effect on the other. What either stored for a broker, passwords among it, is read by the broker that takes its place.
func TestConfigsAndQuotasOfEitherKindHoldOnTheOther(t *testing.T) {
	c := newCluster(t, kafka, klamm)
	keys, tools := c.listenersWithKeys(), c.toolbox()
	c.start(0, 1)
	c.step("one broker of each kind")
	replicas := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "each", -1, -1
	for id := range int32(2) { // partition N lies on broker N
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: id, Replicas: []int32{id}})
	}
	replicas.Topics, replicas.TimeoutMillis = append(replicas.Topics, topic), 30_000
	if resp, err := replicas.RequestWith(t.Context(), c.through(0, kgo.SeedBrokers(c.brokers[0].addr, c.brokers[1].addr))); err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}
	for from, to := range []int32{1, 0} {
		by, on := c.brokers[from].kind, c.brokers[to].kind
		c.alterBroker(int32(from), "", "message.max.bytes", kadm.StringPtr("2000"))
		c.eventually(20*time.Second, fmt.Sprintf("a limit set through %s holds on %s", by, on), func() (bool, string) {
			err := c.produceTo(to, "any", 5000)
			return err != nil && strings.Contains(err.Error(), "MESSAGE_TOO_LARGE"), fmt.Sprint(err)
		})
		c.alterBroker(int32(from), "", "message.max.bytes", nil)
		c.eventually(20*time.Second, fmt.Sprintf("a limit removed through %s is gone on %s", by, on), func() (bool, string) {
			err := c.produceTo(to, "any", 5000)
			return err == nil, fmt.Sprint(err)
		})
		client := fmt.Sprintf("slow %s", by)
		c.alterQuotas(int32(from), quotaOf("producer_byte_rate", 100, "client-id", client))
		hook := &throttleHook{}
		c.eventually(20*time.Second, fmt.Sprintf("a quota set through %s holds on %s", by, on), func() (bool, string) {
			if err := c.produceTo(to, client, 1500, kgo.WithHooks(hook)); err != nil {
				return false, err.Error()
			}
			return hook.most.Load() > int64(time.Second), time.Duration(hook.most.Load()).String()
		})
		c.alterQuotas(int32(from), quotaOf("producer_byte_rate", -1, "client-id", client))
		c.step("config and quota of %s hold on %s", by, on)
	}
	c.alterBroker(1, "1", "log.cleaner.threads", kadm.StringPtr("2"))
	c.alterBroker(0, "0", "log.cleaner.threads", kadm.StringPtr("2"))
	if raw := c.get(coord.ConfigEntityPath(coord.BrokerConfigs, "0")); raw != c.get(coord.ConfigEntityPath(coord.BrokerConfigs, "1")) {
		t.Errorf("the nodes differ: %s", raw)
	}
	for id := range int32(2) {
		keys.shows(id, "first")
		tools.do("kafka-configs --bootstrap-server " + c.brokers[id].addr + keys.change(id, "second"))
		keys.shows(id, "second")
		keys.areEncoded(id)
	}
	for _, swap := range []struct {
		id int32
		to kind
	}{{0, klamm}, {1, kafka}} {
		c.swap(swap.id, swap.to)
		got, err := kadm.NewClient(c.through(swap.id)).DescribeBrokerConfigs(t.Context(), swap.id)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range got[0].Configs {
			if entry.Key == "log.cleaner.threads" && (entry.Source != kmsg.ConfigSourceDynamicBrokerConfig || entry.MaybeValue() != "2") {
				t.Errorf("%s in the place of broker %d has %s=%s of %v", swap.to, swap.id, entry.Key, entry.MaybeValue(), entry.Source)
			}
		}
		keys.shows(swap.id, "second")
	}
	c.step("configs and passwords stored by either kind read by the other in its place")
	c.stop(1)
	tools.do("kafka-configs --zookeeper " + c.zk + keys.change(1, "first") + ",password.encoder.secret=encoder,password.encoder.cipher.algorithm=AES/GCM/NoPadding")
	c.brokers[1].kind = klamm
	c.start(1)
	keys.shows(1, "first")
	c.step("passwords that Kafka's tool wrote into ZooKeeper read by klamm")
}

// produceTo produces one record of that size to the partition on a broker.
func (c *cluster) produceTo(partition int32, clientID string, bytes int, opts ...kgo.Opt) error {
	c.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(c.brokers[partition].addr), kgo.ClientID(clientID), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordDeliveryTimeout(20 * time.Second),
	}, opts...)...)
	if err != nil {
		c.Fatal(err)
	}
	defer client.Close()
	return client.ProduceSync(c.Context(), &kgo.Record{Topic: "each", Partition: partition, Value: make([]byte, bytes)}).FirstErr()
}
