package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/config"
	"klamm/internal/group"
	"klamm/internal/metadata"
	"klamm/internal/replica"
	"klamm/internal/vfs"
)

// testBroker is a coordinator over a replica manager with logs in memory, in one synctest bubble. __consumer_offsets has
// one partition unless the test says otherwise.
type testBroker struct {
	*Coordinator
	t        *testing.T
	ctx      context.Context
	replicas *replica.Manager
	logs     *commitlog.Manager
	cache    *metadata.Cache
	disk     *brokenDisk
	gone     func(topics []string) ([]string, error) // the coordination store's answer; nil: all topics exist
	expired  atomic.Bool                             // this broker's session
	cancel   context.CancelFunc
	running  sync.WaitGroup
	epoch    int32 // leader epoch of the last lead or follow
}

var offsetsTopic = cluster.TopicPartition{Topic: cluster.GroupOffsetsTopic}

// brokenDisk fails every operation once it is broken.
type brokenDisk struct {
	mu     sync.Mutex
	broken bool
}

func (d *brokenDisk) breakNow() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = true
}

func (d *brokenDisk) inject(vfs.Op) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken {
		return errors.New("the disk is gone")
	}
	return nil
}

// inBubble runs a test with a broker that leads nothing yet.
func inBubble(t *testing.T, properties map[string]string, test func(b *testBroker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newTestBroker(t, properties)
		defer b.stop()
		test(b)
	})
}

func newTestBroker(t *testing.T, properties map[string]string) *testBroker {
	t.Helper()
	props := map[string]string{"broker.id": "1", "listeners": "PLAINTEXT://b1:9092", "log.dirs": "/data", "offsets.topic.num.partitions": "1",
		"group.initial.rebalance.delay.ms": "100"}
	for k, v := range properties {
		props[k] = v
	}
	static, _, err := config.FromProperties(props)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	dynamic := config.NewDynamic(static)
	b := &testBroker{t: t, cache: metadata.New(log), disk: &brokenDisk{}}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.logs, err = commitlog.Open(b.ctx, commitlog.Options{
		Dirs: []commitlog.DirSpec{{Path: "/data", FS: vfs.NewFault(vfs.NewMem(), b.disk.inject)}}, BrokerID: 1, ClusterID: "test", Log: log,
		LogConfig:    dynamic.LogConfig,
		OnDirFailure: func(dir string, err error) { b.replicas.OnLogDirFailure(dir, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.replicas, err = replica.New(replica.Options{
		Config: replica.Config{BrokerID: 1}, Logs: b.logs, Metadata: b.cache, Log: log, Controller: noController{},
		BrokerEpoch: func() cluster.BrokerEpoch { return 1 }, Registered: func() bool { return !b.expired.Load() },
		Dial: func(context.Context, cluster.BrokerID) (replica.Conn, error) { return nil, errors.New("nobody there") },
		Hooks: replica.Hooks{
			LeadershipChanged: func(elected, resigned []replica.PartitionEpoch) { b.LeadershipChanged(elected, resigned) },
			PartitionsRemoved: func(tps []cluster.TopicPartition) { b.PartitionsRemoved(tps) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Coordinator = New(Options{Log: log, Config: dynamic, Cache: b.cache, Replicas: b.replicas,
		TopicsGone: func(_ context.Context, topics []string) ([]string, error) {
			if b.gone == nil {
				return nil, nil
			}
			return b.gone(topics)
		}})
	for _, run := range []func(context.Context) error{b.replicas.Run, b.logs.Run, b.cache.Run, b.Run} {
		b.running.Go(func() { _ = run(b.ctx) })
	}
	b.announce()
	return b
}

func (b *testBroker) stop() {
	b.cancel()
	b.running.Wait()
}

// noController never takes an ISR change.
type noController struct{}

func (noController) Request(ctx context.Context, _ kmsg.Request) (kmsg.Response, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// lead makes this broker the leader of the partitions (0 without any) in the next epoch, with the ISR, and waits until
// everything that can run without time passing has run.
func (b *testBroker) lead(isr []int32, partitions ...int32) {
	b.t.Helper()
	b.beginToLead(isr, partitions...)
	synctest.Wait()
}

// beginToLead does not wait for the load.
func (b *testBroker) beginToLead(isr []int32, partitions ...int32) {
	b.t.Helper()
	b.epoch++
	b.leaderAndISR(1, isr, partitions)
}

// follow makes broker 2 the leader.
func (b *testBroker) follow(partitions ...int32) {
	b.t.Helper()
	b.epoch++
	b.leaderAndISR(2, []int32{2, 1}, partitions)
}

func (b *testBroker) leaderAndISR(leader int32, isr, partitions []int32) {
	b.t.Helper()
	if partitions == nil {
		partitions = []int32{0}
	}
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = 4, 1, 1, -1
	topic := kmsg.NewLeaderAndISRRequestTopicState()
	topic.Topic = cluster.GroupOffsetsTopic
	for _, i := range partitions {
		p := kmsg.NewLeaderAndISRRequestTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch, p.ISR, p.Replicas, p.ControllerEpoch = i, leader, b.epoch, isr, []int32{1, 2}, 1
		p.ZKVersion = b.epoch
		topic.PartitionStates = append(topic.PartitionStates, p)
	}
	req.TopicStates = append(req.TopicStates, topic)
	resp := b.replicas.HandleLeaderAndISR(req, 0)
	for _, p := range resp.Partitions {
		if p.ErrorCode != 0 {
			b.t.Fatalf("LeaderAndIsr of partition %d: %v", p.Partition, cluster.ErrorCode(p.ErrorCode))
		}
	}
}

// announce tells the broker of the live brokers and of topics' partitions with their leaders.
func (b *testBroker) announce(states ...kmsg.UpdateMetadataRequestTopicState) {
	b.t.Helper()
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version, req.ControllerEpoch, req.BrokerEpoch, req.TopicStates = 8, 1, -1, states
	for _, id := range []int32{1, 2} {
		req.LiveBrokers = append(req.LiveBrokers, kmsg.UpdateMetadataRequestLiveBroker{ID: id, Endpoints: []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{
			{Host: "h", Port: 1, ListenerName: "PLAINTEXT"}}})
	}
	if resp := b.replicas.HandleUpdateMetadata(req, 0); resp.ErrorCode != 0 {
		b.t.Fatalf("UpdateMetadata: %v", cluster.ErrorCode(resp.ErrorCode))
	}
}

func topicState(name string, partitions int, leader int32) kmsg.UpdateMetadataRequestTopicState {
	s := kmsg.UpdateMetadataRequestTopicState{Topic: name}
	for i := range partitions {
		s.PartitionStates = append(s.PartitionStates, kmsg.UpdateMetadataRequestTopicPartition{Partition: int32(i), ControllerEpoch: 1, Leader: leader,
			ISR: []int32{1}, Replicas: []int32{1}})
	}
	return s
}

// answer is where a result will be.
type answer[R any] struct {
	ch chan R
	t  *testing.T
}

// begin asks without waiting.
func begin[R any](b *testBroker, r group.Request) answer[R] {
	a := answer[R]{make(chan R, 1), b.t}
	b.Ask(r, func(v any) { a.ch <- v.(R) }) // a second answer would block, and the bubble would not end
	return a
}

// wait gives the result; in the bubble the time passes that it takes.
func (a answer[R]) wait() R { return <-a.ch }

// open reports whether there is no result yet, with everything that can run now having run.
func (a answer[R]) open() bool {
	synctest.Wait()
	return len(a.ch) == 0
}

func ask[R any](b *testBroker, r group.Request) R { return begin[R](b, r).wait() }

func commit(id string, tp cluster.TopicPartition, offset int64) group.Commit {
	return group.Commit{Group: id, Generation: -1, Offsets: []group.CommitOffset{{TopicPartition: tp, Offset: offset, LeaderEpoch: -1,
		CommitTimestamp: -1, ExpireTimestamp: -1}}}
}

// commit stores an offset of topic t, partition 0, and gives the code.
func (b *testBroker) commit(id string, offset int64) cluster.ErrorCode {
	b.t.Helper()
	return ask[group.CommitResult](b, commit(id, cluster.TopicPartition{Topic: "t"}, offset)).Errs[0]
}

// committed reads that offset; -1 for none.
func (b *testBroker) committed(id string) (int64, cluster.ErrorCode) {
	b.t.Helper()
	r := ask[group.FetchOffsetsResult](b, group.FetchOffsets{Group: id, Partitions: []cluster.TopicPartition{{Topic: "t"}}})
	if r.Err != cluster.None {
		return -1, r.Err
	}
	return r.Offsets[0].Offset, cluster.None
}

func (b *testBroker) wantCommitted(id string, want int64) {
	b.t.Helper()
	if got, code := b.committed(id); got != want || code != cluster.None {
		b.t.Errorf("group %s is at %d (%v), want %d", id, got, code, want)
	}
}

func (b *testBroker) wantCode(what string, got, want cluster.ErrorCode) {
	b.t.Helper()
	if got != want {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func join(id, instance string) group.Join {
	return group.Join{Group: id, InstanceID: instance, ClientID: "c", ClientHost: "/h", NewMemberID: id + "-member", SessionTimeoutMs: 10_000,
		RebalanceTimeoutMs: 30_000, ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 1, 0, 1, 't'}}}}
}

// member joins a group alone and gets its assignment "p".
func (b *testBroker) member(id string) group.JoinResult {
	b.t.Helper()
	j := ask[group.JoinResult](b, join(id, ""))
	b.wantCode("join", j.Err, cluster.None)
	s := ask[group.SyncResult](b, group.Sync{Group: id, MemberID: j.MemberID, Generation: j.Generation,
		Assignments: []group.Assignment{{MemberID: j.MemberID, Data: []byte("p")}}})
	b.wantCode("sync", s.Err, cluster.None)
	return j
}

func (b *testBroker) heartbeat(id string, j group.JoinResult) cluster.ErrorCode {
	b.t.Helper()
	return ask[group.ErrorResult](b, group.Heartbeat{Group: id, MemberID: j.MemberID, Generation: j.Generation}).Err
}

const second = time.Second
