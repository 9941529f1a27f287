package replica

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/config"
	"klamm/internal/metadata"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// testBroker is a Manager over logs in memory, without a network.
type testBroker struct {
	*Manager
	t      testing.TB
	id     cluster.BrokerID
	logs   *commitlog.Manager
	cache  *metadata.Cache
	faults *faultSwitch
	config atomic.Pointer[config.LogConfig] // of all topics

	mu       sync.Mutex
	elected  []PartitionEpoch
	resigned []PartitionEpoch
	removed  []cluster.TopicPartition
	dirs     []string
	proposed []*kmsg.AlterPartitionRequest
}

// faultSwitch fails every file operation once it is on.
type faultSwitch struct {
	mu     sync.Mutex
	on     bool
	before func(vfs.Op) // called before each operation, unless nil
}

var errDisk = errors.New("disk is gone")

func (f *faultSwitch) set(on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on = on
}

func (f *faultSwitch) inject(op vfs.Op) error {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before != nil {
		before(op)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.on {
		return errDisk
	}
	return nil
}

// brokerOptions shape a testBroker; the zero value is broker 1 with one log dir.
type brokerOptions struct {
	id         cluster.BrokerID
	epoch      cluster.BrokerEpoch
	epochNow   func() cluster.BrokerEpoch // instead of epoch
	registered func() bool                // default: always
	offlineDir bool                       // a second log dir that could not be opened
	plainDisk  bool                       // without the switch that fails it
	config     Config
	logConfig  func(*config.LogConfig)
	controller ControllerChannel
	dial       func(ctx context.Context, broker cluster.BrokerID) (Conn, error)
	disk       *vfs.Mem // kept from an earlier broker
	disk2      *vfs.Mem // makes a second log dir
	moveRate   func() int64
}

func newTestBroker(t testing.TB, o brokerOptions) *testBroker {
	t.Helper()
	b := &testBroker{t: t, id: max(o.id, 1), cache: metadata.New(slog.New(slog.DiscardHandler)), faults: &faultSwitch{}}
	if o.disk == nil {
		o.disk = vfs.NewMem()
	}
	dirs := []commitlog.DirSpec{{Path: "/disk1", FS: vfs.NewFault(o.disk, b.faults.inject)}}
	if o.plainDisk {
		dirs[0].FS = o.disk
	}
	if o.offlineDir {
		dirs = append(dirs, commitlog.DirSpec{Path: "/disk2", Err: fs.ErrPermission})
	}
	if o.disk2 != nil {
		dirs = append(dirs, commitlog.DirSpec{Path: "/disk2", FS: o.disk2})
	}
	lc := config.DefaultLogConfig()
	if o.logConfig != nil {
		o.logConfig(lc)
	}
	b.config.Store(lc)
	logs, err := commitlog.Open(context.Background(), commitlog.Options{
		Dirs: dirs, BrokerID: b.id, ClusterID: "test", LogConfig: func(string) *config.LogConfig { return b.config.Load() },
		OnDirFailure: func(dir string, err error) { b.OnLogDirFailure(dir, err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.logs = logs
	if o.controller == nil {
		o.controller = b
	}
	if o.dial == nil {
		o.dial = func(context.Context, cluster.BrokerID) (Conn, error) { return nil, errors.New("nobody there") }
	}
	if o.epochNow == nil {
		o.epochNow = func() cluster.BrokerEpoch { return o.epoch }
	}
	if o.registered == nil {
		o.registered = func() bool { return true }
	}
	o.config.BrokerID = b.id
	b.Manager, err = New(Options{
		Config: o.config, Logs: logs, Metadata: b.cache, BrokerEpoch: o.epochNow, Registered: o.registered, Controller: o.controller,
		Dial: o.dial, Log: slog.New(slog.DiscardHandler), LogDirMoveRate: o.moveRate, Hooks: Hooks{
			LeadershipChanged: func(elected, resigned []PartitionEpoch) {
				b.elected, b.resigned = append(b.elected, elected...), append(b.resigned, resigned...)
			},
			PartitionsRemoved: func(tps []cluster.TopicPartition) { b.removed = append(b.removed, tps...) },
			LogDirFailed:      func(dir string) { b.dirs = append(b.dirs, dir) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Request keeps ISR proposals without answering them before the broker ends.
func (b *testBroker) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	b.mu.Lock()
	b.proposed = append(b.proposed, req.(*kmsg.AlterPartitionRequest))
	b.mu.Unlock()
	<-ctx.Done()
	return nil, ctx.Err()
}

// The controller's requests on its newest connection.

func (b *testBroker) HandleLeaderAndISR(req *kmsg.LeaderAndISRRequest) *kmsg.LeaderAndISRResponse {
	return b.Manager.HandleLeaderAndISR(req, 0)
}

func (b *testBroker) HandleStopReplica(req *kmsg.StopReplicaRequest) *kmsg.StopReplicaResponse {
	return b.Manager.HandleStopReplica(req, 0)
}

func (b *testBroker) HandleUpdateMetadata(req *kmsg.UpdateMetadataRequest) *kmsg.UpdateMetadataResponse {
	return b.Manager.HandleUpdateMetadata(req, 0)
}

// configure changes the topics' configs.
func (b *testBroker) configure(change func(*config.LogConfig)) {
	next := *b.config.Load()
	change(&next)
	b.config.Store(&next)
	b.logs.UpdateAllConfigs()
}

// start runs the broker and its logs; the returned function stops both and waits.
func (b *testBroker) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	running.Go(func() { _ = b.logs.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// alive makes brokers known by UpdateMetadata.
func (b *testBroker) alive(ids ...int32) {
	req := kmsg.NewPtrUpdateMetadataRequest()
	req.Version, req.ControllerEpoch, req.BrokerEpoch = 8, 1, -1
	for _, id := range ids {
		live := kmsg.NewUpdateMetadataRequestLiveBroker()
		live.ID = id
		e := kmsg.NewUpdateMetadataRequestLiveBrokerEndpoint()
		e.Host, e.Port, e.ListenerName = "h", 1, "PLAINTEXT"
		live.Endpoints = append(live.Endpoints, e)
		req.LiveBrokers = append(req.LiveBrokers, live)
	}
	b.HandleUpdateMetadata(req)
}

// leadState is one partition of a LeaderAndIsr request, written short.
type leadState struct {
	topic     string
	id        cluster.TopicID
	partition int32
	leader    int32
	le, pe    int32
	isr       []int32
	replicas  []int32 // default: isr
	isNew     bool
}

func leaderAndISRRequest(version int16, states ...leadState) *kmsg.LeaderAndISRRequest {
	req := kmsg.NewPtrLeaderAndISRRequest()
	req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = version, 1, 1, -1
	for _, s := range states {
		p := kmsg.NewLeaderAndISRRequestTopicPartition()
		p.Partition, p.Leader, p.LeaderEpoch, p.ZKVersion, p.ISR, p.Replicas, p.IsNew = s.partition, s.leader, s.le, s.pe, s.isr, s.replicas, s.isNew
		p.ControllerEpoch = 1
		if s.replicas == nil {
			p.Replicas = s.isr
		}
		if version < 2 {
			p.Topic = s.topic
			req.PartitionStates = append(req.PartitionStates, p)
			continue
		}
		if n := len(req.TopicStates); n == 0 || req.TopicStates[n-1].Topic != s.topic {
			t := kmsg.NewLeaderAndISRRequestTopicState()
			t.Topic, t.TopicID = s.topic, s.id
			req.TopicStates = append(req.TopicStates, t)
		}
		last := &req.TopicStates[len(req.TopicStates)-1]
		last.PartitionStates = append(last.PartitionStates, p)
	}
	return req
}

// lead applies states that all must be accepted.
func (b *testBroker) lead(states ...leadState) {
	b.t.Helper()
	resp := b.HandleLeaderAndISR(leaderAndISRRequest(4, states...))
	for _, p := range resp.Partitions {
		if p.ErrorCode != 0 || resp.ErrorCode != 0 {
			b.t.Fatalf("leader and isr refused: %v for %s-%d", cluster.ErrorCode(p.ErrorCode), p.Topic, p.Partition)
		}
	}
}

// testBatch builds a batch with the values as records.
func testBatch(values ...string) []byte {
	b := record.NewBuilder(record.BuilderOptions{})
	for _, v := range values {
		b.Append(1000, nil, []byte(v))
	}
	raw, err := b.Build()
	if err != nil {
		panic(err)
	}
	return raw
}

// produce appends a batch with acks and returns where the answer will be.
func (b *testBroker) produce(acks int16, tp cluster.TopicPartition, values ...string) *answer[AppendResult] {
	a := &answer[AppendResult]{}
	b.Append(AppendRequest{Acks: acks, Timeout: 30e9, Partitions: []AppendPartition{{TP: tp, Records: testBatch(values...)}}}, a.set)
	return a
}

// answer collects what a done callback was given.
type answer[R any] struct {
	mu    sync.Mutex
	calls int
	got   []R
}

func (a *answer[R]) set(rs []R) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	a.got = rs
}

// result returns the first result, and whether done was called, once.
func (a *answer[R]) result() (r R, done bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.calls > 1 {
		panic("done was called twice")
	}
	if a.calls == 1 {
		r = a.got[0]
	}
	return r, a.calls == 1
}

// follow makes a follower's fetch and returns its answer.
func (b *testBroker) follow(replica cluster.BrokerID, tp cluster.TopicPartition, offset int64) *answer[FetchResult] {
	a := &answer[FetchResult]{}
	b.Fetch(FetchRequest{ReplicaID: replica, MaxBytes: 1 << 20, MinBytes: 1, Partitions: []FetchPartition{
		{TP: tp, CurrentLeaderEpoch: -1, FetchOffset: offset, LastFetchedEpoch: -1, MaxBytes: 1 << 20},
	}}, a.set)
	return a
}
