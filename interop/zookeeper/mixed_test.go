//go:build interop

package zookeeper

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	core "klamm/internal/cluster"
	"klamm/internal/coord"
)

// TestMixedCluster takes a cluster of two Kafka brokers and one of klamm, then of one and two, through what clusters go
// through, while records are produced with acks=all and read. The releases and protocols are mixed, or those of peers that INTEROP_MIXED names:
// "2.4.1@2.4 3.9.1@3.0".
func TestMixedCluster(t *testing.T) {
	wanted := strings.Fields(cmp.Or(os.Getenv("INTEROP_MIXED"), mixed))
	for _, p := range peers {
		if slices.Contains(wanted, p.String()) {
			t.Run(p.String(), func(t *testing.T) { mix(t, p) })
		}
	}
}

// mixed are the releases that people have not left yet, and the protocols between which klamm's requests differ.
const mixed = "2.4.1@2.4 2.8.2@2.8 3.4.1@3.4 3.9.1@2.8 3.9.1@3.0 3.9.1@3.4 3.9.1@3.9"

func mix(t *testing.T, p peer) {
	kafka := p.release
	c := newClusterOf(t, setup{
		properties: "inter.broker.protocol.version=" + p.protocol, zooKeeper: p.release, offsetsReplicas: 3, brokers: []kind{kafka, kafka, klamm},
	})
	c.start(0, 1)
	c.start(2)
	c.moveController(0, 1)
	c.createTopic("load", 6, nil)
	c.awaitISR("load")
	l := c.startLoad("load")
	c.progress(l)
	c.step("klamm serves under Kafka's controller")
	c.liveUnder(l, 0)
	c.liveUnder(l, 2)

	for range 5 {
		c.moveController(0, 1)
		c.progress(l)
		c.moveController(2)
		c.progress(l)
	}
	c.step("office handed over ten times")

	c.deleteWithout(l, 2, 1)
	c.deleteWithout(l, 0, 2)
	c.deleteWithout(l, 0, 1)
	c.deletesAndDies(l, 2)
	c.deletesAndDies(l, 1)
	for _, id := range []int32{2, 1} {
		c.moveController(id)
		c.stop(id)
		c.progress(l)
		c.start(id)
		c.awaitISR("load")
		c.step("%s as controller stopped and back", c.brokers[id].kind)
	}
	for _, swap := range []struct {
		id int32
		to kind
	}{{0, klamm}, {2, kafka}, {2, klamm}} {
		c.swap(swap.id, swap.to)
		c.awaitISR("load")
		c.progress(l)
		c.step("the disk of broker %d taken over by %s", swap.id, swap.to)
	}
	c.deleteWithout(l, 0, 2)
	c.swap(0, kafka)
	c.awaitISR("load")
	c.progress(l)
	c.step("the swapped disk given back to Kafka")
	c.finish(l)
	c.sameReplicas("load")
}

// liveUnder does what needs a controller under that one: creates and deletes a topic, moves replicas with data between
// the kinds and between Kafka's brokers, by the protocol and by what old tools write.
func (c *cluster) liveUnder(l *load, controller int32) {
	c.Helper()
	by := c.brokers[controller].kind
	c.moveController(controller)
	c.createTopic("first", 6, nil)
	c.awaitISR("first")
	c.deleteTopic("first")
	c.awaitGone("first")
	c.step("topic created and deleted by %s", by)
	c.moveReplicas(l, "load", []int32{2, 1}, []int32{0, 1}, []int32{1}, []int32{0, 2}, []int32{1, 2, 0})
	c.step("replicas moved between Kafka and klamm, and from Kafka to Kafka, by %s", by)

	moved, chosen := core.TopicPartition{Topic: "load", Partition: 1}, core.TopicPartition{Topic: "load", Partition: 2}
	c.request(coord.ReassignPartitionsPath, coord.EncodeReassignment(map[core.TopicPartition][]core.BrokerID{moved: {2, 0, 1}, {Topic: "gone", Partition: 0}: {0}}))
	c.awaitPlaced(moved, []int32{2, 0, 1})
	state, err := coord.DecodeTopic([]byte(c.get(coord.TopicPath("load"))))
	if err != nil {
		c.Fatal(err)
	}
	preferred := state.Partitions[chosen.Partition].Replicas[0]
	c.request(coord.PreferredElectionPath, coord.EncodePreferredElection([]core.TopicPartition{chosen, moved}))
	for _, want := range []struct {
		tp     core.TopicPartition
		leader core.BrokerID
	}{{chosen, preferred}, {moved, 2}} {
		c.eventually(20*time.Second, fmt.Sprintf("%d leads %s", want.leader, want.tp), func() (bool, string) {
			raw := c.get(coord.PartitionStatePath(want.tp))
			s, err := coord.DecodePartitionState([]byte(raw), 0)
			return err == nil && s.Leader == want.leader, raw
		})
	}
	c.awaitISR("load")
	c.progress(l)
	c.step("what old tools write was done by %s", by)
}

// request writes what old tools write, and waits until the controller has taken it away.
func (c *cluster) request(path string, data []byte) {
	c.Helper()
	if _, err := c.store.Multi(c.Context(), coord.Create(path, data)); err != nil {
		c.Fatal(err)
	}
	c.eventually(60*time.Second, path+" is done", func() (bool, string) {
		n, err := c.store.Get(c.Context(), path)
		return errors.Is(err, coord.ErrNoNode), string(n.Data)
	})
}

// deleteWithout deletes a topic while a broker with replicas of it is dead: the deletion waits for it, since Kafka's brokers
// have replicas too, and ends when it is back.
func (c *cluster) deleteWithout(l *load, controller, dead int32) {
	c.Helper()
	c.moveController(controller)
	c.createTopic("waits", 6, nil)
	c.awaitISR("waits")
	c.kill(dead)
	c.deleteTopic("waits")
	c.endSession(dead)
	c.progress(l)
	if _, err := c.store.Get(c.Context(), coord.DeleteTopicPath("waits")); err != nil {
		c.Errorf("the deletion did not wait for broker %d: %v", dead, err)
	}
	c.start(dead)
	c.awaitGone("waits")
	c.awaitISR("load")
	c.step("topic deleted by %s, while a broker of %s was dead", c.brokers[controller].kind, c.brokers[dead].kind)
}

// deletesAndDies kills the controller in the middle of a deletion; the next one goes on with it.
func (c *cluster) deletesAndDies(l *load, controller int32) {
	c.Helper()
	c.moveController(controller)
	c.createTopic("orphan", 6, nil)
	c.awaitISR("orphan")
	c.requestDeletion("orphan")
	c.kill(controller)
	c.endSession(controller)
	c.eventually(30*time.Second, "another broker takes the office", func() (bool, string) {
		now := c.controller()
		return now >= 0 && now != controller, fmt.Sprint(now)
	})
	c.progress(l)
	c.start(controller)
	c.awaitGone("orphan")
	c.awaitISR("load")
	c.progress(l)
	c.step("%s as controller killed while it deleted a topic", c.brokers[controller].kind)
}

// requestDeletion writes the marker itself, as every kind of client ends in doing: the controller has just begun then.
func (c *cluster) requestDeletion(topic string) {
	c.Helper()
	if _, err := c.store.Multi(c.Context(), coord.Create(coord.DeleteTopicPath(topic), nil)); err != nil {
		c.Fatal(err)
	}
}
