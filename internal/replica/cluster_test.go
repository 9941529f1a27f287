package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/config"
	"klamm/internal/metadata"
	"klamm/internal/quota"
	"klamm/internal/vfs"
	"klamm/internal/wire"
)

// testCluster is some Managers that replicate over an in-memory transport, with a controller that keeps the rules of
// elections and AlterPartition and nothing else. Messages are encoded and decoded on their way.
type testCluster struct {
	t        testing.TB
	versions Versions
	minISR   int

	mu         sync.Mutex
	brokers    map[cluster.BrokerID]*clusterBroker
	truth      map[cluster.TopicPartition]*partitionTruth
	ids        map[string]cluster.TopicID
	ce         int32
	loseAlters int // AlterPartition answers to lose after they were applied
}

type partitionTruth struct {
	replicas []int32
	state    cluster.LeaderAndISR
	fresh    bool // not told to any broker yet
}

// clusterBroker is one broker's disk with, while it is up, its manager.
type clusterBroker struct {
	id       cluster.BrokerID
	disk     *vfs.Mem
	m        *Manager
	logs     *commitlog.Manager
	cache    *metadata.Cache
	sessions *FetchSessionCache
	stop     func()
	up       bool
	epoch    cluster.BrokerEpoch

	leaderThrottle, followerThrottle *quota.Replication // nil for none
}

// noLockFS forgets who holds the directory, as the kernel does when a process is killed.
type noLockFS struct{ vfs.FS }

func (noLockFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func newTestCluster(t testing.TB, n int) *testCluster {
	c := &testCluster{
		t: t, versions: DefaultVersions(), minISR: 1, ce: 1, brokers: map[cluster.BrokerID]*clusterBroker{},
		truth: map[cluster.TopicPartition]*partitionTruth{}, ids: map[string]cluster.TopicID{},
	}
	for i := 1; i <= n; i++ {
		c.brokers[cluster.BrokerID(i)] = &clusterBroker{id: cluster.BrokerID(i), disk: vfs.NewMem()}
	}
	return c
}

// boot starts a broker on its disk and lets the controller notice.
func (c *testCluster) boot(id cluster.BrokerID) {
	c.t.Helper()
	b := c.brokers[id]
	quiet := slog.New(slog.DiscardHandler)
	b.cache, b.sessions = metadata.New(quiet), NewFetchSessionCache(100, time.Minute)
	b.epoch++
	lc := config.DefaultLogConfig()
	lc.MinInSyncReplicas = c.minISR
	lc.RetentionMs = -1 // the records are stamped 1970
	var err error
	b.logs, err = commitlog.Open(context.Background(), commitlog.Options{
		Dirs: []commitlog.DirSpec{{Path: fmt.Sprintf("/disk%d", id), FS: noLockFS{b.disk}}}, BrokerID: id, ClusterID: "test",
		LogConfig: func(string) *config.LogConfig { return lc }, OnDirFailure: func(_ string, err error) { c.t.Error(err) },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	epoch := b.epoch
	b.m, err = New(Options{
		Config: Config{BrokerID: id, ReplicaLagTimeMax: 10 * time.Second, Versions: c.versions}, Logs: b.logs, Metadata: b.cache,
		BrokerEpoch: func() cluster.BrokerEpoch { return epoch }, Registered: func() bool { return true }, Controller: clusterController{c, id}, Log: quiet,
		LeaderThrottle: b.leaderThrottle, FollowerThrottle: b.followerThrottle,
		Dial: func(_ context.Context, to cluster.BrokerID) (Conn, error) { return c.dial(id, to) },
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = b.m.Run(ctx) })
	running.Go(func() { _ = b.logs.Run(ctx) })
	b.stop = func() { cancel(); running.Wait() }
	c.mu.Lock()
	defer c.mu.Unlock()
	b.up = true
	c.electLocked()
	c.tellLocked(c.partitionsLocked())
}

// kill ends a broker: cleanly, like kill -9, or like a power cut, and lets the controller notice.
func (c *testCluster) kill(id cluster.BrokerID, how string, seed uint64) {
	b := c.brokers[id]
	c.mu.Lock()
	b.up = false
	c.mu.Unlock()
	b.stop()
	switch how {
	case "clean":
		if err := b.logs.Close(context.Background()); err != nil {
			c.t.Fatal(err)
		}
	case "power":
		b.disk = b.disk.CrashClone(seed)
	}
	c.missed(id)
}

// cut takes a broker off the network, where it goes on without knowing, and lets the controller notice.
func (c *testCluster) cut(id cluster.BrokerID) {
	c.mu.Lock()
	c.brokers[id].up = false
	c.mu.Unlock()
	c.missed(id)
}

// join brings a broker back that was cut off.
func (c *testCluster) join(id cluster.BrokerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.brokers[id].up = true
	c.electLocked()
	c.tellLocked(c.partitionsLocked())
}

// missed is what the controller does about a broker that is gone.
func (c *testCluster) missed(id cluster.BrokerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed []cluster.TopicPartition
	for _, tp := range c.partitionsLocked() {
		p := c.truth[tp]
		if contains(p.state.ISR, id) && len(p.state.ISR) > 1 {
			p.state.ISR = without(p.state.ISR, id)
			p.bump()
			changed = append(changed, tp)
		}
	}
	changed = append(changed, c.electLocked()...)
	slices.SortFunc(changed, cluster.TopicPartition.Compare)
	c.tellLocked(slices.Compact(changed))
}

func (p *partitionTruth) bump() {
	p.state.LeaderEpoch++
	p.state.PartitionEpoch++
}

func (c *testCluster) partitionsLocked() []cluster.TopicPartition { return sortedKeys(c.truth) }

// electLocked gives partitions without a living leader the first living ISR member.
func (c *testCluster) electLocked() (changed []cluster.TopicPartition) {
	for _, tp := range c.partitionsLocked() {
		p := c.truth[tp]
		if p.state.Leader != cluster.NoBroker && c.brokers[p.state.Leader].up {
			continue
		}
		leader := cluster.NoBroker
		for _, id := range p.replicas {
			if leader == cluster.NoBroker && c.brokers[cluster.BrokerID(id)].up && contains(p.state.ISR, cluster.BrokerID(id)) {
				leader = cluster.BrokerID(id)
			}
		}
		if leader != p.state.Leader {
			p.state.Leader = leader
			p.bump()
			changed = append(changed, tp)
		}
	}
	return changed
}

// create makes a partition on the brokers, led by the first.
func (c *testCluster) create(tp cluster.TopicPartition, replicas ...int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ids[tp.Topic].IsZero() {
		c.ids[tp.Topic] = cluster.NewTopicID()
	}
	isr := brokerIDs(replicas)
	isr = slices.DeleteFunc(isr, func(id cluster.BrokerID) bool { return !c.brokers[id].up })
	c.truth[tp] = &partitionTruth{replicas: replicas, fresh: true, state: cluster.LeaderAndISR{Leader: isr[0], ISR: isr}}
	c.tellLocked([]cluster.TopicPartition{tp})
}

// moveLeader makes another living ISR member lead, if there is one.
func (c *testCluster) moveLeader(tp cluster.TopicPartition, to cluster.BrokerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.truth[tp]
	if contains(p.state.ISR, to) && c.brokers[to].up && p.state.Leader != to {
		p.state.Leader = to
		p.bump()
		c.tellLocked([]cluster.TopicPartition{tp})
	}
}

// tellLocked sends metadata to all living brokers and leaderships to the partitions' living replicas.
func (c *testCluster) tellLocked(tps []cluster.TopicPartition) {
	var ids []cluster.BrokerID
	for id, b := range c.brokers {
		if b.up {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	umr := kmsg.NewPtrUpdateMetadataRequest()
	umr.Version, umr.ControllerEpoch, umr.BrokerEpoch = 8, c.ce, -1
	for _, id := range ids {
		live := kmsg.NewUpdateMetadataRequestLiveBroker()
		live.ID = int32(id)
		umr.LiveBrokers = append(umr.LiveBrokers, live)
	}
	for _, tp := range tps {
		t := kmsg.NewUpdateMetadataRequestTopicState()
		t.Topic, t.TopicID = tp.Topic, c.ids[tp.Topic]
		p := kmsg.NewUpdateMetadataRequestTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch = tp.Partition, int32(c.truth[tp].state.Leader), int32(c.truth[tp].state.LeaderEpoch)
		t.PartitionStates = append(t.PartitionStates, p)
		umr.TopicStates = append(umr.TopicStates, t)
	}
	for _, id := range ids {
		c.brokers[id].m.HandleUpdateMetadata(umr, 0)
	}
	for _, id := range ids {
		c.brokers[id].m.HandleLeaderAndISR(c.leaderAndISRLocked(id, tps), 0)
	}
	for _, tp := range tps {
		c.truth[tp].fresh = false
	}
}

func (c *testCluster) leaderAndISRLocked(to cluster.BrokerID, tps []cluster.TopicPartition) *kmsg.LeaderAndISRRequest {
	var states []leadState
	for _, tp := range tps {
		p := c.truth[tp]
		if contains(brokerIDs(p.replicas), to) {
			isr := make([]int32, len(p.state.ISR))
			for i, id := range p.state.ISR {
				isr[i] = int32(id)
			}
			states = append(states, leadState{
				topic: tp.Topic, id: c.ids[tp.Topic], partition: tp.Partition, leader: int32(p.state.Leader), le: int32(p.state.LeaderEpoch),
				pe: int32(p.state.PartitionEpoch), isr: isr, replicas: p.replicas, isNew: p.fresh,
			})
		}
	}
	req := leaderAndISRRequest(7, states...)
	req.ControllerEpoch = c.ce
	return req
}

// clusterController answers AlterPartition by the table of control-plane behaviour 2.10.
type clusterController struct {
	c    *testCluster
	from cluster.BrokerID
}

func (cc clusterController) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	c := cc.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.brokers[cc.from].up {
		return nil, errors.New("broker is down")
	}
	r := req.(*kmsg.AlterPartitionRequest)
	resp := kmsg.NewPtrAlterPartitionResponse()
	resp.Version = r.Version
	for _, t := range r.Topics {
		topic := kmsg.NewAlterPartitionResponseTopic()
		topic.TopidID = t.TopicID
		for _, p := range t.Partitions {
			tp := cluster.TopicPartition{Partition: p.Partition}
			for name, id := range c.ids {
				if id == t.TopicID {
					tp.Topic = name
				}
			}
			topic.Partitions = append(topic.Partitions, c.alterLocked(tp, p, r.BrokerID))
		}
		resp.Topics = append(resp.Topics, topic)
	}
	if c.loseAlters > 0 {
		c.loseAlters--
		return nil, errors.New("answer lost")
	}
	return resp, nil
}

func (c *testCluster) alterLocked(tp cluster.TopicPartition, p kmsg.AlterPartitionRequestTopicPartition, leader int32) kmsg.AlterPartitionResponseTopicPartition {
	out := kmsg.NewAlterPartitionResponseTopicPartition()
	out.Partition = p.Partition
	truth := c.truth[tp]
	var isr []cluster.BrokerID
	alive := true
	for _, e := range p.NewEpochISR {
		isr = append(isr, cluster.BrokerID(e.BrokerID))
		alive = alive && c.brokers[cluster.BrokerID(e.BrokerID)].up
	}
	pe, le := cluster.PartitionEpoch(p.PartitionEpoch), cluster.LeaderEpoch(p.LeaderEpoch)
	switch {
	case truth == nil:
		out.ErrorCode = int16(cluster.UnknownTopicOrPartition)
	case pe > truth.state.PartitionEpoch || le > truth.state.LeaderEpoch:
		out.ErrorCode = int16(cluster.NotController)
	case le < truth.state.LeaderEpoch:
		out.ErrorCode = int16(cluster.FencedLeaderEpoch)
	case slices.Equal(isr, truth.state.ISR) && cluster.BrokerID(leader) == truth.state.Leader:
	case pe < truth.state.PartitionEpoch:
		out.ErrorCode = int16(cluster.InvalidUpdateVersion)
	case !alive:
		out.ErrorCode = int16(cluster.IneligibleReplica)
	default:
		truth.state.ISR = isr
		truth.state.PartitionEpoch++
	}
	if out.ErrorCode == 0 {
		out.LeaderID, out.LeaderEpoch, out.PartitionEpoch = int32(truth.state.Leader), int32(truth.state.LeaderEpoch), int32(truth.state.PartitionEpoch)
		for _, id := range truth.state.ISR {
			out.ISR = append(out.ISR, int32(id))
		}
	}
	return out
}

// leader returns the manager that leads the partition, if its broker is up.
func (c *testCluster) leader(tp cluster.TopicPartition) *Manager {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := c.truth[tp].state.Leader; id != cluster.NoBroker && c.brokers[id].up {
		return c.brokers[id].m
	}
	return nil
}

func (c *testCluster) isr(tp cluster.TopicPartition) []cluster.BrokerID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.truth[tp].state.ISR)
}

// stopAll ends the brokers that are up.
func (c *testCluster) stopAll() {
	for _, b := range c.brokers {
		if b.up {
			b.stop()
		}
	}
}

// memConn carries requests to a broker as the api package would serve them.
type memConn struct {
	c    *testCluster
	from *clusterBroker
	b    *clusterBroker
	m    *Manager // of the broker's life that was dialled
}

func (c *testCluster) dial(from, to cluster.BrokerID) (Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.brokers[to]
	if !b.up || !c.brokers[from].up {
		return nil, errors.New("connection refused")
	}
	return &memConn{c, c.brokers[from], b, b.m}, nil
}

func (mc *memConn) Close() error { return nil }

func (mc *memConn) alive() bool {
	mc.c.mu.Lock()
	defer mc.c.mu.Unlock()
	return mc.b.up && mc.b.m == mc.m && mc.from.up
}

func (mc *memConn) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	got := kmsg.RequestForKey(req.Key())
	got.SetVersion(req.GetVersion())
	if err := wire.DecodeRequestBody(got, wire.AppendRequestBody(nil, req)); err != nil {
		return nil, err
	}
	if !mc.alive() {
		return nil, errors.New("connection reset")
	}
	answered := make(chan kmsg.Response, 1)
	switch r := got.(type) {
	case *kmsg.FetchRequest:
		mc.fetch(r, func(resp *kmsg.FetchResponse) { answered <- resp })
	case *kmsg.ListOffsetsRequest:
		answered <- mc.listOffsets(r)
	case *kmsg.OffsetForLeaderEpochRequest:
		answered <- mc.epochs(r)
	default:
		return nil, fmt.Errorf("no handler for %T", got)
	}
	var resp kmsg.Response
	select {
	case resp = <-answered:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if !mc.alive() {
		return nil, errors.New("connection reset")
	}
	out := req.ResponseKind()
	out.SetVersion(req.GetVersion())
	return out, wire.DecodeResponseBody(out, wire.AppendResponseBody(nil, resp))
}

func (mc *memConn) fetch(r *kmsg.FetchRequest, done func(*kmsg.FetchResponse)) {
	name := func(id cluster.TopicID) (string, bool) { return mc.b.cache.Image().TopicName(id) }
	sr := FetchSessionRequest{Version: r.Version, SessionID: r.SessionID, Epoch: r.SessionEpoch, Follower: true, TopicName: name}
	for _, t := range r.Topics {
		topic := t.Topic
		if r.Version >= firstFetchVersionByID {
			topic, _ = name(t.TopicID)
		}
		for _, p := range t.Partitions {
			sr.Partitions = append(sr.Partitions, FetchPartition{
				TP: cluster.TopicPartition{Topic: topic, Partition: p.Partition}, TopicID: t.TopicID, CurrentLeaderEpoch: cluster.LeaderEpoch(p.CurrentLeaderEpoch),
				FetchOffset: p.FetchOffset, LastFetchedEpoch: cluster.LeaderEpoch(p.LastFetchedEpoch), LogStartOffset: p.LogStartOffset, MaxBytes: p.PartitionMaxBytes,
			})
		}
	}
	for _, t := range r.ForgottenTopics {
		for _, p := range t.Partitions {
			sr.Forgotten = append(sr.Forgotten, ForgottenPartition{TP: cluster.TopicPartition{Topic: t.Topic, Partition: p}, TopicID: t.TopicID})
		}
	}
	fc := mc.b.sessions.Begin(sr)
	resp := kmsg.NewPtrFetchResponse()
	resp.Version, resp.ErrorCode = r.Version, int16(fc.Err())
	if fc.Err() != cluster.None {
		done(resp)
		return
	}
	replica, epoch := r.ReplicaID, int64(-1)
	if r.Version >= 15 {
		replica, epoch = r.ReplicaState.ID, r.ReplicaState.Epoch
	}
	parts := fc.Partitions()
	mc.m.Fetch(FetchRequest{
		ReplicaID: cluster.BrokerID(replica), ReplicaEpoch: cluster.BrokerEpoch(epoch), MaxWait: time.Duration(r.MaxWaitMillis) * time.Millisecond,
		MinBytes: r.MinBytes, MaxBytes: r.MaxBytes, Partitions: parts,
	}, func(rs []FetchResult) {
		a := fc.Finish(rs)
		resp.ErrorCode, resp.SessionID = int16(a.Err), a.SessionID
		for _, i := range a.Include {
			resp.Topics = append(resp.Topics, fetchTopicOf(parts[i], &rs[i]))
		}
		done(resp)
	})
}

func fetchTopicOf(part FetchPartition, r *FetchResult) kmsg.FetchResponseTopic {
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID = part.TP.Topic, part.TopicID
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = part.TP.Partition, int16(r.Err), r.HighWatermark, r.LastStableOffset, r.LogStartOffset
	if r.Diverging != nil {
		p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = int32(r.Diverging.LeaderEpoch), r.Diverging.EndOffset
	}
	if r.Records != nil {
		p.RecordBatches = make([]byte, r.Records.Len())
		if _, err := r.Records.ReadInto(p.RecordBatches); err != nil {
			p.RecordBatches, p.ErrorCode = nil, int16(cluster.KafkaStorageError)
		}
		r.Records.Release()
	}
	t.Partitions = append(t.Partitions, p)
	return t
}

func (mc *memConn) listOffsets(r *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := kmsg.NewPtrListOffsetsResponse()
	resp.Version = r.Version
	for _, t := range r.Topics {
		topic := kmsg.NewListOffsetsResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			got := mc.m.ListOffsets(cluster.BrokerID(r.ReplicaID), ReadUncommitted, []ListOffsetsPartition{
				{cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}, cluster.LeaderEpoch(p.CurrentLeaderEpoch), p.Timestamp},
			})[0]
			out := kmsg.NewListOffsetsResponseTopicPartition()
			out.Partition, out.ErrorCode, out.Offset, out.Timestamp, out.LeaderEpoch = p.Partition, int16(got.Err), got.Offset, got.Timestamp, int32(got.LeaderEpoch)
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

func (mc *memConn) epochs(r *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	resp.Version = r.Version
	for _, t := range r.Topics {
		topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			got := mc.m.OffsetForLeaderEpoch([]EpochQuery{
				{cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}, cluster.LeaderEpoch(p.CurrentLeaderEpoch), cluster.LeaderEpoch(p.LeaderEpoch)},
			})[0]
			out := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			out.Partition, out.ErrorCode, out.LeaderEpoch, out.EndOffset = p.Partition, int16(got.Err), int32(got.LeaderEpoch), got.EndOffset
			topic.Partitions = append(topic.Partitions, out)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}
