package api

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// marker reads the creation id of a topic's deletion marker.
func (b *testBroker) marker(topic string) int64 {
	b.t.Helper()
	n, err := b.ctl.store.Get(b.ctx, coord.DeleteTopicPath(topic))
	if err != nil {
		b.t.Fatal(err)
	}
	return n.Stat.Czxid
}

// refuse does what the controller does to a marker while deletion is disabled.
func (b *testBroker) refuse(topic string) {
	b.t.Helper()
	czxid := b.marker(topic)
	b.put(coord.Delete(coord.DeleteTopicPath(topic), coord.AnyVersion))
	b.ctl.tellRefused(topic, czxid)
}

// deleteLater sends a deletion, waits until it waits for the controller, and gives where its answer comes.
func (b *testBroker) deleteLater(version int16, names ...string) <-chan *kmsg.DeleteTopicsResponse {
	b.t.Helper()
	c := b.dial("b0:9092", "deleter")
	b.closers = append(b.closers, c)
	answer := make(chan *kmsg.DeleteTopicsResponse, 1)
	go func() {
		answer <- b.doOn(c, version, deleteByName(version, 60_000, names...)).(*kmsg.DeleteTopicsResponse)
	}()
	synctest.Wait()
	if len(answer) > 0 {
		b.t.Fatalf("answered before the controller did anything: %+v", (<-answer).Topics)
	}
	return answer
}

// delete.topic.enable=false can come to the controller between a request that was accepted and its marker.
func TestDeleteTopicsAnswersAtOnceWhatTheControllerRefuses(t *testing.T) {
	for version := int16(0); version <= 6; version++ {
		inBubble(t, nil, func(b *testBroker) {
			b.topic("t", []cluster.BrokerID{0})
			b.topic("u", []cluster.BrokerID{0})
			b.ctl.announces.Store(false)
			start := time.Now()
			first, second := b.deleteLater(version, "t", "u"), b.deleteLater(version, "t")
			b.refuse("t")
			want := deleteTopicResult(ptr("t"), [16]byte{}, deletionDisabled(version))
			same(t, deleted(version, want), <-second) // it found the other's marker, and waits with it
			synctest.Wait()
			if len(first) > 0 {
				t.Fatalf("answered while one of the topics is in the metadata: %+v", (<-first).Topics)
			}
			u, _ := b.inStore("u")
			b.ctl.announce([]kmsg.UpdateMetadataRequestTopicState{b.ctl.state("u", u, true)})
			same(t, deleted(version, want, deleteTopicResult(ptr("u"), [16]byte{}, cluster.None)), <-first)
			if took := time.Since(start); took != 0 {
				t.Errorf("answered after %v", took)
			}
			if n := b.ctl.tellRefused("t", 0); n != 0 {
				t.Errorf("%d requests that were answered still listen", n)
			}
		})
	}
}

// The controller may be faster than the answer to the write that made the marker.
func TestARefusalThatComesBeforeAnybodyWaitsForItCounts(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.ctl.announces.Store(false)
		refused := listenForRefusals(b.ctl, b.cache)
		d := &topicDeletion{name: "t"}
		b.h.admin.delete(b.ctx, []*topicDeletion{d}, nil)
		b.refuse("t")
		answered := make(chan struct{})
		b.h.admin.awaitGone([]*topicDeletion{d}, time.Minute, refused, answerError{Code: cluster.TopicDeletionDisabled}, func() { close(answered) })
		start := time.Now()
		<-answered
		if d.err.Code != cluster.TopicDeletionDisabled || time.Since(start) != 0 {
			t.Errorf("error %v after %v", d.err.Code, time.Since(start))
		}
	})
}

func TestTheRefusalOfAnotherMarkerIsNoAnswer(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{0})
		b.ctl.announces.Store(false)
		start := time.Now()
		answer := b.deleteLater(6, "t")
		for topic, czxid := range map[string]int64{"t": b.marker("t") - 1, "u": b.marker("t")} {
			if n := b.ctl.tellRefused(topic, czxid); n != 1 {
				t.Errorf("%d requests listen", n)
			}
		}
		same(t, deleted(6, deleteTopicResult(ptr("t"), [16]byte{}, cluster.RequestTimedOut)), <-answer)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("answered after %v", took)
		}
	})
}
