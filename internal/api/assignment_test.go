package api

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"klamm/internal/cluster"
)

func brokersWithoutRacks(n int) []brokerRack {
	out := make([]brokerRack, n)
	for i := range out {
		out[i].ID = cluster.BrokerID(i)
	}
	return out
}

func TestAssignmentWithoutRacksFollowsKafkasExample(t *testing.T) {
	// The table in the comment of Kafka's AdminUtils: five brokers, ten partitions, three replicas, start 0, shift 0.
	got, err := assignReplicas(brokersWithoutRacks(5), 10, 3, assignmentStart{}, nil)
	if err.failed() {
		t.Fatal(err)
	}
	want := [][]cluster.BrokerID{
		{0, 1, 2}, {1, 2, 3}, {2, 3, 4}, {3, 4, 0}, {4, 0, 1},
		{0, 2, 3}, {1, 3, 4}, {2, 4, 0}, {3, 0, 1}, {4, 1, 2},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAssignmentWithRacksFollowsKafkasExample(t *testing.T) {
	// Kafka: six brokers in three racks become 0 (r1), 3 (r2), 1 (r3), 5 (r1), 4 (r2), 2 (r3).
	brokers := []brokerRack{{0, "rack1"}, {1, "rack3"}, {2, "rack3"}, {3, "rack2"}, {4, "rack2"}, {5, "rack1"}}
	order := alternateRacks(brokers)
	if d := cmp.Diff([]brokerRack{{0, "rack1"}, {3, "rack2"}, {1, "rack3"}, {5, "rack1"}, {4, "rack2"}, {2, "rack3"}}, order); d != "" {
		t.Fatal(d)
	}
	got, err := assignReplicas(brokers, 7, 3, assignmentStart{}, nil)
	if err.failed() {
		t.Fatal(err)
	}
	want := [][]cluster.BrokerID{{0, 3, 1}, {3, 1, 5}, {1, 5, 4}, {5, 4, 2}, {4, 2, 0}, {2, 0, 3}, {0, 4, 2}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestAssignmentRefusals(t *testing.T) {
	for _, c := range []struct {
		name           string
		brokers        []brokerRack
		partitions, rf int
		want           answerError
	}{
		{"no partitions", brokersWithoutRacks(3), 0, 1, answerError{cluster.InvalidPartitions, "Number of partitions must be larger than 0."}},
		{"no replicas", brokersWithoutRacks(3), 1, 0, answerError{cluster.InvalidReplicationFactor, "Replication factor must be larger than 0."}},
		{"more replicas than brokers", brokersWithoutRacks(3), 1, 9,
			answerError{cluster.InvalidReplicationFactor, "Replication factor: 9 larger than available brokers: 3."}},
		{"no brokers", nil, 1, 1, answerError{cluster.InvalidReplicationFactor, "Replication factor: 1 larger than available brokers: 0."}},
		{"only some brokers have racks", []brokerRack{{1, "a"}, {2, ""}}, 1, 1, answerError{Code: cluster.UnknownServerError}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := assignReplicas(c.brokers, c.partitions, c.rf, randomStart, nil)
			if err != c.want || got != nil {
				t.Errorf("got %v, %+v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestAssignmentAddsPartitionsOnThePatternOfTheExistingOnes(t *testing.T) {
	all, _ := assignReplicas(brokersWithoutRacks(4), 9, 2, assignmentStart{Index: 2}, nil)
	head, _ := assignReplicas(brokersWithoutRacks(4), 3, 2, assignmentStart{Index: 2}, nil)
	if d := cmp.Diff(all[:3], head); d != "" {
		t.Error(d)
	}
	// Within one round the shift does not move, so the tail of a round is the same whether made at once or later.
	tail, _ := assignReplicas(brokersWithoutRacks(4), 1, 2, assignmentStart{Index: 2, Partition: 3}, nil)
	if d := cmp.Diff(all[3:4], tail); d != "" {
		t.Error(d)
	}
}

// TestAssignmentIsBalanced checks for any cluster: replicas are distinct and known, first replicas differ by at most one
// per broker, and as many racks are used as there are racks or replicas.
func TestAssignmentIsBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "brokers")
		racks := rapid.IntRange(0, n).Draw(t, "racks")
		brokers := make([]brokerRack, n)
		for i := range brokers {
			brokers[i].ID = cluster.BrokerID(i * 3)
			if racks > 0 {
				brokers[i].Rack = string(rune('a' + rapid.IntRange(0, racks-1).Draw(t, "rack")))
			}
		}
		rf := rapid.IntRange(1, n).Draw(t, "rf")
		partitions := rapid.IntRange(1, 60).Draw(t, "partitions")
		got, err := assignReplicas(brokers, partitions, rf, randomStart, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "start") })
		if err.failed() || len(got) != partitions {
			t.Fatalf("got %d lists, %+v", len(got), err)
		}
		rackOf := map[cluster.BrokerID]string{}
		distinctRacks := map[string]bool{}
		for _, b := range brokers {
			rackOf[b.ID] = b.Rack
			distinctRacks[b.Rack] = true
		}
		firsts := map[cluster.BrokerID]int{}
		for _, replicas := range got {
			firsts[replicas[0]]++
			used := map[string]bool{}
			for i, id := range replicas {
				rack, known := rackOf[id]
				if !known || slices.Contains(replicas[:i], id) {
					t.Fatalf("replicas %v name an unknown broker or one twice", replicas)
				}
				used[rack] = true
			}
			if len(replicas) != rf || len(used) != min(rf, len(distinctRacks)) && racks > 0 {
				t.Fatalf("replicas %v use %d racks of %d, want %d replicas", replicas, len(used), len(distinctRacks), rf)
			}
		}
		for _, b := range brokers {
			if c := firsts[b.ID]; c < partitions/n || c > (partitions+n-1)/n {
				t.Fatalf("broker %d leads %d of %d partitions on %d brokers", b.ID, c, partitions, n)
			}
		}
	})
}

// An assignment by hand is as long as a client makes it; looking at it must not keep a worker busy for minutes.
func TestLongAssignmentsAreLookedAtInOnePass(t *testing.T) {
	ids := make([]cluster.BrokerID, 300_000)
	for i := range ids {
		ids[i] = cluster.BrokerID(i)
	}
	began := time.Now()
	if hasDuplicates(ids) || !hasDuplicates(append(ids, 7)) {
		t.Error("duplicates are not told")
	}
	got := strangers([][]cluster.BrokerID{ids, ids}, func(id cluster.BrokerID) bool { return id < 2 })
	if len(got) != len(ids)-2 || got[0] != 2 {
		t.Errorf("%d strangers, the first %d", len(got), got[0])
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
