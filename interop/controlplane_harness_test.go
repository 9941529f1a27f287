//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/interop/etcdserver"
)

// plane is three brokers, each a process, on an etcd that none of them runs: any of them may die or freeze, and several.
// Each broker has two log dirs, a and b.
type plane struct {
	processes
	etcd string // its address
	// stopEtcd ends the etcd; it is ended with the test at the latest.
	stopEtcd func()
	// release lets the session of a frozen broker end; nil where none is held.
	release [3]func()
}

func startPlane(t *testing.T, properties ...string) *plane {
	t.Helper()
	c := &plane{processes: processes{t: t, session: 2 * time.Second}}
	etcd := etcdserver.Start(t, etcdserver.Options{Address: reserveAddress})
	c.etcd, c.stopEtcd = etcd.Endpoints, func() { etcd.Stop() }
	for i := range 3 {
		b := newBroker(t)
		b.conf = append(b.conf,
			fmt.Sprint("broker.id=", i+1), "etcd.endpoints="+c.etcd, "listeners=PLAINTEXT://"+reserveAddress(t),
			fmt.Sprintf("log.dirs=%s,%s", filepath.Join(b.dir, "a"), filepath.Join(b.dir, "b")),
			fmt.Sprint("broker.session.timeout.ms=", c.session.Milliseconds()), "default.replication.factor=3",
			"auto.create.topics.enable=false", "auto.leader.rebalance.enable=false", "log.segment.delete.delay.ms=300",
			"log.initial.task.delay.ms=100", "offsets.topic.replication.factor=1")
		b.conf = append(b.conf, properties...)
		c.brokers = append(c.brokers, b)
	}
	c.start(0, 1, 2)
	return c
}

// freeze stops a broker's process and keeps its session alive in its place: it does not end because the machine is slow, but when
// the test says so, by endSession, thaw or kill.
func (c *plane) freeze(i int) {
	c.t.Helper()
	c.release[i] = c.holdSession(i)
	c.brokers[i].signal(syscall.SIGSTOP)
	c.t.Cleanup(func() { c.thaw(i) })
}

// endSession lets the session of a frozen broker end, and with it what is held.
func (c *plane) endSession(i int) {
	if release := c.release[i]; release != nil {
		c.release[i] = nil
		release()
	}
}

// thaw lets a frozen broker go on.
func (c *plane) thaw(i int) {
	c.endSession(i)
	c.brokers[i].signal(syscall.SIGCONT)
}

func (c *plane) kill(i int) {
	c.brokers[i].kill()
	c.endSession(i)
}

// holdSession renews a broker's session until it is released.
func (c *plane) holdSession(i int) (release func()) {
	c.t.Helper()
	t := c.t
	cl, err := clientv3.New(clientv3.Config{Endpoints: []string{c.etcd}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	// The key of /brokers/ids/N, see etcdstore.
	got, err := cl.Get(t.Context(), "3:"+coord.BrokerPath(cluster.BrokerID(id(i))))
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("registration of broker %d: %+v, %v", i+1, got, err)
	}
	session := clientv3.LeaseID(got.Kvs[0].Lease)
	ctx, cancel := context.WithCancel(context.Background())
	renew := func() bool {
		_, err := cl.KeepAliveOnce(ctx, session)
		if err != nil && ctx.Err() == nil {
			t.Errorf("hold the session of broker %d: %v", i+1, err)
		}
		return err == nil
	}
	var holding sync.WaitGroup
	if renew() {
		holding.Go(func() {
			tick := time.NewTicker(c.session / 20)
			defer tick.Stop()
			for renew() {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return func() {
		cancel()
		holding.Wait()
		_ = cl.Close()
	}
}

// controller is the index of the controller, by the word of a broker that says of itself that it is. Those named are not asked.
func (c *plane) controller(without ...int) (index int) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, "one broker is the controller", func() (bool, string) {
		var found bool
		index, found = c.whoSaysItIsTheController(without...)
		return found, "none"
	})
	return index
}

// whoSaysItIsTheController asks all brokers at once and takes the first that says so: the answer of a frozen one is not waited for,
// since its session runs out meanwhile.
func (c *plane) whoSaysItIsTheController(without ...int) (index int, found bool) {
	asked := c.others(without...)
	answers := make(chan int, len(asked))
	for _, i := range asked {
		go func() {
			if !c.brokers[i].saysItIsTheController() {
				i = -1
			}
			answers <- i
		}()
	}
	for range asked {
		if i := <-answers; i >= 0 {
			return i, true
		}
	}
	return 0, false
}

// saysItIsTheController asks the broker; one that is down or frozen does not say so.
func (b *broker) saysItIsTheController() bool {
	if !b.running() {
		return false
	}
	var status struct {
		Active bool `json:"active"`
	}
	return b.getJSON("/api/v1/controller", &status) == nil && status.Active
}

// webClient does not wait for a frozen broker.
var webClient = &http.Client{Timeout: time.Second}

// getJSON reads one page of the broker's web address; a broker that is down or frozen is an error.
func (b *broker) getJSON(path string, into any) error {
	resp, err := webClient.Get(b.web + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return fmt.Errorf("status %s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// create makes a topic by the controller, with a replica assignment by broker ids.
func (c *plane) create(name string, replicas ...[]int32) (code int16) {
	c.t.Helper()
	topic := newTopic(name, -1)
	topic.ReplicationFactor = -1
	for p, ids := range replicas {
		topic.ReplicaAssignment = append(topic.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(p), Replicas: ids})
	}
	return c.ask(createRequest(7, topic)).(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
}

// createOnAll makes a topic with a replica on every broker, each broker leading some partitions, and waits until all brokers know it.
func (c *plane) createOnAll(name string, partitions int) {
	c.t.Helper()
	var assignment [][]int32
	for p := range partitions {
		assignment = append(assignment, [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}[p%3])
	}
	if code := c.create(name, assignment...); code != 0 {
		c.t.Fatalf("create %s: error %d", name, code)
	}
	c.awaitISR(name, partitions, 3)
}

// ask sends a request to the controller, whoever it is, again while the answer is NOT_CONTROLLER or the connection fails.
func (c *plane) ask(req kmsg.Request) (resp kmsg.Response) {
	c.t.Helper()
	eventually(c.t, 30*time.Second, kmsg.NameForKey(req.Key())+" is answered by a controller", func() (bool, string) {
		i, found := c.whoSaysItIsTheController()
		if !found {
			return false, "no controller"
		}
		var err error
		resp, err = c.brokers[i].askOnce(req)
		return err == nil && !strings.Contains(fmt.Sprintf("%+v", resp), "ErrorCode:41"), fmt.Sprintf("broker %d: %+v, %v", i+1, resp, err)
	})
	return resp
}

// askOnce sends a request on a connection of its own, which a broker that is down or does not listen yet may refuse.
func (b *broker) askOnce(req kmsg.Request) (kmsg.Response, error) {
	conn, err := net.DialTimeout("tcp", b.addr, time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return (&protocol{t: b.t, conn: conn, formatter: kmsg.NewRequestFormatter(kmsg.FormatterClientID("interop"))}).try(req)
}

// delete asks the controller to delete a topic and gives the code and how long the answer took.
func (c *plane) delete(name string, timeout time.Duration) (code int16, took time.Duration) {
	c.t.Helper()
	req := deleteRequest(6, name)
	req.TimeoutMillis = int32(timeout.Milliseconds())
	began := time.Now()
	return c.ask(req).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode, time.Since(began)
}

// topicError is the code that a broker's metadata has for a topic; 3 when it does not know it.
func (b *broker) topicError(name string) (code int16) {
	b.t.Helper()
	resp, err := b.askOnce(metadataRequest(12, name))
	if err != nil {
		return -1
	}
	return resp.(*kmsg.MetadataResponse).Topics[0].ErrorCode
}

// awaitForgotten waits until brokers do not know a topic.
func (c *plane) awaitForgotten(name string, indices ...int) {
	c.t.Helper()
	for _, i := range indices {
		eventually(c.t, 20*time.Second, fmt.Sprintf("broker %d forgets %s", i+1, name), func() (bool, string) {
			code := c.brokers[i].topicError(name)
			return code == 3, fmt.Sprint("error ", code)
		})
	}
}

// awaitPartition waits until a broker's metadata shows partition 0 of a topic as wanted.
func (c *plane) awaitPartition(i int, topic, what string, want func(kmsg.MetadataResponseTopicPartition) bool) {
	c.t.Helper()
	eventually(c.t, 30*time.Second, fmt.Sprintf("broker %d shows %s with %s", i+1, topic, what), func() (bool, string) {
		ps := speak(c.t, c.brokers[i].addr).topic(topic).Partitions
		if len(ps) == 0 {
			return false, "no partition"
		}
		p := ps[0]
		return want(p), fmt.Sprintf("leader %d, replicas %v, ISR %v", p.Leader, p.Replicas, p.ISR)
	})
}

// scenario is one test on a cluster that it leaves whole.
type scenario struct {
	name string
	run  func(c *plane)
}

// play runs scenarios one after the other; it stops at the first that fails, since the cluster may not be whole then.
func (c *plane) play(t *testing.T, scenarios ...scenario) {
	for _, s := range scenarios {
		ok := t.Run(s.name, func(t *testing.T) {
			c.t = t
			for _, b := range c.brokers {
				b.t = t
			}
			s.run(c)
		})
		if !ok {
			return
		}
	}
}

// awaitISR waits until every running broker shows every partition of a topic with so many members in its ISR.
func (c *plane) awaitISR(name string, partitions, members int, without ...int) {
	c.t.Helper()
	for _, i := range c.others(without...) {
		b := c.brokers[i]
		eventually(c.t, 30*time.Second, fmt.Sprintf("broker %d shows %s with %d in sync", i+1, name, members), func() (bool, string) {
			resp, err := b.askOnce(metadataRequest(12, name))
			if err != nil {
				return false, err.Error()
			}
			t := resp.(*kmsg.MetadataResponse).Topics[0]
			for _, p := range t.Partitions {
				if p.Leader < 0 || len(p.ISR) != members {
					return false, fmt.Sprintf("partition %d: leader %d, ISR %v", p.Partition, p.Leader, p.ISR)
				}
			}
			return len(t.Partitions) == partitions, fmt.Sprint(len(t.Partitions), " partitions")
		})
	}
}

// folders counts a topic's partition folders in both log dirs, those renamed for removal included.
func (b *broker) folders(topic string) (n int) {
	b.t.Helper()
	for _, dir := range []string{"a", "b"} {
		entries, err := os.ReadDir(filepath.Join(b.dir, dir))
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), topic+"-") {
				n++
			}
		}
	}
	return n
}

// awaitNoFolders waits until nothing of a topic is on a broker's disk.
func (c *plane) awaitNoFolders(topic string, indices ...int) {
	c.t.Helper()
	for _, i := range indices {
		eventually(c.t, 20*time.Second, fmt.Sprintf("broker %d removes the folders of %s", i+1, topic), func() (bool, string) {
			n := c.brokers[i].folders(topic)
			return n == 0, fmt.Sprint(n, " folders")
		})
	}
}

// write produces a record to each partition, which makes their folders.
func (c *plane) write(topic string, partitions int, via ...int) {
	c.t.Helper()
	if len(via) == 0 {
		via = []int{0}
	}
	for p := range partitions {
		commandInput(c.t, "row\n", "kcat", "-b", c.brokers[via[0]].addr, "-P", "-t", topic, "-p", fmt.Sprint(p), "-X", "message.timeout.ms=20000").ok(c.t)
	}
}

// deletionTool runs `klamm deletion` against a broker's web address.
func (b *broker) deletionTool(args ...string) result {
	b.t.Helper()
	return b.klamm(append([]string{"deletion", "--web", b.web}, args...)...)
}

// awaitDeletionList waits until `klamm deletion list` at a broker prints all of the texts.
func (c *plane) awaitDeletionList(i int, texts ...string) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, fmt.Sprintf("the list of deletions at broker %d shows %q", i+1, texts), func() (bool, string) {
		r := c.brokers[i].deletionTool("list")
		for _, text := range texts {
			if !strings.Contains(r.stdout, text) {
				return false, r.stdout + r.stderr
			}
		}
		return true, ""
	})
}

// awaitIdle waits until no deletion runs and nobody has anything left to remove, by the word of brokers.
func (c *plane) awaitIdle(indices ...int) {
	c.t.Helper()
	for _, i := range indices {
		eventually(c.t, 20*time.Second, fmt.Sprintf("broker %d shows no deletion", i+1), func() (bool, string) {
			r := c.brokers[i].deletionTool("list")
			return r.stdout == "No topic is being deleted.\n", r.stdout + r.stderr
		})
	}
}
