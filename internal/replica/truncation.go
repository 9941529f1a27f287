package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
)

// truncationOffset says where a follower's log is to be cut, given the largest epoch of the leader's log that is not
// above the follower's last one, and that epoch's end (Kafka: AbstractFetcherThread.getOffsetTruncationState). done is
// false when the follower lacks that epoch: it cuts back to its own largest below it and asks again.
func truncationOffset(log *commitlog.Log, leader EpochEndOffset, fallback int64) (offset int64, done bool) {
	end := log.LogEndOffset()
	if leader.EndOffset < 0 {
		return fallback, true // the leader knows no such epoch: only what is committed is safe
	}
	if leader.LeaderEpoch == cluster.NoLeaderEpoch {
		return min(leader.EndOffset, end), true
	}
	epoch, own := log.OffsetForLeaderEpoch(leader.LeaderEpoch)
	switch {
	case own < 0:
		return min(leader.EndOffset, end), true
	case epoch != leader.LeaderEpoch:
		return min(own, end), false
	default:
		return min(own, leader.EndOffset, end), true
	}
}

// truncate cuts the partition's log where it leaves the leader's and goes on fetching from there.
func (f *fetcher) truncate(part *followed, leader EpochEndOffset) {
	var offset int64
	var done, cut bool
	var last cluster.LeaderEpoch
	err := part.p.asFollower(part.epoch, func(log *commitlog.Log) (err error) {
		offset, done = truncationOffset(log, leader, log.HighWatermark())
		if offset < log.HighWatermark() {
			f.m.log.Warn("log is cut below its high watermark", "topic", part.tp.Topic, "partition", part.tp.Partition, "offset", offset, "high_watermark", log.HighWatermark())
		}
		if cut, err = log.TruncateTo(offset); err != nil {
			return err
		}
		offset, last = log.LogEndOffset(), f.lastEpoch(log)
		return nil
	})
	if errors.Is(err, errNotFollowing) {
		return
	}
	if err != nil {
		f.failed(part, "log not truncated", err)
		return
	}
	if cut {
		f.m.log.Info("log truncated to the leader's", "topic", part.tp.Topic, "partition", part.tp.Partition, "leader", f.key.leader, "offset", offset)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	part.offset, part.lastEpoch = offset, last
	part.truncating = !done && !f.m.cfg.Versions.TruncationOnFetch
}

// lastEpoch is what the next fetch says of the log's last record: nothing unless divergence is found by fetching.
func (f *fetcher) lastEpoch(log *commitlog.Log) cluster.LeaderEpoch {
	if epoch, known := log.LatestEpoch(); known && f.m.cfg.Versions.TruncationOnFetch {
		return epoch
	}
	return cluster.NoLeaderEpoch
}

func (f *fetcher) failed(part *followed, what string, err error) {
	f.m.counters.fetcherErrors.Add(1)
	f.m.log.Error(what, "topic", part.tp.Topic, "partition", part.tp.Partition, "err", err)
	f.delay(part, f.m.cfg.FetchBackoff, false)
}

// truncateDue finds, before their first fetch, where partitions leave the leader's log: by asking for the end of their
// last epoch (inter.broker.protocol.version below 2.7), or by their high watermark when they have no epochs.
func (f *fetcher) truncateDue(ctx context.Context) error {
	var ask []*followed
	var epochs []cluster.LeaderEpoch
	for _, part := range f.truncating(time.Now()) {
		log := part.p.Log()
		if log == nil {
			continue
		}
		if epoch, known := log.LatestEpoch(); known {
			ask, epochs = append(ask, part), append(epochs, epoch)
			continue
		}
		f.truncate(part, EpochEndOffset{LeaderEpoch: cluster.NoLeaderEpoch, EndOffset: -1})
	}
	if len(ask) == 0 {
		return nil
	}
	return f.askEpochEnds(ctx, ask, epochs)
}

func (f *fetcher) truncating(now time.Time) []*followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*followed
	for _, part := range f.mu.order {
		if part.truncating && !part.notBefore.After(now) {
			out = append(out, part)
		}
	}
	return out
}

func (f *fetcher) askEpochEnds(ctx context.Context, ask []*followed, epochs []cluster.LeaderEpoch) error {
	if err := f.connect(ctx); err != nil {
		return err
	}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.Version, req.ReplicaID = f.m.cfg.Versions.OffsetForLeaderEpoch, int32(f.m.cfg.BrokerID)
	byTP := map[cluster.TopicPartition]*followed{}
	at := map[string]int{}
	for i, part := range ask {
		byTP[part.tp] = part
		t, known := at[part.tp.Topic]
		if !known {
			t = len(req.Topics)
			at[part.tp.Topic] = t
			topic := kmsg.NewOffsetForLeaderEpochRequestTopic()
			topic.Topic = part.tp.Topic
			req.Topics = append(req.Topics, topic)
		}
		p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = part.tp.Partition, int32(part.epoch), int32(epochs[i])
		req.Topics[t].Partitions = append(req.Topics[t].Partitions, p)
	}
	answer, err := f.ask(ctx, req)
	if err != nil {
		return err
	}
	resp, ok := answer.(*kmsg.OffsetForLeaderEpochResponse)
	if !ok {
		return fmt.Errorf("answer of broker %d is no epoch response", f.key.leader)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if part := byTP[cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}]; part != nil {
				f.epochEnd(part, &p)
			}
		}
	}
	return nil
}

func (f *fetcher) epochEnd(part *followed, p *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	switch code := cluster.ErrorCode(p.ErrorCode); code {
	case cluster.None:
		f.truncate(part, EpochEndOffset{LeaderEpoch: cluster.LeaderEpoch(p.LeaderEpoch), EndOffset: p.EndOffset})
	case cluster.FencedLeaderEpoch:
		f.delay(part, fencedPause*f.m.cfg.FetchBackoff, true)
	default:
		f.refused(part)
	}
}

func (f *fetcher) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, f.m.cfg.SocketTimeout)
	defer cancel()
	return f.conn.Request(ctx, req)
}

// restart finds a new offset for a partition whose offset the leader does not have (Kafka: fetchOffsetAndTruncate).
// A leader that ends before this log was elected uncleanly: the log is cut to its end. A leader that starts behind this
// log's end has deleted what lies between: the log starts anew there.
func (f *fetcher) restart(ctx context.Context, part *followed) {
	end, code, err := f.leaderOffset(ctx, part, LatestTimestamp)
	var start int64
	if err == nil && code == cluster.None {
		start, code, err = f.leaderOffset(ctx, part, EarliestTimestamp)
	}
	switch {
	case err != nil:
		f.failed(part, "leader's offsets not known", err)
		return
	case code == cluster.FencedLeaderEpoch:
		f.delay(part, fencedPause*f.m.cfg.FetchBackoff, true)
		return
	case code != cluster.None:
		f.refused(part)
		return
	}
	var offset int64
	var last cluster.LeaderEpoch
	err = part.p.asFollower(part.epoch, func(log *commitlog.Log) (err error) {
		switch own := log.LogEndOffset(); {
		case end < own:
			_, err = log.TruncateTo(end)
		case start > own:
			err = log.TruncateFullyAndStartAt(start)
		}
		offset, last = log.LogEndOffset(), f.lastEpoch(log)
		return err
	})
	if errors.Is(err, errNotFollowing) {
		return
	}
	if err != nil {
		f.failed(part, "log not set back to the leader's range", err)
		return
	}
	if offset == part.offset {
		// It is in the leader's range: the leader does not know the epoch of the last record here, as when the cluster's state was
		// restored from an old copy. Asking at once would give the same answer (Kafka does).
		f.refused(part)
		return
	}
	f.m.log.Info("fetch offset set back to the leader's range", "topic", part.tp.Topic, "partition", part.tp.Partition, "leader", f.key.leader, "offset", offset)
	f.mu.Lock()
	defer f.mu.Unlock()
	part.offset, part.lastEpoch = offset, last
}

// leaderOffset asks the leader for its latest or earliest offset.
func (f *fetcher) leaderOffset(ctx context.Context, part *followed, timestamp int64) (int64, cluster.ErrorCode, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = f.m.cfg.Versions.ListOffsets, int32(f.m.cfg.BrokerID)
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = part.tp.Topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = part.tp.Partition, int32(part.epoch), timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	answer, err := f.ask(ctx, req)
	if err != nil {
		return 0, 0, err
	}
	resp, ok := answer.(*kmsg.ListOffsetsResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, 0, fmt.Errorf("answer of broker %d is no list offsets response for one partition", f.key.leader)
	}
	got := resp.Topics[0].Partitions[0]
	return got.Offset, cluster.ErrorCode(got.ErrorCode), nil
}
