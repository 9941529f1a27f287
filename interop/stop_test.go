//go:build interop

package interop

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// startPair starts two brokers, of which only the first runs an etcd member, so that the second is a client of it.
func startPair(t *testing.T, properties ...string) (member, remote *broker) {
	t.Helper()
	etcd := "etcd.cluster=1@" + reserveAddress(t)
	one := func(id int) *broker {
		return newBroker(t, append([]string{fmt.Sprint("broker.id=", id), etcd, "listeners=PLAINTEXT://" + reserveAddress(t),
			fmt.Sprint("broker.session.timeout.ms=", trioSession.Milliseconds()), "default.replication.factor=2"}, properties...)...)
	}
	member, remote = one(1), one(2)
	member.start()
	remote.start()
	return member, remote
}

// stopsWithin ends a broker and fails when that takes longer.
func (b *broker) stopsWithin(t *testing.T, limit time.Duration) {
	t.Helper()
	began := time.Now()
	code := b.stop()
	took := time.Since(began)
	t.Logf("stopped after %v", took.Round(time.Millisecond))
	if code != 0 || took > limit {
		t.Errorf("exit code %d after %v, the limit is %v\n%s", code, took, limit, b.stderr.tail(20))
	}
}

// R11: SIGTERM ends the process in a bounded time without the coordination service, and without the controller.
func TestR11ABrokerStopsWithoutEtcdAndWithoutTheController(t *testing.T) {
	t.Run("no majority", func(t *testing.T) {
		c := startTrio(t)
		c.createTopic("n")
		c.brokers[1].kill()
		c.brokers[2].kill()
		c.brokers[0].stopsWithin(t, withoutHelp)
	})
	t.Run("no etcd", func(t *testing.T) {
		member, remote := startPair(t)
		remote.topics("--create", "--topic", "n", "--partitions", "4").ok(t)
		member.kill()
		remote.stopsWithin(t, withoutHelp)
	})
	t.Run("no controller", func(t *testing.T) {
		for name, end := range map[string]syscall.Signal{"died": syscall.SIGKILL, "frozen": syscall.SIGSTOP} {
			t.Run(name, func(t *testing.T) {
				c := startTrio(t)
				c.createTopic("n")
				controller := c.controller()
				c.brokers[controller].signal(end)
				// The next controller is there a second after the session of this one, and is asked then.
				c.brokers[(controller+1)%3].stopsWithin(t, c.session+goOnAfter+withoutHelp)
			})
		}
	})
}

// R12: a controlled shutdown with nothing to hand over to ends, the in-sync replica set keeps its last member, and a broker
// that has said that it shuts down is a broker like others after its restart.
func TestR12AControlledShutdownWithNobodyToTakeOver(t *testing.T) {
	member, remote := startPair(t)
	all := func() kadm.TopicDetails {
		cl := kadm.NewClient(client(t, member))
		defer cl.Close()
		m, err := cl.Metadata(t.Context(), "alone", "both")
		if err != nil {
			t.Fatal(err)
		}
		return m.Topics
	}
	member.topics("--create", "--topic", "alone", "--replica-assignment", "1").ok(t)
	member.topics("--create", "--topic", "both", "--replica-assignment", "1:2").ok(t)
	remote.stopsWithin(t, 5*time.Second)
	eventually(t, 20*time.Second, "the stopped broker leaves the ISR", func() (bool, string) {
		isr := all()["both"].Partitions[0].ISR
		return len(isr) == 1 && isr[0] == 1, fmt.Sprint(isr)
	})
	member.stopsWithin(t, withoutHelp)
	member.start()
	for name, want := range map[string]int32{"alone": 1, "both": 1} {
		eventually(t, 20*time.Second, name+" is led by its last in-sync replica", func() (bool, string) {
			p := all()[name].Partitions[0]
			return p.Leader == want && len(p.ISR) == 1 && p.ISR[0] == want, fmt.Sprintf("leader %d, ISR %v", p.Leader, p.ISR)
		})
	}
	remote.start()
	member.topics("--create", "--topic", "after", "--replica-assignment", "2:1").ok(t)
	cl := kadm.NewClient(client(t, member))
	defer cl.Close()
	m, err := cl.Metadata(t.Context(), "after")
	if err != nil || m.Topics["after"].Partitions[0].Leader != 2 {
		t.Errorf("after its restart broker 2 leads nothing new: %+v, %v", m.Topics["after"].Partitions, err)
	}
}

// A member of a new cluster waits for a majority and says for whom, in whatever order brokers start.
func TestABrokerSaysWhichMembersItWaitsFor(t *testing.T) {
	c := newTrio(t)
	started := make(chan error, 1)
	go func() { started <- c.brokers[2].tryStart() }()
	eventually(t, 20*time.Second, "broker 3 says whom it waits for", func() (bool, string) {
		log := c.brokers[2].stderr.tail(5)
		return strings.Contains(log, "waiting for a majority of the etcd members") && strings.Contains(log, "1@"+c.members[0]) &&
			strings.Contains(log, "2@"+c.members[1]), log
	})
	c.start(0)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c.start(1)
	c.createTopic("n")
}
