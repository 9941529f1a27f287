//go:build interop

package zookeeper

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"klamm/internal/coord"
)

// failsDisk puts a file where a log dir of broker 1 is, so that everything there fails, and deletes a topic with a replica in it. mend
// puts the dir back.
func (c *cluster) failsDisk(disks []string, leaderless, deleted string) (mend func()) {
	c.Helper()
	disk := diskOf(disks, leaderless)
	if disk == "" || diskOf(disks, deleted) != disk {
		c.Fatalf("%s is in %q, %s in %q", leaderless, disk, deleted, diskOf(disks, deleted))
	}
	if err := os.Rename(disk, disk+".away"); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		c.Fatal(err)
	}
	want := []string{"log-dir-failed broker 1", "replicas-behind broker 1", "no-leader topic " + leaderless}
	found := c.wantFindings("a failed disk", 2, want...)
	for finding, cause := range map[string]string{want[1]: "Log dirs of it have failed", want[2]: "Log dirs have failed on broker 1"} {
		if !strings.Contains(found[finding], cause) {
			c.Errorf("%s: %s", finding, found[finding])
		}
	}
	c.deleteTopic(deleted)
	stuck := "deletion-stuck topic " + deleted
	found = c.wantFindings("a deletion that waits for a disk", 2, append(want, stuck)...)
	if !strings.Contains(found[stuck], "log dirs have failed on broker 1") {
		c.Errorf("%s: %s", stuck, found[stuck])
	}
	return func() {
		if err := os.Remove(disk); err != nil {
			c.Fatal(err)
		}
		if err := os.Rename(disk+".away", disk); err != nil {
			c.Fatal(err)
		}
	}
}

// diskOf gives the log dir that a topic's first partition is in.
func diskOf(disks []string, topic string) string {
	i := slices.IndexFunc(disks, func(d string) bool { _, err := os.Stat(filepath.Join(d, topic+"-0")); return err == nil })
	if i < 0 {
		return ""
	}
	return disks[i]
}

// movesAwayFromTheDead is W20: a replica is moved from a dead broker, whose data stays. The doctor on its machine names it, and beside it,
// on that of broker 0, the directories of deleted topics; it is put aside as the finding says.
func (c *cluster) movesAwayFromTheDead(topic string, dead int32, disks []string) {
	c.Helper()
	c.moveTo(topic, 0)
	alive := filepath.Join(c.brokers[0].dir, "data")
	for _, gone := range []string{"stuck", "doomed"} {
		c.awaitDeleteDir(0, gone)
	}
	disk := diskOf(disks, topic)
	found, _ := c.examine("--log-dirs", strings.Join(append(slices.Clone(disks), alive), ","))
	for _, d := range disks {
		if f, there := found["stray-directories "+d]; there != (d == disk) || there && (len(f.Evidence) != 1 || !f.names(topic+"-0")) {
			c.Errorf("in %s of broker %d is %+v", d, dead, f)
		}
	}
	deleted := found["deleted-directories "+alive]
	for _, gone := range []string{"stuck-0.", "stuck-1.", "doomed-0."} {
		if !deleted.names(gone) {
			c.Errorf("%s is not among the deleted directories %+v", gone, deleted)
		}
	}
	if deleted.Severity != "info" || len(deleted.Evidence) != 3 {
		c.Errorf("deleted directories: %+v", deleted)
	}
	if err := os.Rename(filepath.Join(disk, topic+"-0"), filepath.Join(c.dir, topic+"-0")); err != nil {
		c.Fatal(err)
	}
}

// losesControllers freezes the controller, broker 1, until broker 0 takes over, then cuts that one off from ZooKeeper until broker 1 is
// controller again. The doctor names the one that hangs, the one that still takes itself for the controller, and, looking on
// during all of this, that controllers do not stay.
func (c *cluster) losesControllers(toZooKeeper *link) {
	c.Helper()
	c.moveController(1)
	c.createAssigned("waits", 0)
	c.wantFindings("before", 0)
	looked := make(chan string, 1)
	go func() {
		out, _ := exec.Command(klammBinary, "doctor", "--zookeeper", c.zk, "--pause", "25s", "-o", "json").Output() // what it finds makes an exit code
		looked <- string(out)
	}()

	before := c.registration(1)
	c.signal(1, syscall.SIGSTOP)
	c.multi(coord.Create(coord.DeleteTopicPath("waits"), nil))
	found, exit := c.doctor("--bootstrap-server", c.brokers[0].addr, "--deletion-grace", "1ms")
	if what := found["deletion-stuck topic waits"]; exit != 2 || len(found) != 2 || found["controller-silent controller"] == "" || !strings.Contains(what, "the controller, broker 1, does not answer") {
		c.Errorf("a frozen controller: exit %d, %v", exit, found)
	}
	c.eventually(30*time.Second, "broker 0 takes over", func() (bool, string) { return c.controller() == 0, "" })
	c.signal(1, syscall.SIGCONT)
	c.awaitGone("waits")
	c.eventually(30*time.Second, "broker 1 registers anew", func() (bool, string) { return c.registration(1) > before, "" })
	c.awaitISR("kept")

	toZooKeeper.cut()
	c.eventually(30*time.Second, "broker 1 takes over", func() (bool, string) { return c.controller() == 1, "" })
	// Nobody told broker 1 of the topic that was deleted while it was frozen.
	const stale = "topic-only-at-broker broker 1"
	want := []string{"broker-down broker 0", "controller-zombie broker 0", "no-leader topic moved", stale}
	c.eventually(30*time.Second, "the zombie is named", func() (bool, string) {
		found, exit := c.doctor("--bootstrap-server", c.brokers[1].addr+","+c.brokers[0].addr)
		return exit == 2 && slices.Equal(sortedKeys(found), want), strings.Join(sortedKeys(found), "\n")
	})
	toZooKeeper.mend()

	report := <-looked
	f := c.findings(report)["controller-flapping controller"]
	if !strings.HasPrefix(f.What, "2 elections in ") || !strings.Contains(f.Why, "the sessions of controllers ended") {
		c.Errorf("two elections are told as %+v\n%s", f, report)
	}
	c.eventually(30*time.Second, "broker 0 registers anew", func() (bool, string) { return c.registration(0) > 0, "" })
	c.awaitMembers()
	c.wantFindings("after the controllers", 2, stale)
	c.stop(1)
	c.start(1)
	c.awaitISR("kept")
	c.wantFindings("after a restart of broker 1", 0)
}
