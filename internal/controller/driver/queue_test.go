package driver

import (
	"context"
	"testing"
	"testing/synctest"

	"klamm/internal/controller"
)

func events(q *eventQueue) (out []controller.Event) {
	for {
		it, ok := q.pop()
		if !ok {
			return out
		}
		out = append(out, it.event)
	}
}

func TestEventsLeaveInOrderAndWatchesCoalesceWhileTheyWait(t *testing.T) {
	q := newEventQueue(10)
	topic := func(name string) controller.Event { return controller.PartitionModifications{Topic: name} }
	for _, ev := range []controller.Event{controller.TopicChange{}, topic("a"), controller.TopicChange{}, topic("b"), topic("a"),
		controller.UpdateMetadataReply{}, controller.UpdateMetadataReply{}} {
		if !q.put(t.Context(), ev) {
			t.Errorf("%T was refused", ev)
		}
	}
	if got := events(q); len(got) != 5 || got[0] != controller.Event(controller.TopicChange{}) || got[1] != topic("a") || got[2] != topic("b") {
		t.Errorf("events %v", got)
	}
	q.put(t.Context(), controller.TopicChange{})
	if got := events(q); len(got) != 1 {
		t.Error("an event that left the queue still hides the next one")
	}
	if len(q.places) != 0 {
		t.Errorf("%d places are taken in an empty queue", len(q.places))
	}
}

func TestAFullQueueRefusesRequestsAndHoldsUpTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newEventQueue(1)
		if !q.offer(controller.AlterPartition{}) || q.offer(controller.AlterPartition{}) {
			t.Error("the second request was not the one refused")
		}
		put := make(chan bool, 1)
		go func() { put <- q.put(t.Context(), controller.TopicChange{}) }()
		synctest.Wait()
		if len(put) != 0 {
			t.Error("an event entered the full queue")
		}
		if !q.putOwn(&item{event: controller.Expire{}}) {
			t.Error("an event of the driver itself was refused")
		}
		q.pop()
		if !<-put {
			t.Error("the waiting event was refused")
		}
		if got := events(q); len(got) != 2 {
			t.Errorf("events %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		q.offer(controller.AlterPartition{})
		go func() { put <- q.put(ctx, controller.TopicChange{}) }()
		synctest.Wait()
		cancel()
		if <-put {
			t.Error("an event was put although its context ended")
		}
	})
}

func TestClearAndPutDropsWhatWaitsAndFreesItsPlaces(t *testing.T) {
	q := newEventQueue(2)
	q.put(t.Context(), controller.TopicChange{})
	q.offer(controller.AlterPartition{Reply: 7})
	dropped := q.clearAndPut(&item{event: controller.Expire{}})
	if len(dropped) != 2 || dropped[1].event.(controller.AlterPartition).Reply != 7 {
		t.Errorf("dropped %v", dropped)
	}
	for range 2 {
		if !q.offer(controller.AlterPartition{}) {
			t.Error("dropped events kept their places")
		}
	}
	if len(q.close()) != 3 || q.offer(controller.AlterPartition{}) || q.putOwn(&item{event: controller.Expire{}}) || q.put(t.Context(), controller.TopicChange{}) {
		t.Error("a closed queue took an event")
	}
	if left := q.clearAndPut(&item{event: controller.Shutdown{}}); len(left) != 1 {
		t.Error("a closed queue kept an event")
	}
	if len(q.places) != 0 {
		t.Errorf("%d places are taken in a closed queue", len(q.places))
	}
}
