package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
)

// controlledShutdownVersion is the version that carries the broker epoch.
const controlledShutdownVersion = 3

// moveLeaderships asks the controller to hand this broker's partitions to others before it stops, so that clients lose
// no time (Kafka: KafkaServer.controlledShutdown). It is asked again while partitions remain, and the broker stops
// regardless after the last try. Until then it serves on: the controller sends it what it has to do.
func (b *broker) moveLeaderships(ctx context.Context) {
	if !b.cfg.ControlledShutdownEnable || !b.serving {
		return
	}
	began := time.Now()
	for try := 0; ; try++ {
		remaining, err := b.askControlledShutdown(ctx)
		switch {
		case err == nil && remaining == 0:
			b.log.Info("leaderships moved to other brokers", "duration", time.Since(began))
			return
		case ctx.Err() != nil || try >= b.cfg.ControlledShutdownMaxRetries || !b.othersAlive():
			b.log.Warn("stopping although this broker still leads partitions that others replicate", "partitions", remaining, "err", err)
			return
		}
		b.log.Info("not all leaderships could be moved, asking again", "partitions", remaining, "err", err)
		select {
		case <-time.After(b.cfg.ControlledShutdownRetryBackoff):
		case <-ctx.Done():
		case <-b.reg.session().Done():
			return // it is no longer a broker of the cluster: nothing to move
		}
	}
}

// askControlledShutdown returns how many partitions with other replicas this broker still leads.
func (b *broker) askControlledShutdown(ctx context.Context) (int, error) {
	req := kmsg.NewPtrControlledShutdownRequest()
	req.Version = controlledShutdownVersion
	req.BrokerID, req.BrokerEpoch = int32(b.cfg.ID), int64(b.reg.epoch())
	ctx, cancel := context.WithTimeout(ctx, b.cfg.ControllerSocketTimeout)
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

// othersAlive reports whether any other broker could take a partition over.
func (b *broker) othersAlive() bool { return anotherBroker(b.cache.Image(), b.cfg.ID) }

func anotherBroker(im *metadata.Image, self cluster.BrokerID) bool {
	for _, o := range im.Brokers() {
		if o.ID != self {
			return true
		}
	}
	return false
}
