package doctor

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// compare holds what brokers say against the store.
func (v *view) compare() []Finding {
	if f, other := v.otherCluster(); other {
		return []Finding{f}
	}
	var out []Finding
	for _, id := range v.live {
		if v.answers.of(id) == nil {
			out = append(out, v.silent(id))
		}
	}
	var registered []BrokerAnswer
	for _, b := range v.answers.Brokers {
		switch {
		case b.Err != "":
		case v.isLive(b.ID):
			registered = append(registered, b)
		default:
			out = append(out, v.cutOff(b))
		}
	}
	out = append(out, v.compareControllers(registered)...)
	for _, name := range v.order {
		if t := v.topics[name]; v.exists(name) && t.decoded {
			out = append(out, v.compareTopic(t, registered)...)
		}
	}
	for _, b := range registered {
		out = append(out, v.forgotten(b)...)
		out = append(out, v.logDirs(b)...)
	}
	return out
}

// otherCluster finds that the brokers that were asked are not those of the store.
func (v *view) otherCluster() (Finding, bool) {
	n := v.node(coord.ClusterIDPath)
	if n == nil {
		return Finding{}, false
	}
	id, err := coord.DecodeClusterID(n.Data)
	if err != nil {
		return Finding{}, false
	}
	seen := []Evidence{v.see(n.Path)}
	for _, b := range v.answers.Brokers {
		if b.ClusterID != "" && b.ClusterID != id {
			seen = append(seen, Evidence{brokerName(b.ID) + " at " + b.Addr, "cluster id " + b.ClusterID})
		}
	}
	if len(seen) == 1 {
		return Finding{}, false
	}
	return Finding{
		Code: "brokers-of-another-cluster", Severity: Error, Subject: "examination",
		What:     fmt.Sprintf("%s another cluster than the store.", either(len(seen)-1, "A broker that was asked belongs to", count(len(seen)-1, "broker")+" that were asked belong to")),
		Evidence: seen,
		Why:      "What they say means nothing for this one. It is left out of this report.",
		Next:     "Compare --bootstrap-server with --zookeeper and its chroot.",
	}, true
}

// silentAmong gives those of the brokers that are registered and did not answer; none when nobody was asked.
func (v *view) silentAmong(list []cluster.BrokerID) []cluster.BrokerID {
	if v.answers == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(list), func(id cluster.BrokerID) bool { return !v.isLive(id) || v.answers.of(id) != nil })
}

// officeHolderID gives the broker that /controller names; NoBroker when there is none.
func (v *view) officeHolderID() cluster.BrokerID {
	if n := v.node(coord.ControllerPath); n != nil {
		if c, err := coord.DecodeController(n.Data); err == nil {
			return c.BrokerID
		}
	}
	return cluster.NoBroker
}

func (v *view) silent(id cluster.BrokerID) Finding {
	f := Finding{
		Code: "broker-silent", Severity: Error, Subject: brokerName(id),
		What:     fmt.Sprintf("Broker %d is registered and does not answer.", id),
		Evidence: v.seeAll(coord.BrokerPath(id)),
		Why:      "The cluster takes it for alive and leaves leaderships with it, but clients cannot reach it at its advertised address, at least from here; or it is not in the metadata of the bootstrap servers.",
		Next:     "Try its advertised address from a client's machine. See its server.log.",
	}
	for _, b := range v.answers.Brokers {
		if b.ID == id {
			f.Evidence = append(f.Evidence, Evidence{brokerName(id) + " at " + b.Addr, b.Err})
		}
	}
	if id != v.officeHolderID() {
		return f
	}
	f.Code, f.Subject = "controller-silent", "controller"
	f.What = fmt.Sprintf("Broker %d is the controller and does not answer.", id)
	f.Evidence = append(v.seeAll(coord.ControllerPath), f.Evidence...)
	f.Why = "If it hangs (a process that was stopped, a long garbage collection, a disk that does not answer) no leader is elected and no topic created or deleted as long as its session lasts. It may also be out of reach from here only."
	f.Next = fmt.Sprintf("Look at the process of broker %d and at the network to it. If it hangs, kill it: another broker takes over when its session has ended. Should it wake up after that, its writes are fenced.", id)
	return f
}

// cutOff is a broker that serves clients and is not part of the cluster.
func (v *view) cutOff(b BrokerAnswer) Finding {
	led := 0
	for _, t := range b.Topics {
		for _, leader := range t.Leaders {
			if leader == b.ID {
				led++
			}
		}
	}
	f := Finding{
		Code: "broker-cut-off", Severity: Error, Subject: brokerName(b.ID),
		What: fmt.Sprintf("Broker %d answers clients and is not registered.", b.ID),
		Evidence: append(v.seeAll(coord.BrokerPath(b.ID), coord.ControllerPath),
			Evidence{brokerName(b.ID) + " at " + b.Addr, fmt.Sprintf("says the controller is %d, takes itself for the leader of %s", b.Controller, count(led, "partition"))}),
		Why:  "Its session with the store has ended and it does not know, or does not get there to register again. The others take it for dead, and it goes on with what it knew: records that it takes as a former leader with acks=0 or 1 are lost when it returns.",
		Next: fmt.Sprintf("See the server.log of broker %d, and its way to ZooKeeper (zookeeper.connect, the network). It registers by itself when it gets there. If that takes longer, stop it, so that clients leave it.", b.ID),
	}
	if b.Controller == b.ID {
		f.Code = "controller-zombie"
		f.What = fmt.Sprintf("Broker %d still takes itself for the controller, and is not registered.", b.ID)
		if now := v.officeHolderID(); now != cluster.NoBroker {
			f.What += fmt.Sprintf(" The controller is broker %d.", now)
		}
		f.Why += " What it writes as a controller is fenced, but it answers clients that ask for topic changes as if it were in office."
	}
	return f
}

// compareControllers finds brokers that take another one for the controller than the store.
func (v *view) compareControllers(answered []BrokerAnswer) []Finding {
	id := v.officeHolderID()
	if id == cluster.NoBroker {
		return nil
	}
	seen := v.seeAll(coord.ControllerPath)
	for _, b := range answered {
		if b.Controller != id {
			seen = append(seen, Evidence{brokerName(b.ID), fmt.Sprintf("says the controller is %d", b.Controller)})
		}
	}
	if len(seen) == 1 {
		return nil
	}
	return []Finding{{
		Code: "controllers-differ", Severity: Warning, Subject: "controller",
		What:     fmt.Sprintf("Broker %d is the controller, and %s.", id, either(len(seen)-1, "one broker says another", count(len(seen)-1, "broker")+" say another")),
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
		Why:      "Either they were deleted while this broker was frozen or cut off: when it registers again without a restart nobody tells it of topics that are gone. Or they were removed by hand in the store: no broker was told, all go on serving them, and a topic of the same name would not come up.",
		Next:     "Restart the broker: it then learns only what there is. If several show them, restart one after the other, the controller last. Directories that stay are named by --bootstrap-server as stray replicas.",
	}}
}

// logDirs finds failed dirs, and replicas that do not belong to the broker.
func (v *view) logDirs(b BrokerAnswer) []Finding {
	var out []Finding
	failed := b.failedDirs()
	var strays []Evidence
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
