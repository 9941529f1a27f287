//go:build interop

package zookeeper

import (
	"syscall"
	"testing"
	"time"
)

// TestAnEnsembleLosesItsServers takes klamm's brokers on three servers of ZooKeeper through the loss of the leader, a restart of
// all servers one by one, the loss of the majority, and the death of the controller, while records are produced with
// acks=all. Sessions outlive what ZooKeeper's own clients outlive: registrations and the controller's office stay.
func TestAnEnsembleLosesItsServers(t *testing.T) {
	c := newClusterOf(t, setup{zooKeepers: 3, session: 9 * time.Second, brokers: []kind{klamm, klamm, klamm}})
	c.awaitLeader()
	c.start(0, 1, 2)
	c.createTopic("load", 6, nil)
	c.awaitISR("load")
	l := c.startLoad("load")
	c.progress(l)
	registered, office := c.registrations(), c.controllerEpoch()
	c.step("three brokers serve on three servers")

	lost := c.awaitLeader()
	c.end(lost.proc, syscall.SIGKILL)
	c.awaitLeader()
	c.createTopicPatiently("without-leader")
	c.awaitISR("without-leader")
	c.progress(l)
	c.step("leader killed, another one elected, topic created")
	c.startZooKeeper(lost)
	c.awaitLeader()

	for _, z := range c.zks {
		c.end(z.proc, syscall.SIGTERM)
		c.awaitLeader()
		c.startZooKeeper(z)
		c.awaitLeader()
		c.progress(l)
	}
	c.createTopicPatiently("rolled")
	c.awaitISR("rolled")
	c.step("every server restarted")
	if now := c.registrations(); now != registered {
		t.Errorf("registrations were %v, are %v: sessions did not move to other servers", registered, now)
	}
	if now := c.controllerEpoch(); now != office {
		t.Errorf("the controller's epoch was %s, is %s: the office changed hands", office, now)
	}

	c.end(c.zks[0].proc, syscall.SIGKILL)
	c.end(c.zks[1].proc, syscall.SIGKILL)
	c.progress(l) // produce needs no ZooKeeper
	c.startZooKeeper(c.zks[0], c.zks[1])
	c.awaitLeader()
	c.createTopicPatiently("majority")
	c.awaitISR("majority")
	c.progress(l)
	c.step("majority lost and back")

	dead := c.controller()
	before, killed := c.registration(dead), time.Now()
	c.kill(dead)
	c.start(dead)
	if took := time.Since(killed); took > c.session || c.registration(dead) <= before {
		t.Errorf("the killed broker served again after %v, with epoch %d after %d: it did not end its former session, of %v",
			took, c.registration(dead), before, c.session)
	}
	c.createTopicPatiently("after-crash")
	for _, topic := range []string{"after-crash", "load"} {
		c.awaitISR(topic)
	}
	c.step("controller killed and back, without waiting for its session")
	c.finish(l)
	c.sameReplicas("load")
}

func (c *cluster) registrations() [3]int64 {
	c.Helper()
	return [3]int64{c.registration(0), c.registration(1), c.registration(2)}
}
