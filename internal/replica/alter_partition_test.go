package replica

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// scriptedController answers AlterPartition requests one after the other and keeps them with the times they came.
type scriptedController struct {
	mu      sync.Mutex
	answers []func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
	got     []*kmsg.AlterPartitionRequest
	at      []time.Time
}

func (c *scriptedController) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	r := req.(*kmsg.AlterPartitionRequest)
	c.mu.Lock()
	c.got, c.at = append(c.got, r), append(c.at, time.Now())
	var answer func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error)
	if len(c.answers) > 0 {
		answer, c.answers = c.answers[0], c.answers[1:]
	}
	c.mu.Unlock()
	if answer == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	resp, err := answer(r)
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (c *scriptedController) requests() []*kmsg.AlterPartitionRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// answerAll gives every partition of the request the code; with NONE its proposal and the next partition epoch.
func answerAll(code cluster.ErrorCode) func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	return func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
		resp := kmsg.NewPtrAlterPartitionResponse()
		resp.Version = req.Version
		for _, t := range req.Topics {
			topic := kmsg.NewAlterPartitionResponseTopic()
			topic.Topic, topic.TopidID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				a := kmsg.NewAlterPartitionResponseTopicPartition()
				a.Partition, a.ErrorCode, a.LeaderID, a.LeaderEpoch, a.PartitionEpoch = p.Partition, int16(code), req.BrokerID, p.LeaderEpoch, p.PartitionEpoch+1
				a.ISR = append(a.ISR, p.NewISR...)
				for _, e := range p.NewEpochISR {
					a.ISR = append(a.ISR, e.BrokerID)
				}
				topic.Partitions = append(topic.Partitions, a)
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil
	}
}

func answerTop(code cluster.ErrorCode) func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
	return func(req *kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
		resp := kmsg.NewPtrAlterPartitionResponse()
		resp.Version, resp.ErrorCode = req.Version, int16(code)
		return resp, nil
	}
}

type isrAnswer struct {
	State cluster.LeaderAndISR
	Code  cluster.ErrorCode
}

func TestISRChangesAreSentUntilTheyAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		controller := &scriptedController{answers: []func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error){
			func(*kmsg.AlterPartitionRequest) (*kmsg.AlterPartitionResponse, error) {
				return nil, errors.New("link down")
			},
			answerTop(cluster.NotController),
			answerAll(cluster.None),
		}}
		a := newAlterPartitions(Options{
			Config: Config{BrokerID: 1, ReplicaLagTimeMax: 30 * time.Second, Versions: DefaultVersions()}, Controller: controller, Log: slog.New(slog.DiscardHandler),
			BrokerEpoch: func() cluster.BrokerEpoch { return 44 },
		})
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { a.run(ctx); close(ended) }()
		start, id := time.Now(), cluster.NewTopicID()
		answers := map[cluster.TopicPartition]isrAnswer{}
		for i := range 2 {
			tp := testTP(i)
			a.submit(&alterPartitionItem{
				tp: tp, topicID: id, epochs: []cluster.BrokerEpoch{-1, 55},
				proposed: cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: []cluster.BrokerID{1, 2}, PartitionEpoch: 6, ControllerEpoch: 9},
				done:     func(s cluster.LeaderAndISR, code cluster.ErrorCode) { answers[tp] = isrAnswer{s, code} },
			})
		}
		<-time.After(time.Second)
		synctest.Wait()
		state := cluster.LeaderAndISR{Leader: 1, LeaderEpoch: 3, ISR: []cluster.BrokerID{1, 2}, PartitionEpoch: 7, ControllerEpoch: 9}
		want := map[cluster.TopicPartition]isrAnswer{testTP(0): {state, cluster.None}, testTP(1): {state, cluster.None}}
		if diff := cmp.Diff(want, answers); diff != "" {
			t.Errorf("answers (-want +got):\n%s", diff)
		}
		if len(controller.got) != 3 || controller.at[1].Sub(start) != alterPartitionRetry || controller.at[2].Sub(start) != 2*alterPartitionRetry {
			t.Errorf("%d requests, at %v", len(controller.got), controller.at)
		}
		wantReq := kmsg.NewPtrAlterPartitionRequest()
		wantReq.Version, wantReq.BrokerID, wantReq.BrokerEpoch = 3, 1, 44
		topic := kmsg.NewAlterPartitionRequestTopic()
		topic.Topic, topic.TopicID = "t", id
		for i := range 2 {
			p := kmsg.NewAlterPartitionRequestTopicPartition()
			p.Partition, p.LeaderEpoch, p.PartitionEpoch = int32(i), 3, 6
			for _, e := range [][2]int64{{1, -1}, {2, 55}} {
				isr := kmsg.NewAlterPartitionRequestTopicPartitionNewEpochISR()
				isr.BrokerID, isr.BrokerEpoch = int32(e[0]), e[1]
				p.NewEpochISR = append(p.NewEpochISR, isr)
			}
			topic.Partitions = append(topic.Partitions, p)
		}
		wantReq.Topics = append(wantReq.Topics, topic)
		if diff := cmp.Diff(wantReq, controller.got[2], cmpopts.IgnoreTypes(kmsg.Tags{})); diff != "" {
			t.Errorf("request (-want +got):\n%s", diff)
		}
		stop()
		<-ended
	})
}

func TestISRChangesOfTopicsWithoutIDGoByName(t *testing.T) {
	a := newAlterPartitions(Options{Config: Config{Versions: DefaultVersions()}, BrokerEpoch: func() cluster.BrokerEpoch { return 1 }})
	batch := map[cluster.TopicPartition]*alterPartitionItem{
		testTP(0):    {tp: testTP(0), topicID: cluster.NewTopicID(), proposed: cluster.LeaderAndISR{ISR: []cluster.BrokerID{4}}},
		{Topic: "u"}: {tp: cluster.TopicPartition{Topic: "u"}, proposed: cluster.LeaderAndISR{ISR: []cluster.BrokerID{5}}},
	}
	req := a.request(batch)
	if req.Version != 1 || len(req.Topics) != 2 || req.Topics[1].Topic != "u" || !cmp.Equal(req.Topics[1].Partitions[0].NewISR, []int32{5}) {
		t.Errorf("request %+v", req)
	}
}

func TestANewerISRChangeReplacesAWaitingOne(t *testing.T) {
	a := newAlterPartitions(Options{Config: Config{Versions: DefaultVersions()}, BrokerEpoch: func() cluster.BrokerEpoch { return 1 }})
	older, newer := &alterPartitionItem{tp: testTP(0)}, &alterPartitionItem{tp: testTP(0)}
	a.submit(older)
	flying := a.take()
	a.submit(newer)
	a.putBack(flying)
	if got := a.take()[testTP(0)]; got != newer {
		t.Error("the older change came back")
	}
}
