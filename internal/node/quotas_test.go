package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/config"
)

// devAdmin gives a client of a dev cluster, for records of any size as they are.
func devAdmin(t *testing.T, c DevCluster) (*kgo.Client, *kadm.Client) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap...), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl, kadm.NewClient(cl)
}

func setConfig(t *testing.T, admin *kadm.Client, topic string, broker int32, key, value string) {
	t.Helper()
	set := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}
	alter := func() (kadm.AlterConfigsResponses, error) { return admin.AlterTopicConfigs(t.Context(), set, topic) }
	if topic == "" {
		alter = func() (kadm.AlterConfigsResponses, error) { return admin.AlterBrokerConfigs(t.Context(), set, broker) }
	}
	if r, err := alter(); err != nil || r[0].Err != nil {
		t.Fatalf("%s=%s: %v, %v", key, value, err, r)
	}
}

// KIP-73, as kafka-reassign-partitions --throttle sets it up: what moves is bounded, what does not is not.
func TestAThrottledReassignmentMovesAtItsRateAndNothingElseDoes(t *testing.T) {
	const records, size, rate = 8, 500_000, 1_000_000
	c, stop := runDevCluster(t, t.TempDir(), 2)
	defer stop()
	cl, admin := devAdmin(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	create := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "moved", -1, -1
	for p := range int32(2) {
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: []int32{1}})
	}
	create.Topics, create.TimeoutMillis = append(create.Topics, topic), 10_000
	if resp, err := create.RequestWith(ctx, cl); err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}
	for p := range int32(2) {
		for range records {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "moved", Partition: p, Value: make([]byte, size)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	move := func(partition int32, to ...int32) time.Duration {
		t.Helper()
		began := time.Now()
		var req kadm.AlterPartitionAssignmentsReq
		req.Assign("moved", partition, to)
		if r, err := admin.AlterPartitionAssignments(ctx, req); err != nil || r.Error() != nil {
			t.Fatal(err, r)
		}
		for {
			m, err := admin.Metadata(ctx, "moved")
			if err == nil && len(m.Topics["moved"].Partitions[partition].ISR) == len(to) {
				return time.Since(began)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				t.Fatal(m, err)
			}
		}
	}
	setConfig(t, admin, "", 1, "leader.replication.throttled.rate", fmt.Sprint(rate))
	setConfig(t, admin, "", 2, "follower.replication.throttled.rate", fmt.Sprint(rate))
	setConfig(t, admin, "moved", 0, "leader.replication.throttled.replicas", "0:1")
	setConfig(t, admin, "moved", 0, "follower.replication.throttled.replicas", "0:2")
	// 4 MB, of which a first answer of one is free; and the partition that no list names.
	if took := move(0, 2, 1); took < 2*time.Second {
		t.Errorf("the throttled partition moved within %v", took)
	}
	if took := move(1, 2, 1); took > 2*time.Second {
		t.Errorf("the other partition took %v", took)
	}
}

// R24, with a client that keeps KIP-219.
func TestAQuotaSetAtOneBrokerHoldsAtEveryOne(t *testing.T) {
	c, stop := runDevCluster(t, t.TempDir(), 2)
	defer stop()
	_, admin := devAdmin(t, c)
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "q"); err != nil {
		t.Fatal(err)
	}
	name, key := "slow", "producer_byte_rate"
	entry := kadm.AlterClientQuotaEntry{Entity: kadm.ClientQuotaEntity{{Type: "client-id", Name: &name}}, Ops: []kadm.AlterClientQuotaOp{{Key: key, Value: 10_000}}}
	if r, err := admin.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{entry}); err != nil || r[0].Err != nil {
		t.Fatal(err, r)
	}
	described, err := admin.DescribeClientQuotas(t.Context(), true, []kadm.DescribeClientQuotaComponent{{Type: "client-id", MatchType: kmsg.QuotasMatchTypeAny}})
	if err != nil || len(described) != 1 || described[0].Values[0].Value != 10_000 {
		t.Errorf("described %v, %v", described, err)
	}
	hook := throttles{make(chan time.Duration, 100)}
	slow, err := kgo.NewClient(kgo.SeedBrokers(c.Bootstrap...), kgo.ClientID(name), kgo.WithHooks(hook), kgo.DefaultProduceTopic("q"), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	began := time.Now()
	for range 3 {
		if err := slow.ProduceSync(t.Context(), &kgo.Record{Value: make([]byte, 45_000)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// A change is followed shortly after its answer, so a first record may be free.
	if throttle := <-hook.got; throttle < time.Second {
		t.Errorf("throttle %v after %v", throttle, time.Since(began))
	}
}

// throttles is a kgo.HookBrokerThrottle.
type throttles struct{ got chan time.Duration }

// OnBrokerThrottle implements kgo.HookBrokerThrottle.
func (h throttles) OnBrokerThrottle(_ kgo.BrokerMetadata, throttle time.Duration, _ bool) {
	select {
	case h.got <- throttle:
	default:
	}
}

func TestAcceptRatesAreThoseOfTheListenerAndOfAll(t *testing.T) {
	set := map[string]string{"broker.id": "1", "log.dirs": "/d", "listeners": "CLIENT://:1,INTERNAL://:2", "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
		"inter.broker.listener.name": "INTERNAL", "max.connection.creation.rate": "2", "listener.name.client.max.connection.creation.rate": "1"}
	c, _, err := config.FromProperties(set)
	if err != nil {
		t.Fatal(err)
	}
	q := newQuotas(c)
	q.setAcceptRates(c)
	admitted := func(listener string, protected bool) (n int) {
		for range 100 {
			if q.pace(listener, protected) == 0 {
				n++
			}
		}
		return n
	}
	// Ten seconds' worth at once: the client's listener has its own bound, what is left of the common one is for others.
	if got := admitted("CLIENT", false); got != 10 {
		t.Errorf("%d connections at the clients' listener", got)
	}
	if got := admitted("OTHER", false); got != 10 {
		t.Errorf("%d connections at another listener", got)
	}
	if got := admitted("INTERNAL", true); got != 100 {
		t.Errorf("%d connections at the brokers' own listener", got)
	}
	d := config.NewDynamic(c)
	q.follow(d, c.ID)
	if w := d.ApplyBroker(map[string]string{"listener.name.client.max.connection.creation.rate": "5", "max.connection.creation.rate": "2147483647"}); len(w) > 0 {
		t.Fatal(w)
	}
	if got := admitted("CLIENT", false); got != 40 {
		t.Errorf("%d more connections with the rates changed", got)
	}
}
