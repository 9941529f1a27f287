package sim

import (
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// Only topics that somebody asked to delete lose their nodes, and only after their data is gone everywhere or written down for
// brokers that are absent; the marker goes last.

func (k *checks) treeRemoved(name string, t *topicNode) {
	i := k.incarnations[t.czxid]
	if i.wanted {
		k.w.failf("topic %s is removed and nobody asked for it", name)
	}
	i.removed = true
	for _, n := range k.w.Nodes() {
		for _, tp := range sortedPartitions(n.logs) {
			if tp.Topic != name || n.logs[tp].id != t.id || k.w.store.isLeft(n.id, tp, t.id) || k.restored[stray{n.id, tp, t.id}] {
				continue
			}
			if a, exists := t.partitions[tp.Partition]; exists && !slices.Contains(a.Replicas, n.id) {
				k.strays[stray{n.id, tp, t.id}] = true
			} else {
				k.w.failf("nodes of topic %s are removed and broker %d still has %s", name, n.id, tp)
			}
		}
	}
}

func (k *checks) markerRemoved(m controller.Marker) {
	t := k.w.store.topics[m.Topic]
	if t != nil && !k.incarnations[t.czxid].wanted && !k.w.opts.DeletionDisabled {
		k.w.failf("marker of topic %s is removed before the topic", m.Topic)
	}
	if _, config := k.w.store.configs[m.Topic]; config && t == nil && !k.touchedByHand[m.Topic] {
		k.w.failf("marker of topic %s is removed before its configuration", m.Topic)
	}
}

// topicID: an id is for ever.
func (k *checks) topicID(name string, old, id cluster.TopicID) {
	if !old.IsZero() && old != id {
		k.w.failf("topic %s changes its id", name)
	}
	if t := k.w.store.topics[name]; old.IsZero() && !id.IsZero() {
		k.byID[id] = k.incarnations[t.czxid]
	}
}

// wantedTopicsExist: in the end there are the topics that users want, and no others.
func (k *checks) wantedTopicsExist() {
	for czxid, i := range k.incarnations {
		t := k.w.store.topics[i.name]
		exists := t != nil && t.czxid == czxid
		if i.wanted != exists {
			k.w.failf("topic %s (czxid %d) exists: %v, wanted: %v", i.name, czxid, exists, i.wanted)
		}
	}
	for name := range k.w.store.configs {
		if k.w.store.topics[name] == nil && !k.touchedByHand[name] {
			k.w.failf("configuration of topic %s is left", name)
		}
	}
}
