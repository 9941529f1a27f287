package replica

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// lateRequests are what a controller of epoch 1 sent a broker with registration 50 about the first topic named t, and what tells that one was
// applied after the topic has been deleted and created again, with the id now.
func lateRequests(former cluster.TopicID) map[string]func(b *testBroker, on ControlConn) (answered bool) {
	return map[string]func(b *testBroker, on ControlConn) bool{
		"StopReplica": func(b *testBroker, on ControlConn) bool {
			req := stopRequest(3, false, stop{tp: tpT, epoch: cluster.LeaderEpochDuringDelete, delete: true})
			req.BrokerEpoch = 50
			resp := b.Manager.HandleStopReplica(req, on)
			return resp != nil && resp.ErrorCode == 0
		},
		"LeaderAndIsr": func(b *testBroker, on ControlConn) bool {
			req := leaderAndISRRequest(7, leadState{topic: "t", id: former, leader: 1, le: 4, isr: []int32{1}})
			req.BrokerEpoch = 50
			resp := b.Manager.HandleLeaderAndISR(req, on)
			return resp != nil && resp.ErrorCode == 0
		},
		"UpdateMetadata": func(b *testBroker, on ControlConn) bool {
			req := kmsg.NewPtrUpdateMetadataRequest()
			req.Version, req.ControllerID, req.ControllerEpoch, req.BrokerEpoch = 8, 77, 1, 50
			resp := b.Manager.HandleUpdateMetadata(req, on)
			return resp != nil && resp.ErrorCode == 0
		},
	}
}

// again has the broker, by then with registration epoch, delete the topic and get the next of its name.
func (b *testBroker) again(now cluster.TopicID, epoch int64, on ControlConn) {
	b.t.Helper()
	stop := stopRequest(3, false, stop{tp: tpT, epoch: cluster.LeaderEpochDuringDelete, delete: true})
	stop.BrokerEpoch = epoch
	create := leaderAndISRRequest(7, leadState{topic: "t", id: now, leader: 1, isr: []int32{1}, isNew: true})
	create.BrokerEpoch = epoch
	announce := kmsg.NewPtrUpdateMetadataRequest()
	announce.Version, announce.ControllerID, announce.ControllerEpoch, announce.BrokerEpoch = 8, 1, 1, epoch
	if stopped := b.Manager.HandleStopReplica(stop, on); stopped == nil || stopped.ErrorCode != 0 {
		b.t.Errorf("StopReplica: %+v", stopped)
	}
	created := b.Manager.HandleLeaderAndISR(create, on)
	if created == nil || created.ErrorCode != 0 || created.Topics[0].Partitions[0].ErrorCode != 0 {
		b.t.Errorf("LeaderAndIsr: %+v", created)
	}
	if announced := b.Manager.HandleUpdateMetadata(announce, on); announced == nil || announced.ErrorCode != 0 {
		b.t.Errorf("UpdateMetadata: %+v", announced)
	}
}

// wantTopic is the topic with that id, led here, in a broker whose controller is 1.
func (b *testBroker) wantTopic(id cluster.TopicID) {
	b.t.Helper()
	log, known := b.logs.Get(tpT)
	if _, hosted := b.Partition(tpT); !known || log.TopicID() != id || hosted != HostedOnline {
		b.t.Errorf("log known %v, hosted %v", known, hosted)
	}
	if id := b.cache.Image().Controller(); id != 1 {
		b.t.Errorf("the controller is %d", id)
	}
}

// A controller that sends a request again on another connection has given the first one up: what is read of that afterwards is void.
func TestRequestsOfAConnectionThatTheControllerGaveUpAreNotApplied(t *testing.T) {
	former, now := cluster.NewTopicID(), cluster.NewTopicID()
	for name, late := range lateRequests(former) {
		t.Run(name, func(t *testing.T) {
			b := newTestBroker(t, brokerOptions{epoch: 50})
			if !late(b, 3) {
				t.Error("the request of the only connection is refused")
			}
			b.again(now, 50, 4)
			if late(b, 3) {
				t.Error("the request of the former connection is answered")
			}
			b.wantTopic(now)
		})
	}
}

// Connections are compared within a term: the next controller may have connected before the last one did.
func TestTheNextControllerMayHaveAnOlderConnection(t *testing.T) {
	b := newTestBroker(t, brokerOptions{epoch: 50})
	b.again(cluster.NewTopicID(), 50, 4)
	req := leaderAndISRRequest(7, leadState{topic: "t", leader: 1, le: 1, isr: []int32{1}})
	req.ControllerEpoch = 2
	if resp := b.Manager.HandleLeaderAndISR(req, 3); resp == nil || resp.ErrorCode != 0 {
		t.Errorf("the next controller is answered %+v", resp)
	}
	if resp := b.Manager.HandleLeaderAndISR(req, 2); resp != nil {
		t.Errorf("a connection that it has given up is answered %+v", resp)
	}
}

// The broker registers again, and is sent what is new, in the moment in which a request of the controller is found to be meant for the
// former registration that is still the one of now: the request takes effect before all of that, or not at all.
func TestNoRequestTakesEffectOnALaterRegistrationThanItsOwn(t *testing.T) {
	former, now := cluster.NewTopicID(), cluster.NewTopicID()
	for name, late := range lateRequests(former) {
		t.Run(name, func(t *testing.T) {
			epoch, armed, moved := cluster.BrokerEpoch(50), false, false
			var b *testBroker
			move := func() {
				if !moved {
					epoch, moved = 51, true
					b.again(now, 51, 0)
				}
			}
			b = newTestBroker(t, brokerOptions{epochNow: func() cluster.BrokerEpoch {
				seen := epoch
				if armed && b.control.TryLock() {
					// Nothing keeps a later request from being first.
					b.control.Unlock()
					armed = false
					move()
				}
				return seen
			}})
			armed = true
			late(b, 0)
			armed = false
			move()
			b.wantTopic(now)
		})
	}
}

// The controller can know of a registration before the broker does. What it then sends ends the former one.
func TestARequestForARegistrationToComeEndsTheOneBefore(t *testing.T) {
	former, now := cluster.NewTopicID(), cluster.NewTopicID()
	for name, late := range lateRequests(former) {
		t.Run(name, func(t *testing.T) {
			epoch := cluster.BrokerEpoch(50)
			b := newTestBroker(t, brokerOptions{epochNow: func() cluster.BrokerEpoch { return epoch }})
			b.again(now, 51, 0)
			if late(b, 0) {
				t.Error("the request for the former registration is answered")
			}
			epoch = 51
			if late(b, 0) {
				t.Error("the request for the former registration is answered once the broker knows the next")
			}
			b.wantTopic(now)
		})
	}
}
