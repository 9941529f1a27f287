package sim

import (
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// plantedFaults are cores that are wrong in one way, as their driver would see them. The simulator must find every one: a
// fault that it cannot find shows what the simulator lacks.
var plantedFaults = map[string]func(controller.Effect) []controller.Effect{
	"writes are not fenced": change(func(e controller.Store) controller.Effect {
		e.Fenced = false
		return e
	}),
	"the topic node is not removed": changeOp(func(op controller.DeleteTopicTrees) controller.StoreOp {
		return controller.DeleteMarkers{Markers: renamed(op.Topics)}
	}),
	"what is left to absent brokers is not recorded": changeOp(func(op controller.RecordLeftovers) controller.StoreOp {
		for i := range op.Leftovers {
			op.Leftovers[i].Partitions = op.Leftovers[i].Partitions[:0]
		}
		return op
	}),
	"the configuration is not removed": changeOp(func(op controller.DeleteTopicConfigs) controller.StoreOp {
		for i := range op.Topics {
			op.Topics[i] = "another"
		}
		return op
	}),
	"the topic node is removed whichever incarnation it is": changeOp(func(op controller.DeleteTopicTrees) controller.StoreOp {
		for i := range op.Topics {
			op.Topics[i].Czxid = controller.AnyCzxid
		}
		return op
	}),
	"replicas are stopped and not deleted": change(func(e controller.SendStopReplica) controller.Effect {
		for i := range e.Topics {
			for j := range e.Topics[i].Partitions {
				e.Topics[i].Partitions[j].Delete = false
			}
		}
		return e
	}),
	"the leader epoch of a deletion is not the sentinel": change(func(e controller.SendStopReplica) controller.Effect {
		for i := range e.Topics {
			for j := range e.Topics[i].Partitions {
				if e.Topics[i].Partitions[j].LeaderEpoch == cluster.LeaderEpochDuringDelete {
					e.Topics[i].Partitions[j].LeaderEpoch = 0
				}
			}
		}
		return e
	}),
	"caches are told leader -1 instead of -2": change(func(e controller.SendUpdateMetadata) controller.Effect {
		for i := range e.Update.Topics {
			for j := range e.Update.Topics[i].Partitions {
				if p := &e.Update.Topics[i].Partitions[j]; p.State.Leader == cluster.LeaderDuringDelete {
					p.State.Leader = cluster.NoBroker
				}
			}
		}
		return e
	}),
	"metadata to broker 3 is lost": drop(func(e controller.SendUpdateMetadata) bool {
		return e.Target.Broker == 3 && len(e.Update.Topics) > 0 && e.Update.Topics[0].Partitions[0].State.Leader != cluster.LeaderDuringDelete
	}),
	"LeaderAndIsr to broker 2 is lost": drop(func(e controller.SendLeaderAndISR) bool { return e.Target.Broker == 2 }),
	"deletions are not retried":        drop(func(e controller.StartTimer) bool { return e.Timer == controller.TimerDeletionRetry }),
	"deletion markers are not watched": drop(func(e controller.Watch) bool { return e.Watched.Kind == controller.WatchMarkers }),
	"topics are not watched":           drop(func(e controller.Watch) bool { return e.Watched.Kind == controller.WatchTopic }),
	"brokers are not watched":          drop(func(e controller.Watch) bool { return e.Watched.Kind == controller.WatchBrokers }),
	"log dir failures are not watched": drop(func(e controller.Watch) bool { return e.Watched.Kind == controller.WatchLogDirEvents }),
	"requests are not answered":        drop(func(controller.Reply) bool { return true }),
	"requests are answered twice":      func(e controller.Effect) []controller.Effect { return twiceIfReply(e) },
	"the controller epoch does not grow": changeOp(func(op controller.Elect) controller.StoreOp {
		op.Epoch--
		return op
	}),
	"leader epochs do not grow": changeOp(func(op controller.SetPartitionStates) controller.StoreOp {
		for i := range op.States {
			op.States[i].State.LeaderEpoch -= 2
		}
		return op
	}),
	"requests carry an old controller epoch": change(func(e controller.SendLeaderAndISR) controller.Effect {
		e.Target.ControllerEpoch--
		return e
	}),
	"producer id blocks overlap": changeOp(func(op controller.SetProducerIDBlock) controller.StoreOp {
		op.Block.Start = max(op.Block.Start-10, 0)
		return op
	}),
}

func change[E controller.Effect](f func(E) controller.Effect) func(controller.Effect) []controller.Effect {
	return func(e controller.Effect) []controller.Effect {
		if hit, ok := e.(E); ok {
			e = f(hit)
		}
		return []controller.Effect{e}
	}
}

func changeOp[O controller.StoreOp](f func(O) controller.StoreOp) func(controller.Effect) []controller.Effect {
	return change(func(e controller.Store) controller.Effect {
		if op, ok := e.Op.(O); ok {
			e.Op = f(op)
		}
		return e
	})
}

func drop[E controller.Effect](which func(E) bool) func(controller.Effect) []controller.Effect {
	return func(e controller.Effect) []controller.Effect {
		if hit, ok := e.(E); ok && which(hit) {
			return nil
		}
		return []controller.Effect{e}
	}
}

func twiceIfReply(e controller.Effect) []controller.Effect {
	if _, ok := e.(controller.Reply); ok {
		return []controller.Effect{e, e}
	}
	return []controller.Effect{e}
}

func renamed(refs []controller.NodeRef) []controller.NodeRef {
	out := make([]controller.NodeRef, len(refs))
	for i := range refs {
		out[i].Topic = "another"
	}
	return out
}

func TestEveryPlantedFaultIsFound(t *testing.T) {
	for name, filter := range plantedFaults {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2000) {
				w := runSchedule(NewSchedule(seed, *stepsFlag), Options{Filter: filter})
				if f := w.Failures(); len(f) > 0 {
					t.Logf("seed %d: %s", seed, f[0])
					return
				}
			}
			t.Error("not found")
		})
	}
}
