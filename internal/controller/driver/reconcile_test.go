package driver

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/metadata"
)

func TestABrokerForgetsATopicDeletedWhileItCouldNotBeTold(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one, two := c.startTwo()
		c.createTopic("gone", on1)
		c.createTopic("kept", on1)
		synctest.Wait()
		two.client.Disconnect()
		advance(2 * testTTL)
		c.deleteTopic("gone")
		synctest.Wait()
		one.expectGone("gone")
		two.client.Reconnect()
		advance(2 * time.Second)
		if _, ok := two.cache.Image().Topic("gone"); !ok {
			t.Fatal("the broker was told: nothing is tested")
		}
		advance(3 * reconcileEvery)
		two.expectGone("gone")
		two.expectTopic("kept", 1)
	})
}

func TestOnlyTopicsThatAreGoneAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		cache := metadata.New(quiet())
		b := &testBroker{c: c, cache: cache}
		var told []cluster.TopicPartition
		client := c.engine.Client()
		r := &Reconciler{Cache: cache, Store: client, Log: quiet(), Forgotten: func(ch metadata.Changes) { told = append(told, ch.Removed...) }}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		c.createTopic("there", on1)
		n, err := c.admin.Get(t.Context(), coord.TopicPath("there"))
		if err != nil {
			t.Fatal(err)
		}
		topic, err := coord.DecodeTopic(n.Data)
		if err != nil {
			t.Fatal(err)
		}
		c.createTopic("again", on1)
		b.announce(1, "there", topic.ID)
		b.announce(1, "again", cluster.NewTopicID()) // another incarnation than the store's
		b.announce(1, "gone", cluster.NewTopicID())
		b.announce(2, "new", cluster.NewTopicID()) // of a new controller, not in the store yet
		client.Disconnect()
		advance(3 * reconcileEvery)
		if cache.Image().TopicCount() != 4 {
			t.Error("forgotten without asking the store")
		}
		client.Reconnect()
		advance(reconcileEvery)
		if got := cache.Image().TopicNames(); !slices.Equal(got, []string{"new", "there"}) {
			t.Errorf("topics %v", got)
		}
		if len(told) != 2 || told[0].Topic != "again" || told[1].Topic != "gone" {
			t.Errorf("told of %v", told)
		}
	})
}
