package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// requests judges what tools asked the controller for by nodes: elections and reassignments.
func (v *view) requests() []Finding {
	return append(v.electionRequest(), v.reassignmentRequest()...)
}

// electionRequest judges /admin/preferred_replica_election.
func (v *view) electionRequest() []Finding {
	n := v.node(coord.PreferredElectionPath)
	if n == nil {
		return nil
	}
	tps, err := coord.DecodePreferredElection(n.Data)
	if err != nil {
		return []Finding{v.unreadable(n.Path, err)}
	}
	var unknown, never, good []cluster.TopicPartition
	for _, tp := range tps {
		switch t := v.topics[tp.Topic]; {
		case !v.exists(tp.Topic) || t.partitions[tp.Partition] == nil:
			unknown = append(unknown, tp)
		case t.partitions[tp.Partition].stateNode == nil:
			never = append(never, tp)
		default:
			good = append(good, tp)
		}
	}
	f := Finding{
		Code: "election-pending", Severity: Info, Subject: n.Path,
		What:     fmt.Sprintf("A tool asked for the preferred leader of %s, and the controller has not answered.", count(len(tps), "partition")),
		Evidence: v.seeAll(n.Path),
		Why:      "The controller removes the node when it is done.",
		Next:     "Look again in a minute. If it stays, there is no controller or it is held up.",
	}
	switch {
	case len(never) > 0:
		f.Code, f.Severity = "election-crash-loop", Error
		f.What = fmt.Sprintf("A tool asked for the preferred leader of partitions that never had a leader: %s.", list(never))
		f.Evidence = append(f.Evidence, v.see(coord.TopicPath(never[0].Topic)), v.see(coord.PartitionStatePath(never[0])))
		f.Why = "Every controller of Kafka's fails on it at the start of its term and resigns, and so does the next one: elections follow each other at once until the node is gone."
		f.Next = "`klamm doctor repair` takes them out of the node."
	case len(unknown) > 0:
		f.Code, f.Severity = "election-of-unknown", Warning
		f.What = fmt.Sprintf("A tool asked for the preferred leader of partitions that do not exist or are being deleted: %s.", list(unknown))
		f.Why = "The controller removes the node when it is done with it. That it has not: it is held up, or there is none. While the node exists no other election can be asked for in this way."
		f.Next = "`klamm doctor repair` takes them out of the node."
	}
	if len(good) < len(tps) {
		f.Repair = []Repair{v.reduce(n, len(good) > 0, coord.EncodePreferredElection(good), "without "+list(append(never, unknown...)))}
	}
	return []Finding{f}
}

// reassignmentRequest judges /admin/reassign_partitions.
func (v *view) reassignmentRequest() []Finding {
	n := v.node(coord.ReassignPartitionsPath)
	if n == nil {
		return nil
	}
	targets, err := coord.DecodeReassignment(n.Data)
	if err != nil {
		return []Finding{v.unreadable(n.Path, err)}
	}
	good := maps.Clone(targets)
	var unknown []cluster.TopicPartition
	for tp := range targets {
		t := v.topics[tp.Topic]
		if !v.exists(tp.Topic) || t.partitions[tp.Partition] == nil || t.partitions[tp.Partition].assignment == nil {
			unknown = append(unknown, tp)
			delete(good, tp)
		}
	}
	slices.SortFunc(unknown, cluster.TopicPartition.Compare)
	f := Finding{
		Code: "reassignment-pending", Severity: Info, Subject: n.Path,
		What:     fmt.Sprintf("A tool asked for a reassignment of %s, and it has not ended.", count(len(targets), "partition")),
		Evidence: v.seeAll(n.Path),
		Why:      "The controller removes the node when all moves have ended.",
		Next:     "Nothing needs to be done unless it never ends.",
	}
	if len(unknown) > 0 {
		f.Code, f.Severity = "reassignment-of-unknown", Warning
		f.What = fmt.Sprintf("A tool asked for a reassignment of partitions that do not exist or are being deleted: %s.", list(unknown))
		f.Why = "They cannot be moved, so the request never ends. While the node exists no other reassignment can be asked for in this way, and topics it names are not deleted."
		f.Next = "`klamm doctor repair` takes them out of the node."
		f.Repair = []Repair{v.reduce(n, len(good) > 0, coord.EncodeReassignment(good), "without "+list(unknown))}
	}
	return []Finding{f}
}

// list writes some partitions out.
func list(tps []cluster.TopicPartition) string {
	const most = 5
	var text []string
	for _, tp := range tps[:min(most, len(tps))] {
		text = append(text, tp.String())
	}
	if more := len(tps) - most; more > 0 {
		text = append(text, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(text, ", ")
}

// notifications finds what a controller should have taken notice of.
func (v *view) notifications() []Finding {
	if len(v.live) == 0 {
		return nil
	}
	var out []Finding
	for _, r := range []struct{ root, code, what, next string }{
		{coord.LogDirEventPath, "log-dir-event-unread", "A broker reported a failed log dir",
			"kafka-log-dirs shows which dir of which broker has failed. "},
		{coord.ISRChangePath, "isr-change-unread", "Leaders reported changes of their ISR", ""},
	} {
		var paths []string
		for _, name := range v.names[r.root] {
			paths = append(paths, r.root+"/"+name)
		}
		if len(paths) == 0 {
			continue
		}
		out = append(out, Finding{
			Code: r.code, Severity: Warning, Subject: r.root,
			What:     fmt.Sprintf("%s, and no controller took notice: %s.", r.what, count(len(paths), "notification")),
			Evidence: v.seeAll(paths...),
			Why:      "The controller removes a notification at once when it has read it. It is held up, or there is none.",
			Next:     r.next + "See controller.log; let the controller change by restarting the broker that is it.",
		})
	}
	return out
}

// ownNodes tells of klamm's notes to absent brokers.
func (v *view) ownNodes() []Finding {
	var out []Finding
	for _, broker := range v.names[coord.LeftoversPath] {
		root := coord.LeftoversPath + "/" + broker
		var paths []string
		for _, name := range v.names[root] {
			path := root + "/" + name
			if _, err := coord.DecodeLeftover(v.nodes[path].Data); err != nil {
				out = append(out, v.unreadable(path, err))
				continue
			}
			paths = append(paths, path)
		}
		id, err := strconv.Atoi(broker)
		if len(paths) == 0 || err != nil {
			continue
		}
		f := Finding{
			Code: "leftovers", Severity: Info, Subject: "broker " + broker,
			What:     fmt.Sprintf("Broker %s has to remove what is left on it of %s whose deletion ended without it.", broker, count(len(paths), "topic")),
			Evidence: v.seeAll(paths...),
			Why:      "klamm's controller ended the deletion when the broker was gone, and left it these notes. A klamm broker does it at its next start; one of Kafka's does not look at them.",
			Next:     "Nothing needs to be done if the broker runs klamm when it returns.",
		}
		if v.isLive(cluster.BrokerID(id)) {
			f.Severity = Warning
			f.Next = "The broker is registered and has not done it: see its log for the dir that cannot be removed. If it runs Kafka, remove the directories by hand while it is stopped."
		}
		out = append(out, f)
	}
	return out
}
