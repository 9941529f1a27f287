package doctor

import (
	"fmt"
	"slices"
	"strings"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// obstacle is a reason why a deletion does not end.
type obstacle struct {
	what, next string
	seen       []Evidence
}

// deletion judges a topic that is marked for deletion.
func (v *view) deletion(t *topic) []Finding {
	hosts := t.hosts()
	obstacles := v.obstacles(t, hosts)
	age := v.age(t.marker)
	if len(obstacles) == 0 && age > 0 && age < v.grace {
		return []Finding{{
			Code: "deletion-running", Severity: Info, Subject: "topic " + t.name,
			What:     fmt.Sprintf("Topic %s is being deleted, for %v so far.", t.name, age),
			Evidence: v.seeAll(t.marker.Path),
			Why:      "Large topics and slow disks take a while.",
			Next:     "Look again in a minute.",
		}}
	}
	if len(obstacles) == 0 {
		obstacles = append(obstacles, v.invisibleObstacle(t, hosts))
	}
	f := Finding{
		Code: "deletion-stuck", Severity: Error, Subject: "topic " + t.name,
		Evidence: v.seeAll(t.marker.Path, t.node.Path),
		Why:      "Clients no longer see the topic, but its name cannot be used again (TOPIC_ALREADY_EXISTS, \"marked for deletion\"), the data of replicas that are not removed stays on disk, and no tool of Kafka's shows it.",
	}
	var whats, nexts []string
	for _, o := range obstacles {
		whats, nexts = append(whats, o.what), append(nexts, o.next)
	}
	waits := "waits"
	if age > 0 {
		waits = fmt.Sprintf("has waited for %v", age)
	}
	f.What = fmt.Sprintf("The deletion of topic %s %s: %s.", t.name, waits, strings.Join(whats, "; "))
	f.Next = strings.Join(nexts, " ") + " Do not remove nodes by hand: the controller and the brokers would not notice."
	for _, o := range obstacles {
		f.Evidence = append(f.Evidence, o.seen...)
	}
	f.Evidence = append(f.Evidence, v.states(t.sorted())...)
	_, there := v.answers.withReplicas(hosts, t.name)
	f.Evidence = append(f.Evidence, there...)
	return []Finding{f}
}

// hosts gives the brokers that replicas of the topic are assigned to, in order.
func (t *topic) hosts() []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, p := range t.partitions {
		if p.assignment != nil {
			out = append(out, p.assignment.Replicas...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// obstacles are those that can be seen.
func (v *view) obstacles(t *topic, hosts []cluster.BrokerID) []obstacle {
	var out []obstacle
	office := v.officeHolderID()
	switch {
	case v.node(coord.ControllerPath) == nil:
		out = append(out, obstacle{what: "there is no controller", next: "Get a controller first (see no-controller)."})
	case len(v.silentAmong([]cluster.BrokerID{office})) > 0:
		out = append(out, obstacle{what: fmt.Sprintf("the controller, broker %d, does not answer", office), next: "Get a controller that works first (see controller-silent)."})
	}
	if down := v.notLive(hosts); len(down) > 0 {
		out = append(out, obstacle{
			what: fmt.Sprintf("%s, with replicas of it, %s not registered", ids(down), either(len(down), "is", "are")),
			next: fmt.Sprintf("Start %s: the deletion goes on by itself. If the machine or its disks are lost, start a broker of the same id with empty log dirs. Reassigning is refused by now. A klamm broker as controller ends deletions without brokers that have run klamm and are gone, and cleans them up when they return.", ids(down)),
		})
	}
	if silent := slices.DeleteFunc(v.silentAmong(hosts), func(id cluster.BrokerID) bool { return id == office }); len(silent) > 0 {
		out = append(out, obstacle{
			what: fmt.Sprintf("%s, with replicas of it, %s registered and %s not answer", ids(silent), either(len(silent), "is", "are"), either(len(silent), "does", "do")),
			next: fmt.Sprintf("The controller waits for %s as long as %s registered. If %s (see broker-silent), restart %s: the deletion goes on then.", ids(silent), either(len(silent), "it is", "they are"), either(len(silent), "it hangs", "they hang"), either(len(silent), "it", "them")),
		})
	}
	var moving []*partition
	for _, p := range t.sorted() {
		if p.assignment != nil && p.assignment.BeingReassigned() {
			moving = append(moving, p)
		}
	}
	if len(moving) > 0 {
		out = append(out, obstacle{
			what: fmt.Sprintf("%s %s being reassigned", partitionsText(moving), either(len(moving), "is", "are")),
			next: "The move holds the deletion up until its new replicas are in sync, if it was under way before, and its record may outlive the topic until the controller changes. If it cannot end, let the controller change.",
		})
	}
	if failed, dirs := v.answers.withFailedDirs(hosts); failed != nil {
		out = append(out, obstacle{
			what: fmt.Sprintf("log dirs have failed on %s", ids(failed)),
			next: "Repair the disk or take it out of log.dirs, then restart the broker: the controller tries again when it registers.",
			seen: dirs,
		})
	}
	return out
}

// invisibleObstacle is what must be the case when all brokers are there and nothing is being moved.
func (v *view) invisibleObstacle(t *topic, hosts []cluster.BrokerID) obstacle {
	begun, missing, total := 0, 0, 0
	for _, p := range t.sorted() {
		switch {
		case p.assignment == nil:
		case p.stateNode == nil:
			missing, total = missing+1, total+1
		case p.state != nil && p.state.Leader < 0:
			begun, total = begun+1, total+1
		default:
			total++
		}
	}
	change := "Let the controller change (restart the broker that is it): the next one starts the deletion anew."
	switch {
	case missing > 0:
		return obstacle{what: fmt.Sprintf("it is removed by half, %d of %s no state any more, and the controller does not go on", missing, count(total, "partition")+" "+either(total, "has", "have")), next: change}
	case begun > 0:
		return v.unremoved(t, hosts, change)
	}
	return obstacle{what: "it was not begun, though all brokers are registered and nothing is being moved: the controller keeps the name back, as it does when an earlier topic of that name was deleted while a broker died, or it is held up", next: change}
}

// unremoved is what holds a deletion up that was begun and sees no obstacle.
func (v *view) unremoved(t *topic, hosts []cluster.BrokerID, change string) obstacle {
	o := obstacle{what: "it was begun (replicas were taken out of the ISR), all brokers are registered, and "}
	retry := " Kafka tries again only when a broker of the topic restarts or the controller changes. " + change
	there, _ := v.answers.withReplicas(hosts, t.name)
	switch {
	case slices.ContainsFunc(hosts, func(id cluster.BrokerID) bool { b := v.answers.of(id); return b == nil || b.DirsErr != "" }):
		o.what += "some replica could not be removed: a failed log dir, or a broker that answered with an error"
		o.next = "kafka-log-dirs shows failed log dirs, server.log the error." + retry
	case there == nil:
		o.what += "no broker shows a replica of it any more: the controller has not taken notice"
		o.next = change
	default:
		o.what += fmt.Sprintf("no log dir has failed, but %s still %s replicas: removing them ended in an error", ids(there), either(len(there), "has", "have"))
		o.next = fmt.Sprintf("server.log of %s has the error.", ids(there)) + retry
	}
	return o
}

// orphanMarker is a marker without a topic.
func (v *view) orphanMarker(t *topic) []Finding {
	f := Finding{
		Code: "orphan-marker", Severity: Warning, Subject: "topic " + t.name,
		What:     fmt.Sprintf("Topic %s is marked for deletion and does not exist.", t.name),
		Evidence: v.seeAll(t.marker.Path, coord.TopicPath(t.name)),
		Why:      "As long as the marker is there no topic of that name can be created (TOPIC_ALREADY_EXISTS, \"marked for deletion\"). A controller removes such markers; this one has not.",
		Next:     "`klamm doctor repair` removes it. Or let the controller change: the next one does.",
	}
	if t.config != nil {
		f.Code, f.What = "half-removed-topic", fmt.Sprintf("Topic %s is removed by half: its node is gone, its configs and its marker are left.", t.name)
		f.Evidence = append(f.Evidence, v.see(t.config.Path))
		f.Why += " With the configs left, a topic of that name would take them over."
		f.Next = "`klamm doctor repair` removes both, as the controller would have. Or let the controller change: the next one does."
		f.Repair = append(f.Repair, v.remove(t.config.Path, coord.TopicPath(t.name)))
	}
	f.Repair = append(f.Repair, v.remove(t.marker.Path, coord.TopicPath(t.name)))
	return []Finding{f}
}

// orphanConfig is a config node without a topic.
func (v *view) orphanConfig(t *topic) []Finding {
	if t.config == nil {
		return nil
	}
	return []Finding{{
		Code: "config-without-topic", Severity: Warning, Subject: "topic " + t.name,
		What:     fmt.Sprintf("There are configs for topic %s, which does not exist.", t.name),
		Evidence: v.seeAll(t.config.Path, coord.TopicPath(t.name)),
		Why:      "A topic of that name that some tool creates without configs takes these over. They are left when a topic's nodes were removed by hand, or when its creation broke off half way.",
		Next:     "If nobody wants them: `klamm doctor repair` removes them.",
		Repair:   []Repair{v.remove(t.config.Path, coord.TopicPath(t.name))},
	}}
}
