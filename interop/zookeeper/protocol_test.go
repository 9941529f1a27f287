//go:build interop

package zookeeper

import (
	"cmp"
	"os"
	"strings"
	"testing"
)

// TestInterBrokerProtocolsOfOlderReleases lets both kinds lead, follow and control at older request versions: one, or those that
// INTEROP_PROTOCOLS names ("2.8 3.0 3.4").
func TestInterBrokerProtocolsOfOlderReleases(t *testing.T) {
	for _, version := range strings.Fields(cmp.Or(os.Getenv("INTEROP_PROTOCOLS"), "2.8")) {
		t.Run(version, func(t *testing.T) {
			c := newClusterOf(t, setup{properties: "inter.broker.protocol.version=" + version, brokers: []kind{kafka, klamm}})
			c.start(0, 1)
			for _, controller := range []int32{0, 1} {
				c.moveController(controller)
				c.createTopic("gone", 2, nil)
				c.awaitISR("gone")
				c.deleteTopic("gone")
				c.awaitGone("gone")
			}
			c.createTopic("load", 4, nil)
			c.awaitISR("load")
			l := c.startLoad("load")
			c.progress(l)
			c.stop(1)
			c.progress(l)
			c.start(1)
			c.awaitISR("load")
			c.kill(1)
			c.progress(l)
			c.start(1)
			c.awaitISR("load")
			c.finish(l)
			c.sameReplicas("load")
		})
	}
}
