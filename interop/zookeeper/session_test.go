//go:build interop

package zookeeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"klamm/internal/coord"
)

// TestSessionsEndAndZooKeeperRestarts stops klamm's controller for longer than its session, then restarts ZooKeeper,
// while records are produced with acks=all.
func TestSessionsEndAndZooKeeperRestarts(t *testing.T) {
	c := newCluster(t, klamm, klamm, klamm)
	c.start(0, 1, 2)
	c.createTopic("load", 6, nil)
	c.awaitISR("load")
	l := c.startLoad("load")
	c.progress(l)

	frozen := c.controller()
	before := c.registration(frozen)
	freeze := c.brokers[frozen].proc.cmd.Process
	_ = freeze.Signal(syscall.SIGSTOP)
	c.eventually(30*time.Second, "another broker takes the office", func() (bool, string) {
		now := c.controller()
		return now >= 0 && now != frozen, fmt.Sprint(now)
	})
	c.eventually(30*time.Second, "the frozen broker's registration goes", func() (bool, string) {
		return c.registration(frozen) == 0, ""
	})
	c.progress(l)
	_ = freeze.Signal(syscall.SIGCONT)
	c.eventually(30*time.Second, "the broker registers anew", func() (bool, string) { return c.registration(frozen) > before, "" })
	c.awaitMembers()
	c.awaitISR("load")
	c.progress(l)

	registered := c.registrations()
	c.end(c.zks[0].proc, syscall.SIGKILL)
	c.progress(l) // produce needs no ZooKeeper
	c.startZooKeeper(c.zks[0])
	c.createTopicPatiently("later")
	c.awaitISR("later")
	c.awaitISR("load")
	if now := c.registrations(); now != registered {
		t.Logf("sessions outlived by the restart: registrations were %v, are %v", registered, now)
	}
	c.finish(l)
	c.sameReplicas("load")
}

// registration gives a broker's epoch; 0 when it is not registered.
func (c *cluster) registration(id int32) int64 {
	c.Helper()
	n, err := c.store.Get(c.Context(), coord.BrokerPath(clusterID(id)))
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		c.Fatal(err)
	}
	return n.Stat.Czxid
}

// controllerEpoch gives what /controller_epoch holds: it grows with every election.
func (c *cluster) controllerEpoch() string {
	c.Helper()
	n, err := c.store.Get(c.Context(), coord.ControllerEpochPath)
	if err != nil {
		c.Fatal(err)
	}
	return string(n.Data)
}

// createTopicPatiently creates a topic as soon as the cluster can.
func (c *cluster) createTopicPatiently(name string) {
	c.Helper()
	c.eventually(60*time.Second, name+" is created", func() (bool, string) {
		r, err := c.admin.CreateTopic(c.Context(), 3, int16(min(3, len(c.brokers))), nil, name)
		if err == nil {
			err = r.Err
		}
		return err == nil, fmt.Sprint(err)
	})
}

// endSession ends the session of a broker that was killed, as the server does when its time has passed, without waiting for that.
func (c *cluster) endSession(id int32) {
	c.Helper()
	n, err := c.store.Get(c.Context(), coord.BrokerPath(clusterID(id)))
	if err == nil {
		err = c.store.EndSession(c.Context(), n.Stat.EphemeralOwner, sessionPassword(n.Stat.EphemeralOwner))
	}
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		c.Fatalf("end the session of broker %d: %v", id, err)
	}
	if c.registration(id) != 0 {
		c.Fatalf("the session of broker %d did not end: its password is another one", id)
	}
}

// sessionPassword is what a server gives the client for whom it makes a session: 16 bytes that java.util.Random makes of its id (ZooKeeper:
// ZooKeeperServer.generatePasswd).
func sessionPassword(id int64) []byte {
	const multiplier, increment, mask, secret = 0x5DEECE66D, 0xB, 1<<48 - 1, 0xB3415C00
	seed := (uint64(id) ^ secret ^ multiplier) & mask
	var password []byte
	for range 4 {
		seed = (seed*multiplier + increment) & mask
		password = binary.LittleEndian.AppendUint32(password, uint32(seed>>16))
	}
	return password
}
