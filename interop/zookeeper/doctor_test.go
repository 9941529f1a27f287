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

// doctor runs `klamm doctor -o json` and returns the findings above information, and the exit code.
func (c *cluster) doctor(args ...string) (found map[string]string, exit int) {
	c.Helper()
	out, exit := c.klamm("", append([]string{"doctor", "--zookeeper", c.zk, "--pause", "500ms", "-o", "json"}, args...)...)
	var report struct {
		Findings []struct{ Code, Severity, Subject, What string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		c.Fatalf("%v in\n%s", err, out)
	}
	found = map[string]string{}
	for _, f := range report.Findings {
		if f.Severity != "info" {
			found[f.Code+" "+f.Subject] = f.What
		}
	}
	return found, exit
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

// TestDoctorNamesTheCause examines a healthy Kafka cluster, then one with a deletion that a dead broker holds up and
// with nodes that nobody wants, and mends what can be mended.
func TestDoctorNamesTheCause(t *testing.T) {
	c := newCluster(t, kafka, kafka)
	step := func(what string) { c.step("%s", what) }
	c.start(0, 1)
	step("two Kafka brokers serve")
	c.createTopic("kept", 2, nil)
	c.createTopic("stuck", 2, nil)
	c.awaitISR("kept")
	c.awaitISR("stuck")
	bootstrap := c.brokers[0].addr
	if found, exit := c.doctor("--bootstrap-server", bootstrap); len(found) > 0 || exit != 0 {
		t.Fatalf("a healthy cluster: exit %d, %v", exit, found)
	}
	step("healthy")

	c.moveController(0)
	c.kill(1)
	c.eventually(sessionTimeout*4, "the dead broker is missed", func() (bool, string) {
		_, err := c.store.Get(t.Context(), coord.BrokerPath(1))
		return err != nil, ""
	})
	c.deleteTopic("stuck")
	if _, err := c.store.Multi(t.Context(),
		coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, "never"), []byte(`{"version":1,"config":{"retention.ms":"1"}}`))); err != nil {
		t.Fatal(err)
	}
	found, exit := c.doctor("--bootstrap-server", bootstrap)
	if what := found["deletion-stuck topic stuck"]; exit != 2 || !strings.Contains(what, "broker 1, with replicas of it, is not registered") {
		t.Errorf("a stuck deletion: exit %d, %v", exit, found)
	}
	for _, want := range []string{"broker-down broker 1", "config-without-topic topic never"} {
		if found[want] == "" {
			t.Errorf("%s is not found: %v", want, found)
		}
	}
	if len(found) != 3 {
		t.Errorf("found also: %v", found)
	}
	step("stuck, and the cause named")

	if out, exit := c.klamm("n\n", "doctor", "repair", "--zookeeper", c.zk, "--pause", "100ms"); exit != 1 || !strings.Contains(out, "Nothing was written.") {
		t.Errorf("repair that is not wanted: exit %d\n%s", exit, out)
	}
	if out, exit := c.klamm("", "doctor", "repair", "--yes", "--zookeeper", c.zk, "--pause", "100ms"); exit != 0 || !strings.Contains(out, "1 of 1 done.") {
		t.Errorf("repair: exit %d\n%s", exit, out)
	}
	step("repaired")
	c.start(1)
	c.awaitGone("stuck")
	c.awaitISR("kept")
	if found, exit := c.doctor("--bootstrap-server", bootstrap); len(found) > 0 || exit != 0 {
		t.Errorf("after all: exit %d, %v", exit, found)
	}
	step("the deletion has ended")

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
	there := []string{"migrate", "zookeeper-to-etcd", "--zookeeper", c.zk, "--etcd-data-dir", dir}
	if _, exit := c.klamm("", there...); exit != 1 {
		c.Errorf("a running cluster was copied")
	}
	c.stop(1)
	c.stop(0) // the last in sync
	sums := map[string]bool{}
	for _, args := range [][]string{
		append(slices.Clone(there), "--dry-run"), there, there, append(slices.Clone(there), "--verify"),
		{"migrate", "etcd-to-zookeeper", "--zookeeper", c.zk + "/back/again", "--etcd-data-dir", dir, "--dry-run"},
		{"migrate", "etcd-to-zookeeper", "--zookeeper", c.zk + "/back/again", "--etcd-data-dir", dir},
	} {
		out, exit := c.klamm("", args...)
		if exit != 0 {
			c.Fatalf("klamm %v: exit %d\n%s", args, exit, out)
		}
		if !slices.Contains(args, "--dry-run") && !strings.Contains(out, "The two sides are equal.") {
			c.Errorf("klamm %v:\n%s", args, out)
		}
		for line := range strings.Lines(out) {
			if sum, ok := strings.CutPrefix(strings.TrimSpace(line), "sha256 "); ok {
				sums[sum] = true
			}
		}
	}
	if len(sums) != 1 {
		c.Errorf("checksums: %v", sums)
	}

	b := c.brokers[0]
	conf := c.write("etcd.properties", fmt.Sprintf("broker.id=0\nlisteners=PLAINTEXT://%s\nlog.dirs=%s\netcd.data.dir=%s\n", b.addr, filepath.Join(b.dir, "data"), dir))
	b.kind, b.proc = klamm, c.launch(filepath.Join(b.dir, "klamm.log"), klammBinary, "serve", conf, "--override", "web.listen=")
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
