//go:build interop

package zookeeper

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	core "klamm/internal/cluster"
	"klamm/internal/coord"
)

// TestDoctorNamesTheCauseOfEachStuckState brings three Kafka brokers, broker 2 the controller, into the states that
// their controller does not get out of, and has the doctor find exactly these. Then it lets a sound controller take over.
func TestDoctorNamesTheCauseOfEachStuckState(t *testing.T) {
	c := newClusterOf(t, setup{brokers: []kind{kafka, kafka, kafka}, session: 12 * time.Second}) // one of them is frozen for a moment
	c.start(0, 1, 2)
	c.step("three Kafka brokers serve")
	c.moveController(2)
	for topic, replicas := range map[string][]int32{"held": {0, 1}, "byhand": {0}, "lost": {1}, "moved": {1, 0}, "dying": {0, 1}, "moving": {0}, "sound": {2, 0}} {
		c.createAssigned(topic, replicas...)
	}
	c.wantFindings("healthy", 0)

	c.keepsANameBack("held", 0, 1, 2)
	c.step("W1: the controller keeps a name back")
	c.createsByHand("byhand", "early")
	c.step("W4, W5: topics that the controller did not see come")
	c.createNowhere("ghost", 9)
	c.leavesADyingBrokerWork(1)
	c.step("W6, W7, W15: topics on brokers that are not there")
	stuck := []string{
		"deletion-stuck topic held", "deletion-stuck topic dying", "deletion-stuck topic moving", "never-initialised topic byhand",
		"leadership-not-announced topic early", "ghost-topic topic ghost", "broker-unknown broker 9", "broker-down broker 1",
		"no-leader topic lost",
	}
	found := c.wantFindings("stuck", 2, stuck...)
	for finding, cause := range map[string]string{
		"deletion-stuck topic held":   "the controller keeps the name back",
		"deletion-stuck topic dying":  "broker 1, with replicas of it, is not registered",
		"deletion-stuck topic moving": "broker 1, with replicas of it, is not registered; partition 0 is being reassigned",
		"ghost-topic topic ghost":     "its replicas are on broker 9, not registered",
	} {
		if !strings.Contains(found[finding], cause) {
			t.Errorf("%s: %s", finding, found[finding])
		}
	}

	c.fencesTheController()
	c.step("a zombie controller, an orphan marker, a half-removed topic")
	c.wantFindings("fenced", 2, append(stuck, "controller-fenced controller", "orphan-marker topic never", "half-removed-topic topic halfway")...)
	if out, exit := c.klamm("", "doctor", "repair", "--yes", "--zookeeper", c.zk, "--pause", "100ms"); exit != 0 || !strings.Contains(out, "/admin/delete_topics/never") || !strings.Contains(out, "/config/topics/halfway") {
		t.Errorf("repair: exit %d\n%s", exit, out)
	}
	if _, err := c.store.Multi(t.Context(), coord.Delete(coord.ControllerPath, coord.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	c.start(1)
	for _, topic := range []string{"held", "dying", "moving"} {
		c.awaitGone(topic)
	}
	c.step("a new controller, broker 1 is back: deletions have ended")
	c.wantFindings("after all", 2, "ghost-topic topic ghost", "broker-unknown broker 9", "stray-replicas broker 1")
	c.step("what else was wrong is mended, but for the topic on no broker and the replica left on broker 1")
}

// wantFindings runs the doctor, brokers asked, and compares what it finds, by code and subject.
func (c *cluster) wantFindings(state string, exit int, want ...string) map[string]string {
	c.Helper()
	var found map[string]string
	var got int
	want = slices.Sorted(slices.Values(want))
	if !c.within(30*time.Second, func() bool {
		found, got = c.doctor("--bootstrap-server", c.brokers[0].addr, "--deletion-grace", "1ms")
		delete(found, "reassignment-of-unknown "+coord.ReassignPartitionsPath) // of the topic deleted while it moves: Kafka may have taken it out
		return got == exit && slices.Equal(sortedKeys(found), want)
	}) {
		c.Errorf("%s: exit %d, not %d; found\n%s\nwant\n%s", state, got, exit, strings.Join(sortedKeys(found), "\n"), strings.Join(want, "\n"))
	}
	return found
}

func sortedKeys(found map[string]string) []string { return slices.Sorted(maps.Keys(found)) }

// createAssigned creates a topic of one partition on the brokers, and waits for them to be in sync.
func (c *cluster) createAssigned(topic string, replicas ...int32) {
	c.Helper()
	if code := c.requestTopic(topic, 30*time.Second, replicas...); code != core.None {
		c.Fatalf("create %s: %v", topic, code)
	}
	c.awaitState(topic, "its replicas in sync", func(s core.LeaderAndISR) bool { return len(s.ISR) == len(replicas) })
}

// createNowhere creates a topic on a broker that does not exist, which Kafka accepts.
func (c *cluster) createNowhere(topic string, broker int32) {
	c.Helper()
	if code := c.requestTopic(topic, time.Millisecond, broker); code != core.RequestTimedOut {
		c.Fatalf("create %s: %v", topic, code)
	}
}

func (c *cluster) requestTopic(topic string, timeout time.Duration, replicas ...int32) core.ErrorCode {
	c.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(timeout.Milliseconds())
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
	a.Replicas = replicas
	t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(c.Context(), c.client)
	if err != nil {
		c.Fatal(err)
	}
	return core.ErrorCode(resp.Topics[0].ErrorCode)
}

// awaitState waits for the state of a topic's only partition.
func (c *cluster) awaitState(topic, what string, holds func(core.LeaderAndISR) bool) {
	c.Helper()
	c.eventually(30*time.Second, topic+": "+what, func() (bool, string) {
		n, err := c.store.Get(c.Context(), coord.PartitionStatePath(core.TopicPartition{Topic: topic}))
		if err != nil {
			return false, err.Error()
		}
		s, err := coord.DecodePartitionState(n.Data, n.Stat.Version)
		return err == nil && holds(s), string(n.Data)
	})
}

func (c *cluster) multi(ops ...coord.Op) {
	c.Helper()
	if _, err := c.store.Multi(c.Context(), ops...); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) removeTree(topic string) {
	c.Helper()
	if err := c.store.DeleteTree(c.Context(), nil, coord.TopicPath(topic)); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) awaitDeleteDir(broker int32, topic string) {
	c.Helper()
	c.eventually(30*time.Second, fmt.Sprintf("broker %d has deleted its replica of %s", broker, topic), func() (bool, string) {
		dirs, _ := filepath.Glob(filepath.Join(c.brokers[broker].dir, "*", topic+"-0*-delete"))
		return len(dirs) > 0, fmt.Sprint(dirs)
	})
}

func (c *cluster) signal(broker int32, s syscall.Signal) {
	c.Helper()
	if err := c.brokers[broker].proc.cmd.Process.Signal(s); err != nil {
		c.Fatal(err)
	}
}

// keepsANameBack is W1: a broker goes after it has deleted its replica and before the other one has. The controller takes the topic for
// one that has to wait, for ever, also when the name is used again. The broker "goes" by the loss of its registration.
func (c *cluster) keepsANameBack(topic string, slow, gone, controller int32) {
	c.Helper()
	c.signal(slow, syscall.SIGSTOP)
	c.multi(coord.Create(coord.DeleteTopicPath(topic), nil))
	c.awaitDeleteDir(gone, topic)
	c.createAssigned("after", controller) // the controller has heard of the deleted replica when it comes to this
	c.multi(coord.Delete(coord.BrokerPath(clusterID(gone)), coord.AnyVersion))
	c.awaitState("moved", "led by the other broker", func(s core.LeaderAndISR) bool { return s.Leader != clusterID(gone) })
	c.signal(slow, syscall.SIGCONT)
	c.kill(gone)
	c.awaitGone(topic)
	c.start(gone)
	c.createAssigned(topic, slow, controller)
	c.multi(coord.Create(coord.DeleteTopicPath(topic), nil)) // a request would wait in vain
}

// createsByHand is W4 and W5: a topic whose nodes are removed and written again between two looks of the controller, and one whose first
// state is there before it.
func (c *cluster) createsByHand(replaced, early string) {
	c.Helper()
	node, err := c.store.Get(c.Context(), coord.TopicPath(replaced))
	if err != nil {
		c.Fatal(err)
	}
	c.removeTree(replaced)
	c.multi(coord.Create(coord.TopicPath(replaced), node.Data))
	state := coord.EncodePartitionState(core.LeaderAndISR{Leader: 0, ISR: []core.BrokerID{0}, ControllerEpoch: 1})
	c.multi(
		coord.Create(coord.TopicPath(early), []byte(`{"version":2,"partitions":{"0":[0]},"adding_replicas":{},"removing_replicas":{}}`)),
		coord.Create(coord.PartitionsPath(early), nil), coord.Create(coord.PartitionsPath(early)+"/0", nil),
		coord.Create(coord.PartitionStatePath(core.TopicPartition{Topic: early}), state),
	)
}

// leavesADyingBrokerWork is W7 and W15: a deletion during a move to a broker that then dies, and one that needs that broker; and a move away
// from it, which leaves its data (W20).
func (c *cluster) leavesADyingBrokerWork(broker int32) {
	c.Helper()
	c.signal(broker, syscall.SIGSTOP)
	c.multi(coord.Create(coord.ReassignPartitionsPath, coord.EncodeReassignment(map[core.TopicPartition][]core.BrokerID{{Topic: "moving"}: {clusterID(broker)}})))
	c.eventually(30*time.Second, "the move has begun", func() (bool, string) {
		n, err := c.store.Get(c.Context(), coord.TopicPath("moving"))
		return err == nil && strings.Contains(string(n.Data), `"adding_replicas":{"0":[1]}`), string(n.Data)
	})
	c.multi(coord.Create(coord.DeleteTopicPath("moving"), nil))
	c.kill(broker)
	c.multi(coord.Delete(coord.BrokerPath(clusterID(broker)), coord.AnyVersion)) // the end of its session, without waiting for it
	c.awaitState("lost", "without leader", func(s core.LeaderAndISR) bool { return s.Leader == core.NoBroker })
	c.multi(coord.Create(coord.DeleteTopicPath("dying"), nil))
	c.moveTo("moved", 0)
}

// fencesTheController writes the controller's epoch, so that all its writes fail, and leaves markers that it cannot remove.
func (c *cluster) fencesTheController() {
	c.Helper()
	n, err := c.store.Get(c.Context(), coord.ControllerEpochPath)
	if err != nil {
		c.Fatal(err)
	}
	c.multi(
		coord.Set(coord.ControllerEpochPath, n.Data, coord.AnyVersion),
		coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, "halfway"), []byte(`{"version":1,"config":{"retention.ms":"1"}}`)),
		coord.Create(coord.DeleteTopicPath("halfway"), nil),
		coord.Create(coord.DeleteTopicPath("never"), nil),
	)
}
