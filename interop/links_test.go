//go:build interop

package interop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// linkFault loses what goes between brokers. Clients still reach all of them.
func linkFault(n *network, name string, batch []byte, lose func(victim int)) fault {
	return fault{name: name, do: func(l *traffic, v int) {
		began := time.Now()
		lose(v)
		l.awaitNoticed(v, began)
		l.c.refuses(v, batch)
	}, undo: func(l *traffic, v int) {
		began := time.Now()
		n.heal(v)
		l.c.awaitReturn(v, began)
	}, sudden: true, silent: true}
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

// Links between brokers are cut while clients reach everybody: those of the controller, of a leader, in one direction, the
// cable of a machine, and between two that both reach the third.
func TestThreeBrokersBearCutLinks(t *testing.T) {
	const lagMax = 2 * time.Second
	n := newNetwork(t, 3)
	c := startTrioIn(n, fmt.Sprint("replica.lag.time.max.ms=", lagMax.Milliseconds()))
	c.createTopic("n")
	c.createTopic(probeTopic)
	l := c.startLoad("n")
	batch := recordBatch(t)

	cutOff := linkFault(n, "cut off from the others", batch, func(v int) {
		for _, j := range c.others(v) {
			n.cut(v, j)
		}
	})
	mute := linkFault(n, "not heard by the others", batch, func(v int) {
		for _, j := range c.others(v) {
			n.lose(v, j)
		}
	})
	unplugged := fault{name: "cable pulled", do: func(l *traffic, v int) {
		began := time.Now()
		n.plug(v, false)
		l.awaitNoticed(v, began)
	}, undo: func(l *traffic, v int) {
		began := time.Now()
		n.plug(v, true)
		c.awaitReturn(v, began)
	}, sudden: true, silent: true}
	l.strike(cutOff, c.controller())
	l.strike(cutOff, c.leader(probeTopic, 0))
	l.strike(mute, c.leader("n", 1))
	l.strike(unplugged, c.controller())

	// Each of both is in the ISR of what the other leads: the leader takes it out after replica.lag.time.max.ms, or one and a
	// half times that, since it looks every half. Or one of both has lost the etcd leader, and its session with it.
	others := c.others(c.controller())
	l.cutBetween(n, others[0], others[1], max(c.session, lagMax*3/2)+goOnAfter+clientStuck)
	// A leader that does not reach the controller cannot take a follower out: its partitions wait for the link, as in Kafka.
	l.cutBetween(n, c.controller(), c.others(c.controller())[0], 0)
	l.finish()
}

// cutBetween cuts the link of two brokers that reach the third. Producers go on within the limit; 0: when the link is back.
func (l *traffic) cutBetween(n *network, a, b int, limit time.Duration) {
	l.c.t.Helper()
	l.resetPauses()
	began, starved := time.Now(), l.starved.Load()
	n.cut(a, b)
	if limit > 0 {
		l.awaitProgress(l.c.session + 20*time.Second)
		limit += time.Duration(l.starved.Load() - starved)
		if held, which := l.paused(); held > limit {
			l.c.t.Errorf("cut between brokers %d and %d: %s was held up for %v, the limit is %v", a+1, b+1, which, held, limit)
		}
	} else {
		<-time.After(l.c.session + 2*goOnAfter) // what can happen has happened by then
	}
	held, _ := l.paused()
	l.resetPauses()
	n.heal(a)
	l.c.awaitInSync(l.topic)
	l.awaitProgress(20 * time.Second)
	l.c.t.Logf("cut between brokers %d and %d: held up %v, all in sync after %v", a+1, b+1, held.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}
