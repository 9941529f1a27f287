package metadata

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"klamm/internal/cluster"
)

// model is the cache as two plain maps: what Kafka's ZkMetadataCache computes.
type model struct {
	leaders map[cluster.TopicPartition]cluster.BrokerID
	ids     map[string]cluster.TopicID
}

func (m *model) apply(req *kmsg.UpdateMetadataRequest) {
	for _, s := range req.TopicStates {
		for _, p := range s.PartitionStates {
			at := tp(s.Topic, p.Partition)
			if p.Leader == -2 {
				delete(m.leaders, at)
			} else {
				m.leaders[at] = cluster.BrokerID(p.Leader)
			}
		}
		m.ids[s.Topic] = cluster.TopicID(s.TopicID)
	}
	for topic := range m.ids {
		if !slices.ContainsFunc(m.partitions(), func(at cluster.TopicPartition) bool { return at.Topic == topic }) {
			delete(m.ids, topic)
		}
	}
}

func (m *model) partitions() []cluster.TopicPartition {
	var out []cluster.TopicPartition
	for at := range m.leaders {
		out = append(out, at)
	}
	return out
}

func TestTheCacheAgreesWithTwoPlainMapsUnderAnyUpdates(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := New(quiet())
		m := &model{map[cluster.TopicPartition]cluster.BrokerID{}, map[string]cluster.TopicID{}}
		for range rapid.IntRange(1, 12).Draw(rt, "updates") {
			req := request()
			for _, name := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d"}), 0, 5).Draw(rt, "topics") {
				// An id belongs to one topic name for ever: its high digit is the name's.
				id := rapid.ByteRange(0, 2).Draw(rt, "id")
				if id > 0 {
					id += name[0] << 2
				}
				s := topicState(name, id)
				for range rapid.IntRange(0, 4).Draw(rt, "entries") {
					leader := rapid.SampledFrom([]int32{-2, -2, -1, 1, 2}).Draw(rt, "leader")
					s.PartitionStates = append(s.PartitionStates, entry(rapid.Int32Range(0, 4).Draw(rt, "index"), leader, 1, 2))
				}
				req.TopicStates = append(req.TopicStates, s)
			}
			c.Apply(req)
			m.apply(req)
		}
		im := c.Image()
		checkInvariants(t, im)
		if im.PartitionCount() != len(m.leaders) {
			rt.Fatalf("%d partitions, model has %d", im.PartitionCount(), len(m.leaders))
		}
		for at, leader := range m.leaders {
			if p, ok := im.Partition(at); !ok || p.Leader != leader {
				rt.Fatalf("%v: %+v, model's leader is %d", at, p, leader)
			}
			if im.TopicID(at.Topic) != m.ids[at.Topic] {
				rt.Fatalf("%s: id %v, model's %v", at.Topic, im.TopicID(at.Topic), m.ids[at.Topic])
			}
		}
	})
}
