//go:build interop

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestDeletionsInThreeProcesses deletes topics while brokers are dead, frozen, or lose the controllership. One cluster serves all
// scenarios; each leaves it whole.
func TestDeletionsInThreeProcesses(t *testing.T) {
	c := startPlane(t)
	c.play(t,
		scenario{"R01 a broker is dead", deleteWithADeadBroker},
		scenario{"a broker is frozen", deleteWithAFrozenBroker},
		scenario{"R08 the controller is killed", deleteAndKillTheController},
		scenario{"R15 the same name twice and at once", deleteConcurrently},
		scenario{"through a broker that is not the controller", deleteThroughAnyBroker},
		scenario{"partitions are added meanwhile", addPartitionsMeanwhile},
		scenario{"R02 deletion is switched off at run time", switchDeletionOff},
	)
	c.brokers[0].t = t
	if code := c.brokers[0].stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// R01: the answer comes within its timeout, the name is free at once, every live broker shows what the dead one has to
// remove, and it removes that, by topic id, when it returns.
func deleteWithADeadBroker(c *plane) {
	c.createOnAll("gone", 4)
	c.write("gone", 4)
	controller := c.controller()
	victim := c.others(controller)[0]
	live := c.others(victim)
	c.brokers[victim].kill()
	if code, took := c.delete("gone", 10*time.Second); code != 0 || took > 5*time.Second {
		c.t.Errorf("DeleteTopics: error %d after %v", code, took)
	}
	began := time.Now()
	if code := c.create("gone", []int32{int32(live[0] + 1), int32(live[1] + 1)}); code != 0 {
		c.t.Errorf("the name is not free: error %d after %v", code, time.Since(began))
	}
	for _, i := range live {
		c.awaitDeletionList(i, fmt.Sprintf("Broker %d has 4 replicas of gone", victim+1))
	}
	c.awaitISR("gone", 1, 2, victim)
	c.write("gone", 1, live[0])
	c.start(victim)
	c.awaitIdle(0, 1, 2)
	c.awaitNoFolders("gone", victim)
	for _, i := range live {
		if n := c.brokers[i].folders("gone"); n == 0 {
			c.t.Errorf("broker %d has lost the new topic", i+1)
		}
	}
	if got := command(c.t, "kcat", "-b", c.brokers[victim].addr, "-C", "-t", "gone", "-e", "-q", "-o", "beginning").ok(c.t); got != "row\n" {
		c.t.Errorf("the new topic holds %q", got)
	}
	if code, _ := c.delete("gone", 10*time.Second); code != 0 {
		c.t.Errorf("deleting it: error %d", code)
	}
}

// A broker that was frozen through a deletion forgets the topic when it goes on, and does not touch the next one of the name.
func deleteWithAFrozenBroker(c *plane) {
	c.createOnAll("cold", 4)
	c.write("cold", 4)
	controller := c.controller()
	victim := c.others(controller)[0]
	live := c.others(victim)
	c.freeze(victim)
	seen, watch := startWatch(c, live[0])
	if code, took := c.delete("cold", 20*time.Second); code != 0 || took > 5*time.Second {
		c.t.Errorf("DeleteTopics: error %d after %v", code, took)
	}
	c.awaitForgotten("cold", live...)
	// While its session lasts the broker is waited for, and the table says so, replica by replica.
	c.awaitDeletionList(live[1], "cold", fmt.Sprintf("broker %d: waiting for the broker's answer", victim+1))
	why := c.brokers[live[0]].deletionTool("why", "cold").ok(c.t)
	if !strings.Contains(why, "ReplicaDeletionSuccessful") || strings.Count(why, "ReplicaDeletionStarted") != 4 {
		c.t.Errorf("klamm deletion why:\n%s", why)
	}
	c.endSession(victim)
	for _, i := range live {
		c.awaitDeletionList(i, fmt.Sprintf("Broker %d has 4 replicas of cold", victim+1))
	}
	if code := c.create("cold", []int32{int32(live[0] + 1)}); code != 0 {
		c.t.Errorf("the name is not free: error %d", code)
	}
	c.write("cold", 1, live[0])
	left := fmt.Sprintf("Broker %d has 4 replicas of cold", victim+1)
	eventually(c.t, 10*time.Second, "the watch shows what the frozen broker has to remove", func() (bool, string) { return seen.contains(left), seen.tail(6) })
	c.thaw(victim)
	c.awaitIdle(0, 1, 2)
	c.awaitNoFolders("cold", victim)
	eventually(c.t, 10*time.Second, "the broker that was frozen knows the new topic only", func() (bool, string) {
		p := speak(c.t, c.brokers[victim].addr).topic("cold").Partitions
		return len(p) == 1, fmt.Sprint(len(p), " partitions")
	})
	if n := c.brokers[live[0]].folders("cold"); n == 0 {
		c.t.Error("the new topic's folder is gone")
	}
	shown := watch()
	for _, text := range []string{"TOPIC", "cold", "deleting replicas", left, "No topic is being deleted."} {
		if !strings.Contains(shown, text) {
			c.t.Errorf("klamm deletion watch did not show %q:\n%s", text, shown)
		}
	}
	if code, _ := c.delete("cold", 10*time.Second); code != 0 {
		c.t.Errorf("deleting it: error %d", code)
	}
}

// startWatch runs `klamm deletion watch` at a broker until the returned function stops it and gives what it printed; out has that so far.
func startWatch(c *plane, i int) (out *lines, stop func() string) {
	c.t.Helper()
	out = &lines{}
	cmd := exec.Command(klammBinary, "deletion", "watch", "--interval", "100ms", "--web", c.brokers[i].web)
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	read := make(chan struct{})
	go func() { defer close(read); out.read(pipe, nil) }()
	return out, func() string {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-read
		if err := cmd.Wait(); err != nil {
			c.t.Errorf("klamm deletion watch: %v", err)
		}
		return out.tail(1000)
	}
}

// R08: the controller is killed at several moments of a deletion; the next one ends it, without errors, also with a reassignment of
// the topic under way.
func deleteAndKillTheController(c *plane) {
	for _, after := range []time.Duration{0, 3 * time.Millisecond, 15 * time.Millisecond, 60 * time.Millisecond} {
		c.createOnAll("half", 20)
		c.write("half", 3)
		victim := c.controller()
		live := c.others(victim)
		_, watch := startWatch(c, live[0])
		p := speak(c.t, c.brokers[victim].addr)
		answered := make(chan bool, 1)
		go func() {
			resp, err := p.try(deleteRequest(6, "half"))
			answered <- err == nil && resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode == 0
		}()
		<-time.After(after)
		c.brokers[victim].kill()
		acknowledged := <-answered
		if next := c.controller(victim); next == victim {
			c.t.Errorf("the controller is %d, which was killed", next+1)
		}
		if !acknowledged { // it may not have begun
			if code, _ := c.delete("half", 20*time.Second); code != 0 && code != 3 {
				c.t.Errorf("after %v, deleting again: error %d", after, code)
			}
		}
		c.awaitForgotten("half", live...)
		if code := c.create("half", []int32{int32(live[0] + 1)}); code != 0 {
			c.t.Errorf("after %v: the name is not free: error %d", after, code)
		}
		c.start(victim)
		c.awaitIdle(0, 1, 2)
		c.awaitNoFolders("half", victim, live[1])
		if shown := watch(); !strings.Contains(shown, "No topic is being deleted.") {
			c.t.Errorf("after %v, klamm deletion watch over the failover:\n%s", after, shown)
		}
		if code, _ := c.delete("half", 10*time.Second); code != 0 {
			c.t.Errorf("after %v, deleting the new topic: error %d", after, code)
		}
		for i, b := range c.brokers {
			if b.stderr.contains("controller core broke an invariant") || b.stderr.contains("panic") {
				c.t.Fatalf("broker %d:\n%s", i+1, b.stderr.tail(30))
			}
		}
	}
}

// R15: one deletion by several at once, and again when it is over: success or UNKNOWN_TOPIC_OR_PARTITION, and success means that the
// answering broker does not know the name any more.
func deleteConcurrently(c *plane) {
	controller := c.brokers[c.controller()]
	for range 5 {
		c.createOnAll("twice", 3)
		var wg sync.WaitGroup
		codes := make([]int16, 6)
		for i := range codes {
			wg.Go(func() {
				p := speak(c.t, controller.addr)
				resp, err := p.try(deleteRequest(6, "twice"))
				if err != nil {
					c.t.Error(err)
					return
				}
				codes[i] = resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode
				if codes[i] == 0 && p.topic("twice").ErrorCode != 3 {
					c.t.Error("success, and the name is in the metadata")
				}
			})
		}
		wg.Wait()
		succeeded := 0
		for _, code := range codes {
			switch code {
			case 0:
				succeeded++
			case 3:
			default:
				c.t.Errorf("error %d", code)
			}
		}
		if code, _ := c.delete("twice", 10*time.Second); succeeded == 0 || code != 3 {
			c.t.Errorf("%d successes, then error %d", succeeded, code)
		}
	}
	c.awaitNoFolders("twice", 0, 1, 2)
}

// A broker that is not the controller refuses the request itself; tools that ask it find the controller.
func deleteThroughAnyBroker(c *plane) {
	c.createOnAll("asked", 2)
	other := c.brokers[c.others(c.controller())[0]]
	if code := speak(c.t, other.addr).do(deleteRequest(6, "asked")).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; code != 41 {
		c.t.Errorf("a broker that is not the controller answers %d", code)
	}
	other.topics("--delete", "--topic", "asked").ok(c.t)
	c.awaitForgotten("asked", 0, 1, 2)
	if r := other.topics("--describe", "--topic", "asked"); r.exit == 0 {
		c.t.Errorf("the deleted topic is described:\n%s", r.stdout)
	}
}

// Partitions that are asked for while a deletion waits are refused, and the topic still goes.
func addPartitionsMeanwhile(c *plane) {
	c.createOnAll("grown", 2)
	victim := c.others(c.controller())[0]
	c.freeze(victim)
	if code, _ := c.delete("grown", 10*time.Second); code != 0 {
		c.t.Errorf("DeleteTopics: error %d", code)
	}
	req := at(kmsg.NewPtrCreatePartitionsRequest(), 3)
	req.TimeoutMillis = 5000
	req.Topics = []kmsg.CreatePartitionsRequestTopic{{Topic: "grown", Count: 5}}
	if code := c.ask(req).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode; code != 17 && code != 3 {
		c.t.Errorf("CreatePartitions of a topic that is being deleted: error %d", code)
	}
	c.endSession(victim)
	c.awaitDeletionList(c.others(victim)[0], "No topic is being deleted.")
	c.thaw(victim)
	c.awaitIdle(0, 1, 2)
	c.awaitForgotten("grown", 0, 1, 2)
}

// R02: delete.topic.enable=false, set while the brokers run (KIP-688), refuses at once, in the words of each version; the tool fails.
func switchDeletionOff(c *plane) {
	c.createOnAll("kept", 1)
	c.setForAll("delete.topic.enable", "false")
	eventually(c.t, 10*time.Second, "deletion is refused", func() (bool, string) { // asked about a topic that nobody has: a deletion that begins before the change ends
		code := c.ask(deleteRequest(6, "unknown")).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode
		return code == 73, fmt.Sprint("error ", code)
	})
	if code := c.ask(deleteRequest(2, "kept", "unknown")).(*kmsg.DeleteTopicsResponse).Topics[1].ErrorCode; code != 42 {
		c.t.Errorf("version 2: error %d", code)
	}
	if r := c.brokers[0].topics("--delete", "--topic", "kept"); r.exit == 0 || !strings.Contains(r.stderr+r.stdout, "deletion is disabled") && !strings.Contains(r.stderr+r.stdout, "TopicDeletionDisabled") {
		c.t.Errorf("klamm topics --delete: %+v", r)
	}
	c.awaitISR("kept", 1, 3)
	c.write("kept", 1)
	c.setForAll("delete.topic.enable", "true")
	eventually(c.t, 10*time.Second, "deletion works again", func() (bool, string) {
		code, _ := c.delete("kept", 10*time.Second)
		return code == 0, fmt.Sprint("error ", code)
	})
}

// setForAll sets a config for all brokers.
func (c *plane) setForAll(key, value string) {
	c.t.Helper()
	req := at(kmsg.NewPtrIncrementalAlterConfigsRequest(), 1)
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType = kmsg.ConfigResourceTypeBroker
	r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Value: &value}}
	req.Resources = append(req.Resources, r)
	if got := c.ask(req).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; got.ErrorCode != 0 {
		c.t.Fatalf("set %s=%s: error %d", key, value, got.ErrorCode)
	}
}

// R03: one of two log dirs of a broker fails: its partitions go on elsewhere, those in the other dir go on there, nothing is made
// anew in the other dir. A deletion ends without them and shows what it left; the name is free. The restart with the dir back removes the
// old replicas, and those only.
func TestR03OneOfTwoLogDirsFails(t *testing.T) {
	c := startPlane(t)
	const victim = 2
	b := c.brokers[victim]
	// The dir is moved onto a small file system, which can be filled.
	if code := b.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	dir := filepath.Join(b.dir, "b")
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=12m", "klamm-plane", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount a small file system: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	c.start(victim)
	c.createOnAll("split", 4)
	c.write("split", 4)
	inA, inB := b.partitionsIn("a", "split"), b.partitionsIn("b", "split")
	if len(inA) != 2 || len(inB) != 2 {
		t.Fatalf("partitions in a: %v, in b: %v", inA, inB)
	}

	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); err == nil {
		t.Fatal("the small file system took 16 MiB")
	}
	for _, p := range inB {
		commandInput(t, strings.Repeat("x", 100_000)+"\n", "kcat", "-b", c.brokers[0].addr, "-P", "-t", "split", "-p", p, "-X", "message.timeout.ms=20000", "-X", "message.max.bytes=900000").ok(t)
	}
	eventually(t, 30*time.Second, "the partitions of the failed dir have left the ISR, and only they", func() (bool, string) {
		state, good := "", true
		for _, p := range speak(t, c.brokers[0].addr).topic("split").Partitions {
			want := 3
			if strings.Contains(strings.Join(inB, " "), fmt.Sprint(p.Partition)) {
				want = 2
			}
			good = good && len(p.ISR) == want && p.Leader > 0 && (want == 3 || p.Leader != victim+1)
			state += fmt.Sprintf("%d: leader %d ISR %v; ", p.Partition, p.Leader, p.ISR)
		}
		return good, state
	})
	c.write("split", 4)
	if got := b.partitionsIn("a", "split"); len(got) != 2 {
		t.Errorf("partitions were made anew in the good dir: %v", got)
	}

	controller := c.controller()
	if code, took := c.delete("split", 10*time.Second); code != 0 || took > 5*time.Second {
		t.Errorf("DeleteTopics: error %d after %v", code, took)
	}
	c.awaitForgotten("split", 0, 1, 2)
	for _, i := range []int{controller, victim} {
		c.awaitDeletionList(i, "No topic is being deleted.", fmt.Sprintf("Broker %d has 2 replicas of split", victim+1))
	}
	eventually(t, 10*time.Second, "the broker's metrics count what it has to remove", func() (bool, string) {
		_, body := b.get("/metrics")
		return strings.Contains(body, "\nklamm_log_deleted_topics_to_remove 1\n"), "not yet"
	})
	// The name is free, on the broker with the failed dir as well.
	c.createOnAll("split", 4)
	c.write("split", 4)
	if got := b.partitionsIn("a", "split"); len(got) != 4 {
		t.Errorf("the new topic's partitions in the good dir: %v", got)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if code := b.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.start(victim)
	c.awaitIdle(0, 1, 2)
	eventually(t, 20*time.Second, "what is left is the new topic's", func() (bool, string) {
		a, n := b.partitionsIn("a", "split"), b.folders("split")
		return len(a) == 4 && n == 4, fmt.Sprintf("%v in a, %d folders in all", a, n)
	})
	c.awaitISR("split", 4, 3)
	if got := command(t, "kcat", "-b", b.addr, "-C", "-t", "split", "-e", "-q", "-o", "beginning").ok(t); got != "row\nrow\nrow\nrow\n" {
		t.Errorf("the new topic holds %q", got)
	}
}

// partitionsIn lists a topic's partitions in one of the log dirs.
func (b *broker) partitionsIn(dir, topic string) (out []string) {
	b.t.Helper()
	entries, err := os.ReadDir(filepath.Join(b.dir, dir))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		if p, ok := strings.CutPrefix(e.Name(), topic+"-"); ok && !strings.Contains(p, ".") {
			out = append(out, p)
		}
	}
	return out
}

// R03: a broker whose last log dir has failed stops with an error, and says what failed.
func TestR03ABrokerWithoutALogDirStops(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=6m", "klamm-last", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount a small file system: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	b := startBroker(t, "log.dirs="+filepath.Join(dir, "only"))
	b.topics("--create", "--topic", "t").ok(t)
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 8<<20), 0o600); err == nil {
		t.Fatal("the small file system took 8 MiB")
	}
	commandInput(t, strings.Repeat("x", 100_000)+"\n", "kcat", "-b", b.addr, "-P", "-t", "t", "-X", "message.timeout.ms=3000")
	select {
	case <-b.exited:
	case <-time.After(30 * time.Second):
		t.Fatalf("the broker still runs\n%s", b.stderr.tail(20))
	}
	if code := b.cmd.ProcessState.ExitCode(); code == 0 {
		t.Error("exit code 0")
	}
	if !b.stderr.contains("every log dir has failed") {
		t.Errorf("the log does not tell why:\n%s", b.stderr.tail(20))
	}
}
