//go:build interop

package zookeeper

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	core "klamm/internal/cluster"
	"klamm/internal/coord"
)

// peer is a release of Kafka's, the ZooKeeper that it brings, and the inter-broker protocol that it speaks with klamm.
type peer struct {
	release  kind
	protocol string
	always   bool
}

// peers are those that klamm is meant to live with. Those that TestKafkaOfManyReleasesAndProtocols does not always run, for time's sake or since
// TestMixedCluster does, it runs where INTEROP_PEERS=all, or names them: "3.9.1@3.0 3.9.1@2.6".
var peers = []peer{
	{kafka241, "2.4", true},
	{kafka282, "2.8", false},
	{kafka341, "3.4", true},
	{kafka, "2.6", false},
	{kafka, "2.8", false},
	{kafka, "3.0", false},
	{kafka, "3.4", false},
	{kafka, "3.9", false},
}

func (p peer) String() string { return string(p.release) + "@" + p.protocol }

// below28 says that topics have no ids.
func (p peer) below28() bool { return slices.Contains([]string{"2.4", "2.6"}, p.protocol) }

// TestKafkaOfManyReleasesAndProtocols lets a broker of Kafka's and one of klamm's lead, follow and control each other, while
// records are produced with acks=all: topics created, grown and deleted under either controller, replicas moved by either,
// either broker killed, and stopped (of Kafka's only where INTEROP_PEERS is set). Below 2.7 leaders write their ISR themselves.
func TestKafkaOfManyReleasesAndProtocols(t *testing.T) {
	wanted := os.Getenv("INTEROP_PEERS")
	for _, p := range peers {
		if wanted == "" && p.always || wanted == "all" || slices.Contains(strings.Fields(wanted), p.String()) {
			t.Run(p.String(), func(t *testing.T) {
				c := newClusterOf(t, setup{
					properties: "inter.broker.protocol.version=" + p.protocol, lag: 3 * time.Second, offsetsReplicas: 2, zooKeeper: p.release, brokers: []kind{p.release, klamm},
				})
				c.liveTogether(!p.below28())
			})
		}
	}
}

// liveTogether takes broker 0, Kafka's, and broker 1, klamm's, through that; topicIDs says that topics have ids.
func (c *cluster) liveTogether(topicIDs bool) {
	c.Helper()
	c.start(0, 1)
	c.createTopic("load", 4, nil)
	c.awaitISR("load")
	l := c.startLoad("load")
	c.progress(l)
	c.step("both serve")
	for _, controller := range []int32{0, 1} {
		c.moveController(controller)
		c.createTopic("gone", 2, nil)
		c.awaitISR("gone")
		if raw := c.get(coord.TopicPath("gone")); strings.Contains(raw, "topic_id") != topicIDs {
			c.Errorf("topic of controller %d: %s", controller, raw)
		}
		if r, err := c.admin.UpdatePartitions(c.Context(), 3, "gone"); err != nil || r.Error() != nil {
			c.Fatal(err, r.Error())
		}
		c.eventually(20*time.Second, "the partition added", func() (bool, string) {
			names, err := c.store.Children(c.Context(), coord.PartitionsPath("gone"))
			return len(names) == 3, fmt.Sprint(names, err)
		})
		c.awaitISR("gone")
		c.deleteTopic("gone")
		c.awaitGone("gone")
		c.moveReplicas(l, "load", []int32{1 - controller}, []int32{controller, 1 - controller}, []int32{0, 1})
		c.step("topic created, grown and deleted, replicas moved; the controller is %s", c.brokers[controller].kind)
	}
	for _, id := range []int32{1, 0} {
		if id == 1 || os.Getenv("INTEROP_PEERS") != "" { // Kafka takes its time
			c.stop(id)
			c.progress(l)
			c.start(id)
			c.awaitISR("load")
		}
		c.kill(id)
		c.progress(l)
		c.start(id)
		c.awaitISR("load")
		c.progress(l)
		c.step("%s away and back", c.brokers[id].kind)
	}
	c.finish(l)
	c.sameReplicas("load")
}

func (c *cluster) get(path string) string {
	c.Helper()
	n, err := c.store.Get(c.Context(), path)
	if err != nil {
		c.Fatal(path, err)
	}
	return string(n.Data)
}

// moveReplicas takes partition 0 of a topic, with its data, to one set of brokers after the other, under whoever is controller.
func (c *cluster) moveReplicas(l *load, topic string, targets ...[]int32) {
	c.Helper()
	for _, target := range targets {
		c.moveTo(topic, target...)
		c.progress(l)
	}
}

// moveTo takes partition 0 of a topic to other brokers.
func (c *cluster) moveTo(topic string, target ...int32) {
	c.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, 0, target)
	c.reassign(req)
	c.awaitPlaced(core.TopicPartition{Topic: topic, Partition: 0}, target)
}

// reassign asks the controller, again while the office changes hands.
func (c *cluster) reassign(req kadm.AlterPartitionAssignmentsReq) {
	c.Helper()
	c.eventually(60*time.Second, fmt.Sprintf("reassignment of %v is taken", req), func() (bool, string) {
		r, err := c.admin.AlterPartitionAssignments(c.Context(), req)
		if err == nil {
			err = r.Error()
		}
		return err == nil, fmt.Sprint(err)
	})
}

// awaitPlaced waits until a partition is on the brokers, all in sync, led by one of them.
func (c *cluster) awaitPlaced(tp core.TopicPartition, target []int32) {
	c.Helper()
	c.eventually(60*time.Second, fmt.Sprintf("%s is on %v", tp, target), func() (bool, string) {
		n, err := c.store.Get(c.Context(), coord.PartitionStatePath(tp))
		if err != nil {
			return false, err.Error()
		}
		state, err := coord.DecodePartitionState(n.Data, n.Stat.Version)
		if err != nil {
			c.Fatal(err)
		}
		topic := c.get(coord.TopicPath(tp.Topic))
		a, err := coord.DecodeTopic([]byte(topic))
		if err != nil {
			c.Fatal(err)
		}
		p := a.Partitions[tp.Partition]
		done := len(p.Adding)+len(p.Removing) == 0 && slices.Equal(p.Replicas, brokerIDs(target)) && len(state.ISR) == len(target)
		return done && slices.Contains(target, int32(state.Leader)), string(n.Data) + topic
	})
}

func brokerIDs(ids []int32) (out []core.BrokerID) {
	for _, id := range ids {
		out = append(out, core.BrokerID(id))
	}
	return out
}
