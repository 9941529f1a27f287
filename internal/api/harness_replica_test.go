package api

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/config"
	"klamm/internal/record"
	"klamm/internal/replica"
	"klamm/internal/security/acl"
	"klamm/internal/vfs"
	"klamm/internal/wire"
)

// newTestReplicas makes the broker's replica manager over logs in memory.
func newTestReplicas(t *testing.T, ctx context.Context, b *testBroker, log *slog.Logger) *replica.Manager {
	t.Helper()
	logs, err := commitlog.Open(ctx, commitlog.Options{
		Dirs: []commitlog.DirSpec{{Path: "/data", FS: vfs.NewMem()}}, BrokerID: 0, ClusterID: "test-cluster", Log: log,
		LogConfig: func(topic string) *config.LogConfig { return b.config.LogConfig(topic) },
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := replica.New(replica.Options{
		Config: replica.Config{BrokerID: 0}, Logs: logs, Metadata: b.cache, Log: log, Controller: b.ctl,
		BrokerEpoch: func() cluster.BrokerEpoch { return 7 }, Registered: func() bool { return true },
		Dial: func(context.Context, cluster.BrokerID) (replica.Conn, error) {
			return nil, errors.New("no other broker runs here")
		},
		Hooks: replica.Hooks{
			LeadershipChanged: func(elected, resigned []replica.PartitionEpoch) { b.groups.LeadershipChanged(elected, resigned) },
			PartitionsRemoved: func(tps []cluster.TopicPartition) { b.groups.PartitionsRemoved(tps) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.background = append(b.background, m.Run, logs.Run)
	return m
}

// inner is a connection on the inter-broker listener, closed at the end of the test.
func (b *testBroker) inner() *wire.ClientConn {
	b.t.Helper()
	c := b.dial("b0:9093", "0")
	b.closers = append(b.closers, c)
	return c
}

// lead makes a topic and has this broker lead all its partitions, by LeaderAndIsr over the protocol.
func (b *testBroker) lead(name string, partitions int) cluster.TopicID {
	b.t.Helper()
	var lists [][]cluster.BrokerID
	for range partitions {
		lists = append(lists, []cluster.BrokerID{0})
	}
	id := b.topic(name, lists...)
	b.sendLeadership(name, id, 1, lists)
	return id
}

func (b *testBroker) sendLeadership(name string, id cluster.TopicID, leaderEpoch int32, lists [][]cluster.BrokerID) {
	b.t.Helper()
	if b.h.d.Authorizer != nil {
		b.grant(acl.ClusterAction, acl.Cluster, acl.ClusterName)
		defer b.revoke(acl.ClusterAction)
	}
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = 0, 1, 7
	state := kmsg.LeaderAndISRRequestTopicState{Topic: name, TopicID: id}
	for p, list := range lists {
		state.PartitionStates = append(state.PartitionStates, kmsg.LeaderAndISRRequestTopicPartition{
			Partition: int32(p), ControllerEpoch: 1, Leader: int32(list[0]), LeaderEpoch: leaderEpoch, ISR: wireIDs(list), Replicas: wireIDs(list), IsNew: true})
	}
	req.TopicStates = []kmsg.LeaderAndISRRequestTopicState{state}
	resp := b.doOn(b.inner(), 7, req).(*kmsg.LeaderAndISRResponse)
	if resp.ErrorCode != 0 {
		b.t.Fatalf("LeaderAndIsr: %v", cluster.ErrorCode(resp.ErrorCode))
	}
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 {
				b.t.Fatalf("LeaderAndIsr of partition %d: %v", p.Partition, cluster.ErrorCode(p.ErrorCode))
			}
		}
	}
}

// The zstd encoder is shared by all who use it, so it must not be made within the bubble of one test.
var _ = func() error { _, err := record.Compress(nil, nil, record.Compression{Codec: record.Zstd}); return err }()

// batch makes a batch of one record per value.
func batch(t *testing.T, o record.BuilderOptions, values ...string) []byte {
	t.Helper()
	builder := record.NewBuilder(o)
	for i, v := range values {
		builder.Append(int64(1000+i), []byte("k"), []byte(v))
	}
	out, err := builder.Build()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// produce appends to partition 0 of a topic by name and gives the partition's answer.
func (b *testBroker) produce(version int16, topic string, acks int16, records []byte) kmsg.ProduceResponseTopicPartition {
	b.t.Helper()
	return b.do(version, produceRequest(topic, acks, records)).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
}

func produceRequest(topic string, acks int16, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 1000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: records}}}}
	return req
}
