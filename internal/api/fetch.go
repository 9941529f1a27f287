package api

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/quota"
	"klamm/internal/replica"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// Fetch, key 1, versions 0-18.
//
// From consumers, who need READ on each topic, and followers alike; a replica id of 0 or more is a follower, needs
// CLUSTER_ACTION and belongs on the inter-broker listener.
// The partitions are those of the fetch session (KIP-227) with the request's changes. A partition that this broker's
// metadata does not have is answered at once, together with what the others have now, instead of after the long poll:
// consumers of a deleted topic learn it quickly.
//
//	v0   message sets of magic 0, v2 of magic 1: the log's batches are converted down when the answer is written, unless the
//	     topic's message.downconversion.enable is off (UNSUPPORTED_VERSION). Before v3 max.bytes is a hard limit, and
//	     what is cut off tells the client to ask for more
//	v4   batches of magic 2, isolation levels
//	v5   log start offset; before v6 a storage error is told as NOT_LEADER_OR_FOLLOWER, which those clients know
//	v7   sessions
//	v9   current leader epoch
//	v10  zstd: topics with compression.type=zstd answer UNSUPPORTED_COMPRESSION_TYPE before (KIP-110)
//	v11  rack; consumers may read from followers, but none is ever recommended
//	v12  last fetched epoch, diverging epochs
//	v13  topics by id: UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID
//	v15  replica state with the follower's broker epoch
//	v16  the current leader beside NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH
//	v17  directory ids, v18 the consumer's high watermark: not used
func (h *Handlers) handleFetch(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.FetchRequest)
	im := h.d.Cache.Image()
	nameOf := func(id cluster.TopicID) (string, bool) { return h.d.Replicas.TopicName(im, id) }
	replicaID, replicaEpoch := cluster.BrokerID(req.ReplicaID), cluster.NoBrokerEpoch
	if req.Version >= 15 {
		replicaID, replicaEpoch = cluster.BrokerID(req.ReplicaState.ID), cluster.BrokerEpoch(req.ReplicaState.Epoch)
	}
	session := h.sessions.Begin(replica.FetchSessionRequest{
		Version:    req.Version,
		SessionID:  req.SessionID,
		Epoch:      req.SessionEpoch,
		Follower:   replicaID >= 0,
		Partitions: fetchPartitions(req, nameOf),
		Forgotten:  forgottenPartitions(req, nameOf),
		TopicName:  nameOf,
	})
	if code := session.Err(); code != cluster.None {
		r.Respond(&wire.FetchResponse{ErrorCode: int16(code)}, 0)
		return
	}
	f := &fetchAnswer{h: h, r: r, version: req.Version, session: session, partitions: session.Partitions()}
	f.results = make([]replica.FetchResult, len(f.partitions))
	isBroker := replicaID >= 0 && r.Conn.InterBroker() && h.allowedOnCluster(r, acl.ClusterAction)
	ask := replica.FetchRequest{
		ReplicaID:    replicaID,
		ReplicaEpoch: replicaEpoch,
		MaxWait:      time.Duration(req.MaxWaitMillis) * time.Millisecond,
		Isolation:    replica.Isolation(req.IsolationLevel),
		HardMaxBytes: req.Version < 3,
		FollowersToo: req.Version >= 11,
		MaxBytes:     min(req.MaxBytes, int32(h.d.Config.Broker().FetchMaxBytes)),
	}
	f.client, f.limited = clientOf(r), replicaID < 0
	if most, ok := h.d.Quotas.WindowMax(quota.Fetch, f.client); ok && f.limited {
		// More at once would be throttled for certain, however long the client was quiet before.
		most = max(1, most-float64(fetchAnswerBytes+fetchPartitionBytes*len(f.partitions)))
		ask.MaxBytes = int32(min(most, float64(ask.MaxBytes)))
	}
	r.Exempt = !f.limited
	ask.MinBytes = min(req.MinBytes, ask.MaxBytes)
	topic, mayRead := "", isBroker
	for i := range f.partitions {
		p := f.partitions[i]
		if replicaID < 0 && p.TP.Topic != topic {
			topic = p.TP.Topic
			mayRead = h.allowed(r, acl.Read, acl.Topic, topic)
		}
		switch {
		case p.TP.Topic == "":
			f.results[i] = fetchError(cluster.UnknownTopicID)
		case !mayRead:
			f.results[i] = fetchError(cluster.TopicAuthorizationFailed)
		case !h.d.Replicas.Exists(im, p.TP):
			f.results[i] = fetchError(cluster.UnknownTopicOrPartition)
		default:
			ask.Partitions = append(ask.Partitions, p)
			f.asked = append(f.asked, i)
		}
	}
	if len(ask.Partitions) < len(f.partitions) {
		ask.MaxWait = 0
	}
	if hurry := h.d.Replicas.Fetch(ask, f.answer); hurry != nil {
		f.endWith(ctx, hurry)
	}
}

// fetchPartitions lists the request's partitions in order. An id that is unknown leaves the topic's name empty.
func fetchPartitions(req *kmsg.FetchRequest, nameOf func(cluster.TopicID) (string, bool)) []replica.FetchPartition {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	out := make([]replica.FetchPartition, 0, n)
	for i := range req.Topics {
		t := &req.Topics[i]
		name, id := t.Topic, cluster.TopicID(t.TopicID)
		if req.Version >= 13 {
			name, _ = nameOf(id)
		}
		for _, p := range t.Partitions {
			out = append(out, replica.FetchPartition{
				TP:                 cluster.TopicPartition{Topic: name, Partition: p.Partition},
				TopicID:            id,
				CurrentLeaderEpoch: cluster.LeaderEpoch(p.CurrentLeaderEpoch),
				FetchOffset:        p.FetchOffset,
				LastFetchedEpoch:   cluster.LeaderEpoch(p.LastFetchedEpoch),
				LogStartOffset:     p.LogStartOffset,
				MaxBytes:           p.PartitionMaxBytes,
			})
		}
	}
	return out
}

func forgottenPartitions(req *kmsg.FetchRequest, nameOf func(cluster.TopicID) (string, bool)) []replica.ForgottenPartition {
	var out []replica.ForgottenPartition
	for _, t := range req.ForgottenTopics {
		name, id := t.Topic, cluster.TopicID(t.TopicID)
		if req.Version >= 13 {
			name, _ = nameOf(id)
		}
		for _, p := range t.Partitions {
			out = append(out, replica.ForgottenPartition{TP: cluster.TopicPartition{Topic: name, Partition: p}, TopicID: id})
		}
	}
	return out
}

func fetchError(code cluster.ErrorCode) replica.FetchResult {
	return replica.FetchResult{Err: code, HighWatermark: -1, LastStableOffset: -1, LogStartOffset: -1, PreferredReadReplica: cluster.NoBroker}
}

// fetchAnswer carries one fetch from the request to its answer.
type fetchAnswer struct {
	h          *Handlers
	r          *wire.Request
	version    int16
	session    *replica.FetchContext
	partitions []replica.FetchPartition // of the session, in order
	results    []replica.FetchResult    // parallel to partitions
	asked      []int                    // the indexes that replica was asked for
	from       []int64                  // fetch offsets in the order of the answer, for convertDown
	client     quota.Client
	limited    bool // a consumer, for which quotas hold

	mu       sync.Mutex
	answered bool
	unwatch  func() bool // stops watching the connection
}

// endWith ends the wait when the connection is gone: a client may ask for a wait of weeks, go, and come again.
func (f *fetchAnswer) endWith(ctx context.Context, hurry func()) {
	unwatch := context.AfterFunc(ctx, hurry)
	f.mu.Lock()
	f.unwatch = unwatch
	answered := f.answered
	f.mu.Unlock()
	if answered {
		unwatch()
	}
}

// finished notes that the answer is being made.
func (f *fetchAnswer) finished() {
	f.mu.Lock()
	f.answered = true
	unwatch := f.unwatch
	f.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
}

// answer is called by replica when the fetch is satisfied or its time is over.
func (f *fetchAnswer) answer(results []replica.FetchResult) {
	f.finished()
	for i, at := range f.asked {
		f.results[at] = results[i]
	}
	throttle, nothing := f.throttle()
	if nothing {
		done := f.session.Throttled(f.results)
		f.r.Respond(&wire.FetchResponse{ErrorCode: int16(done.Err), SessionID: done.SessionID}, throttle)
		return
	}
	done := f.session.Finish(f.results)
	resp := &wire.FetchResponse{ErrorCode: int16(done.Err), SessionID: done.SessionID}
	for _, i := range done.Include {
		p := &f.partitions[i]
		// Kafka: neighbours of one topic share an entry, the order of partitions is kept.
		last := len(resp.Topics) - 1
		if last < 0 || resp.Topics[last].Topic != p.TP.Topic || resp.Topics[last].TopicID != p.TopicID {
			resp.Topics = append(resp.Topics, wire.FetchTopic{Topic: p.TP.Topic, TopicID: p.TopicID})
			last++
		}
		f.from = append(f.from, p.FetchOffset)
		f.results[i].CountSent()
		resp.Topics[last].Partitions = append(resp.Topics[last].Partitions, f.partition(resp, p, &f.results[i]))
	}
	if f.version < 4 {
		resp.Prepare = f.convertDown
	}
	f.r.Respond(resp, throttle)
}

// What an answer has beside the records, roughly: headers and the fields of each partition.
const (
	fetchAnswerBytes    = 30
	fetchPartitionBytes = 60
)

// throttle charges the answer to the client's quotas, and takes it back when the client is over one: then it gets nothing
// until the throttle is over (Kafka: handleFetchRequest's processResponseCallback, KIP-219). With Kafka a consumer never gets
// past a batch that is larger than all its windows take; here it gets such a batch when it has used nothing lately, and the
// throttle for it.
func (f *fetchAnswer) throttle() (throttle time.Duration, nothing bool) {
	quotas := f.h.d.Quotas
	if !f.limited || !quotas.Active(quota.Fetch) && !quotas.Active(quota.Request) {
		return 0, false
	}
	bytes := fetchAnswerBytes
	for i := range f.results {
		if r := &f.results[i]; r.Records != nil {
			bytes += fetchPartitionBytes + r.Records.Len()
		}
	}
	now := time.Now()
	bandwidth, request := quotas.Charge(quota.Fetch, f.client, float64(bytes), now), f.r.ChargeTime()
	if bandwidth > request {
		quotas.NoteThrottle(quota.Fetch, f.client, bandwidth, now)
	}
	throttle = max(bandwidth, request)
	if throttle == 0 {
		return 0, false
	}
	quotas.TakeBack(quota.Fetch, f.client, float64(bytes), now)
	most, ok := quotas.WindowMax(quota.Fetch, f.client)
	if ok && float64(bytes) > most && request == 0 && quotas.Charge(quota.Fetch, f.client, 0, now) == 0 {
		return quotas.Charge(quota.Fetch, f.client, float64(bytes), now), false
	}
	return throttle, true
}

func (f *fetchAnswer) partition(resp *wire.FetchResponse, p *replica.FetchPartition, res *replica.FetchResult) wire.FetchPartition {
	out := wire.NewFetchPartition(p.TP.Partition)
	code := res.Err
	if code == cluster.KafkaStorageError && f.version <= 5 {
		code = cluster.NotLeaderOrFollower
	}
	out.ErrorCode = int16(code)
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = res.HighWatermark, res.LastStableOffset, res.LogStartOffset
	out.PreferredReadReplica = int32(res.PreferredReadReplica)
	out.Records = res.Records
	if res.AbortedTxns != nil {
		out.AbortedTransactions = make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, len(res.AbortedTxns))
		for i, t := range res.AbortedTxns {
			out.AbortedTransactions[i] = kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: t.ProducerID, FirstOffset: t.FirstOffset}
		}
	}
	if d := res.Diverging; d != nil {
		out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = int32(d.LeaderEpoch), d.EndOffset
	}
	if code == cluster.None && f.version < 10 {
		f.refuseTooNew(&out, p.TP.Topic)
	}
	if f.version >= 16 && (code == cluster.NotLeaderOrFollower || code == cluster.FencedLeaderEpoch) {
		f.addLeader(resp, &out, p.TP)
	}
	return out
}

func (f *fetchAnswer) addLeader(resp *wire.FetchResponse, out *wire.FetchPartition, tp cluster.TopicPartition) {
	l := f.h.currentLeader(tp, f.r.Conn.Listener())
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(l.id), int32(l.epoch)
	if !l.reachable {
		return
	}
	for _, b := range resp.Brokers {
		if b.NodeID == int32(l.id) {
			return
		}
	}
	resp.Brokers = append(resp.Brokers, kmsg.FetchResponseBroker{NodeID: int32(l.id), Host: l.host, Port: l.port, Rack: l.rack})
}
