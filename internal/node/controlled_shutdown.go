package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
)

// controlledShutdownVersion is what controllers of an inter.broker.protocol.version know; from 2 on the request has the
// broker epoch (Kafka: KafkaServer.controlledShutdown).
func controlledShutdownVersion(p config.ProtocolVersion) int16 {
	switch {
	case p.AtLeast(config.ProtocolVersion{Major: 2, Minor: 4, Step: 1}):
		return 3
	case p.AtLeast(config.ProtocolVersion{Major: 2, Minor: 2}):
		return 2
	}
	return 1
}

// First pause between two tries; it doubles. Kafka waits the whole controlled.shutdown.retry.backoff.ms each time; here
// retries times backoff is the time in all.
const controlledShutdownPause = 100 * time.Millisecond

// A broker is taken as alone when no follower has fetched for loneFetches times replica.fetch.wait.max.ms, which is how long
// the fetches of followers that are well wait at most: 500 ms by default.
const loneFetches = 3

// moveLeaderships asks the controller to hand this broker's partitions to others before it stops, so that clients lose
// no time (Kafka: KafkaServer.controlledShutdown). It is asked again while partitions remain, since a follower may
// yet catch up, and the broker stops regardless when the time is over, or nobody follows it. Until then it serves on: the
// controller sends it what it has to do.
func (b *broker) moveLeaderships(ctx context.Context) {
	if !b.cfg.ControlledShutdownEnable || !b.serving {
		return
	}
	if b.alone() {
		b.log.Info("no other broker is there to take leaderships over")
		return
	}
	began := time.Now()
	tries, last := movingTime(b.cfg)
	end := began.Add(tries)
	ctx, cancel := context.WithDeadline(ctx, began.Add(last))
	defer cancel()
	for pause := controlledShutdownPause; ; pause = min(2*pause, b.cfg.ControlledShutdownRetryBackoff) {
		remaining, err := b.askControlledShutdown(ctx)
		if err == nil && remaining == 0 {
			b.log.Info("leaderships moved to other brokers", "duration", time.Since(began))
			return
		}
		lone := b.alone() || time.Since(later(began, b.replicas.LastFollowerFetch())) > loneFetches*b.cfg.ReplicaFetchWaitMax
		if !time.Now().Add(pause).Before(end) || lone {
			b.log.Warn("stopping although this broker still leads partitions that others replicate",
				"partitions", remaining, "followed", !lone, "err", err)
			return
		}
		b.log.Info("not all leaderships could be moved, asking again", "partitions", remaining, "err", err)
		select {
		case <-time.After(pause):
		case <-b.reg.session().Done():
			return // it is no longer a broker of the cluster: nothing to move
		}
	}
}

// movingTime is for how long the broker asks, as configured, and when its last question ends. What the rest of a clean stop may take
// is kept free: a broker that waited longer would leave without the marks of one, and its session would have to expire.
func movingTime(c *config.Broker) (tries, last time.Duration) {
	const most = stopTimeout - stopReserve
	retries, pause := time.Duration(c.ControlledShutdownMaxRetries), c.ControlledShutdownRetryBackoff
	if tries = most; pause <= 0 || retries <= most/pause {
		tries = retries * pause
	}
	return tries, min(max(tries, pause), most)
}

// alone reports whether no other broker is registered.
func (b *broker) alone() bool {
	brokers := b.cache.Image().Brokers()
	return len(brokers) == 0 || len(brokers) == 1 && brokers[0].ID == b.cfg.ID
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// askControlledShutdown returns how many partitions with other replicas this broker still leads.
func (b *broker) askControlledShutdown(ctx context.Context) (int, error) {
	req := kmsg.NewPtrControlledShutdownRequest()
	req.Version = controlledShutdownVersion(b.cfg.InterBrokerProtocol)
	req.BrokerID, req.BrokerEpoch = int32(b.cfg.ID), int64(b.reg.epoch())
	// A controller that does not answer may be frozen: the next one is asked before the time for all tries is over.
	ctx, cancel := context.WithTimeout(ctx, min(b.cfg.ControllerSocketTimeout, b.cfg.ControlledShutdownRetryBackoff))
	defer cancel()
	answer, err := b.channel.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp, ok := answer.(*kmsg.ControlledShutdownResponse)
	if !ok {
		return 0, fmt.Errorf("the controller answered a %T", answer)
	}
	if code := cluster.ErrorCode(resp.ErrorCode); code != cluster.None {
		return 0, errors.New(code.String())
	}
	return len(resp.PartitionsRemaining), nil
}
