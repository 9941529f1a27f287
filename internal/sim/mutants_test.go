package sim

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var mutantsFlag = flag.Bool("sim.mutants", false, "also build the core with each mutation and demand that the tests find it (minutes)")

// mutant is one small fault in the source of the core.
type mutant struct{ name, file, from, to string }

var mutants = []mutant{
	{"W1: a replica that is deleted already blocks its topic", "topic_deletion_manager.go", "for _, t := range topicsOf(started) {", "for _, t := range topicsOf(rs) {"},
	{"W2, W3: a partition without leadership ends the event", "leader_election.go", "case p.leadership == nil:\n\t\treturn noLeaderCode", "case p.leadership == nil && p.Topic[0] == 0:\n\t\treturn noLeaderCode"},
	{"the request of old tools is not removed", "leader_election.go", "items, err := c.remove(DeletePreferredElection{r.Version}, 1)", "items, err := []ItemResult{{}}, error(nil)"},
	{"elections of queued topics take place", "leader_election.go", "case p.queued():\n\t\treturn cluster.InvalidTopicException", "case p.queued() && p.leadership == nil:\n\t\treturn cluster.InvalidTopicException"},
	{"leaders are not moved back", "leader_election.go", "if len(elsewhere[id])*100 <=", "if true || len(elsewhere[id])*100 <="},
	{"a completed reassignment is not written", "reassignment.go", "if !stays[p] && !former[p].Equal(p.assignment) {", "if false {"},
	{"a reassignment ends before the target is in sync", "reassignment.go", "return len(filter(target, inSync)) == len(target) &&", "return len(filter(target, inSync)) > 0 &&"},
	{"removed replicas are not deleted", "reassignment.go", "if err := c.deleteReplicas(gone); err != nil {\n\t\treturn err\n\t}\n\tif len(finished)", "if len(finished)"},
	{"reassignments end with their controller", "reassignment_node.go", "return c.resumeReassignments()", "return nil"},
	{"entries of deleted topics stay with old tools", "reassignment_node.go", "if len(names) == 0 {", "if true {"},
	{"at a failover the ISRs of the others do not shrink", "replica_state_machine.go", "if err := c.changeReplicaStatesIn(b, offline, OfflineReplica); err != nil {\n\t\treturn err\n\t}\n", ""},
	{"W15: a deletion never ends without an absent broker", "offline_replicas.go", "return mayLeave && (!registered || r.offlineDir)", "return mayLeave && registered && r.offlineDir"},
	{"W15: what was left is not recorded", "offline_replicas.go", "if r.state != ReplicaDeletionSuccessful {\n\t\t\t\tbyBroker", "if false {\n\t\t\t\tbyBroker"},
	{"W15: a Kafka broker is taken for klamm's", "offline_replicas.go", "known[b.ID] = b.Klamm", "known[b.ID] = true"},
	{"the patience with offline replicas never ends", "offline_replicas.go", "at != 0 && at <= m.c.now", "at != 0 && at < 0"},
	{"W8: failed deletions have no retry time", "topic_deletion_manager.go", "d.retryAt = m.c.now + Time(m.c.backoff(d.attempts))", "d.retryAt = 0"},
	{"W11: a marker of an earlier incarnation is taken", "topic_deletion_manager.go", "&& k.ID != t.ID", "&& false"},
	{"W16: queued topics get LeaderAndIsr", "request_batch.go", "if p.queued() {\n\t\treturn\n\t}", ""},
	{"W26: any StopReplica answer counts for a deletion", "topic_deletion_manager.go", "!sp.ForTopicDeletion || ", ""},
	{"W12: a missing state node stops the deletion", "replica_state_machine.go", "case res.Status == ItemNoNode:", "case res.Status == ItemNoNode && false:"},
	{"W5: a state node found is not adopted", "partition_state_machine.go", "case ItemExists:\n\t\t\tif c.adopt(b, p, r.State) {", "case ItemExists:\n\t\t\tif false {"},
	{"W10: the restored assignment is empty", "topic_change.go", "r.Version, t.assignments()}}", "r.Version, nil}}"},
	{"W4: another incarnation is not noticed", "topic_change.go", "case r.Czxid != t.czxid:\n\t\treturn c.replaceTopic(t, r)", "case r.Czxid != t.czxid:\n\t\treturn nil"},
	{"W4: logs of earlier incarnations stay", "log_dir_change.go", "c.recreate(id, strays)", ""},
	{"the topic node is removed without looking at its incarnation", "deletion_client.go", "return NodeRef{d.name, d.topic.czxid}", "return NodeRef{d.name, AnyCzxid}"},
	{"nodes go before all brokers forgot the topic", "topic_deletion_manager.go", "if len(d.toForget) == 0 {", "if true {"},
	{"answers of an earlier registration count", "topic_deletion_manager.go", "&& t.BrokerEpoch == b.Epoch", "&& (t.BrokerEpoch == b.Epoch || true)"},
	{"a bounce is not noticed", "broker_change.go", "case current[id].Epoch != old.Epoch:", "case current[id].Epoch != old.Epoch && false:"},
	{"a dead leader is not noticed", "broker_change.go", "p.state != OfflinePartition && !x.leaderOnline(p)", "p.state != OfflinePartition && false"},
	{"deletions are not resumed when a broker starts", "broker_change.go", "return c.tdm().resumeFor(topicsOf(queued))", "return nil"},
	{"markers of topics created meanwhile are orphans", "failover.go", "c.readIntoContext(c.unknownTopics(r.Markers))", "c.readIntoContext(nil)"},
	{"a lost answer to an election is believed lost", "failover.go", "if e.Epoch == op.Epoch {", "if false {"},
	{"a leftover of /controller is left", "failover.go", "r.Broker == cluster.NoBroker || r.Broker == c.cfg.Broker {\n\t\treturn", "r.Broker == cluster.NoBroker {\n\t\treturn"},
	{"a lost write is taken for applied", "store.go", "if read.State.PartitionEpoch == want.PartitionEpoch {\n\t\treturn ItemResult{}\n\t}", "if read.State.PartitionEpoch == want.PartitionEpoch {\n\t\treturn read\n\t}"},
	{"a lost producer id block is handed out", "producer_ids.go", "r.Exists && r.Block == block && r.Version == version+1", "(r.Exists || true)"},
	{"the last ISR member leaves", "replica_state_machine.go", "if len(s.ISR) > 1 {", "if true {"},
	{"elections keep the leader epoch", "partition_state_machine.go", "s.LeaderEpoch+1, c.ctx.epoch", "s.LeaderEpoch, c.ctx.epoch"},
	{"replicas are Successful without an answer for them", "topic_deletion_manager.go", "code = cluster.UnknownServerError", "code = cluster.None"},
	{"a refused StopReplica counts as done", "topic_deletion_manager.go", "if ev.Err != cluster.None {\n\t\t\t\tcode = ev.Err", "if ev.Err != cluster.None {\n\t\t\t\tcode = cluster.None"},
	{"the marker goes first", "deletion_client.go", "markers := withoutThose(ds, failed)", "markers := ds[:0]"},
	{"offline log dirs are not learned", "log_dir_change.go", "case cluster.KafkaStorageError:\n\t\t\tif !r.offlineDir {", "case cluster.KafkaStorageError:\n\t\t\tif false {"},
	{"a resigned controller answers nobody", "core.go", "if c.owed != nil { // W3", "if false { // W3"},
	{"isNew is not sticky", "request_batch.go", "isNew || b.lisr[id][p].isNew", "isNew"},
	{"an unclean leader keeps the old ISR", "election.go", "ISR: []cluster.BrokerID{leader}, Recipients: recipients, Unclean: true", "ISR: c.ISR, Recipients: recipients, Unclean: true"},
}

// TestEveryMutantOfTheCoreIsKilled builds the core with one fault at a time and runs the tests of controller and sim.
func TestEveryMutantOfTheCoreIsKilled(t *testing.T) {
	if !*mutantsFlag {
		checkMutantsApply(t)
		return
	}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t)
			for _, pkg := range []string{"klamm/internal/sim", "klamm/internal/controller"} {
				cmd := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-timeout", "90s", pkg, "-run", "Random|Deletion|Script|Answer|State|Transitions|Batch|New|ISR|Elections")
				if out, err := cmd.CombinedOutput(); err != nil {
					if strings.Contains(string(out), "build failed") {
						t.Fatalf("does not build:\n%s", out)
					}
					return
				}
			}
			t.Error("survives")
		})
	}
}

// checkMutantsApply keeps the list in step with the source, in every run.
func checkMutantsApply(t *testing.T) {
	for _, m := range mutants {
		src, err := os.ReadFile(filepath.Join("..", "controller", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(src), m.from); n != 1 {
			t.Errorf("mutant %q: its text is %d times in %s", m.name, n, m.file)
		}
	}
}

func (m mutant) overlay(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "controller", m.file))
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mutated := filepath.Join(dir, m.file)
	if err := os.WriteFile(mutated, []byte(strings.Replace(string(src), m.from, m.to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, config, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
