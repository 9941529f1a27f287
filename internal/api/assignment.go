package api

import (
	"math/rand/v2"
	"slices"
	"strings"

	"klamm/internal/cluster"
)

// Replica assignment of new partitions, pure functions (Kafka: AdminUtils.assignReplicasToBrokers).
//
// The goals, in Kafka's order: spread the replicas evenly over the brokers; for partitions led by one broker, spread
// the other replicas over the other brokers; and, when all brokers have a rack, put the replicas of a partition into
// different racks as far as there are racks.

// brokerRack is a broker as the assignment sees it. An empty rack means the broker has none.
type brokerRack struct {
	ID   cluster.BrokerID
	Rack string
}

// assignmentStart fixes where the round robin begins. The zero value of Index counts, so ask for random starts by randomStart.
type assignmentStart struct {
	// Index is the position in the broker list of the first replica of the first partition; negative means random.
	Index int
	// Partition is the number of the first new partition: it keeps adding partitions on the pattern of the existing ones.
	Partition int
}

var randomStart = assignmentStart{Index: -1}

// assignReplicas gives one replica list per new partition. The order of the brokers matters to the result when none of
// them has a rack. intn returns a uniform number in [0,n); nil takes math/rand.
func assignReplicas(brokers []brokerRack, partitions, replicationFactor int, at assignmentStart, intn func(n int) int) ([][]cluster.BrokerID, answerError) {
	switch {
	case partitions <= 0:
		return nil, errorf(cluster.InvalidPartitions, "Number of partitions must be larger than 0.")
	case replicationFactor <= 0:
		return nil, errorf(cluster.InvalidReplicationFactor, "Replication factor must be larger than 0.")
	case replicationFactor > len(brokers):
		return nil, errorf(cluster.InvalidReplicationFactor, "Replication factor: %d larger than available brokers: %d.",
			replicationFactor, len(brokers))
	}
	if intn == nil {
		intn = rand.IntN
	}
	withRack := 0
	for _, b := range brokers {
		if b.Rack != "" {
			withRack++
		}
	}
	r := roundRobin{n: len(brokers), rf: replicationFactor, partitions: partitions, partition: max(0, at.Partition), start: at.Index, shift: at.Index}
	if at.Index < 0 {
		r.start, r.shift = intn(r.n), intn(r.n)
	}
	switch withRack {
	case 0:
		return r.assignRackUnaware(brokers), answerError{}
	case len(brokers):
		return r.assignRackAware(brokers), answerError{}
	default:
		// Kafka: AdminOperationException, which has no code of its own and so reaches clients without its text.
		return nil, answerError{Code: cluster.UnknownServerError}
	}
}

// roundRobin is the state of one assignment: shift grows by one each time the first replica has gone round all brokers.
type roundRobin struct {
	n, rf      int
	partitions int // how many to assign
	partition  int // number of the next one
	start      int
	shift      int
}

// next returns the position of the first replica of the next partition.
func (r *roundRobin) next() int {
	if r.partition > 0 && r.partition%r.n == 0 {
		r.shift++
	}
	first := (r.partition + r.start) % r.n
	r.partition++
	return first
}

// follower is the position of the j-th further replica.
func (r *roundRobin) follower(first, shift, j int) int {
	return (first + 1 + (shift+j)%(r.n-1)) % r.n
}

func (r *roundRobin) assignRackUnaware(brokers []brokerRack) [][]cluster.BrokerID {
	out := make([][]cluster.BrokerID, 0, r.partitions)
	all := make([]cluster.BrokerID, 0, r.partitions*r.rf)
	for range r.partitions {
		first := r.next()
		from := len(all)
		all = append(all, brokers[first].ID)
		for j := range r.rf - 1 {
			all = append(all, brokers[r.follower(first, r.shift, j)].ID)
		}
		out = append(out, all[from:len(all):len(all)])
	}
	return out
}

func (r *roundRobin) assignRackAware(brokers []brokerRack) [][]cluster.BrokerID {
	list := alternateRacks(brokers)
	racks := map[string]bool{}
	for _, b := range list {
		racks[b.Rack] = true
	}
	out := make([][]cluster.BrokerID, 0, r.partitions)
	for range r.partitions {
		first := r.next()
		replicas := []cluster.BrokerID{list[first].ID}
		usedRacks := map[string]bool{list[first].Rack: true}
		for k := 0; len(replicas) < r.rf; k++ {
			b := list[r.follower(first, r.shift*len(racks), k)]
			// A broker of a rack in use waits until every rack has one; a broker in use until every broker has one.
			// The second cannot happen because rf <= n; a full round therefore always finds a candidate.
			if usedRacks[b.Rack] && len(usedRacks) < len(racks) || slices.Contains(replicas, b.ID) {
				continue
			}
			replicas = append(replicas, b.ID)
			usedRacks[b.Rack] = true
		}
		out = append(out, replicas)
	}
	return out
}

// alternateRacks orders brokers so that neighbours are in different racks: racks by name, in each the brokers by id,
// taken one by one from each rack in turn (Kafka: getRackAlternatedBrokerList).
func alternateRacks(brokers []brokerRack) []brokerRack {
	byRack := map[string][]brokerRack{}
	names := []string{}
	for _, b := range brokers {
		if byRack[b.Rack] == nil {
			names = append(names, b.Rack)
		}
		byRack[b.Rack] = append(byRack[b.Rack], b)
	}
	slices.SortFunc(names, strings.Compare)
	for _, list := range byRack {
		slices.SortFunc(list, func(a, b brokerRack) int { return int(a.ID) - int(b.ID) })
	}
	out := make([]brokerRack, 0, len(brokers))
	for i := 0; len(out) < len(brokers); i++ {
		for _, name := range names {
			if i < len(byRack[name]) {
				out = append(out, byRack[name][i])
			}
		}
	}
	return out
}
