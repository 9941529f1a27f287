//go:build interop

package interop

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// withoutHelp bounds a stop that nobody helps with: a broker asks for a new leader until no follower has fetched for a second
// and a half, and tries for a second each to give back the controller's office and its registration.
const withoutHelp = 7 * time.Second

func TestAControlledShutdownHandsLeadershipsOver(t *testing.T) {
	c := startTrio(t)
	c.createTopic("n")
	l := c.startLoad("n")
	victim := c.leader("n", 0)
	l.resetPauses()
	starved := l.starved.Load()
	if code := c.brokers[victim].stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !c.brokers[victim].stderr.contains("leaderships moved to other brokers") {
		t.Errorf("the log does not tell of the hand-over:\n%s", c.brokers[victim].stderr.tail(20))
	}
	l.awaitProgress(20 * time.Second)
	if held, which := l.paused(); held > goodByePause+time.Duration(l.starved.Load()-starved) {
		t.Errorf("%s was held up for %v", which, held)
	}
	c.start(victim)
	l.finish()
}

func TestAllThreeStopTogether(t *testing.T) {
	c := startTrio(t)
	c.createTopic("n")
	c.createTopic("m")
	l := c.startLoad("n")
	l.finish()
	began := time.Now()
	var all sync.WaitGroup
	codes := make([]int, 3)
	for i, b := range c.brokers {
		b.signal(syscall.SIGTERM)
		all.Go(func() { <-b.exited; codes[i] = b.cmd.ProcessState.ExitCode() })
	}
	all.Wait()
	t.Logf("stopped after %v with codes %v", time.Since(began), codes)
	if took := time.Since(began); took > withoutHelp {
		t.Errorf("it took %v", took)
	}
	c.start(2, 0, 1)
	c.awaitInSync("n")
	c.startLoad("m").finish()
}

// R20: in a cluster, too, a topic that was just created works through any broker: a client that comes anew, and knows one broker
// only, produces to all partitions and reads their ends within a second.
func TestR20ANewTopicWorksThroughAnyBroker(t *testing.T) {
	c := startTrio(t)
	for round := range 5 {
		for i, b := range c.brokers {
			name := fmt.Sprint("fresh-", round, "-", i)
			b.topics("--create", "--topic", name, "--partitions", "4", "--replication-factor", "3").ok(t)
			for _, other := range c.brokers {
				cl := client(t, other, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RecordDeliveryTimeout(time.Second))
				began := time.Now()
				for p := range int32(4) {
					r := &kgo.Record{Topic: name, Partition: p, Value: []byte("v")}
					if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
						t.Fatalf("%s partition %d through %s: %v", name, p, other.addr, err)
					}
				}
				ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), name)
				if err != nil || ends.Error() != nil || len(ends[name]) != 4 {
					t.Fatalf("ends of %s through %s: %v, %v", name, other.addr, err, ends.Error())
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("%s through %s: %v", name, other.addr, took)
				}
				cl.Close()
			}
		}
	}
}
