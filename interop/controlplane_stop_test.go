//go:build interop

package interop

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestStopsInThreeProcesses stops brokers that can hand nothing over, and brokers that find nobody to tell.
func TestStopsInThreeProcesses(t *testing.T) {
	c := startPlane(t, "controlled.shutdown.retry.backoff.ms=500")
	c.play(t,
		scenario{"R12 with nothing to hand over", stopWithNothingToHandOver},
		scenario{"R11 with the controller dead", stopWithoutController},
		scenario{"R11 without the coordination service", stopWithoutCoordination},
	)
}

// stopWithin asks a broker to stop and waits for its end.
func (c *plane) stopWithin(i int, limit time.Duration) (code int) {
	c.t.Helper()
	b, began := c.brokers[i], time.Now()
	b.signal(syscall.SIGTERM)
	select {
	case <-b.exited:
	case <-time.After(limit):
		c.t.Fatalf("broker %d still runs %v after SIGTERM\n%s", i+1, limit, b.stderr.tail(40))
	}
	c.t.Logf("broker %d ended after %v with code %d", i+1, time.Since(began).Round(10*time.Millisecond), b.cmd.ProcessState.ExitCode())
	return b.cmd.ProcessState.ExitCode()
}

// R12: the retries of a controlled shutdown end, the last replica in sync stays in the ISR, and after its start the broker is one like the
// others, which is not taken for shutting down.
func stopWithNothingToHandOver(c *plane) {
	controller, other, victim := c.cast()
	c.createAt("alone", id(victim))
	if code := c.stopWithin(victim, 30*time.Second); code != 0 {
		c.t.Errorf("exit code %d", code)
	}
	for _, i := range []int{controller, other} {
		c.awaitPartition(i, "alone", "no leader, and the broker in its ISR", func(p kmsg.MetadataResponseTopicPartition) bool {
			return p.Leader == -1 && slices.Equal(p.ISR, []int32{id(victim)})
		})
	}
	c.start(victim)
	c.awaitPartition(controller, "alone", "its leader back", func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader == id(victim) })
	if got := command(c.t, "kcat", "-b", c.brokers[victim].addr, "-C", "-t", "alone", "-e", "-q", "-o", "beginning").ok(c.t); got != "row\n" {
		c.t.Errorf("the partition holds %q", got)
	}
	c.createAt("next", id(victim), id(other))
	c.awaitPartition(controller, "next", "the broker as leader", hasReplicas(id(victim), id(other)))
}

// R11: a broker that is to stop when the controller has just died does not wait for it.
func stopWithoutController(c *plane) {
	controller, _, victim := c.cast()
	c.brokers[controller].kill()
	if code := c.stopWithin(victim, 60*time.Second); code != 0 {
		c.t.Errorf("exit code %d", code)
	}
	c.start(controller, victim)
}

// R11: with the coordination service gone every broker still stops.
func stopWithoutCoordination(c *plane) {
	c.stopEtcd()
	for i := range c.brokers {
		c.stopWithin(i, 60*time.Second)
	}
}
