package driver

import (
	"context"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/wire"
	"klamm/internal/wire/wiretest"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// fakeBroker is a broker's control face on an in-memory network: it decodes the real requests, keeps them, and answers
// as reply says (by default: everything went well).
type fakeBroker struct {
	t    testing.TB
	id   cluster.BrokerID
	net  *wiretest.Net
	stop func()

	mu struct {
		sync.Mutex
		got   []kmsg.Request
		hold  bool // keep requests unanswered
		held  []*wire.Request
		reply func(kmsg.Request) kmsg.Response // called under mu; nil result: close the connection
	}
}

func address(id cluster.BrokerID) string { return "broker-" + strconv.Itoa(int(id)) + ":9092" }

func endpointOf(id cluster.BrokerID) cluster.Endpoint {
	host, port, _ := net.SplitHostPort(address(id))
	n, _ := strconv.Atoi(port)
	return cluster.Endpoint{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: host, Port: int32(n)}
}

func brokerOf(id cluster.BrokerID) cluster.Broker {
	return cluster.Broker{ID: id, Endpoints: []cluster.Endpoint{endpointOf(id)}}
}

// dialer opens real inter-broker connections over the in-memory network.
func dialer(n *wiretest.Net, from cluster.BrokerID) func(context.Context, string) (Conn, error) {
	return func(ctx context.Context, addr string) (Conn, error) {
		c, err := wire.Dial(ctx, addr, wire.ClientConfig{Dial: n.Dial, ClientID: strconv.Itoa(int(from))})
		if err != nil {
			return nil, err
		}
		return c, nil
	}
}

func newFakeBroker(t testing.TB, n *wiretest.Net, id cluster.BrokerID) *fakeBroker {
	b := &fakeBroker{t: t, id: id, net: n}
	b.mu.reply = allWell
	return b
}

// start begins to listen; the returned broker is stopped by b.stop.
func (b *fakeBroker) start() *fakeBroker {
	b.t.Helper()
	l, err := b.net.Listen(address(b.id))
	if err != nil {
		b.t.Fatal(err)
	}
	table := wire.NewAPITable()
	table.Serve(4, 0, 7, wire.InterBrokerOnly)
	table.Serve(5, 0, 4, wire.InterBrokerOnly)
	table.Serve(6, 0, 8, wire.InterBrokerOnly)
	srv, err := wire.NewServer(wire.ServerConfig{
		Listeners: []wire.Listener{{Name: "PLAINTEXT", Net: l, InterBroker: true}},
		API:       table, Handler: wire.HandlerFunc(b.handle), Log: quiet(),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := srv.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	b.stop = func() { cancel(); <-ended }
	return b
}

func (b *fakeBroker) handle(_ context.Context, r *wire.Request) {
	b.mu.Lock()
	b.mu.got = append(b.mu.got, r.Msg)
	if b.mu.hold {
		b.mu.held = append(b.mu.held, r)
		b.mu.Unlock()
		return
	}
	resp := b.mu.reply(r.Msg)
	b.mu.Unlock()
	b.respond(r, resp)
}

func (b *fakeBroker) respond(r *wire.Request, resp kmsg.Response) {
	if resp == nil {
		r.Close("told to", nil)
		return
	}
	r.Respond(resp, 0)
}

// setHold makes the broker keep requests; unset, it answers those that it kept.
func (b *fakeBroker) setHold(hold bool) {
	b.mu.Lock()
	b.mu.hold = hold
	held := b.mu.held
	b.mu.held = nil
	answers := make([]kmsg.Response, len(held))
	for i, r := range held {
		answers[i] = b.mu.reply(r.Msg)
	}
	b.mu.Unlock()
	for i, r := range held {
		b.respond(r, answers[i])
	}
}

func (b *fakeBroker) setReply(f func(kmsg.Request) kmsg.Response) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.reply = f
}

// take returns the requests that arrived since the last take.
func (b *fakeBroker) take() []kmsg.Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.mu.got
	b.mu.got = nil
	return out
}

// allWell answers without an error for every partition named.
func allWell(req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind()
	switch req := req.(type) {
	case *kmsg.LeaderAndISRRequest:
		out := resp.(*kmsg.LeaderAndISRResponse)
		for _, p := range req.PartitionStates {
			rp := kmsg.NewLeaderAndISRResponseTopicPartition()
			rp.Topic, rp.Partition = p.Topic, p.Partition
			out.Partitions = append(out.Partitions, rp)
		}
		for _, t := range req.TopicStates {
			rt := kmsg.NewLeaderAndISRResponseTopic()
			rt.TopicID = t.TopicID
			for _, p := range t.PartitionStates {
				rp := kmsg.NewLeaderAndISRResponseTopicPartition()
				rp.Topic, rp.Partition = t.Topic, p.Partition
				rt.Partitions = append(rt.Partitions, rp)
			}
			if req.Version < 5 {
				out.Partitions = append(out.Partitions, rt.Partitions...)
			} else {
				out.Topics = append(out.Topics, rt)
			}
		}
	case *kmsg.StopReplicaRequest:
		out := resp.(*kmsg.StopReplicaResponse)
		add := func(topic string, partition int32) {
			p := kmsg.NewStopReplicaResponsePartition()
			p.Topic, p.Partition = topic, partition
			out.Partitions = append(out.Partitions, p)
		}
		for _, t := range req.Topics {
			if req.Version == 0 {
				add(t.Topic, t.Partition)
			}
			for _, p := range t.Partitions {
				add(t.Topic, p)
			}
			for _, p := range t.PartitionStates {
				add(t.Topic, p.Partition)
			}
		}
	}
	return resp
}
