//go:build interop

package interop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// linkFault loses what goes between a broker and others, until its session has ended. Clients still reach all of them.
func linkFault(name string, lose, restore func(victim int)) fault {
	return fault{name: name, do: func(l *traffic, v int) {
		began := time.Now()
		lose(v)
		l.awaitNoticed(v, began)
	}, undo: func(l *traffic, v int) {
		began := time.Now()
		restore(v)
		l.c.awaitReturn(v, began)
	}, sudden: true, silent: true, answers: true}
}

// refuses writes to a broker that was cut off from the others as to the leader of every partition: it may not acknowledge.
func (c *trio) refuses(i int, batch []byte) {
	c.t.Helper()
	for p := range int32(trioPartitions) {
		req := at(kmsg.NewPtrProduceRequest(), 9)
		req.Acks, req.TimeoutMillis = -1, 100
		rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
		rt.Topic, rp.Partition, rp.Records = probeTopic, p, slices.Clone(batch)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		got := speak(c.t, c.brokers[i].addr).do(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if got.ErrorCode == 0 {
			c.t.Errorf("broker %d, cut off, acknowledged a record of partition %d", i+1, p)
		}
	}
}

// linkFaults are those of all links of a broker. One whose cable is pulled is not asked what it acknowledges.
func linkFaults(n *network, c *trio, batch []byte) []fault {
	refusing := func(name string, lose func(victim, other int)) fault {
		f := linkFault(name, func(v int) {
			for _, j := range c.others(v) {
				lose(v, j)
			}
		}, n.heal)
		cut := f.do
		f.do = func(l *traffic, v int) { cut(l, v); c.refuses(v, batch) }
		return f
	}
	unplugged := linkFault("cable pulled", func(v int) { n.plug(v, false) }, func(v int) { n.plug(v, true) })
	unplugged.answers = false
	return []fault{
		refusing("cut off from the others", n.cut),
		refusing("not heard by the others", n.lose),
		refusing("not hearing the others", func(v, other int) { n.lose(other, v) }),
		unplugged,
	}
}

// roles are whose links are cut.
var roles = []struct {
	name string
	who  func(c *trio, r *rand.Rand) int
}{
	{"the controller", func(c *trio, _ *rand.Rand) int { return c.controller() }},
	{"a leader", func(c *trio, r *rand.Rand) int { return c.leader("n", int32(r.IntN(trioPartitions))) }},
	{"a follower", func(c *trio, r *rand.Rand) int {
		return c.others(c.leader("n", int32(r.IntN(trioPartitions))))[r.IntN(2)]
	}},
	{"the etcd leader", func(c *trio, _ *rand.Rand) int { return c.etcdLeader() }},
}

// etcdLeader is the index of the broker whose member leads etcd.
func (c *trio) etcdLeader() int {
	c.t.Helper()
	leader := -1
	eventually(c.t, 20*time.Second, "a member leads etcd", func() (bool, string) {
		out := c.brokers[0].members("list").ok(c.t)
		for line := range strings.Lines(out) {
			if row := strings.Fields(line); len(row) > 2 && row[2] == "leader" {
				leader = slices.IndexFunc(c.members, func(addr string) bool { return addr == row[1] })
			}
		}
		return leader >= 0, out
	})
	return leader
}

// Links between brokers are cut while clients reach everybody, of a broker to both others, in both directions and in one, its
// cable, and of two that both reach the third: each of the controller, a leader, a follower and the etcd leader, with a fault
// of a process for each as well, in random order by a seed. KLAMM_INTEROP_SEED repeats a run, KLAMM_INTEROP_ROUNDS makes it
// longer.
func TestThreeBrokersBearCutLinks(t *testing.T) {
	seed := setting("KLAMM_INTEROP_SEED", rand.Uint64())
	t.Logf("KLAMM_INTEROP_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	n := newNetwork(t, 3)
	c := startTrioIn(n, fmt.Sprint("replica.lag.time.max.ms=", linkLagMax.Milliseconds()), fmt.Sprint("replica.socket.timeout.ms=", linkSocketTimeout.Milliseconds()))
	c.createTopic("n")
	c.createTopic(probeTopic)
	l := c.startLoad("n")

	happenings := []func(victim int){
		func(v int) { l.strike(kinds[r.IntN(len(kinds))](r), v) },
		func(v int) { l.cutBetween(n, v, c.others(v)[r.IntN(2)], r.IntN(len(ways))) },
	}
	for _, f := range linkFaults(n, c, recordBatch(t)) {
		happenings = append(happenings, func(v int) { l.strike(f, v) })
	}
	all := len(happenings) * len(roles) // each happening to each role once, before any comes again
	var order []int
	for round := range int(setting("KLAMM_INTEROP_ROUNDS", uint64(all))) {
		if round%all == 0 {
			order = r.Perm(all)
		}
		next := order[round%all]
		role := roles[next%len(roles)]
		victim := role.who(c, r)
		t.Logf("round %d: %s, broker %d", round+1, role.name, victim+1)
		happenings[next/len(roles)](victim)
	}
	l.finish()
}

// linkLagMax is the brokers' replica.lag.time.max.ms: so short that followers that are cut off leave the ISR within the session
// timeout (a leader looks every half of it), and not below what sessions last in etcd: a leader that is cut off would take the others
// out of the ISR before it gives up, and nobody could follow it.
const linkLagMax = trioLease

// linkSocketTimeout is the brokers' replica.socket.timeout.ms: a fetch that got lost is given up before TCP's own next try, which would come
// as late after the heal as the cut was long.
const linkSocketTimeout = 1500 * time.Millisecond

// ways are what two brokers can lose between them.
var ways = []struct {
	name string
	lose func(n *network, victim, other int)
}{
	{"lost link to broker", (*network).cut},
	{"lost way to broker", (*network).lose},
	{"lost way from broker", func(n *network, victim, other int) { n.lose(other, victim) }},
}

// cutBetween cuts a link of two brokers that both reach the third. If one of them has the etcd leader, the other one loses its
// session. Otherwise the leaders among them take the other one out of the ISR after replica.lag.time.max.ms, or one and a half
// times that, since they look every half: through the controller, or if that is the other one, without it.
func (l *traffic) cutBetween(n *network, a, b, way int) {
	l.c.t.Helper()
	victim, other := a, b
	etcd := l.c.etcdLeader()
	if etcd == a {
		victim, other = b, a
	}
	name := fmt.Sprint(ways[way].name, " ", other+1)
	lose := func(v int) { ways[way].lose(n, v, other) }
	if etcd == other {
		l.strike(linkFault(name, lose, n.heal), victim)
	} else {
		l.strike(lagFault(name, lose, n.heal), victim)
	}
}

// lagFault loses what goes between two brokers that both keep their sessions.
func lagFault(name string, lose, restore func(victim int)) fault {
	var began time.Time
	return fault{name: name, do: func(_ *traffic, v int) {
		began = time.Now()
		lose(v)
	}, undo: func(l *traffic, v int) {
		restore(v)
		l.c.wantSessions([]int{v}, began, name)
	}, sudden: true, silent: true, answers: true}
}
