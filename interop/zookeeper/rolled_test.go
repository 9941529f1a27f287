//go:build interop

package zookeeper

import (
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	core "klamm/internal/cluster"
	"klamm/internal/coord"
)

// TestTheProtocolIsRolledOver27 rolls inter.broker.protocol.version from 2.6 to 2.8, broker by broker, while records are produced with
// acks=all. Leaders at 2.6 write their ISRs into the state nodes and tell of it seconds later; klamm at 2.8, as controller, has
// to elect by what they wrote when they die before. It runs where INTEROP_PEERS is set.
func TestTheProtocolIsRolledOver27(t *testing.T) {
	if os.Getenv("INTEROP_PEERS") == "" {
		return
	}
	c := newClusterOf(t, setup{
		properties: "inter.broker.protocol.version=2.6", session: 8 * time.Second, lag: 2 * time.Second, offsetsReplicas: 3, brokers: []kind{kafka, kafka, klamm},
	})
	c.start(0, 1, 2)
	c.createTopic("load", 6, nil)
	c.awaitISR("load")
	l := c.startLoad("load")
	c.progress(l)
	c.step("all at 2.6")

	c.roll(2)
	c.moveController(2)
	c.progress(l)
	c.step("klamm at 2.8 is controller over leaders at 2.6")
	c.leaderDiesAfterItsISRShrank(0, 1)
	c.progress(l)
	c.step("a leader that had taken a follower out of its ISRs is dead")
	c.brokers[0].addProperties("inter.broker.protocol.version=2.8\n")
	c.start(0)
	c.awaitISR("load")
	c.moveReplicas(l, "load", []int32{2, 0}, []int32{1, 2}, []int32{1, 2, 0})
	c.step("replicas moved to and from a leader at 2.6")

	c.moveController(0)
	c.progress(l)
	c.moveController(2)
	c.roll(1)
	c.awaitISR("load")
	c.progress(l)
	c.step("all at 2.8")
	c.finish(l)
	c.sameReplicas("load")
}

// roll stops a broker and starts it with the next protocol.
func (c *cluster) roll(id int32) {
	c.Helper()
	c.stop(id)
	c.brokers[id].addProperties("inter.broker.protocol.version=2.8\n")
	c.start(id)
	c.awaitISR("load")
}

// leaderDiesAfterItsISRShrank stops a follower until the leader has written an ISR without it, and kills the leader at once. The follower
// goes on: it may not lead with less than was acknowledged meanwhile.
func (c *cluster) leaderDiesAfterItsISRShrank(leader, follower int32) {
	c.Helper()
	led := c.ledBy("load", leader)
	_ = c.brokers[follower].proc.cmd.Process.Signal(syscall.SIGSTOP)
	c.eventually(20*time.Second, "the leader takes the follower out of an ISR", func() (bool, string) {
		raw := c.get(coord.PartitionStatePath(led))
		s, err := coord.DecodePartitionState([]byte(raw), 0)
		if err != nil {
			c.Fatal(err)
		}
		return s.Leader == core.BrokerID(leader) && !slices.Contains(s.ISR, core.BrokerID(follower)), raw
	})
	c.kill(leader)
	_ = c.brokers[follower].proc.cmd.Process.Signal(syscall.SIGCONT)
	c.eventually(30*time.Second, "the leader is missed", func() (bool, string) { return c.registration(leader) == 0, "" })
}

// ledBy finds a partition that a broker leads.
func (c *cluster) ledBy(topic string, leader int32) core.TopicPartition {
	c.Helper()
	for p := range int32(6) {
		tp := core.TopicPartition{Topic: topic, Partition: p}
		s, err := coord.DecodePartitionState([]byte(c.get(coord.PartitionStatePath(tp))), 0)
		if err != nil {
			c.Fatal(err)
		}
		if s.Leader == core.BrokerID(leader) {
			return tp
		}
	}
	c.Fatalf("broker %d leads nothing of %s", leader, topic)
	return core.TopicPartition{}
}
