package driver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

func (b *testBroker) elect(version int16, kind int8, topic string, partitions ...int32) *kmsg.ElectLeadersResponse {
	b.c.t.Helper()
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version, req.ElectionType = version, kind
	req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: partitions}}
	var answer *kmsg.ElectLeadersResponse
	b.ElectLeaders(context.Background(), req, func(resp *kmsg.ElectLeadersResponse, _ map[cluster.TopicPartition]cluster.BrokerID) {
		answer = resp
	})
	synctest.Wait()
	if answer == nil {
		b.c.t.Fatal("no answer")
	}
	return answer
}

// leadElsewhere makes t-0, whose first replica is 2, led by 1 with both in the ISR.
func (c *testCluster) leadElsewhere() {
	c.t.Helper()
	s, _ := c.state("t", 0)
	s.Leader, s.LeaderEpoch = 1, s.LeaderEpoch+1
	_, err := c.admin.Multi(context.Background(), coord.Set(coord.PartitionStatePath(cluster.TopicPartition{Topic: "t"}), coord.EncodePartitionState(s), coord.AnyVersion))
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.admin.Multi(context.Background(), coord.CreateSequential(coord.ISRChangePrefix, coord.EncodeISRChange([]cluster.TopicPartition{{Topic: "t"}}))); err != nil {
		c.t.Fatal(err)
	}
	synctest.Wait()
}

func TestLeadersAreElectedByRequest(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one, two := c.startTwo()
		c.createTopic("t", on21)
		synctest.Wait()
		c.leadElsewhere()
		for _, b := range []*testBroker{one, two} {
			resp := b.elect(2, 0, "t", 0, 7)
			codes := [2]cluster.ErrorCode{}
			for i, p := range resp.Topics[0].Partitions {
				codes[i] = cluster.ErrorCode(p.ErrorCode)
			}
			want := [2]cluster.ErrorCode{cluster.None, cluster.UnknownTopicOrPartition}
			if b == two {
				want = [2]cluster.ErrorCode{cluster.NotController, cluster.NotController}
			}
			if codes != want {
				t.Errorf("broker %d answers %v", b.id, codes)
			}
		}
		if s, _ := c.state("t", 0); s.Leader != 2 {
			t.Errorf("t-0 is %v", s)
		}
		one.expectTopic("t", 1)
	})
}

// W2: the node of old tools is worked off and removed, also when one of its partitions never had a leader.
func TestPreferredElectionsOfOldToolsAreWorkedOff(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		c.startTwo()
		c.createTopic("t", on21)
		c.createTopic("leaderless", []cluster.BrokerID{9})
		synctest.Wait()
		c.leadElsewhere()
		node := coord.EncodePreferredElection([]cluster.TopicPartition{{Topic: "leaderless"}, {Topic: "t"}})
		if _, err := c.admin.Multi(t.Context(), coord.Create(coord.PreferredElectionPath, node)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s, _ := c.state("t", 0); s.Leader != 2 {
			t.Errorf("t-0 is %v", s)
		}
		if _, err := c.admin.Get(t.Context(), coord.PreferredElectionPath); !errors.Is(err, coord.ErrNoNode) {
			t.Errorf("the node is still there: %v", err)
		}
		if _, epoch := c.controllerNode(); epoch != 1 {
			t.Errorf("the controller epoch is %d", epoch)
		}
	})
}

func TestLeadersGoBackToTheirPreferredReplicaByThemselves(t *testing.T) {
	bubble(t, func(t *testing.T, c *testCluster) {
		one := c.addBroker(1, brokerOptions{config: func(cfg *Config) {
			cfg.AutoLeaderRebalance, cfg.LeaderImbalanceCheck, cfg.LeaderImbalancePercentage = true, time.Minute, 10
		}}).run()
		defer one.stop()
		synctest.Wait()
		two := c.start(2)
		defer two.stop()
		synctest.Wait()
		c.createTopic("t", on21)
		synctest.Wait()
		c.leadElsewhere()
		advance(2 * time.Minute)
		if s, _ := c.state("t", 0); s.Leader != 2 {
			t.Errorf("t-0 is %v", s)
		}
	})
}
