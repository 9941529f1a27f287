package replica

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/record"
)

// readAll reads a whole log's record values.
func readAll(t testing.TB, log *commitlog.Log) []string {
	t.Helper()
	var out []string
	for offset := log.LogStartOffset(); offset < log.LogEndOffset(); {
		res, err := log.Read(offset, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOneMessage: true})
		if err != nil {
			t.Fatal(err)
		}
		raw := make([]byte, res.Records.Len())
		if _, err := res.Records.ReadInto(raw); err != nil {
			t.Fatal(err)
		}
		res.Records.Release()
		for len(raw) > 0 {
			batch, rest, err := record.NextBatch(raw)
			if err != nil {
				break
			}
			raw = rest
			_ = batch.ForEach(0, func(r *record.Record) error {
				if r.Offset >= offset {
					out = append(out, string(r.Value))
				}
				return nil
			})
			offset = batch.NextOffset()
		}
	}
	return out
}

// pendingAck is a produce with acks -1 whose answer is looked at later.
type pendingAck struct {
	tp     cluster.TopicPartition
	values []string
	answer *answer[AppendResult]
}

// model drives a cluster at random and remembers what was promised.
type model struct {
	c     *testCluster
	rng   *rand.Rand
	tps   []cluster.TopicPartition
	acks  []pendingAck
	seen  map[cluster.TopicPartition]map[int64]string // records that a consumer was given, by offset
	count int
	down  cluster.BrokerID // at most one broker is down; 0: none
	off   bool             // it runs, cut off from the others, and has clients of its own
	inSeq map[cluster.TopicPartition]*seqProducer
}

// seqProducer is an idempotent producer with one batch in flight, which it sends again until it is acknowledged.
type seqProducer struct {
	acked int32 // batches, of one record each; also the sequence of the next
	open  *answer[AppendResult]
	epoch cluster.LeaderEpoch // of the latest leader it knew: clients do not go back to an earlier one (KIP-320)
}

func (m *model) step() {
	tp := m.tps[m.rng.IntN(len(m.tps))]
	switch n := m.rng.IntN(100); {
	case n < 35:
		m.produce(tp)
	case n < 55:
		m.produceInSequence(tp)
	case n < 75:
		m.consume(tp)
	case n < 83:
		m.c.moveLeader(tp, cluster.BrokerID(1+m.rng.IntN(3)))
	case n < 87:
		m.c.mu.Lock()
		m.c.loseAlters = 1
		m.c.mu.Unlock()
	case n < 90 && m.down == 0:
		m.down, m.off = cluster.BrokerID(1+m.rng.IntN(3)), true
		m.c.cut(m.down)
		if m.rng.IntN(2) == 0 {
			m.produce(tp)
			pass(20 * time.Second) // its followers, which went to another leader, lag behind it
		}
	case n < 93 && m.down == 0:
		m.down = cluster.BrokerID(1 + m.rng.IntN(3))
		m.c.kill(m.down, []string{"clean", "kill", "power"}[m.rng.IntN(3)], m.rng.Uint64())
	case n < 100 && m.down != 0:
		m.up()
		// The ISR is whole again before the next broker goes: what only a dead broker has is lost by right.
		pass(20 * time.Second)
	}
	if m.rng.IntN(3) == 0 {
		pass(time.Duration(m.rng.IntN(800)) * time.Millisecond)
	}
}

// up brings back the broker that is down or cut off.
func (m *model) up() {
	if m.off {
		m.c.join(m.down)
	} else {
		m.c.boot(m.down)
	}
	m.down, m.off = 0, false
}

// leader is whom a client takes for the leader: one on the side of a broker that is cut off may find that one.
func (m *model) leader(tp cluster.TopicPartition) *Manager {
	if m.off && m.rng.IntN(2) == 0 {
		if b := m.c.brokers[m.down].m; b != nil {
			if p, _ := b.Partition(tp); p != nil && p.State().IsLeader {
				return b
			}
		}
	}
	return m.c.leader(tp)
}

func (m *model) produce(tp cluster.TopicPartition) {
	var values []string
	for range 1 + m.rng.IntN(3) {
		m.count++
		values = append(values, fmt.Sprintf("%s/%d", tp, m.count))
	}
	acks := int16(-1)
	if m.rng.IntN(5) == 0 {
		acks = 1
	}
	a := &answer[AppendResult]{}
	if leader := m.leader(tp); leader != nil {
		leader.Append(AppendRequest{Acks: acks, Timeout: 30 * time.Second, Partitions: []AppendPartition{{TP: tp, Records: testBatch(values...)}}}, a.set)
	}
	if acks == -1 {
		m.acks = append(m.acks, pendingAck{tp, values, a})
	}
}

// produceInSequence looks at what became of the batch in flight, and sends it again or the next one.
func (m *model) produceInSequence(tp cluster.TopicPartition) {
	p := m.inSeq[tp]
	if p == nil {
		p = &seqProducer{}
		m.inSeq[tp] = p
	}
	if p.open != nil {
		r, done := p.open.result()
		switch {
		case !done:
			return
		case r.Err == cluster.None:
			p.acked++
		case r.Err == cluster.OutOfOrderSequenceNumber || r.Err == cluster.InvalidProducerEpoch:
			m.c.t.Errorf("%s: batch %d was refused with %v, though all before it were acknowledged", tp, p.acked, r.Err)
		}
		p.open = nil
	}
	leader := m.leader(tp)
	if leader == nil {
		return
	}
	hosted, _ := leader.Partition(tp)
	if hosted == nil {
		return
	}
	if _, epoch := hosted.leadership(); epoch >= p.epoch {
		p.epoch, p.open = epoch, &answer[AppendResult]{}
		leader.Append(AppendRequest{Acks: -1, Timeout: 5 * time.Second, Partitions: []AppendPartition{
			{TP: tp, Records: sequenced(0, p.acked, fmt.Sprint(sequencePrefix, p.acked))}}}, p.open.set)
	}
}

// sequencePrefix marks the records of idempotent producers.
const sequencePrefix = "in sequence "

// checkSequence wants the records of a partition's idempotent producer once each, in order, and all that were acknowledged.
func (m *model) checkSequence(t *testing.T, tp cluster.TopicPartition, log []string) {
	p := m.inSeq[tp]
	if p == nil {
		return
	}
	next := int32(0)
	for offset, v := range log {
		if !strings.HasPrefix(v, sequencePrefix) {
			continue
		}
		if want := fmt.Sprint(sequencePrefix, next); v != want {
			t.Errorf("%s has %q at offset %d, want %q", tp, v, offset, want)
			return
		}
		next++
	}
	acked := p.acked
	if p.open != nil {
		if r, done := p.open.result(); done && r.Err == cluster.None {
			acked++
		}
	}
	if next < acked || next > acked+1 {
		t.Errorf("%s has %d records in sequence, %d were acknowledged", tp, next, acked)
	}
}

// consume reads everything that the leader shows and checks it against what was shown before.
func (m *model) consume(tp cluster.TopicPartition) {
	leader := m.leader(tp)
	if leader == nil {
		return
	}
	leader.Fetch(FetchRequest{ReplicaID: -1, MinBytes: 1, MaxBytes: 1 << 20, Partitions: []FetchPartition{fetchPart(tp, 0)}}, func(rs []FetchResult) {
		if rs[0].Err != cluster.None {
			return
		}
		for i, v := range values(m.c.t, rs[0]) {
			if old, known := m.seen[tp][int64(i)]; known && old != v {
				m.c.t.Errorf("%s offset %d was %q, is %q", tp, i, old, v)
			}
			m.seen[tp][int64(i)] = v
		}
	})
}

// check compares the logs of all brokers with each other and with the promises.
func (m *model) check(t *testing.T) {
	acked := 0
	for _, tp := range m.tps {
		want := m.c.log(1, tp)
		for id := cluster.BrokerID(2); id <= 3; id++ {
			if got := m.c.log(id, tp); !slices.Equal(got, want) {
				t.Errorf("%s differs: broker %d has %v, broker 1 %v", tp, id, got, want)
			}
		}
		m.checkSequence(t, tp, want)
		for offset, v := range m.seen[tp] {
			if offset >= int64(len(want)) || want[offset] != v {
				t.Errorf("%s offset %d was read as %q and is gone or changed", tp, offset, v)
			}
		}
		if isr := m.c.isr(tp); len(isr) != 3 {
			t.Errorf("%s has ISR %v", tp, isr)
		}
	}
	for _, p := range m.acks {
		r, done := p.answer.result()
		if !done || r.Err != cluster.None {
			continue
		}
		acked++
		log := m.c.log(1, p.tp)
		if end := r.BaseOffset + int64(len(p.values)); end > int64(len(log)) || !slices.Equal(log[r.BaseOffset:end], p.values) {
			t.Errorf("acknowledged %v at offset %d of %s is lost", p.values, r.BaseOffset, p.tp)
		}
	}
	if acked == 0 {
		t.Error("nothing was acknowledged")
	}
}

var (
	modelSeed  = flag.Uint64("model.seed", 0, "first seed of the replication model")
	modelSeeds = flag.Uint64("model.seeds", 16, "how many seeds the replication model runs")
)

// TestNothingAcknowledgedIsLost moves leaders, kills brokers in three ways, cuts them off with clients of their own, and loses the controller's
// answers, by seed. Beside plain producers there is an idempotent one per partition, whose records are to be there once and in order.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	for seed := *modelSeed; seed < *modelSeed+*modelSeeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newTestCluster(t, 3)
				c.minISR = 1 + int(seed/4%2) // with 1, a leader alone would do if the controller agreed
				if seed%4 == 3 {
					c.versions = Versions{Fetch: 11, ListOffsets: 5, OffsetForLeaderEpoch: 3, AlterPartition: 3}
				}
				for id := cluster.BrokerID(1); id <= 3; id++ {
					c.boot(id)
				}
				m := &model{c: c, rng: rand.New(rand.NewPCG(seed, 1)), seen: map[cluster.TopicPartition]map[int64]string{}, inSeq: map[cluster.TopicPartition]*seqProducer{}}
				for i := range 3 {
					tp := testTP(i)
					m.tps = append(m.tps, tp)
					m.seen[tp] = map[int64]string{}
					c.create(tp, int32(1+i%3), int32(1+(i+1)%3), int32(1+(i+2)%3))
				}
				for range 120 {
					m.step()
				}
				if m.down != 0 {
					m.up()
				}
				pass(2 * time.Minute)
				m.check(t)
				c.stopAll()
			})
		})
	}
}
