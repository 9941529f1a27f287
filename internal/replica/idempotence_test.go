package replica

import (
	"slices"
	"testing"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/record"
	"klamm/internal/vfs"
)

// sequenced is a batch of one record by idempotent producer 7.
func sequenced(epoch int16, sequence int32, value string) []byte {
	b := record.NewBuilder(record.BuilderOptions{Idempotent: true, ProducerID: 7, ProducerEpoch: epoch, BaseSequence: sequence})
	b.Append(time.Now().UnixMilli(), nil, []byte(value)) // a producer whose records are old is forgotten
	raw, err := b.Build()
	if err != nil {
		panic(err)
	}
	return raw
}

// sends appends a batch at whoever leads, waits for all replicas in sync, and wants the answer.
func (c *testCluster) sends(what string, batch []byte, code cluster.ErrorCode, offset int64) {
	c.t.Helper()
	a := &answer[AppendResult]{}
	c.leader(tpT).Append(AppendRequest{Acks: -1, Timeout: 30 * time.Second, Partitions: []AppendPartition{{TP: tpT, Records: batch}}}, a.set)
	pass(time.Second)
	if r, done := a.result(); !done || r.Err != code || r.BaseOffset != offset {
		c.t.Errorf("%s: answered %t, %v, offset %d; want %v, offset %d", what, done, r.Err, r.BaseOffset, code, offset)
	}
}

// A producer whose acknowledgement was lost with the leader sends its batch again to the next one. Wherever that one has the producer's
// state from (its own log as a follower, a snapshot, a log read after a crash, one copied from nothing, one that was cut), it knows what
// it has, takes what is next, and refuses what would leave a gap.
func TestANewLeaderGoesOnWithItsProducersSequences(t *testing.T) {
	restarted := func(how string) func(c *testCluster) cluster.BrokerID {
		return func(c *testCluster) cluster.BrokerID { c.kill(2, how, 3); c.boot(2); return 2 }
	}
	for _, tc := range []struct {
		name    string
		prepare func(c *testCluster) (next cluster.BrokerID)
		// lastOnly: a snapshot holds the last batch of a producer and none before, in Kafka's format.
		lastOnly bool
	}{
		{name: "it followed", prepare: func(*testCluster) cluster.BrokerID { return 2 }},
		{name: "it was stopped", prepare: restarted("clean"), lastOnly: true},
		{name: "it was killed", prepare: restarted("kill")},
		{name: "it lost its power", prepare: restarted("power")},
		{name: "it started empty", prepare: func(c *testCluster) cluster.BrokerID {
			c.kill(2, "clean", 0)
			c.brokers[2].disk = vfs.NewMem()
			c.boot(2)
			return 2
		}},
		{name: "its log was cut", prepare: func(c *testCluster) cluster.BrokerID { c.diverge(); return 1 }},
		{name: "it led before", prepare: func(c *testCluster) cluster.BrokerID { c.moveLeader(tpT, 2); return 1 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			withCluster(t, 2, nil, func(t *testing.T, c *testCluster) {
				c.create(tpT, 1, 2)
				for i, value := range []string{"a", "b", "c"} {
					c.sends("batch "+value, sequenced(0, int32(i), value), cluster.None, int64(i))
				}
				next := tc.prepare(c)
				pass(20 * time.Second) // all are in sync again
				c.moveLeader(tpT, next)
				pass(time.Second)
				if c.leader(tpT) != c.brokers[next].m {
					t.Fatalf("broker %d does not lead", next)
				}
				c.sends("the last batch again", sequenced(0, 2, "c"), cluster.None, 2)
				if !tc.lastOnly {
					c.sends("the first batch again", sequenced(0, 0, "a"), cluster.None, 0)
				}
				c.sends("a batch after a gap", sequenced(0, 4, "e"), cluster.OutOfOrderSequenceNumber, -1)
				c.sends("the next batch", sequenced(0, 3, "d"), cluster.None, 3)
				c.sends("the first of a new epoch", sequenced(1, 0, "e"), cluster.None, 4)
				c.sends("one of the epoch before", sequenced(0, 4, "x"), cluster.InvalidProducerEpoch, -1)
				for id := cluster.BrokerID(1); id <= 2; id++ {
					if got := c.log(id, tpT); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
						t.Errorf("broker %d has %v", id, got)
					}
				}
			})
		})
	}
}

// diverge lets broker 1 take a batch that broker 2 does not have, and broker 2 lead without it.
func (c *testCluster) diverge() {
	c.kill(2, "kill", 0)
	c.sends("a batch that will be lost", sequenced(0, 3, "lost"), cluster.None, 3)
	c.kill(1, "kill", 0)
	c.mu.Lock()
	c.truth[tpT].state.ISR = []cluster.BrokerID{2} // an unclean election, which this controller does not make by itself
	c.mu.Unlock()
	c.boot(2)
	c.boot(1)
}
