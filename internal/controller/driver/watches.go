package driver

import (
	"context"
	"sync"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/coord"
)

// watches turns the core's watches into the store's and their firing into events.
type watches struct {
	watcher coord.Watcher
	mu      struct {
		sync.Mutex
		armed map[coord.WatchEvent]controller.Event // what fires -> what it means
	}
}

func newWatches(s coord.Store) *watches {
	w := &watches{watcher: s.NewWatcher()}
	w.mu.armed = map[coord.WatchEvent]controller.Event{}
	return w
}

// target gives what of the store a watch looks at, and the event that it feeds.
func target(w controller.Watched) (coord.WatchEvent, controller.Event) {
	children := func(path string) coord.WatchEvent { return coord.WatchEvent{Path: path, Kind: coord.WatchChildren} }
	node := func(path string) coord.WatchEvent { return coord.WatchEvent{Path: path, Kind: coord.WatchNode} }
	switch w.Kind {
	case controller.WatchController:
		return node(coord.ControllerPath), controller.ControllerChange{}
	case controller.WatchBrokers:
		return children(coord.BrokerIDsPath), controller.BrokerChange{}
	case controller.WatchBroker:
		return node(coord.BrokerPath(w.Broker)), controller.BrokerModifications{Broker: w.Broker}
	case controller.WatchTopics:
		return children(coord.TopicsPath), controller.TopicChange{}
	case controller.WatchTopic:
		return node(coord.TopicPath(w.Topic)), controller.PartitionModifications{Topic: w.Topic}
	case controller.WatchMarkers:
		return children(coord.DeleteTopicsPath), controller.TopicDeletion{}
	case controller.WatchLogDirEvents:
		return children(coord.LogDirEventPath), controller.LogDirEventNotification{}
	case controller.WatchISRChanges:
		return children(coord.ISRChangePath), controller.ISRChangeNotification{}
	case controller.WatchPartition:
		tp := cluster.TopicPartition{Topic: w.Topic, Partition: w.Partition}
		return node(coord.PartitionStatePath(tp)), controller.ReassignmentISRChange{TopicPartition: tp}
	case controller.WatchReassignments:
		return node(coord.ReassignPartitionsPath), controller.PartitionReassignmentChange{}
	case controller.WatchPreferredElection:
		return node(coord.PreferredElectionPath), controller.PreferredReplicaElection{}
	}
	panic("watch of unknown kind")
}

func (w *watches) add(what controller.Watched) {
	at, ev := target(what)
	w.mu.Lock()
	w.mu.armed[at] = ev
	w.mu.Unlock()
	w.watcher.Add(at.Path, at.Kind)
}

func (w *watches) remove(what controller.Watched) {
	at, _ := target(what)
	w.mu.Lock()
	_, armed := w.mu.armed[at]
	delete(w.mu.armed, at)
	w.mu.Unlock()
	if armed {
		w.watcher.Remove(at.Path, at.Kind)
	}
}

// removeTerm drops every watch but the one on /controller, which every broker keeps.
func (w *watches) removeTerm() {
	keep, _ := target(controller.Watched{Kind: controller.WatchController})
	w.mu.Lock()
	drop := make([]coord.WatchEvent, 0, len(w.mu.armed))
	for at := range w.mu.armed {
		if at != keep {
			drop = append(drop, at)
			delete(w.mu.armed, at)
		}
	}
	w.mu.Unlock()
	for _, at := range drop {
		w.watcher.Remove(at.Path, at.Kind)
	}
}

// run feeds the queue until ctx ends or the watcher is closed. A full queue holds it up; the watcher coalesces meanwhile.
func (w *watches) run(ctx context.Context, q *eventQueue) {
	for {
		fired, err := w.watcher.Next(ctx)
		if err != nil {
			// Next fails for good only: with ErrClosed, or because ctx ended.
			return
		}
		for _, at := range fired {
			w.mu.Lock()
			ev, armed := w.mu.armed[at]
			w.mu.Unlock()
			if armed && !q.put(ctx, ev) {
				return
			}
		}
	}
}

func (w *watches) close() { w.watcher.Close() }
