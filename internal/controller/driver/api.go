package driver

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// replies holds the requests that wait for the core's answer. Safe for concurrent use.
type replies struct {
	mu struct {
		sync.Mutex
		last    controller.ReplyToken
		waiting map[controller.ReplyToken]func(controller.ReplyValue)
	}
}

func newReplies() *replies {
	r := &replies{}
	r.mu.waiting = map[controller.ReplyToken]func(controller.ReplyValue){}
	return r
}

func (r *replies) add(done func(controller.ReplyValue)) controller.ReplyToken {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.last++
	r.mu.waiting[r.mu.last] = done
	return r.mu.last
}

// complete hands an answer to whoever waits for it, once; a second answer finds nobody.
func (r *replies) complete(answer controller.Reply) {
	r.mu.Lock()
	done := r.mu.waiting[answer.Token]
	delete(r.mu.waiting, answer.Token)
	r.mu.Unlock()
	if done != nil {
		done(answer.Value)
	}
}

// request feeds a request event made for its token. It is answered at once where the core would never see it: this broker
// is not the controller, the queue is full, Run has ended.
func (d *Driver) request(event func(controller.ReplyToken) controller.Event, done func(controller.ReplyValue)) {
	ev := event(d.replies.add(done))
	if d.IsActive() {
		if d.queue.offer(ev) {
			return
		}
		d.status.refused.Add(1)
	}
	if r, ok := controller.Preempted(ev); ok {
		d.replies.complete(r)
	}
}

// AllocateProducerIDs asks the active controller for a block of producer ids. done is called exactly once, on any
// goroutine; it must not block. NOT_CONTROLLER when this broker is not it, or ceases to be it.
func (d *Driver) AllocateProducerIDs(_ context.Context, req *kmsg.AllocateProducerIDsRequest, done func(*kmsg.AllocateProducerIDsResponse)) {
	version := req.Version
	d.request(func(token controller.ReplyToken) controller.Event {
		return controller.AllocateProducerIDs{Reply: token, Broker: cluster.BrokerID(req.BrokerID), BrokerEpoch: cluster.BrokerEpoch(req.BrokerEpoch)}
	}, func(v controller.ReplyValue) {
		answer := v.(controller.AllocateProducerIDsResult)
		resp := kmsg.NewPtrAllocateProducerIDsResponse()
		resp.Version = version
		resp.ErrorCode = int16(answer.Err)
		resp.ProducerIDStart, resp.ProducerIDLen = answer.Start, answer.Len
		done(resp)
	})
}

// AlterPartition asks the active controller to change ISRs. done is called exactly once, on any goroutine; it must not
// block. NOT_CONTROLLER when this broker is not it, or ceases to be it.
func (d *Driver) AlterPartition(_ context.Context, req *kmsg.AlterPartitionRequest, done func(*kmsg.AlterPartitionResponse)) {
	version := req.Version
	d.request(func(token controller.ReplyToken) controller.Event { return alterPartitionEvent(token, req) },
		func(v controller.ReplyValue) {
			done(alterPartitionResponse(version, v.(controller.AlterPartitionResult)))
		})
}

func alterPartitionEvent(token controller.ReplyToken, req *kmsg.AlterPartitionRequest) controller.AlterPartition {
	ev := controller.AlterPartition{
		Reply: token, Broker: cluster.BrokerID(req.BrokerID), BrokerEpoch: cluster.BrokerEpoch(req.BrokerEpoch), Version: req.Version,
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		topic := controller.AlterPartitionTopic{Name: t.Topic, ID: t.TopicID}
		for j := range t.Partitions {
			p := &t.Partitions[j]
			isr, epochs := requestedISR(req.Version, p)
			topic.Partitions = append(topic.Partitions, controller.AlterPartitionPartition{
				Partition:      p.Partition,
				LeaderEpoch:    cluster.LeaderEpoch(p.LeaderEpoch),
				ISR:            isr,
				BrokerEpochs:   epochs,
				Recovery:       cluster.LeaderRecoveryState(p.LeaderRecoveryState),
				PartitionEpoch: cluster.PartitionEpoch(p.PartitionEpoch),
			})
		}
		ev.Topics = append(ev.Topics, topic)
	}
	return ev
}

// requestedISR reads the ISR of a request, and from version 3 on its members' broker epochs.
func requestedISR(version int16, p *kmsg.AlterPartitionRequestTopicPartition) (isr []cluster.BrokerID, epochs []cluster.BrokerEpoch) {
	if version < 3 {
		for _, id := range p.NewISR {
			isr = append(isr, cluster.BrokerID(id))
		}
		return isr, nil
	}
	for _, m := range p.NewEpochISR {
		isr, epochs = append(isr, cluster.BrokerID(m.BrokerID)), append(epochs, cluster.BrokerEpoch(m.BrokerEpoch))
	}
	return isr, epochs
}

func alterPartitionResponse(version int16, answer controller.AlterPartitionResult) *kmsg.AlterPartitionResponse {
	resp := kmsg.NewPtrAlterPartitionResponse()
	resp.Version = version
	resp.ErrorCode = int16(answer.Err)
	for _, t := range answer.Topics {
		topic := kmsg.NewAlterPartitionResponseTopic()
		topic.Topic, topic.TopidID = t.Name, t.ID
		for _, p := range t.Partitions {
			rp := kmsg.NewAlterPartitionResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, int16(p.Err)
			if p.Err == cluster.None {
				rp.LeaderID, rp.LeaderEpoch = int32(p.State.Leader), int32(p.State.LeaderEpoch)
				rp.LeaderRecoveryState, rp.PartitionEpoch = int8(p.State.Recovery), int32(p.State.PartitionEpoch)
				for _, id := range p.State.ISR {
					rp.ISR = append(rp.ISR, int32(id))
				}
			}
			topic.Partitions = append(topic.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// ControlledShutdown asks the active controller to move leaderships away from a broker. done is called exactly once, on
// any goroutine; it must not block. STALE_CONTROLLER_EPOCH when this broker is not it (Kafka: ControllerMovedException).
func (d *Driver) ControlledShutdown(_ context.Context, req *kmsg.ControlledShutdownRequest, done func(*kmsg.ControlledShutdownResponse)) {
	version := req.Version
	epoch := cluster.NoBrokerEpoch
	if version >= 2 {
		epoch = cluster.BrokerEpoch(req.BrokerEpoch)
	}
	d.request(func(token controller.ReplyToken) controller.Event {
		return controller.ControlledShutdown{Reply: token, Broker: cluster.BrokerID(req.BrokerID), BrokerEpoch: epoch}
	}, func(v controller.ReplyValue) {
		answer := v.(controller.ControlledShutdownResult)
		resp := kmsg.NewPtrControlledShutdownResponse()
		resp.Version = version
		resp.ErrorCode = int16(answer.Err)
		for _, tp := range answer.Remaining {
			p := kmsg.NewControlledShutdownResponsePartitionsRemaining()
			p.Topic, p.Partition = tp.Topic, tp.Partition
			resp.PartitionsRemaining = append(resp.PartitionsRemaining, p)
		}
		done(resp)
	})
}

// AfterAnswers calls done once every broker has answered what this controller has sent it up to now, or is no longer sent
// anything: at once on a broker that is not the controller. done may run before AfterAnswers returns, and on any goroutine; it must not
// block. A broker that is frozen is waited for until its session ends: callers bound the wait.
func (d *Driver) AfterAnswers(done func()) {
	senders := *d.senders.Load()
	var left atomic.Int64
	left.Store(int64(len(senders)) + 1)
	one := func() {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for _, s := range senders {
		s.afterAnswers(one)
	}
	one()
}

// SetUncleanLeaderElection tells the controller the broker default of unclean.leader.election.enable after it changed.
func (d *Driver) SetUncleanLeaderElection(enabled bool) {
	d.unclean.Store(enabled)
	d.queue.putOwn(&item{event: controller.UncleanLeaderElectionEnable{Enabled: enabled}})
}

// SetTopicDeletion tells the controller delete.topic.enable after it changed.
func (d *Driver) SetTopicDeletion(enabled bool) {
	d.deletes.Store(enabled)
	d.queue.putOwn(&item{event: controller.TopicDeletionEnable{Enabled: enabled}})
}

// TopicUncleanLeaderElectionEnabled tells the controller that a topic's unclean.leader.election.enable was set to true.
// On a broker that is not the controller it does nothing.
func (d *Driver) TopicUncleanLeaderElectionEnabled(topic string) {
	if d.IsActive() {
		d.queue.putOwn(&item{event: controller.TopicUncleanLeaderElectionEnable{Topic: topic}})
	}
}
