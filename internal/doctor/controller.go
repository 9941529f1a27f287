package doctor

import (
	"fmt"
	"strconv"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// controller judges who is in office.
func (v *view) controller() []Finding {
	if out := v.migration(); out != nil {
		return out // a KRaft controller has other rules
	}
	if len(v.live) == 0 {
		return []Finding{{
			Code: "no-brokers", Severity: Error, Subject: "cluster",
			What:     "No broker is registered.",
			Evidence: v.seeAll(coord.BrokerIDsPath),
			Why:      "Nothing is served. What depends on brokers being up is left out of this report.",
			Next:     "Start the brokers. If they run: do they use this ZooKeeper and this chroot (zookeeper.connect)?",
		}}
	}
	epoch, node := v.node(coord.ControllerEpochPath), v.node(coord.ControllerPath)
	var out []Finding
	if epoch == nil {
		out = append(out, Finding{
			Code: "no-controller-epoch", Severity: Error, Subject: "controller",
			What:     "/controller_epoch is absent though brokers are registered.",
			Evidence: v.seeAll(coord.ControllerEpochPath, coord.ControllerPath),
			Why:      "Every write of a controller is checked against it: none can be made. A controller that creates it anew starts at epoch 1, and brokers refuse requests of epochs lower than those they have seen.",
			Next:     "Find out who removed it. Create it with a number above every controller_epoch in the state nodes, then restart the broker that is the controller.",
		})
	} else if _, err := coord.DecodeControllerEpoch(epoch.Data); err != nil {
		out = append(out, v.unreadable(epoch.Path, err))
	}
	if node == nil {
		return append(out, Finding{
			Code: "no-controller", Severity: Error, Subject: "controller",
			What:     "No broker is the controller.",
			Evidence: append(v.seeAll(coord.ControllerPath, coord.ControllerEpochPath), Evidence{coord.BrokerIDsPath, ids(v.live)}),
			Why:      "No leader is elected, no topic is created or deleted. Brokers compete for the office at once when it is free, so either none can reach ZooKeeper or each fails at the start of its term.",
			Next:     "Look into controller.log of the brokers for the exception that ends each term, and at the other findings here: nodes that cannot be read and elections of unknown partitions do that.",
		})
	}
	n, err := coord.DecodeController(node.Data)
	if err != nil {
		return append(out, v.unreadable(node.Path, err))
	}
	return append(out, v.officeHolder(n, node, epoch)...)
}

// officeHolder judges the controller that /controller names.
func (v *view) officeHolder(n coord.ControllerNode, node, epoch *coord.Node) []Finding {
	registration := v.node(coord.BrokerPath(n.BrokerID))
	switch {
	case node.Stat.EphemeralOwner == 0:
		return []Finding{{
			Code: "controller-not-ephemeral", Severity: Error, Subject: "controller",
			What:     fmt.Sprintf("/controller names broker %d and belongs to no session.", n.BrokerID),
			Evidence: v.seeAll(coord.ControllerPath),
			Why:      "It stays when that broker goes, so nobody will take over. Brokers write it for their session; this one was written by hand or by a tool.",
			Next:     "Remove /controller: the brokers elect a new controller at once.",
		}}
	case registration == nil:
		return []Finding{{
			Code: "controller-not-registered", Severity: Error, Subject: "controller",
			What:     fmt.Sprintf("Broker %d is the controller and is not registered.", n.BrokerID),
			Evidence: v.seeAll(coord.ControllerPath, coord.BrokerPath(n.BrokerID)),
			Why:      "It holds the office without being part of the cluster: others wait for it as long as its session lives.",
			Next:     fmt.Sprintf("Look at broker %d: does it run, does it reach ZooKeeper? Restart it. If it is gone, its session ends by itself.", n.BrokerID),
		}}
	}
	var out []Finding
	if registration.Stat.EphemeralOwner != node.Stat.EphemeralOwner {
		out = append(out, Finding{
			Code: "controller-other-session", Severity: Warning, Subject: "controller",
			What: fmt.Sprintf("/controller and the registration of broker %d belong to two sessions.", n.BrokerID),
			Evidence: []Evidence{
				{coord.ControllerPath, fmt.Sprintf("owner %#x", node.Stat.EphemeralOwner)},
				{coord.BrokerPath(n.BrokerID), fmt.Sprintf("owner %#x", registration.Stat.EphemeralOwner)},
			},
			Why:  "One of them was left by an earlier life of the broker, or two processes run under one id. As long as the old session lives nobody acts as controller.",
			Next: fmt.Sprintf("Wait for one session timeout and look again. If it stays, make sure that only one process runs as broker %d.", n.BrokerID),
		})
	}
	// One transaction writes both nodes at an election.
	if epoch != nil && epoch.Stat.Mzxid != node.Stat.Czxid {
		out = append(out, Finding{
			Code: "controller-fenced", Severity: Error, Subject: "controller",
			What: fmt.Sprintf("/controller_epoch was changed after broker %d was elected.", n.BrokerID),
			Evidence: []Evidence{
				{coord.ControllerPath, fmt.Sprintf("%s, created by change %d", node.Data, node.Stat.Czxid)},
				{coord.ControllerEpochPath, fmt.Sprintf("%s, version %d, last written by change %d", epoch.Data, epoch.Stat.Version, epoch.Stat.Mzxid)},
			},
			Why:  "An election writes both nodes at once. The controller checks each of its writes against the version it wrote then: all of them fail now, it is a zombie.",
			Next: fmt.Sprintf("Restart broker %d, or remove /controller: the next controller reads the epoch anew.", n.BrokerID),
		})
	}
	return append(out, v.futureEpochs(epoch)...)
}

// futureEpochs finds states that a controller wrote whose epoch the store does not know yet.
func (v *view) futureEpochs(epoch *coord.Node) []Finding {
	if epoch == nil {
		return nil
	}
	current, err := coord.DecodeControllerEpoch(epoch.Data)
	if err != nil {
		return nil
	}
	var seen []Evidence
	for _, name := range v.order {
		for _, p := range v.topics[name].sorted() {
			if p.state != nil && p.state.ControllerEpoch > current {
				seen = append(seen, v.see(p.stateNode.Path))
			}
		}
	}
	if seen == nil {
		return nil
	}
	return []Finding{{
		Code: "epoch-from-the-future", Severity: Error, Subject: "controller",
		What:     fmt.Sprintf("%s written at a controller epoch above the current one, %d.", either(len(seen), "A partition's state was", count(len(seen), "partition state")+" were"), current),
		Evidence: append([]Evidence{v.see(coord.ControllerEpochPath)}, seen...),
		Why:      "The controller takes such a state for the work of a newer controller and refuses to elect leaders for the partition. It happens when /controller_epoch was restored, removed or written by hand.",
		Next:     "Set /controller_epoch to a number not below the highest one in the states, then remove /controller so that an election increments it.",
	}}
}

// migration tells of a cluster that moves to KRaft.
func (v *view) migration() []Finding {
	kraft := false
	if n := v.node(coord.ControllerPath); n != nil {
		c, err := coord.DecodeController(n.Data)
		kraft = err == nil && c.KRaftEpoch > 0
	}
	if v.node(coord.MigrationPath) == nil && !kraft {
		return nil
	}
	return []Finding{{
		Code: "kraft-migration", Severity: Warning, Subject: "controller",
		What:     "The cluster migrates to KRaft: a KRaft controller may own this state.",
		Evidence: v.seeAll(coord.MigrationPath, coord.ControllerPath),
		Why:      "Other rules hold then, and this report may name things that are none. klamm takes no part in such a migration.",
		Next:     "Finish the migration, or roll it back as Kafka's documentation says.",
	}}
}

// failingTerm is what a term takes at least that the end of a session ends: ZooKeeper grants no session below two ticks, 4 s by default.
const failingTerm = 4 * time.Second

// controllerMoves compares two looks.
func (v *view) controllerMoves(before *view) []Finding {
	was, err1 := epochOf(before)
	is, err2 := epochOf(v)
	if err1 != nil || err2 != nil || was == is {
		return nil
	}
	took := v.taken.Sub(before.taken)
	f := Finding{
		Code: "controller-flapping", Severity: Error, Subject: "controller",
		What: fmt.Sprintf("%s in %v: no controller stays in office.", count(int(is-was), "election"), took.Round(100*time.Millisecond)),
		Evidence: []Evidence{
			{coord.ControllerEpochPath, fmt.Sprintf("%d, then %d", was, is)},
			before.see(coord.ControllerPath), v.see(coord.ControllerPath),
		},
		Why:  "Each new controller fails at the start of its term, resigns, and the next one fails in the same way: nothing is elected, created or deleted.",
		Next: "Look at the other findings here: an election request that names partitions without leadership (election-crash-loop) is the known cause. Else controller.log has the exception.",
	}
	if per := took / time.Duration(max(1, is-was)); per >= failingTerm {
		f.Why = "A term that fails at its start does so soon; these lasted longer, so the sessions of controllers ended: their process was held up longer than zookeeper.session.timeout.ms (garbage collection, a machine that swaps or is paused), or they did not reach ZooKeeper; or something removes /controller. Whatever a controller is about is begun anew each time."
		f.Next = "Look for \"Session expired\" in server.log of the brokers that held the office, and at that time into their GC logs and ZooKeeper's log. Cure the pauses, or raise zookeeper.session.timeout.ms above them."
	}
	switch {
	case is < was:
		f.Code, f.What = "controller-epoch-fell", fmt.Sprintf("/controller_epoch fell from %d to %d.", was, is)
		f.Why = "It only ever grows, unless somebody writes to it: brokers refuse requests of an epoch lower than what they have seen."
		f.Next = "Find out who wrote it, and set it above the highest number it had."
	case is == was+1:
		f.Code, f.Severity = "controller-moved", Info
		f.What = fmt.Sprintf("A new controller was elected during the examination: epoch %d.", is)
		f.Why = "Once is nothing unusual."
		f.Next = "Run the examination again, with a longer look (--pause 2m): several elections would be."
	}
	return []Finding{f}
}

func epochOf(v *view) (cluster.ControllerEpoch, error) {
	n := v.node(coord.ControllerEpochPath)
	if n == nil {
		return 0, coord.ErrNoNode
	}
	return coord.DecodeControllerEpoch(n.Data)
}

// registrations judges the brokers, and those that are missed.
func (v *view) registrations() []Finding {
	var out []Finding
	type address struct {
		host string
		port int32
	}
	at := map[address]cluster.BrokerID{}
	for _, id := range v.live {
		n := v.node(coord.BrokerPath(id))
		if n.Stat.EphemeralOwner == 0 {
			out = append(out, Finding{
				Code: "registration-not-ephemeral", Severity: Error, Subject: "broker " + strconv.Itoa(int(id)),
				What:     fmt.Sprintf("The registration of broker %d belongs to no session.", id),
				Evidence: v.seeAll(n.Path),
				Why:      "It stays when the broker goes: the cluster takes a dead broker for alive, and the broker itself cannot register.",
				Next:     "If the broker runs, stop it. Remove the node, then start the broker.",
			})
		}
		for _, e := range v.brokers[id].Endpoints {
			a := address{e.Host, e.Port}
			other, taken := at[a]
			if at[a] = id; taken && other != id {
				out = append(out, Finding{
					Code: "address-twice", Severity: Error, Subject: fmt.Sprintf("%s:%d", e.Host, e.Port),
					What:     fmt.Sprintf("Brokers %d and %d both advertise %s:%d.", other, id, e.Host, e.Port),
					Evidence: v.seeAll(coord.BrokerPath(other), coord.BrokerPath(id)),
					Why:      "Clients and brokers that mean one of them reach the other.",
					Next:     "Correct advertised.listeners of one of them and restart it.",
				})
			}
		}
	}
	if len(v.live) == 0 {
		return out
	}
	return append(out, v.missing()...)
}
