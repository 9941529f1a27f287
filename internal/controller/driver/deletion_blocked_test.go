package driver

import (
	"testing"
	"testing/synctest"

	"klamm/internal/cluster"
)

// R01: a deletion is blocked only while it waits for a broker that is gone; one that has ended, or never was, blocks no creation.
func TestADeletionIsBlockedWhileItWaitsForABrokerThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.start(1)
		synctest.Wait()
		two := c.start(2)
		defer two.stop()
		three := c.addBroker(3, brokerOptions{}) // not klamm's, as far as its registration says: its absence is waited for
		synctest.Wait()
		c.createTopic("t", []cluster.BrokerID{1, 2, 3})
		synctest.Wait()
		want := func(b *testBroker, when string, blocked bool) {
			t.Helper()
			if got := b.DeletionBlocked(t.Context(), "t"); got != blocked {
				t.Errorf("%s: blocked is %v", when, got)
			}
		}
		want(one, "nothing is deleted", false)
		want(two, "it is not the controller", true)
		three.die()
		c.deleteTopic("t")
		synctest.Wait()
		want(one, "broker 3 is gone", true)
		back := c.start(3)
		defer back.stop()
		synctest.Wait()
		one.expectGone("t")
		want(one, "it has ended", false)
		one.stop()
		want(one, "it has stopped", true)
	})
}
