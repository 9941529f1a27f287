package api

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/metadata"
	"klamm/internal/quota"
	"klamm/internal/record"
	"klamm/internal/replica"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// Produce, key 0, versions 0-13.
//
// Checked here: WRITE on the topic, the partition is in this broker's metadata, each partition has exactly one batch of magic 2, no zstd
// before v7, no transactional batch. The rest is package replica's and below. Appending is done on the connection's
// reader: it is a write to the page cache, and batches of an idempotent producer must be appended in the order in which
// they came. Waiting for acks is not: the answer comes from replica, and the reader goes on.
//
// acks=0 has no answer; when something failed the connection is closed, so that the producer learns of it.
//
// Transactions are not served: the batches are looked at, not the request's field (CVE-2018-17196), and a transactional
// one is answered TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which makes producers give up.
//
//	v0   message sets of magic 0, v2 also of magic 1 and the append time: see record.FromMessageSet. Kafka 4 only says that it serves
//	     these versions, for librdkafka, which compresses only for brokers that say so
//	v3   one batch of magic 2
//	v5   log start offset
//	v8   errors of single records, messages
//	v10  the current leader beside NOT_LEADER_OR_FOLLOWER
//	v13  topics by id, UNKNOWN_TOPIC_ID
func (h *Handlers) handleProduce(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.ProduceRequest)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	a := replica.AppendRequest{
		Acks:                  req.Acks,
		Timeout:               time.Duration(req.TimeoutMillis) * time.Millisecond,
		Origin:                record.Client,
		InternalTopicsAllowed: r.ClientID == adminClientID,
	}
	im := h.d.Cache.Image()
	// where[i] is the answer's place for a.Partitions[i].
	var where []produceSlot
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	for ti := range req.Topics {
		t, out := &req.Topics[ti], &resp.Topics[ti]
		*out = kmsg.ProduceResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		out.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		name, known := t.Topic, true
		if req.Version >= 13 {
			name, known = h.d.Replicas.TopicName(im, t.TopicID)
		}
		mayWrite := known && h.allowed(r, acl.Write, acl.Topic, name)
		for pi := range t.Partitions {
			p := &t.Partitions[pi]
			out.Partitions[pi] = kmsg.NewProduceResponseTopicPartition()
			out.Partitions[pi].Partition = p.Partition
			tp := cluster.TopicPartition{Topic: name, Partition: p.Partition}
			code := cluster.UnknownTopicID
			records := p.Records
			if known {
				records, code = h.checkProduced(im, tp, records, req.Version, mayWrite)
			}
			if code != cluster.None {
				setProduceError(&out.Partitions[pi], code)
				continue
			}
			a.Partitions = append(a.Partitions, replica.AppendPartition{TP: tp, Records: records})
			where = append(where, produceSlot{ti, pi})
		}
	}
	h.d.Replicas.Append(a, func(results []replica.AppendResult) {
		for i, res := range results {
			p := &resp.Topics[where[i].topic].Partitions[where[i].partition]
			fillProduced(p, &res)
			if res.Err == cluster.NotLeaderOrFollower && req.Version >= 10 {
				h.addProduceLeader(resp, p, a.Partitions[i].TP, r.Conn.Listener())
			}
		}
		h.answerProduce(r, req, resp)
	})
}

// adminClientID is the client id that Kafka lets write to its internal topics (Kafka: AdminUtils.ADMIN_CLIENT_ID).
const adminClientID = "__admin_client"

type produceSlot struct{ topic, partition int }

// checkProduced holds what Kafka checks before the log sees the records, and gives those to append (Kafka:
// handleProduceRequest, ProduceRequest.validateRecords).
func (h *Handlers) checkProduced(im *metadata.Image, tp cluster.TopicPartition, records []byte, version int16, mayWrite bool) ([]byte, cluster.ErrorCode) {
	if !mayWrite {
		return nil, cluster.TopicAuthorizationFailed
	}
	if !h.d.Replicas.Exists(im, tp) {
		return nil, cluster.UnknownTopicOrPartition
	}
	if version < 3 {
		b, n, err := record.FromMessageSet(records)
		h.convertedUp.Add(int64(n))
		return b, record.Code(err)
	}
	return records, checkBatch(records, version)
}

func checkBatch(records []byte, version int16) cluster.ErrorCode {
	b, rest, err := record.NextBatch(records)
	switch {
	case err != nil && len(records) > 16 && records[16] < 2:
		return cluster.InvalidRecord // magic 0 or 1, which versions from 3 on do not allow
	case err != nil && len(records) == 0:
		return cluster.InvalidRecord
	case err != nil:
		return cluster.CorruptMessage
	case version < 7 && b.Codec() == record.Zstd:
		return cluster.UnsupportedCompressionType
	case len(rest) > 0:
		return cluster.InvalidRecord
	case b.IsTransactional():
		return cluster.TransactionalIDAuthorizationFailed
	}
	return cluster.None
}

func setProduceError(p *kmsg.ProduceResponseTopicPartition, code cluster.ErrorCode) {
	p.ErrorCode = int16(code)
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = -1, -1, -1
}

func fillProduced(p *kmsg.ProduceResponseTopicPartition, res *replica.AppendResult) {
	p.ErrorCode = int16(res.Err)
	p.BaseOffset, p.LogAppendTime, p.LogStartOffset = res.BaseOffset, res.LogAppendTime, res.LogStartOffset
	if res.ErrMessage != "" {
		p.ErrorMessage = &res.ErrMessage
	}
	for _, e := range res.RecordErrors {
		out := kmsg.NewProduceResponseTopicPartitionErrorRecord()
		out.RelativeOffset = e.BatchIndex
		if e.Message != "" {
			out.ErrorMessage = &e.Message
		}
		p.ErrorRecords = append(p.ErrorRecords, out)
	}
}

// addProduceLeader tells the client where the leader is, so that it need not ask for metadata (KIP-951).
func (h *Handlers) addProduceLeader(resp *kmsg.ProduceResponse, p *kmsg.ProduceResponseTopicPartition, tp cluster.TopicPartition, listener string) {
	l := h.currentLeader(tp, listener)
	p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = int32(l.id), int32(l.epoch)
	if !l.reachable {
		return
	}
	for _, b := range resp.Brokers {
		if b.NodeID == int32(l.id) {
			return
		}
	}
	resp.Brokers = append(resp.Brokers, kmsg.ProduceResponseBroker{NodeID: int32(l.id), Host: l.host, Port: l.port, Rack: l.rack})
}

func (h *Handlers) answerProduce(r *wire.Request, req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse) {
	r.Exempt = req.Acks == 0 // Kafka: of what has no answer the bytes are limited, not the time
	throttle := h.produceThrottle(r)
	if req.Acks != 0 {
		r.Respond(resp, throttle)
		return
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				tp := cluster.TopicPartition{Topic: t.Topic, Partition: p.Partition}
				r.Close("produce with acks=0 failed", fmt.Errorf("%s: %s", tp, cluster.ErrorCode(p.ErrorCode)))
				return
			}
		}
	}
	r.Respond(nil, throttle)
}

// produceThrottle charges a request's bytes to its client.
func (h *Handlers) produceThrottle(r *wire.Request) time.Duration {
	if !h.d.Quotas.Active(quota.Produce) {
		return 0
	}
	client, now := clientOf(r), time.Now()
	throttle := h.d.Quotas.Charge(quota.Produce, client, float64(r.Size), now)
	if throttle > 0 {
		h.d.Quotas.NoteThrottle(quota.Produce, client, throttle, now)
	}
	return throttle
}
