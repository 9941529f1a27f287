package driver

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// registerAsKlamm makes broker N one that is known to run klamm, or to have run it.
func (c *testCluster) registerAsKlamm(ids ...cluster.BrokerID) {
	c.t.Helper()
	for _, id := range ids {
		if err := coord.EnsurePath(c.t.Context(), c.admin, coord.KlammBrokerPath(id), nil); err != nil {
			c.t.Fatal(err)
		}
	}
}

// W15: what the absent broker has to remove is in the store, by topic id, once the topic's nodes are gone.
func TestADeletionEndsWithoutAnAbsentKlammBroker(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		c.registerAsKlamm(1, 2)
		one := c.addBroker(1, brokerOptions{klamm: true}).run()
		defer one.stop()
		synctest.Wait()
		two := c.addBroker(2, brokerOptions{klamm: true}).run()
		synctest.Wait()
		c.createTopic("t", on12, on21, on1)
		synctest.Wait()
		node, err := c.admin.Get(context.Background(), coord.TopicPath("t"))
		if err != nil {
			t.Fatal(err)
		}
		topic, err := coord.DecodeTopic(node.Data)
		if err != nil {
			t.Fatal(err)
		}
		two.stop()
		synctest.Wait()
		c.deleteTopic("t")
		synctest.Wait()
		one.expectGone("t")
		left, err := c.admin.Get(context.Background(), coord.LeftoverPath(2, topic.ID))
		if err != nil {
			t.Fatal(err)
		}
		l, err := coord.DecodeLeftover(left.Data)
		if err != nil || l.Topic != "t" || l.TopicID != topic.ID || !slices.Equal(l.Partitions, []int32{0, 1}) {
			t.Errorf("the record is %+v, %v", l, err)
		}
	})
}

// A broker that was klamm's and is Kafka's now would not look for what was left to it.
func TestABrokerThatIsKafkasNowIsForgottenAsKlamms(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		c.registerAsKlamm(1, 2)
		one := c.addBroker(1, brokerOptions{klamm: true}).run()
		defer one.stop()
		synctest.Wait()
		two := c.start(2) // registers without the key
		synctest.Wait()
		if left := c.paths(coord.KlammBrokersPath); !slices.Equal(left, []string{coord.KlammBrokersPath, coord.KlammBrokerPath(1)}) {
			t.Errorf("known as klamm's: %v", left)
		}
		c.createTopic("t", on12)
		synctest.Wait()
		two.stop()
		synctest.Wait()
		c.deleteTopic("t")
		synctest.Wait()
		if left := c.paths(coord.DeleteTopicPath("t")); len(left) == 0 {
			t.Error("the deletion does not wait for the broker")
		}
	})
}
