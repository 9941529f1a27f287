package driver

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// chaos is a cluster of three whose brokers meet every fault a test can make, by seed.
type chaos struct {
	*testCluster
	rand    *rand.Rand
	brokers []*testBroker
	topics  map[string]bool // false: deleted
	next    int
}

// TestAfterAnyFaultsTheClusterConverges drives three brokers through random faults, heals them, and looks at the whole.
// KLAMM_SEED replays one seed, KLAMM_SEEDS sets how many run.
func TestAfterAnyFaultsTheClusterConverges(t *testing.T) {
	first, count := uint64(1), uint64(25)
	if s := os.Getenv("KLAMM_SEEDS"); s != "" {
		count, _ = strconv.ParseUint(s, 10, 64)
	}
	if s := os.Getenv("KLAMM_SEED"); s != "" {
		first, _ = strconv.ParseUint(s, 10, 64)
		count = 1
	}
	for seed := first; seed < first+count; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *testCluster) {
				x := &chaos{testCluster: c, rand: rand.New(rand.NewPCG(seed, 0)), topics: map[string]bool{}}
				for id := range cluster.BrokerID(3) {
					x.brokers = append(x.brokers, c.start(id+1))
				}
				advance(time.Second)
				for range 40 {
					x.step()
				}
				x.heal()
				x.check()
				for _, b := range x.brokers {
					b.stop()
				}
			})
		})
	}
}

func (x *chaos) step() {
	b := x.brokers[x.rand.IntN(len(x.brokers))]
	switch x.rand.IntN(11) {
	case 0, 1, 2:
		x.create()
	case 3, 4:
		x.delete()
	case 5:
		x.engine.ExpireSession(b.session.Load().ID())
	case 6:
		b.client.Disconnect()
	case 7:
		b.client.Reconnect()
	case 8:
		b.fake.setHold(x.rand.IntN(2) == 0)
	case 9:
		x.loseAnswers(b, 1+x.rand.IntN(4))
	case 10:
		if x.rand.IntN(4) == 0 {
			b.queue.putOwn(&item{event: unknownEvent{}})
		}
	}
	if x.rand.IntN(3) == 0 {
		advance(time.Duration(x.rand.IntN(5000)) * time.Millisecond)
	} else {
		synctest.Wait()
	}
}

func (x *chaos) create() {
	x.next++
	name := fmt.Sprintf("t%d", x.next)
	var replicas [][]cluster.BrokerID
	for range 1 + x.rand.IntN(3) {
		ids := []cluster.BrokerID{1, 2, 3}
		x.rand.Shuffle(3, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		replicas = append(replicas, ids[:1+x.rand.IntN(3)])
	}
	x.createTopic(name, replicas...)
	x.topics[name] = true
}

func (x *chaos) delete() {
	var alive []string
	for name, ok := range x.topics {
		if ok {
			alive = append(alive, name)
		}
	}
	if len(alive) == 0 {
		return
	}
	slices.Sort(alive)
	name := alive[x.rand.IntN(len(alive))]
	x.topics[name] = false
	x.deleteTopic(name)
}

// loseAnswers makes the broker's next writes end with an unknown outcome, applied or not.
func (x *chaos) loseAnswers(b *testBroker, n int) {
	b.client.SetHook(func(call memstore.Call) memstore.Fault {
		if n == 0 || call.Method != "Multi" && call.Method != "Batch" && call.Method != "DeleteTree" {
			return memstore.Fault{}
		}
		n--
		if n%2 == 0 {
			return memstore.Fault{LoseAnswer: true}
		}
		return memstore.Fault{Err: coord.ErrUnknownOutcome}
	})
}

func (x *chaos) heal() {
	for _, b := range x.brokers {
		b.client.SetHook(nil)
		b.client.Reconnect()
		b.fake.setHold(false)
	}
	advance(5 * time.Minute)
}

func (x *chaos) check() {
	x.t.Helper()
	id, epoch := x.controllerNode()
	for _, b := range x.brokers {
		if b.IsActive() != (b.id == id) || b.ActiveControllerID() != id || b.cache.Image().Controller() != id {
			x.t.Errorf("broker %d: active %t, knows controller %d, was told %d; /controller is %d, epoch %d",
				b.id, b.IsActive(), b.ActiveControllerID(), b.cache.Image().Controller(), id, epoch)
		}
		for name, exists := range x.topics {
			if exists {
				b.expectTopic(name, len(x.partitions(name)))
			} else {
				b.expectGone(name)
			}
		}
	}
}

func (x *chaos) partitions(topic string) map[int32]cluster.ReplicaAssignment {
	x.t.Helper()
	n, err := x.admin.Get(x.t.Context(), coord.TopicPath(topic))
	if err != nil {
		x.t.Fatal(err)
	}
	decoded, err := coord.DecodeTopic(n.Data)
	if err != nil {
		x.t.Fatal(err)
	}
	return decoded.Partitions
}
