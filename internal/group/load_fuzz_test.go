package group

import (
	"testing"

	"klamm/internal/cluster"
)

// FuzzLoadRecord feeds bytes that may be anything: a log written by other brokers, or a damaged one. Nothing may panic,
// and the core must serve afterwards.
func FuzzLoadRecord(f *testing.F) {
	tp := cluster.TopicPartition{Topic: "t", Partition: 1}
	g := newGroup("g", 0)
	g.protocolType, g.protocol, g.generation = "consumer", "range", 3
	g.add(&member{id: "m", instance: "i", sessionTimeoutMs: 6000, protocols: []Protocol{{"range", subscription("a,b")}}})
	stored := groupRecord(g, map[string][]byte{"m": []byte("x")})
	f.Add(stored.Key, stored.Value)
	plain := offsetRecord("g", tp, offset{offset: 5, leaderEpoch: 1, metadata: "x", expires: -1})
	f.Add(plain.Key, plain.Value)
	old := offsetRecord("g", tp, offset{offset: 5, expires: 7})
	f.Add(old.Key, old.Value)
	f.Add([]byte{0, 3, 0}, []byte{0})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		c := New(Config{MaxSize: 10, MaxSessionTimeoutMs: 10_000})
		for _, ev := range []Event{
			LoadRecord{Key: key, Value: value}, LoadRecord{Key: key, Value: value, Txn: &Producer{ID: 1}}, LoadRecord{Key: key},
			LoadRecord{Key: key, Value: value}, TxnEnded{ProducerID: 1, Commit: true}, Loaded{}, ExpireOffsets{}, List{},
			Join{Group: "g", NewMemberID: "n", SessionTimeoutMs: 10, ProtocolType: "consumer", Protocols: []Protocol{{"range", nil}}},
			PartitionsDeleted{[]cluster.TopicPartition{tp}}, Unload{},
		} {
			c.Step(1, ev)
			s := script{core: c}
			s.check()
		}
	})
}
