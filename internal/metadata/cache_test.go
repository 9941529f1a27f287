package metadata

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func entry(index, leader int32, replicas ...int32) kmsg.UpdateMetadataRequestTopicPartition {
	return kmsg.UpdateMetadataRequestTopicPartition{
		Partition: index, Leader: leader, LeaderEpoch: 3, ControllerEpoch: 7, ZKVersion: 5,
		ISR: replicas, Replicas: replicas,
	}
}

func topicState(name string, id byte, ps ...kmsg.UpdateMetadataRequestTopicPartition) kmsg.UpdateMetadataRequestTopicState {
	s := kmsg.UpdateMetadataRequestTopicState{Topic: name, PartitionStates: ps}
	if id != 0 {
		s.TopicID = topicID(id)
	}
	return s
}

func topicID(b byte) cluster.TopicID {
	id := cluster.TopicID{}
	id[0], id[15] = b, b
	return id
}

func request(topics ...kmsg.UpdateMetadataRequestTopicState) *kmsg.UpdateMetadataRequest {
	return &kmsg.UpdateMetadataRequest{Version: 8, ControllerID: 1, ControllerEpoch: 7, TopicStates: topics,
		LiveBrokers: []kmsg.UpdateMetadataRequestLiveBroker{live(1), live(2)}}
}

func live(id int32) kmsg.UpdateMetadataRequestLiveBroker {
	return kmsg.UpdateMetadataRequestLiveBroker{ID: id, Endpoints: []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{
		{Host: "h", Port: 9000 + id, ListenerName: "PLAINTEXT"},
	}}
}

func tp(topic string, p int32) cluster.TopicPartition {
	return cluster.TopicPartition{Topic: topic, Partition: p}
}

func TestANewCacheKnowsNothing(t *testing.T) {
	im := New(quiet()).Image()
	if im.Controller() != cluster.NoBroker || im.Generation() != 0 || im.TopicCount() != 0 || len(im.Brokers()) != 0 {
		t.Errorf("image of a new cache is not empty: %+v", im)
	}
	if _, ok := im.TopicByID(cluster.TopicID{}); ok {
		t.Error("the zero id named a topic")
	}
}

func TestPartitionEntriesAreADelta(t *testing.T) {
	c := New(quiet())
	c.Apply(request(topicState("a", 1, entry(0, 1, 1, 2), entry(1, 2, 2, 1)), topicState("b", 2, entry(0, -1, 2))))
	before := c.Image()
	got := c.Apply(request(topicState("a", 1, entry(1, 1, 2, 1), entry(2, 1, 1))))
	want := Changes{Topics: []string{"a"}, Partitions: []cluster.TopicPartition{tp("a", 1), tp("a", 2)}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	im := c.Image()
	for _, want := range []struct {
		tp     cluster.TopicPartition
		leader cluster.BrokerID
	}{{tp("a", 0), 1}, {tp("a", 1), 1}, {tp("a", 2), 1}, {tp("b", 0), cluster.NoBroker}} {
		p, ok := im.Partition(want.tp)
		if !ok || p.Leader != want.leader {
			t.Errorf("%v: leader %v found %v, want leader %v", want.tp, p, ok, want.leader)
		}
	}
	if old, _ := before.Partition(tp("a", 1)); old.Leader != 2 || before.PartitionCount() != 3 {
		t.Error("an image changed after it was published")
	}
	a, _ := before.Topic("b")
	b, _ := im.Topic("b")
	if a != b {
		t.Error("an untouched topic was copied")
	}
	if im.PartitionCount() != 4 || im.Generation() != before.Generation()+1 {
		t.Errorf("count %d generation %d", im.PartitionCount(), im.Generation())
	}
}

func TestAPartitionKeepsEveryFieldOfItsEntry(t *testing.T) {
	c := New(quiet())
	e := entry(4, 2, 2, 1)
	e.OfflineReplicas = []int32{1}
	e.ISR = []int32{2}
	c.Apply(request(topicState("a", 1, e)))
	got, _ := c.Image().Partition(tp("a", 4))
	want := &Partition{Index: 4, Leader: 2, LeaderEpoch: 3, ControllerEpoch: 7, PartitionEpoch: 5,
		ISR: []cluster.BrokerID{2}, Replicas: []cluster.BrokerID{2, 1}, OfflineReplicas: []cluster.BrokerID{1}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestLeaderMinusTwoRemovesAndTheLastPartitionTakesTheTopicAlong(t *testing.T) {
	c := New(quiet())
	c.Apply(request(topicState("a", 1, entry(0, 1, 1), entry(1, 1, 1))))
	got := c.Apply(request(topicState("a", 1, entry(0, -2, 1))))
	if d := cmp.Diff([]cluster.TopicPartition{tp("a", 0)}, got.Removed); d != "" {
		t.Error(d)
	}
	topic, ok := c.Image().TopicByID(topicID(1))
	if !ok || len(topic.Partitions) != 1 {
		t.Fatalf("topic %+v, %v: want one partition left", topic, ok)
	}
	if p, ok := topic.Partition(1); !ok || p.Index != 1 {
		t.Error("the partition after the gap was not found")
	}
	got = c.Apply(request(topicState("a", 1, entry(1, -2, 1)), topicState("unknown", 9, entry(0, -2, 1))))
	if d := cmp.Diff([]cluster.TopicPartition{tp("a", 1), tp("unknown", 0)}, got.Removed); d != "" {
		t.Error(d)
	}
	im := c.Image()
	if _, ok := im.TopicByID(topicID(1)); ok || im.TopicCount() != 0 || im.PartitionCount() != 0 {
		t.Errorf("removed topic is still there: %d topics, %d partitions", im.TopicCount(), im.PartitionCount())
	}
}

func TestTopicIDs(t *testing.T) {
	c := New(quiet())
	c.Apply(request(topicState("a", 1, entry(0, 1, 1)), topicState("b", 2, entry(0, 1, 1))))
	c.Apply(request(topicState("a", 3, entry(0, 1, 1)))) // created again under the same name
	im := c.Image()
	if _, ok := im.TopicByID(topicID(1)); ok {
		t.Error("the id of the former incarnation still resolves")
	}
	if name, _ := im.TopicName(topicID(3)); name != "a" || im.TopicID("b") != topicID(2) {
		t.Errorf("id 3 is %q, id of b is %v", name, im.TopicID("b"))
	}
	c.Apply(request(topicState("a", 0, entry(0, 1, 1)))) // listed without an id
	if _, ok := c.Image().TopicByID(topicID(3)); ok || !c.Image().TopicID("a").IsZero() {
		t.Error("a topic listed without id kept one")
	}
}

func TestARequestWithoutPartitionsOnlyReplacesBrokersAndController(t *testing.T) {
	c := New(quiet())
	c.Apply(request(topicState("a", 1, entry(0, 1, 1))))
	c.Apply(&kmsg.UpdateMetadataRequest{Version: 8, ControllerID: -1, LiveBrokers: []kmsg.UpdateMetadataRequestLiveBroker{live(9), live(3)}})
	im := c.Image()
	if im.Controller() != cluster.NoBroker || im.HasBroker(1) || !im.HasBroker(9) || im.TopicCount() != 1 {
		t.Errorf("controller %d, brokers %v, %d topics", im.Controller(), im.Brokers(), im.TopicCount())
	}
	if im.Brokers()[0].ID != 3 {
		t.Errorf("brokers are not sorted: %v", im.Brokers())
	}
}

func TestEndpointsOfEveryVersion(t *testing.T) {
	rack := "r1"
	for v := range int16(9) {
		c := New(quiet())
		req := &kmsg.UpdateMetadataRequest{Version: v, ControllerID: 1, BrokerEpoch: -1, LiveBrokers: []kmsg.UpdateMetadataRequestLiveBroker{{
			ID: 1, Host: "h", Port: 1, Rack: &rack,
			Endpoints: []kmsg.UpdateMetadataRequestLiveBrokerEndpoint{
				{Host: "h", Port: 1, ListenerName: "IN"}, {Host: "h", Port: 2, ListenerName: "OUT", SecurityProtocol: 3}},
		}}}
		if v < 5 {
			e := entry(0, 1, 1)
			e.Topic = "a"
			req.PartitionStates = append(req.PartitionStates, e)
		} else {
			req.TopicStates = append(req.TopicStates, topicState("a", 1, entry(0, 1, 1)))
		}
		// Through the wire form: what a version does not carry must not matter.
		decoded := kmsg.NewPtrUpdateMetadataRequest()
		decoded.Version = v
		if err := decoded.ReadFrom(req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		c.Apply(decoded)
		im := c.Image()
		var got []string
		for _, e := range im.Brokers()[0].Endpoints {
			got = append(got, fmt.Sprintf("%s/%s:%d", e.Listener, e.SecurityProtocol, e.Port))
		}
		want := "IN/PLAINTEXT:1 OUT/SASL_SSL:2"
		switch {
		case v == 0:
			want = "PLAINTEXT/PLAINTEXT:1"
		case v < 3:
			want = "PLAINTEXT/PLAINTEXT:1 SASL_SSL/SASL_SSL:2"
		}
		if strings.Join(got, " ") != want {
			t.Errorf("v%d: endpoints %v, want %s", v, got, want)
		}
		if hasRack := im.Brokers()[0].Rack == rack; hasRack != (v >= 2) {
			t.Errorf("v%d: rack %q", v, im.Brokers()[0].Rack)
		}
		if _, ok := im.Partition(tp("a", 0)); !ok || im.TopicID("a").IsZero() != (v < 7) {
			t.Errorf("v%d: partition found %v, id %v", v, ok, im.TopicID("a"))
		}
	}
}

func TestLiveBrokersByListener(t *testing.T) {
	c := New(quiet())
	req := request()
	req.LiveBrokers[1].Endpoints[0].ListenerName = "OTHER"
	c.Apply(req)
	im := c.Image()
	if on := im.BrokersOn("PLAINTEXT"); len(on) != 1 || on[0].ID != 1 {
		t.Errorf("brokers on PLAINTEXT: %v", on)
	}
	if _, ok := im.Endpoint(2, "PLAINTEXT"); ok {
		t.Error("broker 2 has an endpoint on a listener it lacks")
	}
	if e, ok := im.Endpoint(2, "OTHER"); !ok || e.Port != 9002 {
		t.Errorf("endpoint %v %v", e, ok)
	}
	if !listenersDiffer(im.Brokers()) {
		t.Error("different listeners went unnoticed")
	}
}

func TestOneRequestMayNameATopicOrPartitionTwice(t *testing.T) {
	c := New(quiet())
	second := entry(0, 2, 1, 2)
	c.Apply(request(
		topicState("a", 1, entry(0, 1, 1, 2), second),                            // the later entry counts
		topicState("b", 2, entry(0, 1, 1)),                                       // added and removed
		topicState("b", 2, entry(0, -2, 1)),                                      //
		topicState("c", 3, entry(0, 1, 1), entry(0, -2, 1)),                      // within one entry
		topicState("d", 4, entry(0, -2, 1)), topicState("d", 5, entry(0, 1, 1)))) // removed, then created
	im := c.Image()
	if got := im.TopicNames(); !slices.Equal(got, []string{"a", "d"}) || im.PartitionCount() != 2 {
		t.Errorf("topics %v, %d partitions", got, im.PartitionCount())
	}
	if p, _ := im.Partition(tp("a", 0)); p.Leader != 2 {
		t.Errorf("leader %d of the earlier entry won", p.Leader)
	}
	c.Apply(request(topicState("d", 5, entry(0, -2, 1)), topicState("d", 6, entry(0, 1, 1))))
	checkInvariants(t, c.Image())
	if name, _ := c.Image().TopicName(topicID(6)); name != "d" {
		t.Error("topic removed and created in one request is gone")
	}
}

func unconfirmed(c *Cache) string {
	var names []string
	for _, t := range c.Image().Unconfirmed() {
		names = append(names, t.Name)
	}
	return strings.Join(names, " ")
}

func TestTopicsThatANewControllerOrRegistrationDoesNotAnnounceAreUnconfirmed(t *testing.T) {
	c := New(quiet())
	say := func(controllerEpoch int32, brokerEpoch int64, topics ...kmsg.UpdateMetadataRequestTopicState) {
		req := request(topics...)
		req.ControllerEpoch, req.BrokerEpoch = controllerEpoch, brokerEpoch
		c.Apply(req)
	}
	a, b, d := topicState("a", 1, entry(0, 1, 1)), topicState("b", 2, entry(0, 1, 1)), topicState("d", 4, entry(0, 1, 1), entry(1, 1, 1))
	for i, step := range []struct {
		controllerEpoch int32
		brokerEpoch     int64
		topics          []kmsg.UpdateMetadataRequestTopicState
		want            string
	}{
		{1, 10, []kmsg.UpdateMetadataRequestTopicState{a, b}, ""},
		{1, 10, []kmsg.UpdateMetadataRequestTopicState{d}, ""},
		{2, 10, nil, "a b d"}, // a new controller introduces itself
		{2, 10, []kmsg.UpdateMetadataRequestTopicState{a, d}, "b"},
		{2, 10, []kmsg.UpdateMetadataRequestTopicState{b}, ""},
		{2, 11, []kmsg.UpdateMetadataRequestTopicState{a}, "b d"}, // this broker registered again
		{1, 10, []kmsg.UpdateMetadataRequestTopicState{b}, "d"},   // epochs do not go back
	} {
		say(step.controllerEpoch, step.brokerEpoch, step.topics...)
		if got := unconfirmed(c); got != step.want {
			t.Errorf("step %d: %q is unconfirmed, want %q", i, got, step.want)
		}
	}
	stale, _ := c.Image().Topic("b")
	say(2, 11, b) // announced after somebody looked
	kept, _ := c.Image().Topic("d")
	got := c.Forget([]*Topic{stale, kept})
	if d := cmp.Diff(Changes{Removed: []cluster.TopicPartition{tp("d", 0), tp("d", 1)}, Topics: []string{"d"}}, got); d != "" {
		t.Error(d)
	}
	if names := c.Image().TopicNames(); !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("topics %v", names)
	}
	checkInvariants(t, c.Image())
	generation := c.Image().Generation()
	if got := c.Forget([]*Topic{stale, kept}); len(got.Topics) != 0 || c.Image().Generation() != generation {
		t.Errorf("forgotten again: %+v", got)
	}
}

// checkInvariants checks the numbered invariants of Image.
func checkInvariants(t *testing.T, im *Image) {
	t.Helper()
	names, partitions, ids := []string{}, 0, 0
	for _, shard := range im.topics {
		for name, topic := range shard {
			names = append(names, name)
			partitions += len(topic.Partitions)
			if len(topic.Partitions) == 0 || topic.Name != name {
				t.Errorf("topic %q: %+v", name, topic)
			}
			if !slices.IsSortedFunc(topic.Partitions, func(a, b *Partition) int { return int(a.Index - b.Index) }) {
				t.Errorf("partitions of %q are not sorted", name)
			}
			if !topic.ID.IsZero() {
				ids++
				if back, ok := im.TopicByID(topic.ID); !ok || back != topic {
					t.Errorf("id %v of %q leads to %+v", topic.ID, name, back)
				}
			}
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, im.names) {
		t.Errorf("names %v, tables hold %v", im.names, names)
	}
	if partitions != im.partitions {
		t.Errorf("%d partitions counted, image says %d", partitions, im.partitions)
	}
	for _, shard := range im.ids {
		ids -= len(shard)
	}
	if ids != 0 {
		t.Errorf("id table has %d entries too many or few", -ids)
	}
}

func TestUpdatesOfOneTopicAmongManyCopyLittle(t *testing.T) {
	c := New(quiet())
	var all []kmsg.UpdateMetadataRequestTopicState
	for i := range 5000 {
		s := topicState(fmt.Sprintf("topic-%d", i), 0, entry(0, 1, 1, 2), entry(1, 1, 1, 2))
		s.TopicID = cluster.NewTopicID()
		all = append(all, s)
	}
	c.Apply(request(all...))
	checkInvariants(t, c.Image())
	one := request(all[77])
	allocs := testing.AllocsPerRun(20, func() { c.Apply(one) })
	if allocs > 60 {
		t.Errorf("an update of one topic among 5,000 made %v allocations", allocs)
	}
	if n := testing.AllocsPerRun(20, func() { c.Image().Partition(tp("topic-77", 1)) }); n != 0 {
		t.Errorf("a lookup made %v allocations", n)
	}
}

func BenchmarkApply(b *testing.B) {
	c := New(quiet())
	var all []kmsg.UpdateMetadataRequestTopicState
	for i := range 1000 {
		s := topicState(fmt.Sprintf("topic-%d", i), 0)
		for p := range int32(10) {
			s.PartitionStates = append(s.PartitionStates, entry(p, 1, 1, 2, 3))
		}
		s.TopicID = cluster.NewTopicID()
		all = append(all, s)
	}
	full, one := request(all...), request(all[500])
	b.Run("10000Partitions", func(b *testing.B) {
		for b.Loop() {
			c.Apply(full)
		}
	})
	b.Run("OneTopicOf1000", func(b *testing.B) {
		for b.Loop() {
			c.Apply(one)
		}
	})
}
