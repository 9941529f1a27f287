//go:build interop

package interop

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestMovesAndElectionsInThreeProcesses reassigns partitions to brokers that die, deletes topics that are being moved, elects by request,
// and has a second broker of the same id turned away.
func TestMovesAndElectionsInThreeProcesses(t *testing.T) {
	c := startPlane(t)
	c.play(t,
		scenario{"R13 the target dies and the move is cancelled", cancelAMoveToADeadBroker},
		scenario{"R13 a move replaces another", replaceAMove},
		scenario{"R13 a move outlives the controller", moveOverAFailover},
		scenario{"R08 a topic is deleted while it is moved", deleteWhatIsMoved},
		scenario{"a topic is moved while it is deleted", moveWhatIsDeleted},
		scenario{"preferred leaders are elected", electPreferred},
		scenario{"an unclean leader is elected", electUnclean},
		scenario{"R14 the id of a live broker is refused", startWithTheIDOfAnother},
	)
}

// reassign asks for a reassignment of partition 0; no replicas cancel it.
func (c *plane) reassign(topic string, replicas ...int32) int16 {
	c.t.Helper()
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: topic,
		Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Replicas: replicas}}}}
	resp := c.ask(req).(*kmsg.AlterPartitionAssignmentsResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 {
		c.t.Fatalf("AlterPartitionReassignments: %+v", resp)
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

// mustReassign wants the move, or without replicas its end, to be accepted.
func (c *plane) mustReassign(topic string, replicas ...int32) {
	c.t.Helper()
	if code := c.reassign(topic, replicas...); code != 0 {
		c.t.Errorf("reassign %s to %v: error %d", topic, replicas, code)
	}
}

// moves lists the topics that are being moved.
func (c *plane) moves() (topics []string) {
	c.t.Helper()
	req := kmsg.NewPtrListPartitionReassignmentsRequest()
	req.TimeoutMillis = 10_000
	for _, t := range c.ask(req).(*kmsg.ListPartitionReassignmentsResponse).Topics {
		topics = append(topics, t.Topic)
	}
	return topics
}

func (c *plane) wantMoves(topics ...string) {
	c.t.Helper()
	if got := c.moves(); !slices.Equal(got, topics) {
		c.t.Errorf("moves listed: %v, want %v", got, topics)
	}
}

// cast gives the indices of the controller and of the two others.
func (c *plane) cast() (controller, other, target int) {
	c.t.Helper()
	controller = c.controller()
	rest := c.others(controller)
	return controller, rest[0], rest[1]
}

func id(i int) int32 { return int32(i + 1) }

// hasReplicas wants exactly the replicas, all in sync.
func hasReplicas(ids ...int32) func(kmsg.MetadataResponseTopicPartition) bool {
	return func(p kmsg.MetadataResponseTopicPartition) bool {
		return p.Leader > 0 && len(p.ISR) == len(ids) && slices.Equal(p.Replicas, ids)
	}
}

// createAt makes a topic of one partition with a record in it.
func (c *plane) createAt(name string, ids ...int32) {
	c.t.Helper()
	if code := c.create(name, ids); code != 0 {
		c.t.Fatalf("create %s: error %d", name, code)
	}
	c.write(name, 1, int(ids[0]-1))
}

// R13: the same request twice is fine, a target that died can be cancelled, nothing of the move stays.
func cancelAMoveToADeadBroker(c *plane) {
	controller, other, target := c.cast()
	c.createAt("move", id(controller), id(other))
	c.freeze(target)
	for range 2 {
		c.mustReassign("move", id(controller), id(target))
	}
	c.wantMoves("move")
	c.kill(target)
	c.mustReassign("move")
	c.wantMoves()
	if code := c.reassign("move"); code != 85 {
		c.t.Errorf("cancel again: error %d", code)
	}
	for _, i := range []int{controller, other} {
		c.awaitPartition(i, "move", "its old replicas", hasReplicas(id(controller), id(other)))
	}
	c.start(target)
	c.awaitIdle(0, 1, 2)
	c.awaitNoFolders("move", target)
}

// R13: a new request replaces the old one.
func replaceAMove(c *plane) {
	controller, other, target := c.cast()
	c.createAt("swap", id(controller), id(other))
	c.freeze(target)
	c.mustReassign("swap", id(target), id(controller))
	c.wantMoves("swap")
	c.mustReassign("swap", id(other), id(controller))
	c.awaitPartition(controller, "swap", "the replicas of the second request", hasReplicas(id(other), id(controller)))
	c.wantMoves()
	c.thaw(target)
	c.awaitIdle(0, 1, 2)
	c.awaitNoFolders("swap", target)
}

// R13: a controller's death keeps a move going, and the replicas that were moved away go, also from the broker that was dead meanwhile.
func moveOverAFailover(c *plane) {
	controller, other, target := c.cast()
	c.createAt("stay", id(controller), id(other))
	c.freeze(target)
	c.mustReassign("stay", id(other), id(target))
	c.wantMoves("stay")
	c.brokers[controller].kill()
	c.thaw(target)
	for _, i := range []int{other, target} {
		c.awaitPartition(i, "stay", "the replicas asked for", hasReplicas(id(other), id(target)))
	}
	c.wantMoves()
	c.start(controller)
	c.awaitIdle(0, 1, 2)
	c.awaitNoFolders("stay", controller)
	if got := command(c.t, "kcat", "-b", c.brokers[target].addr, "-C", "-t", "stay", "-e", "-q", "-o", "beginning").ok(c.t); got != "row\n" {
		c.t.Errorf("the moved partition holds %q", got)
	}
}

// R08: a deletion drops the move of its topic; the target that was frozen keeps nothing.
func deleteWhatIsMoved(c *plane) {
	controller, other, target := c.cast()
	c.createAt("torn", id(controller), id(other))
	c.freeze(target)
	c.mustReassign("torn", id(controller), id(target))
	c.wantMoves("torn")
	if code, _ := c.delete("torn", 10*time.Second); code != 0 {
		c.t.Errorf("delete: error %d", code)
	}
	c.wantMoves()
	c.awaitForgotten("torn", controller, other)
	c.thaw(target)
	c.awaitIdle(0, 1, 2)
	c.awaitForgotten("torn", target)
	c.awaitNoFolders("torn", 0, 1, 2)
}

// A topic that is queued for deletion cannot be moved.
func moveWhatIsDeleted(c *plane) {
	controller, other, target := c.cast()
	c.createAt("late", id(controller), id(target))
	c.freeze(target)
	if code, _ := c.delete("late", 10*time.Second); code != 0 {
		c.t.Errorf("delete: error %d", code)
	}
	if code := c.reassign("late", id(controller), id(other)); code != 3 {
		c.t.Errorf("reassign what is being deleted: error %d", code)
	}
	c.thaw(target)
	c.awaitIdle(0, 1, 2)
	c.awaitNoFolders("late", 0, 1, 2)
	c.wantMoves()
}

func (c *plane) elect(kind int8, topic string) int16 {
	c.t.Helper()
	req := at(kmsg.NewPtrElectLeadersRequest(), 2)
	req.ElectionType, req.TimeoutMillis = kind, 10_000
	req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: []int32{0}}}
	return c.ask(req).(*kmsg.ElectLeadersResponse).Topics[0].Partitions[0].ErrorCode
}

// A preferred leader that was dead gets its leadership back on request.
func electPreferred(c *plane) {
	_, other, target := c.cast()
	c.createAt("lead", id(target), id(other))
	c.brokers[target].kill()
	c.awaitPartition(other, "lead", "its second replica as leader", func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == id(other) })
	if code := c.elect(0, "lead"); code != 80 {
		c.t.Errorf("election of a dead preferred leader: error %d", code)
	}
	c.start(target)
	c.awaitISR("lead", 1, 2)
	if code := c.elect(0, "lead"); code != 0 {
		c.t.Errorf("preferred election: error %d", code)
	}
	for i := range c.brokers {
		c.awaitPartition(i, "lead", "its preferred leader", func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == id(target) })
	}
	if code := c.elect(0, "lead"); code != 84 {
		c.t.Errorf("preferred election that is not needed: error %d", code)
	}
}

// With the last member of the ISR dead, an unclean election makes the other replica leader; the dead one follows it when it is back.
func electUnclean(c *plane) {
	controller, other, target := c.cast()
	c.createAt("risk", id(target), id(other))
	c.brokers[other].kill()
	c.awaitPartition(controller, "risk", "one replica in sync", func(p kmsg.MetadataResponseTopicPartition) bool {
		return p.Leader == id(target) && len(p.ISR) == 1
	})
	c.brokers[target].kill()
	c.start(other)
	c.awaitPartition(controller, "risk", "no leader", func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == -1 })
	if code := c.elect(1, "risk"); code != 0 {
		c.t.Errorf("unclean election: error %d", code)
	}
	c.awaitPartition(controller, "risk", "the other replica as leader", func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == id(other) })
	c.start(target)
	c.awaitISR("risk", 1, 2)
}

// R14: a second process with the id of a live broker is turned away with both addresses, and the first one stays registered.
func startWithTheIDOfAnother(c *plane) {
	first := c.brokers[1]
	other := c.t.TempDir()
	addr := reserveAddress(c.t)
	said := first.refused(c.t, "listeners=PLAINTEXT://"+addr, "log.dirs="+filepath.Join(other, "data"))
	wantAll(c.t, said, "refusing to start", "broker 2", first.addr)
	if strings.Count(said, "\n") > 40 {
		c.t.Errorf("the refusal has %d lines", strings.Count(said, "\n"))
	}
	c.createAt("seen", 2)
	c.awaitPartition(0, "seen", "the first process as leader", func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == 2 })
	for _, b := range speak(c.t, c.brokers[0].addr).do(metadataRequest(12)).(*kmsg.MetadataResponse).Brokers {
		if at := fmt.Sprintf("%s:%d", b.Host, b.Port); b.NodeID == 2 && at != first.addr {
			c.t.Errorf("broker 2 is at %s now, it was at %s", at, first.addr)
		}
	}
}
