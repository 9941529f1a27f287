package driver

import (
	"slices"
	"testing"
	"testing/synctest"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// R02, W28: delete.topic.enable switched off at run time refuses what is new and ends what has begun, also after a failover.
func TestDeletionsThatBeganGoOnWhenDeletionIsSwitchedOff(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.start(1)
		synctest.Wait()
		two := c.start(2)
		defer two.stop()
		three := c.addBroker(3, brokerOptions{}) // not klamm's, as far as its registration says: its absence is waited for
		synctest.Wait()
		c.createTopic("begun", []cluster.BrokerID{1, 2, 3})
		c.createTopic("late", on12)
		synctest.Wait()
		three.die()
		c.deleteTopic("begun")
		synctest.Wait()
		for _, b := range []*testBroker{one, two} {
			b.SetTopicDeletion(false)
		}
		c.deleteTopic("late")
		synctest.Wait()
		refused := func(b *testBroker) {
			t.Helper()
			if left := c.paths(coord.DeleteTopicPath("late")); len(left) > 0 || b.IsTopicQueuedForDeletion("late") {
				t.Errorf("the marker stays: %v", left)
			}
			b.expectTopic("late", 1)
		}
		refused(one)

		one.stop()
		synctest.Wait()
		ds, err := two.Deletions(t.Context())
		if err != nil || len(ds) != 1 || ds[0].Name != "begun" {
			t.Errorf("the next controller deletes %+v, %v", ds, err)
		}
		c.deleteTopic("late")
		synctest.Wait()
		refused(two)

		back := c.start(3)
		defer back.stop()
		one = c.start(1)
		defer one.stop()
		synctest.Wait()
		two.expectGone("begun")
		two.SetTopicDeletion(true)
		c.deleteTopic("late")
		synctest.Wait()
		two.expectGone("late")
	})
}

// Who waits for a deletion is told that it is refused, by the marker that the waiting is for; one that goes on is none of those.
func TestRefusedDeletionsAreTold(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one, _ := c.startTwo()
		c.createTopic("kept", on12)
		c.createTopic("gone", on12)
		synctest.Wait()
		type refusal struct {
			topic string
			czxid int64
		}
		var told []refusal
		stop := one.OnDeletionRefused(func(topic string, czxid int64) { told = append(told, refusal{topic, czxid}) })
		c.deleteTopic("gone")
		synctest.Wait()
		one.SetTopicDeletion(false)
		mark := func() refusal {
			made, err := c.admin.Multi(t.Context(), coord.Create(coord.DeleteTopicPath("kept"), nil))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return refusal{"kept", made[0].Stat.Czxid}
		}
		want := []refusal{mark(), mark()}
		stop()
		mark()
		if !slices.Equal(told, want) {
			t.Errorf("told %+v, want %+v", told, want)
		}
		one.expectGone("gone")
		one.expectTopic("kept", 1)
	})
}
