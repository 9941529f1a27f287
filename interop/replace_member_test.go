//go:build interop

package interop

import (
	"strings"
	"testing"
	"time"
)

// The machine of broker 3 is lost for good: its member is replaced by one at another address and with empty directories, as
// docs/three-brokers.md says, while producers go on. Afterwards the cluster bears the loss of another broker.
func TestADeadMemberIsReplaced(t *testing.T) {
	c := startTrio(t)
	c.createTopic("n")
	l := c.startLoad("n")
	c.brokers[2].kill()

	refused := newBroker(t, c.properties(2, reserveAddress(t))...) // the member's address, but empty directories
	c.members[2] = reserveAddress(t)
	c.brokers[2] = newBroker(t, c.properties(2, reserveAddress(t))...)
	if err := refused.tryStart(); err == nil || !refused.stderr.contains("members remove 3") {
		t.Errorf("a broker whose member's data is gone: %v\n%s", err, refused.stderr.tail(5))
	}
	c.brokers[0].members("remove", "3").ok(t)
	c.brokers[0].members("add", "3@"+c.members[2]).ok(t)
	c.start(2)
	c.awaitInSync("n")
	eventually(t, 30*time.Second, "the new member votes", func() (bool, string) {
		out := c.brokers[2].members("list").ok(t)
		return strings.Count(out, "runs") == 3 && !strings.Contains(out, "learner") && strings.Contains(out, c.members[2]), out
	})
	l.awaitProgress(20 * time.Second)
	c.brokers[0].kill()
	l.awaitProgress(20 * time.Second)
	c.start(0)
	l.finish()
}
