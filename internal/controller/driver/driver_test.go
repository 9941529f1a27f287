package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

var (
	on1  = []cluster.BrokerID{1}
	on12 = []cluster.BrokerID{1, 2}
	on21 = []cluster.BrokerID{2, 1}
)

func TestOneBrokerIsElectedAndTellsItselfOverTheWire(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		b := c.start(1)
		defer b.stop()
		synctest.Wait()
		if id, epoch := c.controllerNode(); id != 1 || epoch != 1 || !b.IsActive() || b.ActiveControllerID() != 1 {
			t.Errorf("controller %d, epoch %d, active %t, known as %d", id, epoch, b.IsActive(), b.ActiveControllerID())
		}
		if im := b.cache.Image(); im.Controller() != 1 || !im.HasBroker(1) {
			t.Errorf("the broker was told of controller %d and brokers %v", im.Controller(), im.Brokers())
		}
		req := b.fake.take()[0].(*kmsg.UpdateMetadataRequest)
		if req.Version != 8 || req.ControllerEpoch != 1 || req.BrokerEpoch <= 0 {
			t.Errorf("request v%d, controller epoch %d, broker epoch %d", req.Version, req.ControllerEpoch, req.BrokerEpoch)
		}
	})
}

func TestOfTwoBrokersOneLeadsAndTheOtherFollowsWhenItStops(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.start(1)
		synctest.Wait()
		two := c.start(2)
		defer two.stop()
		synctest.Wait()
		if two.IsActive() || two.ActiveControllerID() != 1 || !one.cache.Image().HasBroker(2) || two.cache.Image().Controller() != 1 {
			t.Errorf("broker 2: active %t, controller %d", two.IsActive(), two.ActiveControllerID())
		}
		c.createTopic("t", on12, on21)
		synctest.Wait()
		one.stop()
		synctest.Wait()
		if id, epoch := c.controllerNode(); id != 2 || epoch != 2 || !two.IsActive() || one.IsActive() {
			t.Errorf("controller %d, epoch %d", id, epoch)
		}
		for p := range int32(2) {
			if s, _ := c.state("t", p); s.Leader != 2 || !slices.Equal(s.ISR, []cluster.BrokerID{2}) {
				t.Errorf("t-%d after broker 1 stopped: %v", p, s)
			}
		}
		two.expectTopic("t", 2)
	})
}

func TestATopicIsCreatedAndDeletedEndToEnd(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one, two := c.startTwo()
		one.fake.take()
		two.fake.take()

		c.createTopic("t", on12, on21)
		synctest.Wait()
		one.expectTopic("t", 2)
		two.expectTopic("t", 2)
		for _, b := range []*testBroker{one, two} {
			got := requestLog(b.fake.take())
			for _, want := range []string{"LeaderAndIsr t-0 leader=1 le=0 isr=[1 2] new=true", "LeaderAndIsr t-1 leader=2 le=0 isr=[2 1] new=true"} {
				if !contains(got, want) {
					t.Errorf("broker %d was not told %q, but %q", b.id, want, got)
				}
			}
		}
		topic, _ := one.cache.Image().Topic("t")
		if name, ok := one.TopicName(topic.ID); !ok || name != "t" {
			t.Errorf("id %v is %q", topic.ID, name)
		}
		if _, ok := two.TopicName(topic.ID); ok {
			t.Error("a broker that is not the controller resolves ids")
		}

		two.fake.setHold(true)
		c.deleteTopic("t")
		synctest.Wait()
		if !one.IsTopicQueuedForDeletion("t") || one.Metrics().Core.TopicsToDeleteCount != 1 {
			t.Error("the topic is not queued for deletion while a broker has not answered")
		}
		why, err := one.Deletions(t.Context())
		if err != nil || len(why) != 1 || why[0].Name != "t" {
			t.Errorf("deletions %+v, %v", why, err)
		}
		if _, err := two.Deletions(t.Context()); !errors.Is(err, ErrNotController) {
			t.Errorf("broker 2 explains deletions: %v", err)
		}
		two.fake.setHold(false)
		synctest.Wait()
		for _, b := range []*testBroker{one, two} {
			b.expectGone("t")
			if got := requestLog(b.fake.take()); !contains(got, "StopReplica t-0 le=-2 delete=true") {
				t.Errorf("broker %d was not told to delete: %q", b.id, got)
			}
		}
		if _, ok := one.TopicName(topic.ID); ok || one.IsTopicQueuedForDeletion("t") {
			t.Error("the controller still knows the deleted topic")
		}

		c.createTopic("t", on12)
		synctest.Wait()
		one.expectTopic("t", 1)
	})
}

func TestAnUnreachableBrokerGetsEverythingOnceItListens(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.start(1)
		defer one.stop()
		synctest.Wait()
		two := c.addBroker(2, brokerOptions{noFace: true}).run()
		defer two.stop()
		synctest.Wait()
		c.createTopic("t", on12)
		advance(3 * time.Second)
		one.expectTopic("t", 1)
		if _, ok := two.cache.Image().Topic("t"); ok {
			t.Fatal("broker 2 was reached")
		}
		var queue BrokerQueue
		for _, q := range one.Status().Brokers {
			if q.Broker == 2 {
				queue = q
			}
		}
		if queue.QueueSize == 0 || queue.Resends < 20 || queue.Connected {
			t.Errorf("queue of broker 2: %+v", queue)
		}
		two.fake.start()
		advance(200 * time.Millisecond)
		two.expectTopic("t", 1)
		if n := one.Metrics().TotalQueueSize; n != 0 {
			t.Errorf("%d requests still wait", n)
		}
	})
}

func TestTheStoreMayGoAwayAndComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		b := c.start(1)
		defer b.stop()
		synctest.Wait()
		b.client.Disconnect()
		c.createTopic("a", on1)
		advance(testTTL / 2)
		if _, ok := c.state("a", 0); ok || !b.IsActive() {
			t.Fatal("work was done without a store")
		}
		b.client.Reconnect()
		advance(time.Minute)
		b.expectTopic("a", 1)
		if _, epoch := c.controllerNode(); epoch != 1 {
			t.Errorf("controller epoch %d: office was given up", epoch)
		}
	})
}

func TestStateWritesWithLostAnswersAreResolved(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.addBroker(1, brokerOptions{})
		// Every write is answered "unknown" the first time it is made, applied or not in turns.
		seen := map[string]bool{}
		writes := 0
		hook := loseFirstAnswers(seen, &writes)
		one.client.SetHook(hook)
		one.run()
		defer one.stop()
		advance(10 * time.Second)
		two := c.start(2)
		advance(10 * time.Second)
		c.createTopic("t", on12, on21, on12)
		advance(10 * time.Second)
		one.expectTopic("t", 3)
		for p := range int32(3) {
			if s, _ := c.state("t", p); s.LeaderEpoch != 0 || s.PartitionEpoch != 0 {
				t.Errorf("t-%d was written more than once: %v", p, s)
			}
		}
		two.stop()
		advance(time.Minute)
		for p := range int32(3) {
			if s, _ := c.state("t", p); s.Leader != 1 || !slices.Equal(s.ISR, on1) {
				t.Errorf("t-%d after broker 2 stopped: %v", p, s)
			}
		}
		c.deleteTopic("t")
		advance(time.Minute)
		if _, epoch := c.controllerNode(); epoch != 1 || !one.IsActive() {
			t.Errorf("epoch %d: office was given up", epoch)
		}
		if writes < 6 {
			t.Errorf("only %d answers were lost", writes)
		}
	})
}

func TestAnExpiredSessionIsReplacedAndTheBrokerStandsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		b := c.start(1)
		defer b.stop()
		synctest.Wait()
		b.fake.take()
		c.createTopic("t", on1)
		synctest.Wait()
		b.refuse.Store(3)
		old := b.session.Load().ID()
		c.engine.ExpireSession(old)
		synctest.Wait()
		if b.IsActive() || b.ActiveControllerID() != cluster.NoBroker {
			t.Error("office is kept without a session")
		}
		advance(2 * time.Second)
		if b.IsActive() {
			t.Error("elected although registration failed")
		}
		advance(2 * time.Second)
		if id, epoch := c.controllerNode(); id != 1 || epoch != 2 || !b.IsActive() || b.session.Load().ID() == old {
			t.Errorf("controller %d, epoch %d, active %t", id, epoch, b.IsActive())
		}
		b.expectTopic("t", 1)
		for _, r := range b.fake.take() {
			if u, ok := r.(*kmsg.UpdateMetadataRequest); ok && u.ControllerEpoch == 2 && u.BrokerEpoch == 0 {
				t.Error("a request lacks the broker epoch of the new registration")
			}
		}
	})
}

func TestRequestsAreAnsweredOnceByWhoeverLeads(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one, two := c.startTwo()
		c.createTopic("t", on12)
		synctest.Wait()
		epochs := map[cluster.BrokerID]int64{}
		for _, n := range c.engine.Dump() {
			if id, ok := coord.ParseBrokerPath(n.Path); ok {
				epochs[id] = n.Stat.Czxid
			}
		}
		producerIDs := func(b *testBroker) *kmsg.AllocateProducerIDsResponse {
			req := kmsg.NewPtrAllocateProducerIDsRequest()
			req.BrokerID, req.BrokerEpoch = 2, epochs[2]
			got := make(chan *kmsg.AllocateProducerIDsResponse, 2)
			b.AllocateProducerIDs(t.Context(), req, func(r *kmsg.AllocateProducerIDsResponse) { got <- r })
			return <-got
		}
		for i := range int64(3) {
			if r := producerIDs(one); r.ErrorCode != 0 || r.ProducerIDStart != 1000*i || r.ProducerIDLen != 1000 {
				t.Errorf("block %d: %+v", i, r)
			}
		}
		if r := producerIDs(two); cluster.ErrorCode(r.ErrorCode) != cluster.NotController {
			t.Errorf("broker 2 answers %+v", r)
		}
		for v := range int16(4) {
			req := alterPartitionRequest(v, one.cache.Image().TopicID("t"), epochs[1], v)
			got := make(chan *kmsg.AlterPartitionResponse, 2)
			one.AlterPartition(t.Context(), req, func(r *kmsg.AlterPartitionResponse) { got <- r })
			r := through2(t, <-got)
			if r.ErrorCode != 0 || len(r.Topics) != 1 || (r.Topics[0].Topic == "t") != (v < 2) || r.Topics[0].Partitions[0].ErrorCode != 0 ||
				r.Topics[0].Partitions[0].PartitionEpoch != int32(v)+1 || len(r.Topics[0].Partitions[0].ISR) != 1+int(v)%2 {
				t.Errorf("v%d: %+v", v, r)
			}
		}
		if s, _ := c.state("t", 0); s.PartitionEpoch != 4 || s.LeaderEpoch != 0 {
			t.Errorf("state after four changes: %v", s)
		}
	})
}

// alterPartitionRequest shrinks the ISR of t-0 to the leader in even rounds and grows it again in odd ones.
func alterPartitionRequest(version int16, id cluster.TopicID, brokerEpoch int64, round int16) *kmsg.AlterPartitionRequest {
	isr := on1
	if round%2 == 1 {
		isr = on12
	}
	req := kmsg.NewPtrAlterPartitionRequest()
	req.Version, req.BrokerID, req.BrokerEpoch = version, 1, brokerEpoch
	p := kmsg.NewAlterPartitionRequestTopicPartition()
	p.PartitionEpoch = int32(round)
	for _, b := range isr {
		if version < 3 {
			p.NewISR = append(p.NewISR, int32(b))
		} else {
			m := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
			m.BrokerID = int32(b)
			p.NewEpochISR = append(p.NewEpochISR, m)
		}
	}
	topic := kmsg.NewAlterPartitionRequestTopic()
	topic.Topic, topic.TopicID, topic.Partitions = "t", id, []kmsg.AlterPartitionRequestTopicPartition{p}
	req.Topics = append(req.Topics, topic)
	return req
}

// through2 encodes an answer and decodes it again.
func through2(t *testing.T, r *kmsg.AlterPartitionResponse) *kmsg.AlterPartitionResponse {
	t.Helper()
	out := kmsg.NewPtrAlterPartitionResponse()
	out.Version = r.Version
	if err := out.ReadFrom(r.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestStatusShowsTheLastHundredEventsNewestFirst(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		b := c.start(1)
		defer b.stop()
		synctest.Wait()
		for i := range 60 {
			c.createTopic(fmt.Sprintf("t%d", i), on1)
			synctest.Wait()
		}
		s := b.Status()
		if len(s.Events) != 100 || s.Epoch != 1 || !s.Active || s.Controller != 1 || s.State != "Idle" || s.QueueSize != 0 {
			t.Errorf("%d events, status %+v", len(s.Events), s)
		}
		if !slices.ContainsFunc(s.Events, func(e EventRecord) bool {
			return e.Name == "TopicChange" && e.State == "TopicChange" && e.Operations > 0
		}) {
			t.Errorf("no TopicChange among %+v", s.Events)
		}
		m := b.Metrics()
		if m.Core.GlobalTopicCount != 60 || m.EventQueueTime.Count < 100 || m.StateTimes["TopicChange"].Count < 60 || m.StoreTime.Count == 0 {
			t.Errorf("metrics %+v", m)
		}
	})
}

func TestAllMissingOptionsAreNamedAtOnce(t *testing.T) {
	_, err := New(Options{Config: Config{InterBrokerProtocol: "5.0"}})
	for _, want := range []string{"Store", "Session", "Reregister", "Dial", "Log", "5.0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not named in %v", want, err)
		}
	}
}

func TestADriverThatNeverGotASessionBackEndsToo(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		b := c.start(1)
		synctest.Wait()
		b.refuse.Store(1 << 20)
		c.engine.ExpireSession(b.session.Load().ID())
		advance(10 * time.Second)
		b.stop()
		got := 0
		b.AlterPartition(context.Background(), kmsg.NewPtrAlterPartitionRequest(), func(r *kmsg.AlterPartitionResponse) {
			got++
			if cluster.ErrorCode(r.ErrorCode) != cluster.NotController {
				t.Errorf("answer %+v", r)
			}
		})
		if got != 1 {
			t.Errorf("%d answers after the end", got)
		}
	})
}
