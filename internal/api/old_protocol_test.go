package api

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

func withProtocol(version string) map[string]string {
	return map[string]string{"inter.broker.protocol.version": version}
}

// Below 3.0-IV0 controllers give no producer ids: brokers take blocks from the node, after the last of any broker, and not
// those of a block whose write has no known outcome.
func TestProducerIDsOfAnOldProtocolAreTakenFromTheirNode(t *testing.T) {
	inBubble(t, withProtocol("2.8"), func(b *testBroker) {
		b.put(coord.Set(coord.ProducerIDBlockPath, coord.EncodeProducerIDBlock(coord.ProducerIDBlock{Broker: 7, First: 3000, Last: 3999}), coord.AnyVersion))
		lost := false
		b.store.SetHook(func(c memstore.Call) memstore.Fault {
			writes := c.Method == "Multi" && slices.ContainsFunc(c.Ops, func(op coord.Op) bool { return op.Path == coord.ProducerIDBlockPath })
			first := writes && !lost
			lost = lost || writes
			return memstore.Fault{LoseAnswer: first}
		})
		ask := func() *kmsg.InitProducerIDResponse {
			return b.do(4, kmsg.NewPtrInitProducerIDRequest()).(*kmsg.InitProducerIDResponse)
		}
		if got := ask(); got.ErrorCode != int16(cluster.CoordinatorLoadInProgress) {
			t.Errorf("while no block is known: %+v", got)
		}
		for i := range int64(1500) {
			want := 5000 + i // 4000 to 4999 were taken and lost
			if got := ask(); got.ErrorCode != 0 || got.ProducerID != want {
				t.Fatalf("id %d: %+v", want, got)
			}
		}
		n, err := b.store.Get(b.ctx, coord.ProducerIDBlockPath)
		block, _, decodeErr := coord.DecodeProducerIDBlock(n.Data)
		if want := (coord.ProducerIDBlock{Broker: 0, First: 6000, Last: 6999}); err != nil || decodeErr != nil || block != want {
			t.Errorf("the node has %+v, %v, %v", block, err, decodeErr)
		}
		if n := b.ctl.blocks.Load(); n != 0 {
			t.Errorf("the controller was asked for %d blocks", n)
		}
	})
}

// Below 2.8-IV0 topics have no ids. A creation whose answer was lost is then known by its assignment.
func TestTopicsOfAnOldProtocolHaveNoIDs(t *testing.T) {
	inBubble(t, withProtocol("2.7"), func(b *testBroker) {
		b.brokersUp(0)
		b.store.SetHook(func(c memstore.Call) memstore.Fault {
			return memstore.Fault{LoseAnswer: slices.ContainsFunc(c.Ops, func(op coord.Op) bool { return strings.HasSuffix(op.Path, "/lost") })}
		})
		for _, name := range []string{"plain", "lost"} {
			got := b.do(7, createRequest(1000, newTopic(name, 2, 1))).(*kmsg.CreateTopicsResponse).Topics[0]
			if got.ErrorCode != 0 || cluster.TopicID(got.TopicID) != (cluster.TopicID{}) {
				t.Errorf("%s: %+v", name, got)
			}
			if n, err := b.store.Get(b.ctx, coord.TopicPath(name)); err != nil || strings.Contains(string(n.Data), "topic_id") {
				t.Errorf("%s is %s, %v", name, n.Data, err)
			}
		}
	})
}
