package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// missing judges every broker that replicas are assigned to: is it there, and are its replicas in sync?
func (v *view) missing() []Finding {
	var out []Finding
	for _, id := range slices.Sorted(maps.Keys(v.assigned)) {
		var all, behind []*partition
		topics, everInSync := map[string]bool{}, false
		for _, tp := range v.assigned[id] {
			t := v.topics[tp.Topic]
			p := t.partitions[tp.Partition]
			all, topics[tp.Topic] = append(all, p), true
			if p.state == nil {
				continue
			}
			in := slices.Contains(p.state.ISR, id)
			everInSync = everInSync || in || p.state.PartitionEpoch > 0
			if !in && p.state.Leader >= 0 && t.marker == nil && !slices.Contains(p.assignment.Adding, id) {
				behind = append(behind, p)
			}
		}
		sortPartitions(all)
		sortPartitions(behind)
		switch {
		case !v.isLive(id) && everInSync:
			out = append(out, v.brokerDown(id, all, behind, len(topics)))
		case !v.isLive(id):
			out = append(out, v.brokerUnknown(id, all, len(topics)))
		case len(behind) > 0:
			out = append(out, v.replicasBehind(id, behind))
		}
	}
	return out
}

func sortPartitions(ps []*partition) {
	slices.SortFunc(ps, func(a, b *partition) int { return a.tp.Compare(b.tp) })
}

func (v *view) brokerDown(id cluster.BrokerID, all, behind []*partition, topics int) Finding {
	what := fmt.Sprintf("Broker %d is not registered. It has replicas of %s of %s", id, count(len(all), "partition"), count(topics, "topic"))
	if len(behind) > 0 {
		what += fmt.Sprintf("; %s fewer replicas in sync than assigned", either(len(behind), "one has", fmt.Sprintf("%d have", len(behind))))
	}
	return Finding{
		Code: "broker-down", Severity: Warning, Subject: "broker " + strconv.Itoa(int(id)),
		What:     what + ".",
		Evidence: append(v.seeAll(coord.BrokerPath(id)), v.states(behind)...),
		Why:      "Partitions with fewer replicas in sync than min.insync.replicas refuse records with acks=all, and the loss of one more broker may leave them without a leader. Deletions of topics with replicas there do not end.",
		Next:     fmt.Sprintf("Start broker %d. If its disks are lost, start it empty under the same id: replicas are copied to it. If it will never be back, move its replicas by kafka-reassign-partitions.", id),
	}
}

func (v *view) brokerUnknown(id cluster.BrokerID, all []*partition, topics int) Finding {
	return Finding{
		Code: "broker-unknown", Severity: Warning, Subject: "broker " + strconv.Itoa(int(id)),
		What:     fmt.Sprintf("Broker %d is not registered, and nothing shows that it ever was. Replicas of %s of %s are assigned to it.", id, count(len(all), "partition"), count(topics, "topic")),
		Evidence: append(v.seeAll(coord.BrokerPath(id)), v.assignments(all)...),
		Why:      "An assignment by hand may name a broker that does not exist, which Kafka does not refuse. Topics with such replicas are never fully replicated, and their deletion never ends.",
		Next:     fmt.Sprintf("Move the replicas to a broker that exists (kafka-reassign-partitions), or start a broker with id %d.", id),
	}
}

func (v *view) replicasBehind(id cluster.BrokerID, behind []*partition) Finding {
	f := Finding{
		Code: "replicas-behind", Severity: Warning, Subject: "broker " + strconv.Itoa(int(id)),
		What:     fmt.Sprintf("Broker %d is registered, and %s not in sync.", id, either(len(behind), "one replica on it is", fmt.Sprintf("%d replicas on it are", len(behind)))),
		Evidence: v.states(behind),
		Why:      "It may be catching up after a restart, too slow, have a failed log dir, or not reach the leaders.",
		Next:     fmt.Sprintf("Look again in a minute. If it stays: server.log of broker %d (fetcher errors, offline log dirs: kafka-log-dirs), and its network to the leaders.", id),
	}
	if dirs := v.answers.of(id).failedDirs(); dirs != nil {
		f.What += " Log dirs of it have failed."
		f.Evidence = append(dirs, f.Evidence...)
		f.Next = fmt.Sprintf("Repair the disk, or take the dir out of log.dirs; then restart broker %d: it copies what it lacks.", id)
	}
	return f
}

// states gives the state nodes of partitions as evidence.
func (v *view) states(ps []*partition) []Evidence {
	var out []Evidence
	for _, p := range ps {
		out = append(out, v.see(coord.PartitionStatePath(p.tp)))
	}
	return out
}

// assignments gives the assignments of partitions as evidence.
func (v *view) assignments(ps []*partition) []Evidence {
	var out []Evidence
	for _, p := range ps {
		out = append(out, Evidence{coord.TopicPath(p.tp.Topic), fmt.Sprintf("partition %d: replicas %v", p.tp.Partition, p.assignment.Replicas)})
	}
	return out
}

// notLive gives those of the brokers that are not registered.
func (v *view) notLive(list []cluster.BrokerID) []cluster.BrokerID {
	return slices.DeleteFunc(slices.Clone(list), v.isLive)
}

// initialisation finds partitions that never got a state.
func (v *view) initialisation(t *topic) []Finding {
	if len(v.live) == 0 {
		return nil
	}
	var ghosts, forgotten []*partition
	led := 0
	for _, p := range t.sorted() {
		switch {
		case p.assignment == nil:
		case p.stateNode != nil:
			led++
		case len(v.notLive(p.assignment.Replicas)) == len(p.assignment.Replicas):
			ghosts = append(ghosts, p)
		default:
			forgotten = append(forgotten, p)
		}
	}
	var out []Finding
	if len(ghosts) > 0 {
		out = append(out, v.ghost(t, ghosts, led+len(forgotten) == 0))
	}
	if len(forgotten) > 0 {
		out = append(out, Finding{
			Code: "never-initialised", Severity: Error, Subject: "topic " + t.name,
			What:     fmt.Sprintf("Topic %s: %s no state, though brokers that replicas are assigned to are registered.", t.name, partitionsText(forgotten)+" "+either(len(forgotten), "has", "have")),
			Evidence: append(v.seeAll(t.node.Path, coord.PartitionsPath(t.name)), v.states(forgotten)...),
			Why:      "The controller gives a new partition its state at once. It does not do so when it holds the name for a topic it knows: after a topic was removed and created again by hand in the store, brokers go on serving the former one, and nothing counts as offline.",
			Next:     "Let the controller change (restart the broker that is it): the next one reads everything anew. If brokers then report INCONSISTENT_TOPIC_ID, delete the topic by kafka-topics and create it again.",
		})
	}
	return out
}

// ghost is a topic, or partitions of it, without a broker that could lead them.
func (v *view) ghost(t *topic, ps []*partition, whole bool) Finding {
	var hosts []cluster.BrokerID
	for _, p := range ps {
		hosts = append(hosts, p.assignment.Replicas...)
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	f := Finding{
		Code: "ghost-topic", Severity: Error, Subject: "topic " + t.name,
		What:     fmt.Sprintf("Topic %s exists, and no broker ever led it: its replicas are on %s, not registered.", t.name, ids(hosts)),
		Evidence: append(v.seeAll(t.node.Path), v.states(ps)...),
		Why:      "Brokers do not show it: it is not listed, deleting it answers UNKNOWN_TOPIC_OR_PARTITION, creating it TOPIC_ALREADY_EXISTS, and it does not count as offline.",
		Next:     fmt.Sprintf("Start %s (empty will do): the topic appears and can be deleted or moved. A marker written by hand does not help.", ids(hosts)),
	}
	if !whole {
		f.Code = "ghost-partitions"
		f.What = fmt.Sprintf("Topic %s: no broker ever led %s, whose replicas are on %s, not registered.", t.name, partitionsText(ps), ids(hosts))
		f.Why = "Brokers do not show these partitions, and they do not count as offline. Producers that use the number of partitions work on without them."
	}
	return f
}

// leadership finds partitions that lost their leader.
func (v *view) leadership(t *topic) []Finding {
	if len(v.live) == 0 {
		return nil
	}
	var none, dead []*partition
	for _, p := range t.sorted() {
		switch {
		case p.state == nil || p.assignment == nil:
		case p.state.Leader < 0:
			none = append(none, p)
		case !v.isLive(p.state.Leader):
			dead = append(dead, p)
		}
	}
	var out []Finding
	if len(none) > 0 {
		out = append(out, v.leaderless(t, none))
	}
	if len(dead) > 0 {
		out = append(out, Finding{
			Code: "leader-not-registered", Severity: Error, Subject: "topic " + t.name,
			What:     fmt.Sprintf("Topic %s: the leader of %s is a broker that is not registered.", t.name, partitionsText(dead)),
			Evidence: v.states(dead),
			Why:      "The controller takes the leadership away when a broker goes. That it has not: there is no controller, it is held up, or it does not know of the leadership, as after a lost answer at the partition's creation.",
			Next:     "If there is a controller, let it change (restart the broker that is it): the next one reads all states and elects.",
		})
	}
	return out
}

func (v *view) leaderless(t *topic, none []*partition) Finding {
	var wanted []cluster.BrokerID
	for _, p := range none {
		wanted = append(wanted, v.notLive(p.state.ISR)...)
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	f := Finding{
		Code: "no-leader", Severity: Error, Subject: "topic " + t.name,
		What:     fmt.Sprintf("Topic %s: %s no leader.", t.name, partitionsText(none)+" "+either(len(none), "has", "have")),
		Evidence: v.states(none),
		Why:      "Nothing can be written or read there. Only a broker that was in sync at the end (isr) may lead without loss.",
	}
	if len(wanted) > 0 {
		f.Next = fmt.Sprintf("Start %s: leadership comes back by itself. Only if that is out of question: kafka-leader-election --election-type unclean, which loses what the other replicas lack.", ids(wanted))
		return f
	}
	f.Next = "All in-sync replicas are on registered brokers: their log dirs may have failed (kafka-log-dirs), or the controller is held up. See its controller.log; let it change by restarting the broker that is it."
	for _, p := range none {
		wanted = append(wanted, p.state.ISR...)
	}
	slices.Sort(wanted)
	if failed, dirs := v.answers.withFailedDirs(slices.Compact(wanted)); failed != nil {
		f.What += fmt.Sprintf(" Log dirs have failed on %s, in sync at the end.", ids(failed))
		f.Evidence = append(dirs, f.Evidence...)
		f.Next = fmt.Sprintf("Repair the disk and restart %s: leadership comes back with the data. If the data is lost, take the dir out of log.dirs before the restart: the partition begins anew, empty, if there is no other replica.", ids(failed))
	}
	return f
}

// consistency finds states that contradict the assignment.
func (v *view) consistency(t *topic) []Finding {
	var unassigned, foreign []*partition
	for _, p := range t.sorted() {
		switch {
		case p.assignment == nil:
			unassigned = append(unassigned, p)
		case p.state != nil && !subset(append(slices.Clone(p.state.ISR), leaderOf(p)...), p.assignment.Replicas):
			foreign = append(foreign, p)
		}
	}
	var out []Finding
	if len(unassigned) > 0 {
		out = append(out, Finding{
			Code: "partition-not-assigned", Severity: Error, Subject: "topic " + t.name,
			What:     fmt.Sprintf("Topic %s: %s below it that its assignment does not name.", t.name, either(len(unassigned), "there is "+partitionsText(unassigned), "there are "+partitionsText(unassigned))),
			Evidence: append(v.seeAll(t.node.Path), v.states(unassigned)...),
			Why:      "Partitions cannot be taken away from a topic: the topic's node was written by hand, or it lost partitions when it was restored during a deletion. Brokers may still have their data.",
			Next:     "Keep the topic as it is until you know which assignment is right (server.log, the log dirs of the brokers). Then delete the topic by kafka-topics, or restore its node from a backup.",
		})
	}
	if len(foreign) > 0 {
		out = append(out, Finding{
			Code: "isr-not-assigned", Severity: Error, Subject: "topic " + t.name,
			What:     fmt.Sprintf("Topic %s: leader or ISR of %s names brokers that are no replicas.", t.name, partitionsText(foreign)),
			Evidence: append(v.assignments(foreign), v.states(foreign)...),
			Why:      "State and assignment are of two minds: an assignment was changed by hand instead of by a reassignment, or the topic was removed and created again by hand.",
			Next:     "Bring the assignment in line by kafka-reassign-partitions, to replicas that hold the data.",
		})
	}
	return out
}

func leaderOf(p *partition) []cluster.BrokerID {
	if p.state.Leader < 0 {
		return nil
	}
	return []cluster.BrokerID{p.state.Leader}
}

func subset(some, all []cluster.BrokerID) bool {
	return !slices.ContainsFunc(some, func(id cluster.BrokerID) bool { return !slices.Contains(all, id) })
}

// reassignment tells of moves that are under way, and finds those that cannot end.
func (v *view) reassignment(t *topic) []Finding {
	var moving []*partition
	var waits []cluster.BrokerID
	for _, p := range t.sorted() {
		if p.assignment != nil && p.assignment.BeingReassigned() {
			moving = append(moving, p)
			waits = append(waits, v.notLive(p.assignment.Adding)...)
		}
	}
	if len(moving) == 0 {
		return nil
	}
	slices.Sort(waits)
	waits = slices.Compact(waits)
	f := Finding{
		Code: "reassignment-running", Severity: Info, Subject: "topic " + t.name,
		What: fmt.Sprintf("Topic %s: %s being reassigned.", t.name, partitionsText(moving)+" "+either(len(moving), "is", "are")),
		Why:  "A move ends when the new replicas are in sync.",
		Next: "kafka-reassign-partitions --list shows it. Nothing needs to be done unless it never ends.",
	}
	for _, p := range moving {
		f.Evidence = append(f.Evidence, Evidence{t.node.Path, fmt.Sprintf("partition %d: replicas %v, adding %v, removing %v", p.tp.Partition, p.assignment.Replicas, p.assignment.Adding, p.assignment.Removing)}, v.see(coord.PartitionStatePath(p.tp)))
	}
	if len(waits) > 0 && len(v.live) > 0 {
		f.Code, f.Severity = "reassignment-stuck", Warning
		f.What = fmt.Sprintf("Topic %s: the move of %s waits for %s, not registered.", t.name, partitionsText(moving), ids(waits))
		f.Next = fmt.Sprintf("Start %s, or cancel the move: kafka-reassign-partitions --cancel.", ids(waits))
	}
	return []Finding{f}
}
