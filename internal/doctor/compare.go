package doctor

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// compare holds what brokers say against the store.
func (v *view) compare(a *Answers) []Finding {
	var out []Finding
	for _, id := range v.live {
		if !slices.ContainsFunc(a.Brokers, func(b BrokerAnswer) bool { return b.ID == id && b.Err == "" }) {
			out = append(out, v.silent(id, a))
		}
	}
	answered := slices.DeleteFunc(slices.Clone(a.Brokers), func(b BrokerAnswer) bool { return b.Err != "" })
	out = append(out, v.compareControllers(answered)...)
	for _, name := range v.order {
		if t := v.topics[name]; v.exists(name) && t.decoded {
			out = append(out, v.compareTopic(t, answered)...)
		}
	}
	for _, b := range answered {
		out = append(out, v.forgotten(b)...)
		out = append(out, v.logDirs(b)...)
	}
	return out
}

func (v *view) silent(id cluster.BrokerID, a *Answers) Finding {
	f := Finding{
		Code: "broker-silent", Severity: Error, Subject: brokerName(id),
		What:     fmt.Sprintf("Broker %d is registered and does not answer.", id),
		Evidence: v.seeAll(coord.BrokerPath(id)),
		Why:      "The cluster takes it for alive and leaves leaderships with it, but clients cannot reach it at its advertised address, at least from here; or it is not in the metadata of the bootstrap servers.",
		Next:     "Try its advertised address from a client's machine. See its server.log.",
	}
	for _, b := range a.Brokers {
		if b.ID == id {
			f.Evidence = append(f.Evidence, Evidence{brokerName(id), b.Err})
		}
	}
	return f
}

// compareControllers finds brokers that take another one for the controller than the store.
func (v *view) compareControllers(answered []BrokerAnswer) []Finding {
	n := v.node(coord.ControllerPath)
	if n == nil {
		return nil
	}
	c, err := coord.DecodeController(n.Data)
	if err != nil {
		return nil
	}
	seen := []Evidence{v.see(n.Path)}
	for _, b := range answered {
		if b.Controller != c.BrokerID {
			seen = append(seen, Evidence{brokerName(b.ID), fmt.Sprintf("says the controller is %d", b.Controller)})
		}
	}
	if len(seen) == 1 {
		return nil
	}
	return []Finding{{
		Code: "controllers-differ", Severity: Warning, Subject: "controller",
		What:     fmt.Sprintf("Broker %d is the controller, and %s.", c.BrokerID, either(len(seen)-1, "one broker says another", count(len(seen)-1, "broker")+" say another")),
		Evidence: seen,
		Why:      "They have not heard of the controller: it does not reach them, or is held up at the start of its term. Clients send topic changes to the wrong broker.",
		Next:     "Look again in a minute. If it stays: controller.log of the controller, and the network between it and those brokers.",
	}}
}

// compareTopic finds leaderships and ids that brokers do not know as the store does.
func (v *view) compareTopic(t *topic, answered []BrokerAnswer) []Finding {
	var ids, differ []Evidence
	var unheard []*partition
	for _, b := range answered {
		known, ok := b.Topics[t.name]
		if ok && !known.ID.IsZero() && !t.id.IsZero() && known.ID != t.id {
			ids = append(ids, Evidence{brokerName(b.ID), "topic id " + known.ID.String()})
		}
	}
	for _, p := range t.sorted() {
		if p.state == nil || p.assignment == nil || p.state.Leader < 0 {
			continue
		}
		aware := 0
		var other []Evidence
		for _, b := range answered {
			leader, ok := b.Topics[t.name].Leaders[p.tp.Partition]
			switch {
			case !ok:
				other = append(other, Evidence{brokerName(b.ID), fmt.Sprintf("does not know partition %d", p.tp.Partition)})
			case leader != p.state.Leader:
				aware++
				other = append(other, Evidence{brokerName(b.ID), fmt.Sprintf("says leader %d of partition %d", leader, p.tp.Partition)})
			default:
				aware++
			}
		}
		if aware == 0 && len(answered) > 0 {
			unheard = append(unheard, p)
		} else if len(other) > 0 {
			differ = append(append(differ, v.see(p.stateNode.Path)), other...)
		}
	}
	return v.topicDifferences(t, ids, differ, unheard)
}

func (v *view) topicDifferences(t *topic, ids, differ []Evidence, unheard []*partition) []Finding {
	var out []Finding
	change := "Let the controller change (restart the broker that is it): the next one reads all states and tells all brokers."
	if len(ids) > 0 {
		out = append(out, Finding{
			Code: "topic-id-differs", Severity: Error, Subject: "topic " + t.name,
			What:     fmt.Sprintf("Topic %s: brokers know another topic of that name than the store.", t.name),
			Evidence: append([]Evidence{{t.node.Path, "topic id " + t.id.String()}}, ids...),
			Why:      "The topic was removed and created again by hand: brokers still serve the former one and refuse the new one (INCONSISTENT_TOPIC_ID), which Kafka's controller ignores.",
			Next:     "Save the data if it is needed (it is the former topic's). Let the controller change, then delete the topic by kafka-topics: that cleans both up.",
		})
	}
	if len(unheard) > 0 {
		out = append(out, Finding{
			Code: "leadership-not-announced", Severity: Error, Subject: "topic " + t.name,
			What:     fmt.Sprintf("Topic %s: %s a leader in the store, and no broker knows of it.", t.name, partitionsText(unheard)+" "+either(len(unheard), "has", "have")),
			Evidence: v.states(unheard),
			Why:      "The controller does not know the leadership: the state was there when it created the partition, or its answer was lost, and it keeps the partition as new for the whole term.",
			Next:     change,
		})
	}
	if len(differ) > 0 {
		out = append(out, Finding{
			Code: "metadata-differs", Severity: Warning, Subject: "topic " + t.name,
			What:     fmt.Sprintf("Topic %s: brokers name other leaders than the store.", t.name),
			Evidence: differ,
			Why:      "Clients that ask these brokers are sent to the wrong one. It is passing while leaders change.",
			Next:     "Look again in a minute. If it stays: controller.log and the network from the controller to those brokers. " + change,
		})
	}
	return out
}

// forgotten finds topics that a broker shows and the store has not.
func (v *view) forgotten(b BrokerAnswer) []Finding {
	var names []Evidence
	for _, name := range slices.Sorted(maps.Keys(b.Topics)) {
		if t := v.topics[name]; t == nil || t.node == nil {
			names = append(names, Evidence{coord.TopicPath(name), "absent"})
		}
	}
	if names == nil {
		return nil
	}
	return []Finding{{
		Code: "topic-only-at-broker", Severity: Error, Subject: brokerName(b.ID),
		What:     fmt.Sprintf("Broker %d shows %s that the store does not have.", b.ID, count(len(names), "topic")),
		Evidence: names,
		Why:      "Topics that were removed by hand in the store: brokers were not told, go on serving them, and a topic of the same name would not come up.",
		Next:     "Create them again by the same name and delete them by kafka-topics after the controller has changed; or restart all brokers and remove the directories.",
	}}
}

// logDirs finds failed dirs, and replicas that do not belong to the broker.
func (v *view) logDirs(b BrokerAnswer) []Finding {
	var out []Finding
	var failed, strays []Evidence
	if b.DirsErr != "" {
		out = append(out, Finding{
			Code: "log-dirs-unknown", Severity: Info, Subject: brokerName(b.ID),
			What:     fmt.Sprintf("Broker %d does not tell of its log dirs.", b.ID),
			Evidence: []Evidence{{brokerName(b.ID), b.DirsErr}},
			Why:      "It takes DESCRIBE on the cluster. Failed dirs and stray replicas cannot be seen without.",
			Next:     "Give the user of this examination that right.",
		})
	}
	var bytes int64
	for _, d := range b.Dirs {
		if d.Err != cluster.None {
			failed = append(failed, Evidence{d.Path, d.Err.String()})
		}
		for _, r := range d.Replicas {
			if v.belongs(r.TopicPartition, b.ID) {
				continue
			}
			bytes += r.Bytes
			strays = append(strays, Evidence{d.Path + "/" + r.String(), fmt.Sprintf("%d bytes", r.Bytes)})
		}
	}
	if failed != nil {
		out = append(out, Finding{
			Code: "log-dir-failed", Severity: Error, Subject: brokerName(b.ID),
			What:     fmt.Sprintf("%s of broker %d failed.", either(len(failed), "A log dir", count(len(failed), "log dir")), b.ID),
			Evidence: failed,
			Why:      "Its replicas are offline, and deletions of topics with replicas there wait. A dir does not come back while the broker runs.",
			Next:     fmt.Sprintf("Repair the disk, or take the dir out of log.dirs; then restart broker %d.", b.ID),
		})
	}
	if strays != nil {
		out = append(out, Finding{
			Code: "stray-replicas", Severity: Warning, Subject: brokerName(b.ID),
			What:     fmt.Sprintf("Broker %d has %s that no assignment names, %d bytes.", b.ID, count(len(strays), "replica"), bytes),
			Evidence: strays,
			Why:      "They take space: what a reassignment or deletion left behind when the broker was down, or the topics' nodes were removed by hand.",
			Next:     fmt.Sprintf("Make sure that nobody wants the data. Then stop broker %d, move these directories away, and start it.", b.ID),
		})
	}
	return out
}

// belongs reports whether a replica is assigned to the broker, or its topic is being deleted anyway.
func (v *view) belongs(tp cluster.TopicPartition, id cluster.BrokerID) bool {
	t := v.topics[tp.Topic]
	if t == nil || t.node == nil {
		return false
	}
	p := t.partitions[tp.Partition]
	return t.marker != nil || !t.decoded || p != nil && p.assignment != nil && slices.Contains(p.assignment.Replicas, id)
}
