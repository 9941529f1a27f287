//go:build interop

package zookeeper

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"klamm/internal/coord"
)

// finding is one of the doctor's, as its JSON has it.
type finding struct {
	Code, Severity, Subject, What, Why string
	Evidence                           []struct{ Where, Value string }
}

// names reports whether the evidence has a path, or the begin of one, or of what a path ends in.
func (f finding) names(part string) bool {
	return slices.ContainsFunc(f.Evidence, func(e struct{ Where, Value string }) bool { return strings.Contains(e.Where, part) })
}

// findings reads a report, by code and subject.
func (c *cluster) findings(report string) map[string]finding {
	c.Helper()
	var r struct{ Findings []finding }
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		c.Fatalf("%v in\n%s", err, report)
	}
	out := map[string]finding{}
	for _, f := range r.Findings {
		out[f.Code+" "+f.Subject] = f
	}
	return out
}

// doctor runs `klamm doctor -o json` and returns the findings above information, and the exit code.
func (c *cluster) doctor(args ...string) (found map[string]string, exit int) {
	c.Helper()
	all, exit := c.examine(args...)
	found = map[string]string{}
	for key, f := range all {
		if f.Severity != "info" {
			found[key] = f.What
		}
	}
	return found, exit
}

// examine is doctor with all findings, whole.
func (c *cluster) examine(args ...string) (map[string]finding, int) {
	c.Helper()
	out, exit := c.klamm("", append([]string{"doctor", "--zookeeper", c.zk, "--pause", "500ms", "-o", "json"}, args...)...)
	return c.findings(out), exit
}

// klamm runs a command of klamm's to its end.
func (c *cluster) klamm(stdin string, args ...string) (stdout string, exit int) {
	c.Helper()
	cmd := exec.Command(klammBinary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Stdin = &out, &errs, strings.NewReader(stdin)
	_ = cmd.Run() // the exit code says more
	if exit = cmd.ProcessState.ExitCode(); exit > 2 || exit < 0 || errs.Len() > 0 {
		c.Logf("klamm %s: exit %d\n%s", strings.Join(args, " "), exit, errs.String())
	}
	return out.String(), exit
}

// TestDoctorNamesTheCauseAndTheCure examines a healthy Kafka cluster, then one with a failed disk, a deletion that a dead broker holds
// up, replicas that stay on that broker, nodes that nobody wants, and controllers that hang or are cut off; and mends what can be
// mended.
func TestDoctorNamesTheCauseAndTheCure(t *testing.T) {
	c := newCluster(t, kafka, kafka)
	step := func(what string) { c.step("%s", what) }
	disks := []string{filepath.Join(c.brokers[1].dir, "disk1"), filepath.Join(c.brokers[1].dir, "disk2")}
	c.brokers[1].addProperties("log.dirs=" + strings.Join(disks, ",") + "\nreplica.high.watermark.checkpoint.interval.ms=300\n")
	c.brokers[0].addProperties("log.segment.delete.delay.ms=600000\n")
	toZooKeeper := c.brokers[0].linkToZooKeeper()
	c.start(0, 1)
	step("two Kafka brokers serve")
	c.createTopic("kept", 2, nil)
	c.createTopic("stuck", 2, nil)
	c.awaitISR("kept")
	c.awaitISR("stuck")
	c.createAssigned("doomed", 1, 0) // a broker's log dirs take turns, so this is in one with the third
	c.createAssigned("moved", 1, 0)
	c.createAssigned("alone", 1)
	c.wantFindings("healthy", 0)
	step("healthy")

	c.moveController(0)
	mend := c.failsDisk(disks, "alone", "doomed")
	step("a failed disk, and a deletion that waits for it")

	c.kill(1)
	mend()
	c.eventually(sessionTimeout*4, "the dead broker is missed", func() (bool, string) {
		_, err := c.store.Get(t.Context(), coord.BrokerPath(1))
		return err != nil, ""
	})
	c.deleteTopic("stuck")
	if _, err := c.store.Multi(t.Context(),
		coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, "never"), []byte(`{"version":1,"config":{"retention.ms":"1"}}`))); err != nil {
		t.Fatal(err)
	}
	found := c.wantFindings("a dead broker", 2, "deletion-stuck topic stuck", "deletion-stuck topic doomed", "no-leader topic alone", "broker-down broker 1", "config-without-topic topic never")
	for _, topic := range []string{"stuck", "doomed"} {
		if what := found["deletion-stuck topic "+topic]; !strings.Contains(what, "broker 1, with replicas of it, is not registered") {
			t.Error(what)
		}
	}
	step("stuck, and the cause named")
	c.movesAwayFromTheDead("moved", 1, disks)
	step("the replica that was moved away is named, and what is deleted, and put aside as told")

	if out, exit := c.klamm("n\n", "doctor", "repair", "--zookeeper", c.zk, "--pause", "100ms"); exit != 1 || !strings.Contains(out, "Nothing was written.") {
		t.Errorf("repair that is not wanted: exit %d\n%s", exit, out)
	}
	if out, exit := c.klamm("", "doctor", "repair", "--yes", "--zookeeper", c.zk, "--pause", "100ms"); exit != 0 || !strings.Contains(out, "1 of 1 done.") {
		t.Errorf("repair: exit %d\n%s", exit, out)
	}
	step("repaired")
	c.brokers[1].addProperties("zookeeper.session.timeout.ms=12000\n") // longer than the doctor waits for an answer
	c.start(1)
	c.awaitGone("stuck")
	c.awaitGone("doomed")
	c.awaitISR("kept")
	c.wantFindings("after all", 0)
	step("the deletions have ended")

	c.losesControllers(toZooKeeper)
	step("a controller that hangs and one that is cut off are named, and that controllers do not stay")
	c.endsCrashLoop()
	step("a crash loop of controllers ended")
	c.migrates()
	step("migrated to etcd and back, and served by klamm from etcd")
}

// endsCrashLoop asks for the preferred leader of a partition that no broker can lead: every controller of Kafka's fails on
// it. The repair gets between the elections.
func (c *cluster) endsCrashLoop() {
	c.Helper()
	ghost := coord.TopicPath("ghost")
	if _, err := c.store.Multi(c.Context(), coord.Create(ghost, []byte(`{"version":1,"partitions":{"0":[9]}}`))); err != nil {
		c.Fatal(err)
	}
	c.eventually(30*time.Second, "the controller has seen the topic", func() (bool, string) {
		n, err := c.store.Get(c.Context(), ghost)
		return err == nil && n.Stat.Version > 0, fmt.Sprint(err) // it gave the topic an id
	})
	if _, err := c.store.Multi(c.Context(),
		coord.Create(coord.PreferredElectionPath, []byte(`{"version":1,"partitions":[{"topic":"ghost","partition":0}]}`)),
		coord.Delete(coord.ControllerPath, coord.AnyVersion)); err != nil {
		c.Fatal(err)
	}
	c.eventually(30*time.Second, "the crash loop is found", func() (bool, string) {
		found, _ := c.doctor()
		return found["election-crash-loop "+coord.PreferredElectionPath] != "" && found["controller-flapping controller"] != "", fmt.Sprint(found)
	})
	if out, exit := c.klamm("", "doctor", "repair", "--yes", "--zookeeper", c.zk, "--pause", "100ms"); exit != 0 || !strings.Contains(out, "1 of 1 done.") {
		c.Errorf("repair: exit %d\n%s", exit, out)
	}
	c.eventually(30*time.Second, "only the ghost is left", func() (bool, string) {
		found, _ := c.doctor()
		return len(found) == 2 && found["ghost-topic topic ghost"] != "" && found["broker-unknown broker 9"] != "", fmt.Sprint(found)
	})
	if err := c.store.DeleteTree(c.Context(), nil, ghost); err != nil {
		c.Fatal(err)
	}
}

// migrates stops the cluster, copies its state to etcd and, under another chroot, back. Then klamm serves the topic that
// Kafka wrote, with its state in etcd.
func (c *cluster) migrates() {
	c.Helper()
	dir := filepath.Join(c.dir, "etcd")
	there := []string{"zookeeper-to-etcd", "--zookeeper", c.zk, "--etcd-data-dir", dir}
	if _, exit := c.klamm("", append([]string{"migrate"}, there...)...); exit != 1 {
		c.Errorf("a running cluster was copied")
	}
	c.stop(1)
	c.stop(0) // the last in sync
	sums := map[string]bool{}
	for _, args := range [][]string{
		append(slices.Clone(there), "--dry-run"), there, there, append(slices.Clone(there), "--verify"),
		{"etcd-to-zookeeper", "--zookeeper", c.zk + "/back/again", "--etcd-data-dir", dir, "--dry-run"},
		{"etcd-to-zookeeper", "--zookeeper", c.zk + "/back/again", "--etcd-data-dir", dir},
	} {
		sums[c.migrate(args...)] = true
	}
	if len(sums) != 1 {
		c.Errorf("checksums: %v", sums)
	}

	b := c.brokers[0]
	b.writeProperties("etcd.data.dir=" + dir)
	b.kind = klamm
	b.launch()
	c.eventually(30*time.Second, "klamm leads what Kafka created", func() (bool, string) {
		if !b.proc.running() {
			c.Fatalf("klamm ended:\n%s", tail(b.proc.log))
		}
		topics, err := c.admin.ListTopics(c.Context(), "kept")
		if err != nil {
			return false, err.Error()
		}
		kept := topics["kept"]
		for _, p := range kept.Partitions {
			if p.Leader != 0 {
				return false, fmt.Sprint(kept)
			}
		}
		return len(kept.Partitions) == 2, fmt.Sprint(kept)
	})
}
