package replica

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// controllerPatience is which part of replica.lag.time.max.ms the controller has for an answer: a follower that hinders its partition has
// been given the whole of it already.
const controllerPatience = 4

// alterPartitionRetry is the pause after an answer or failure that concerns the whole request (Kafka: 50 ms).
const alterPartitionRetry = 50 * time.Millisecond

// ControllerChannel sends a request to the active controller and waits for the answer. It looks the controller up anew
// for each call. Safe for concurrent use.
type ControllerChannel interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// alterPartitions carries ISR changes to the controller: one request in flight, with all changes that wait, sent again
// until each has an answer of its own (Kafka: AlterPartitionManager, KIP-497). Its run goroutine calls the items' done.
type alterPartitions struct {
	self       cluster.BrokerID
	epoch      func() cluster.BrokerEpoch
	controller ControllerChannel
	version    int16 // AlterPartition version by inter.broker.protocol.version
	// states is where changes are written instead: all of them if writes is set, else those that cannot wait for a controller that does
	// not answer; nil: none. See isr_writer.go.
	states     StateStore
	writes     bool
	registered func() bool
	// patience is how long the controller may take for an answer. unanswered is since when there was none, zero where the last request
	// had one; run's own.
	patience   time.Duration
	unanswered time.Time
	notices    isrNotices
	log        *slog.Logger
	wake       chan struct{}

	mu struct {
		sync.Mutex
		// waiting has at most one item a partition: a newer leadership's change replaces the older one's.
		waiting map[cluster.TopicPartition]*alterPartitionItem
	}
}

// alterPartitionItem is one partition's proposed ISR. done is called once with the controller's state, or a code.
type alterPartitionItem struct {
	tp       cluster.TopicPartition
	topicID  cluster.TopicID
	proposed cluster.LeaderAndISR
	epochs   []cluster.BrokerEpoch
	shrinks  bool // nobody is added
	done     func(cluster.LeaderAndISR, cluster.ErrorCode)
}

func newAlterPartitions(o Options) *alterPartitions {
	a := &alterPartitions{
		self: o.Config.BrokerID, epoch: o.BrokerEpoch, controller: o.Controller, version: o.Config.Versions.AlterPartition,
		states: o.States, writes: o.Config.Versions.WriteISR, registered: o.Registered, patience: o.Config.ReplicaLagTimeMax / controllerPatience,
		log: o.Log, wake: make(chan struct{}, 1),
	}
	a.mu.waiting = map[cluster.TopicPartition]*alterPartitionItem{}
	return a
}

// submit queues the item. An item of the partition that still waits is dropped without an answer: its partition has
// given it up by proposing another.
func (a *alterPartitions) submit(item *alterPartitionItem) {
	a.mu.Lock()
	a.mu.waiting[item.tp] = item
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run sends until the context ends.
func (a *alterPartitions) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.wake:
		}
		for batch := a.take(); len(batch) > 0; batch = a.take() {
			if a.send(ctx, batch) {
				continue
			}
			a.putBack(batch)
			pause := time.NewTimer(alterPartitionRetry)
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
			}
		}
	}
}

func (a *alterPartitions) take() map[cluster.TopicPartition]*alterPartitionItem {
	a.mu.Lock()
	defer a.mu.Unlock()
	batch := a.mu.waiting
	a.mu.waiting = map[cluster.TopicPartition]*alterPartitionItem{}
	return batch
}

// putBack makes unanswered items wait again, except where a newer one came meanwhile.
func (a *alterPartitions) putBack(batch map[cluster.TopicPartition]*alterPartitionItem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for tp, item := range batch {
		if _, newer := a.mu.waiting[tp]; !newer {
			a.mu.waiting[tp] = item
		}
	}
}

// send asks the controller and completes the items that it answered, removing them from the batch. False: pause before
// the next request, since items are left or their partitions have submitted them again.
func (a *alterPartitions) send(ctx context.Context, batch map[cluster.TopicPartition]*alterPartitionItem) bool {
	if anyShrinks(batch) && !a.mayShrink(ctx) {
		return false
	}
	if a.writes {
		return a.write(ctx, batch)
	}
	req := a.request(batch)
	answer, ok := a.ask(ctx, req)
	if !ok {
		return time.Since(a.unanswered) >= a.patience && a.writeShrinks(ctx, batch)
	}
	again := false
	byID := map[cluster.TopicID]string{}
	for tp, item := range batch {
		byID[item.topicID] = tp.Topic
	}
	for _, t := range answer.Topics {
		topic := t.Topic
		if req.Version >= 2 {
			topic = byID[t.TopidID]
		}
		for i := range t.Partitions {
			tp := cluster.TopicPartition{Topic: topic, Partition: t.Partitions[i].Partition}
			item, asked := batch[tp]
			if !asked {
				continue
			}
			delete(batch, tp)
			code := cluster.ErrorCode(t.Partitions[i].ErrorCode)
			again = again || refusalOf(code) == refusedForNow
			item.done(leaderAndISR(&t.Partitions[i], item.proposed.ControllerEpoch), code)
		}
	}
	return len(batch) == 0 && !again
}

func anyShrinks(batch map[cluster.TopicPartition]*alterPartitionItem) bool {
	for _, item := range batch {
		if item.shrinks {
			return true
		}
	}
	return false
}

// ask sends the request and waits for an answer to its partitions, for as long as the patience lasts.
func (a *alterPartitions) ask(ctx context.Context, req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, bool) {
	if a.unanswered.IsZero() {
		a.unanswered = time.Now()
	}
	try, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	resp, err := a.controller.Request(try, req)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("alter partition request failed, will be sent again", "err", err)
		}
		return nil, false
	}
	answer, ok := resp.(*kmsg.AlterPartitionResponse)
	if !ok {
		return nil, false
	}
	if code := cluster.ErrorCode(answer.ErrorCode); code != cluster.None {
		if code != cluster.NotController {
			a.log.Warn("controller refused alter partition request, will be sent again", "err", code)
		}
		return nil, false
	}
	a.unanswered = time.Time{}
	return answer, true
}

// refusal says what a controller's refusal of an ISR change means to the partition.
type refusal uint8

const (
	accepted refusal = iota
	// notApplied: the partition epoch is right and nothing was changed; the committed ISR holds.
	notApplied
	// outdated: new metadata is normally on its way.
	outdated
	// refusedForNow: ask again.
	refusedForNow
)

func refusalOf(code cluster.ErrorCode) refusal {
	switch code {
	case cluster.None:
		return accepted
	case cluster.OperationNotAttempted, cluster.IneligibleReplica:
		return notApplied
	case cluster.UnknownTopicOrPartition, cluster.UnknownTopicID, cluster.FencedLeaderEpoch, cluster.InvalidUpdateVersion,
		cluster.InvalidRequest, cluster.NewLeaderElected:
		return outdated
	default:
		return refusedForNow
	}
}

func leaderAndISR(p *kmsg.AlterPartitionResponseTopicPartition, ce cluster.ControllerEpoch) cluster.LeaderAndISR {
	return cluster.LeaderAndISR{
		Leader: cluster.BrokerID(p.LeaderID), LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch), ISR: brokerIDs(p.ISR),
		Recovery: cluster.LeaderRecoveryState(p.LeaderRecoveryState), PartitionEpoch: cluster.PartitionEpoch(p.PartitionEpoch),
		ControllerEpoch: ce,
	}
}

// request builds the request; topics go by id when the version has ids and every topic has one.
func (a *alterPartitions) request(batch map[cluster.TopicPartition]*alterPartitionItem) *kmsg.AlterPartitionRequest {
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version = a.version
	for _, item := range batch {
		if item.topicID.IsZero() {
			req.Version = min(req.Version, 1)
		}
	}
	req.BrokerID, req.BrokerEpoch = int32(a.self), int64(a.epoch())
	topics := map[string]int{}
	for _, tp := range sortedKeys(batch) {
		item := batch[tp]
		at, known := topics[tp.Topic]
		if !known {
			at = len(req.Topics)
			topics[tp.Topic] = at
			t := kmsg.NewAlterPartitionRequestTopic()
			t.Topic, t.TopicID = tp.Topic, item.topicID
			req.Topics = append(req.Topics, t)
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, alterPartition(item, req.Version))
	}
	return req
}

func alterPartition(item *alterPartitionItem, version int16) kmsg.AlterPartitionRequestTopicPartition {
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.Partition, p.LeaderEpoch = item.tp.Partition, int32(item.proposed.LeaderEpoch)
	p.LeaderRecoveryState, p.PartitionEpoch = int8(item.proposed.Recovery), int32(item.proposed.PartitionEpoch)
	for i, id := range item.proposed.ISR {
		if version < 3 {
			p.NewISR = append(p.NewISR, int32(id))
			continue
		}
		e := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
		e.BrokerID, e.BrokerEpoch = int32(id), int64(item.epochs[i])
		p.NewEpochISR = append(p.NewEpochISR, e)
	}
	return p
}
