package api

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/record"
	"klamm/internal/wire"
)

// produced is the answer to records that were appended.
func produced(baseOffset int64) kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	p.BaseOffset = baseOffset
	return p
}

func refusedProduce(code cluster.ErrorCode) kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	setProduceError(&p, code)
	return p
}

func TestProduceAppendsInEveryVersion(t *testing.T) { // R17
	inBubble(t, nil, func(b *testBroker) {
		id := b.lead("t", 1)
		for version := int16(0); version <= 13; version++ {
			records := batch(t, record.BuilderOptions{}, "v")
			if version < 3 {
				records = oldMessage(min(1, byte(version/2)), 1000, nil, []byte("v"))
			}
			want := produced(int64(version))
			if version >= 5 {
				want.LogStartOffset = 0
			}
			req := produceRequest("t", 1, records)
			req.Topics[0].TopicID = id
			same(t, want, b.do(version, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0])
		}
		got := b.fetch(12, "t", 0, 0)
		if got.HighWatermark != 14 || len(got.RecordBatches) == 0 {
			t.Errorf("fetched %+v", got)
		}
	})
}

func TestProduceRefusals(t *testing.T) {
	good := func(t *testing.T) []byte { return batch(t, record.BuilderOptions{}, "v") }
	for _, c := range []struct {
		name    string
		version int16
		topic   string
		records func(t *testing.T) []byte
		want    cluster.ErrorCode
	}{
		{"an unknown topic", 9, "nosuch", good, cluster.UnknownTopicOrPartition},
		{"no records", 9, "t", func(*testing.T) []byte { return nil }, cluster.InvalidRecord},
		{"two batches", 9, "t", func(t *testing.T) []byte { return append(good(t), good(t)...) }, cluster.InvalidRecord},
		{"magic 1 in a new version", 9, "t", func(*testing.T) []byte { return oldMessage(1, 0, nil, []byte("v")) }, cluster.InvalidRecord},
		{"magic 2 in an old version", 2, "t", good, cluster.CorruptMessage},
		{"zstd before version 7", 6, "t", func(t *testing.T) []byte {
			return batch(t, record.BuilderOptions{Compression: record.Compression{Codec: record.Zstd}}, "v")
		}, cluster.UnsupportedCompressionType},
		{"a wrong checksum", 9, "t", func(t *testing.T) []byte { b := good(t); b[len(b)-1]++; return b }, cluster.CorruptMessage},
		{"half a batch", 9, "t", func(t *testing.T) []byte { return good(t)[:40] }, cluster.CorruptMessage},
		{"a transactional batch", 9, "t", func(t *testing.T) []byte {
			return batch(t, record.BuilderOptions{Transactional: true, ProducerID: 1}, "v")
		}, cluster.TransactionalIDAuthorizationFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				b.lead("t", 1)
				got := b.produce(c.version, c.topic, 1, c.records(t))
				if got.ErrorCode != int16(c.want) || got.BaseOffset != -1 {
					t.Errorf("got %v at %d, want %v", cluster.ErrorCode(got.ErrorCode), got.BaseOffset, c.want)
				}
			})
		})
	}
}

func TestProduceAcksOutOfRange(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		same(t, refusedProduce(cluster.InvalidRequiredAcks), b.produce(9, "t", 2, batch(t, record.BuilderOptions{}, "v")))
	})
}

func TestProduceByAnUnknownID(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		req := produceRequest("", 1, batch(t, record.BuilderOptions{}, "v"))
		req.Topics[0].TopicID = [16]byte{9}
		same(t, refusedProduce(cluster.UnknownTopicID), b.do(13, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0])
	})
}

func TestProduceTellsTheLeaderWhenItIsAnother(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{1, 2}) // not here at all
		for version := int16(9); version <= 12; version++ {
			resp := b.do(version, produceRequest("t", 1, batch(t, record.BuilderOptions{}, "v"))).(*kmsg.ProduceResponse)
			want := refusedProduce(cluster.NotLeaderOrFollower)
			var brokers []kmsg.ProduceResponseBroker
			if version >= 10 {
				want.CurrentLeader.LeaderID, want.CurrentLeader.LeaderEpoch = 1, 0
				brokers = []kmsg.ProduceResponseBroker{{NodeID: 1, Host: "b1", Port: 9092}}
			}
			same(t, want, resp.Topics[0].Partitions[0])
			same(t, brokers, resp.Brokers)
		}
	})
}

func TestProduceWithoutAcksClosesTheConnectionOnAnError(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		send := func(topic string) *wire.ClientConn {
			c := b.dial("b0:9092", "p")
			b.closers = append(b.closers, c)
			req := produceRequest(topic, 0, batch(t, record.BuilderOptions{}, "v"))
			req.SetVersion(9)
			go func() { _, _ = c.Request(b.ctx, req) }() // there is no answer
			synctest.Wait()
			return c
		}
		if c := send("t"); c.Err() != nil {
			t.Errorf("the connection broke: %v", c.Err())
		}
		if got := b.fetch(12, "t", 0, 0); got.HighWatermark != 1 {
			t.Errorf("high watermark %d", got.HighWatermark)
		}
		if c := send("nosuch"); c.Err() == nil {
			t.Error("the connection is still open after an error")
		}
	})
}

func TestProduceThatWaitsForAcksDoesNotHoldUpTheConnection(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		lists := [][]cluster.BrokerID{{0, 1}}
		id := b.topic("t", lists...)
		b.sendLeadership("t", id, 1, lists)
		start := time.Now()
		acked := make(chan kmsg.ProduceResponseTopicPartition, 1)
		go func() { acked <- b.produce(9, "t", -1, batch(t, record.BuilderOptions{}, "v")) }()
		synctest.Wait()
		// The next request on the connection is handled meanwhile, though answers leave in order.
		behind := make(chan int16, 1)
		go func() { behind <- b.produce(9, "nosuch", 1, nil).ErrorCode }()
		synctest.Wait()
		other := b.inner()
		pulled := b.followerFetch(other, "t", id, 0)
		if pulled.ErrorCode != 0 || len(pulled.RecordBatches) == 0 {
			t.Fatalf("the follower fetched %+v", pulled)
		}
		b.followerFetch(other, "t", id, 1) // it has the record now
		want := produced(0)
		want.LogStartOffset = 0
		same(t, want, <-acked)
		if code := <-behind; code != int16(cluster.UnknownTopicOrPartition) || time.Since(start) >= second {
			t.Errorf("code %d, after %v", code, time.Since(start))
		}
	})
}

// fetch reads a partition once, without waiting, in a session-less fetch.
func (b *testBroker) fetch(version int16, topic string, partition int32, offset int64) kmsg.FetchResponseTopicPartition {
	b.t.Helper()
	resp := b.do(version, fetchRequest(version, topic, b.cache.Image().TopicID(topic), partition, offset)).(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 {
		b.t.Fatalf("fetch: %v, %d topics", cluster.ErrorCode(resp.ErrorCode), len(resp.Topics))
	}
	return resp.Topics[0].Partitions[0]
}

func fetchRequest(version int16, topic string, id cluster.TopicID, partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.ReplicaState.ID, req.ReplicaState.Epoch = -1, -1, -1
	req.MaxBytes, req.SessionEpoch = 1<<20, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	req.Topics = []kmsg.FetchRequestTopic{{Topic: topic, TopicID: id, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	req.Version = version
	return req
}

func (b *testBroker) followerFetch(c *wire.ClientConn, topic string, id cluster.TopicID, offset int64) kmsg.FetchResponseTopicPartition {
	b.t.Helper()
	req := fetchRequest(17, topic, id, 0, offset)
	req.ReplicaState.ID = 1
	req.Topics[0].Partitions[0].LogStartOffset = 0
	req.Topics[0].Partitions[0].CurrentLeaderEpoch = 1
	return b.doOn(c, 17, req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
}

func TestFetchReadsInEveryVersion(t *testing.T) { // R17
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		sent := batch(t, record.BuilderOptions{}, "one", "two")
		b.produce(9, "t", 1, sent)
		for version := int16(4); version <= 18; version++ {
			got := b.fetch(version, "t", 0, 0)
			if got.ErrorCode != 0 || got.HighWatermark != 2 || got.LastStableOffset != 2 || got.PreferredReadReplica != -1 {
				t.Fatalf("version %d: %+v", version, got)
			}
			same(t, []string{"none", "0@1000 k=one", "1@1001 k=two"}, printed(t, got.RecordBatches))
			if binary.BigEndian.Uint32(got.RecordBatches[12:]) != 1 {
				t.Errorf("version %d: leader epoch %d in the batch", version, binary.BigEndian.Uint32(got.RecordBatches[12:]))
			}
		}
	})
}

func TestFetchOfWhatIsNotThere(t *testing.T) { // R16
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.topic("elsewhere", []cluster.BrokerID{1})
		unknown := cluster.TopicID{9}
		for _, c := range []struct {
			name, topic string
			version     int16
			id          cluster.TopicID
			partition   int32
			offset      int64
			want        cluster.ErrorCode
		}{
			{"an unknown topic", "nosuch", 12, cluster.TopicID{}, 0, 0, cluster.UnknownTopicOrPartition},
			{"an unknown partition", "t", 12, cluster.TopicID{}, 7, 0, cluster.UnknownTopicOrPartition},
			{"an unknown id", "", 13, unknown, 0, 0, cluster.UnknownTopicID},
			{"an offset beyond the end", "t", 12, cluster.TopicID{}, 0, 5, cluster.OffsetOutOfRange},
			{"a partition of another broker", "elsewhere", 12, cluster.TopicID{}, 0, 0, cluster.NotLeaderOrFollower},
		} {
			start := time.Now()
			req := fetchRequest(c.version, c.topic, c.id, c.partition, c.offset)
			req.MaxWaitMillis, req.MinBytes = 30_000, 1
			got := b.do(c.version, req).(*kmsg.FetchResponse)
			if code := cluster.ErrorCode(got.Topics[0].Partitions[0].ErrorCode); code != c.want || time.Since(start) != 0 {
				t.Errorf("%s: %v after %v, want %v at once", c.name, code, time.Since(start), c.want)
			}
		}
	})
}

// A leader serves a new topic from LeaderAndIsr on, before UpdateMetadata has told it of it: other brokers may have sent it
// clients already. Once the topic's deletion is announced it is unknown, though its log is still there.
func TestANewTopicIsServedBeforeItIsAnnounced(t *testing.T) { // R20
	inBubble(t, nil, func(b *testBroker) {
		b.ctl.announces.Store(false)
		id := b.topic("new", []cluster.BrokerID{0})
		b.sendLeadership("new", id, 1, [][]cluster.BrokerID{{0}})
		codes := func() (out []cluster.ErrorCode) {
			records := batch(t, record.BuilderOptions{}, "x")
			byName := b.produce(12, "new", 1, records)
			req := produceRequest("", 1, records)
			req.Topics[0].TopicID = id
			byID := b.do(13, req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
			out = append(out, cluster.ErrorCode(byName.ErrorCode), cluster.ErrorCode(byID.ErrorCode))
			for _, version := range []int16{12, 13} {
				resp := b.do(version, fetchRequest(version, "new", id, 0, 0)).(*kmsg.FetchResponse)
				out = append(out, cluster.ErrorCode(resp.Topics[0].Partitions[0].ErrorCode))
			}
			return out
		}
		all := func(byName, byID cluster.ErrorCode) []cluster.ErrorCode {
			return []cluster.ErrorCode{byName, byID, byName, byID}
		}
		same(t, all(cluster.None, cluster.None), codes())
		for _, deleted := range []bool{false, true} {
			update := kmsg.NewPtrUpdateMetadataRequest()
			update.ControllerID, update.ControllerEpoch, update.BrokerEpoch = 0, 1, 7
			topic, _ := b.inStore("new")
			update.TopicStates = append(update.TopicStates, b.ctl.state("new", topic, deleted))
			if got := b.doOn(b.inner(), 8, update).(*kmsg.UpdateMetadataResponse); got.ErrorCode != 0 {
				t.Fatalf("UpdateMetadata: %v", cluster.ErrorCode(got.ErrorCode))
			}
			want := all(cluster.None, cluster.None)
			if deleted {
				want = all(cluster.UnknownTopicOrPartition, cluster.UnknownTopicID)
			}
			same(t, want, codes())
		}
	})
}

func TestFetchAnswersAtOnceWhenOneOfItsTopicsIsGone(t *testing.T) { // R16
	inBubble(t, nil, func(b *testBroker) {
		id := b.lead("t", 1)
		req := fetchRequest(13, "", id, 0, 0)
		req.MaxWaitMillis, req.MinBytes = 30_000, 1
		req.Topics = append(req.Topics, kmsg.FetchRequestTopic{TopicID: [16]byte{9}, Partitions: req.Topics[0].Partitions})
		start := time.Now()
		got := b.do(13, req).(*kmsg.FetchResponse)
		if len(got.Topics) != 2 || got.Topics[0].Partitions[0].ErrorCode != 0 || got.Topics[1].Partitions[0].ErrorCode != int16(cluster.UnknownTopicID) || time.Since(start) != 0 {
			t.Errorf("after %v: %+v", time.Since(start), got.Topics)
		}
	})
}

func TestFetchWaitsForRecords(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		id := b.lead("t", 1)
		req := fetchRequest(16, "", id, 0, 0)
		req.MaxWaitMillis, req.MinBytes = 5000, 1
		start := time.Now()
		if got := b.do(16, req).(*kmsg.FetchResponse); len(got.Topics[0].Partitions[0].RecordBatches) != 0 || time.Since(start) != 5*second {
			t.Errorf("after %v: %+v", time.Since(start), got.Topics)
		}
		c := b.dial("b0:9092", "consumer")
		b.closers = append(b.closers, c)
		got := make(chan *kmsg.FetchResponse, 1)
		go func() { got <- b.doOn(c, 16, req).(*kmsg.FetchResponse) }()
		synctest.Wait()
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, "v"))
		if resp := <-got; len(resp.Topics[0].Partitions[0].RecordBatches) == 0 || time.Since(start) != 5*second {
			t.Errorf("after %v: %+v", time.Since(start), resp.Topics)
		}
	})
}

func TestFetchSessionsSendDifferences(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 2)
		req := fetchRequest(12, "t", cluster.TopicID{}, 0, 0)
		req.SessionEpoch = 0
		second := req.Topics[0].Partitions[0]
		second.Partition = 1
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, second)
		first := b.do(12, req).(*kmsg.FetchResponse)
		if first.SessionID == 0 || len(first.Topics) != 1 || len(first.Topics[0].Partitions) != 2 {
			t.Fatalf("full answer %+v", first)
		}
		b.do(9, produceRequest("t", 1, batch(t, record.BuilderOptions{}, "v")))
		next := fetchRequest(12, "t", cluster.TopicID{}, 0, 0)
		next.SessionID, next.SessionEpoch, next.Topics = first.SessionID, 1, nil
		got := b.do(12, next).(*kmsg.FetchResponse)
		if got.SessionID != first.SessionID || len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 || got.Topics[0].Partitions[0].Partition != 0 {
			t.Errorf("difference %+v", got)
		}
		next.SessionID++
		if got := b.do(12, next).(*kmsg.FetchResponse); got.ErrorCode != int16(cluster.FetchSessionIDNotFound) || got.SessionID != 0 || len(got.Topics) != 0 {
			t.Errorf("unknown session %+v", got)
		}
	})
}

func TestFetchTellsTheLeaderWhenItIsAnother(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.topic("t", []cluster.BrokerID{1})
		for version := int16(15); version <= 17; version++ {
			resp := b.do(version, fetchRequest(version, "t", b.cache.Image().TopicID("t"), 0, 0)).(*kmsg.FetchResponse)
			leader, brokers := int32(-1), []kmsg.FetchResponseBroker(nil)
			if version >= 16 {
				leader, brokers = 1, []kmsg.FetchResponseBroker{{NodeID: 1, Host: "b1", Port: 9092}}
			}
			if p := resp.Topics[0].Partitions[0]; p.ErrorCode != int16(cluster.NotLeaderOrFollower) || p.CurrentLeader.LeaderID != leader {
				t.Errorf("version %d: %+v", version, p)
			}
			same(t, brokers, resp.Brokers)
		}
	})
}

func TestFetchAsAFollowerIsForTheInterBrokerListener(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		id := b.lead("t", 1)
		if got := b.followerFetch(b.client, "t", id, 0); got.ErrorCode != int16(cluster.TopicAuthorizationFailed) {
			t.Errorf("on a client listener: %v", cluster.ErrorCode(got.ErrorCode))
		}
	})
}

func TestListOffsetsInEveryVersion(t *testing.T) { // R17
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, "a", "b", "c"))
		ask := func(version int16, timestamp int64, count int32) kmsg.ListOffsetsResponseTopicPartition {
			req := kmsg.NewPtrListOffsetsRequest()
			req.ReplicaID = -1
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp, p.MaxNumOffsets = timestamp, count
			req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
			return b.do(version, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		}
		for timestamp, want := range map[int64][]int64{latestTimestamp: {3, 0}, earliestTimestamp: {0}, 1001: {1}, 9999: {}} {
			same(t, want, ask(0, timestamp, 5).OldStyleOffsets)
		}
		same(t, []int64{3}, ask(0, latestTimestamp, 1).OldStyleOffsets)
		for version := int16(1); version <= 11; version++ {
			for _, c := range []struct {
				timestamp, offset, found int64
				since                    int16
			}{
				{latestTimestamp, 3, -1, 1}, {earliestTimestamp, 0, -1, 1}, {1001, 1, 1001, 1}, {9999, -1, -1, 1},
				{maxTimestamp, 2, 1002, 7}, {earliestLocalTimestamp, 0, -1, 8}, {latestTieredTimestamp, -1, -1, 9}, {earliestPendingUploadTS, -1, -1, 11},
			} {
				got := ask(version, c.timestamp, 1)
				if version < c.since {
					if got.ErrorCode != int16(cluster.UnsupportedVersion) {
						t.Errorf("version %d, timestamp %d: %+v", version, c.timestamp, got)
					}
				} else if got.ErrorCode != 0 || got.Offset != c.offset || got.Timestamp != c.found {
					t.Errorf("version %d, timestamp %d: %+v, want offset %d at %d", version, c.timestamp, got, c.offset, c.found)
				}
			}
			if got := ask(version, -7, 1); got.ErrorCode != int16(cluster.UnsupportedVersion) || got.Offset != -1 {
				t.Errorf("version %d, timestamp -7: %+v", version, got)
			}
		}
	})
}

func TestListOffsetsRefusesAPartitionTwice(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 2)
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		one, other := kmsg.NewListOffsetsRequestTopicPartition(), kmsg.NewListOffsetsRequestTopicPartition()
		one.Timestamp, other.Timestamp, other.Partition = -1, -1, 1
		req.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{one, other, one}}}
		var codes []int16
		for _, p := range b.do(4, req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			codes = append(codes, p.ErrorCode)
		}
		same(t, []int16{int16(cluster.InvalidRequest), 0, int16(cluster.InvalidRequest)}, codes)
	})
}

func TestOffsetForLeaderEpoch(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, "a", "b"))
		for version := int16(0); version <= 4; version++ {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			req.ReplicaID = -1
			p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			p.LeaderEpoch = 1
			missing := p
			missing.Partition = 9
			req.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p, missing}}}
			got := b.do(version, req).(*kmsg.OffsetForLeaderEpochResponse).Topics[0]
			first, second := got.Partitions[0], got.Partitions[1]
			if got.Topic != "t" || first.ErrorCode != 0 || first.EndOffset != 2 || version >= 1 && first.LeaderEpoch != 1 {
				t.Errorf("version %d: %+v", version, first)
			}
			if second.ErrorCode != int16(cluster.UnknownTopicOrPartition) || second.EndOffset != -1 || second.Partition != 9 {
				t.Errorf("version %d: %+v", version, second)
			}
		}
	})
}

func TestDescribeProducers(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{Idempotent: true, ProducerID: 7, ProducerEpoch: 2}, "a", "b"))
		req := kmsg.NewPtrDescribeProducersRequest()
		req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0, 4}}}
		same(t, []kmsg.DescribeProducersResponseTopic{{Topic: "t", Partitions: []kmsg.DescribeProducersResponseTopicPartition{
			{ActiveProducers: []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
				{ProducerID: 7, ProducerEpoch: 2, LastSequence: 1, LastTimestamp: 1001, CoordinatorEpoch: -1, CurrentTxnStartOffset: -1}}},
			{Partition: 4, ErrorCode: int16(cluster.UnknownTopicOrPartition)},
		}}}, b.do(0, req).(*kmsg.DescribeProducersResponse).Topics)
	})
}

func TestDeleteRecords(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 1)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, "a", "b", "c"))
		for version := int16(0); version <= 2; version++ {
			req := kmsg.NewPtrDeleteRecordsRequest()
			req.TimeoutMillis = 1000
			req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: int64(version) + 1}}},
				{Topic: "nosuch", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: 4}}}}
			got := b.do(version, req).(*kmsg.DeleteRecordsResponse)
			same(t, []kmsg.DeleteRecordsResponseTopic{
				{Topic: "t", Partitions: []kmsg.DeleteRecordsResponseTopicPartition{{LowWatermark: int64(version) + 1}}},
				{Topic: "nosuch", Partitions: []kmsg.DeleteRecordsResponseTopicPartition{{Partition: 4, LowWatermark: -1, ErrorCode: int16(cluster.UnknownTopicOrPartition)}}},
			}, got.Topics)
		}
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.TimeoutMillis = 1000
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Offset: 9}}}}
		if got := b.do(2, req).(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]; got.ErrorCode != int16(cluster.OffsetOutOfRange) || got.LowWatermark != -1 {
			t.Errorf("too far: %+v", got)
		}
	})
}

func TestDescribeLogDirs(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("t", 2)
		b.lead("u", 1)
		b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, "a"))
		for version := int16(0); version <= 5; version++ {
			req := kmsg.NewPtrDescribeLogDirsRequest()
			req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{0}}}
			one := b.do(version, req).(*kmsg.DescribeLogDirsResponse)
			req.Topics = nil
			all := b.do(version, req).(*kmsg.DescribeLogDirsResponse)
			if len(one.Dirs) != 1 || one.Dirs[0].Dir != "/data" || len(one.Dirs[0].Topics) != 1 || one.Dirs[0].Topics[0].Partitions[0].Size == 0 ||
				len(all.Dirs[0].Topics) != 2 || len(all.Dirs[0].Topics[0].Partitions) != 2 {
				t.Errorf("version %d: %+v, all %+v", version, one.Dirs, all.Dirs)
			}
		}
	})
}

func TestLeaderAndISRBringsTheTopicsSettings(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.put(coord.Create(coord.ConfigEntityPath(coord.TopicConfigs, "t"), coord.EncodeConfig(map[string]string{"max.message.bytes": "100"})))
		id := cluster.NewTopicID()
		b.put(coord.Create(coord.TopicPath("t"), coord.EncodeTopic(coord.Topic{ID: id, Partitions: map[int32]cluster.ReplicaAssignment{0: {Replicas: []cluster.BrokerID{0}}}})))
		synctest.Wait()
		b.sendLeadership("t", id, 1, [][]cluster.BrokerID{{0}})
		got := b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, string(make([]byte, 200))))
		if got.ErrorCode != int16(cluster.MessageTooLarge) {
			t.Errorf("the topic's limit is not applied: %v", cluster.ErrorCode(got.ErrorCode))
		}
	})
}

func TestStopReplicaForgetsADeletedTopicsSettings(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		id := b.lead("t", 1)
		b.alter(1, changes(topicResource, "t", set("max.message.bytes", "100")))
		b.configChanges()
		b.ctl.announces.Store(false)
		inner := b.inner()
		topic, _ := b.inStore("t")
		update := kmsg.NewPtrUpdateMetadataRequest()
		update.ControllerID, update.ControllerEpoch, update.BrokerEpoch = 0, 1, 7
		update.TopicStates = []kmsg.UpdateMetadataRequestTopicState{b.ctl.state("t", topic, true)}
		if got := b.doOn(inner, 8, update).(*kmsg.UpdateMetadataResponse); got.ErrorCode != 0 {
			t.Fatalf("UpdateMetadata: %v", cluster.ErrorCode(got.ErrorCode))
		}
		if got := b.produce(9, "t", 1, batch(t, record.BuilderOptions{}, "v")); got.ErrorCode != int16(cluster.UnknownTopicOrPartition) {
			t.Errorf("produce to a deleted topic: %v", cluster.ErrorCode(got.ErrorCode))
		}
		stop := kmsg.NewPtrStopReplicaRequest()
		stop.ControllerID, stop.ControllerEpoch, stop.BrokerEpoch = 0, 1, 7
		stop.Topics = []kmsg.StopReplicaRequestTopic{{Topic: "t", PartitionStates: []kmsg.StopReplicaRequestTopicPartitionState{
			{LeaderEpoch: int32(cluster.LeaderEpochDuringDelete), Delete: true}}}}
		if got := b.doOn(inner, 4, stop).(*kmsg.StopReplicaResponse); got.ErrorCode != 0 || got.Partitions[0].ErrorCode != 0 {
			t.Fatalf("StopReplica: %+v", got)
		}
		if left := b.config.TopicOverrides("t"); len(left) != 0 {
			t.Errorf("settings %v are left of topic %v", left, id)
		}
	})
}

func TestUpdateMetadataForgetsSettingsOfTopicsOfWhichNothingLiesHere(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.lead("here", 1)
		b.topic("elsewhere", []cluster.BrokerID{1})
		for _, name := range []string{"here", "elsewhere"} {
			b.alter(1, changes(topicResource, name, set("max.message.bytes", "100")))
		}
		b.configChanges()
		b.ctl.announces.Store(false)
		update := kmsg.NewPtrUpdateMetadataRequest()
		update.ControllerID, update.ControllerEpoch, update.BrokerEpoch = 0, 1, 7
		for _, name := range []string{"here", "elsewhere"} {
			topic, _ := b.inStore(name)
			update.TopicStates = append(update.TopicStates, b.ctl.state(name, topic, true))
		}
		if got := b.doOn(b.inner(), 8, update).(*kmsg.UpdateMetadataResponse); got.ErrorCode != 0 {
			t.Fatalf("UpdateMetadata: %v", cluster.ErrorCode(got.ErrorCode))
		}
		synctest.Wait()
		same(t, map[string]string{"max.message.bytes": "100"}, b.config.TopicOverrides("here"))
		same(t, map[string]string{}, b.config.TopicOverrides("elsewhere"))
	})
}

// A controller that has connected again does not use its former connections; what is still read of one is not applied, and it is closed.
func TestAConnectionThatTheControllerGaveUpIsClosed(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		former := []*wire.ClientConn{b.inner(), b.inner(), b.inner()}
		update := kmsg.NewPtrUpdateMetadataRequest()
		update.ControllerID, update.ControllerEpoch, update.BrokerEpoch = 0, 1, 7
		stop := kmsg.NewPtrStopReplicaRequest()
		stop.ControllerID, stop.ControllerEpoch, stop.BrokerEpoch = 0, 1, 7
		lead := kmsg.NewPtrLeaderAndISRRequest()
		lead.ControllerID, lead.ControllerEpoch, lead.BrokerEpoch = 0, 1, 7
		newest := b.inner()
		b.doOn(newest, 4, update)
		for i, req := range []kmsg.Request{update, stop, lead} {
			req.SetVersion(4)
			if resp, err := former[i].Request(b.ctx, req); err == nil {
				t.Errorf("%T is answered: %+v", req, resp)
			}
			b.doOn(newest, 4, req)
		}
	})
}

func TestControlRequestsOfOlderVersions(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		inner := b.inner()
		for version := int16(0); version <= 7; version++ {
			req := kmsg.NewPtrLeaderAndISRRequest()
			req.ControllerEpoch, req.BrokerEpoch = 1, 7
			p := kmsg.LeaderAndISRRequestTopicPartition{Topic: "t", ControllerEpoch: 1, LeaderEpoch: int32(version) + 1, ISR: []int32{0}, Replicas: []int32{0}, IsNew: true}
			if version < 2 {
				req.PartitionStates = []kmsg.LeaderAndISRRequestTopicPartition{p}
			} else {
				req.TopicStates = []kmsg.LeaderAndISRRequestTopicState{{Topic: "t", PartitionStates: []kmsg.LeaderAndISRRequestTopicPartition{p}}}
			}
			if got := b.doOn(inner, version, req).(*kmsg.LeaderAndISRResponse); got.ErrorCode != 0 {
				t.Errorf("LeaderAndIsr version %d: %v", version, cluster.ErrorCode(got.ErrorCode))
			}
		}
		for version := int16(0); version <= 4; version++ {
			req := kmsg.NewPtrStopReplicaRequest()
			req.ControllerEpoch, req.BrokerEpoch, req.DeletePartitions = 1, 7, true
			req.Topics = []kmsg.StopReplicaRequestTopic{{Topic: "t", Partitions: []int32{0}, PartitionStates: []kmsg.StopReplicaRequestTopicPartitionState{{LeaderEpoch: -2, Delete: true}}}}
			if got := b.doOn(inner, version, req).(*kmsg.StopReplicaResponse); got.ErrorCode != 0 || len(got.Partitions) != 1 || got.Partitions[0].ErrorCode != 0 {
				t.Errorf("StopReplica version %d: %+v", version, got)
			}
		}
	})
}

// oldMessage makes one message of magic 0 or 1 without a codec.
func oldMessage(magic byte, timestamp int64, key, value []byte) []byte {
	body := []byte{magic, 0}
	if magic == 1 {
		body = binary.BigEndian.AppendUint64(body, uint64(timestamp))
	}
	for _, field := range [][]byte{key, value} {
		if field == nil {
			body = binary.BigEndian.AppendUint32(body, 0xffffffff)
			continue
		}
		body = binary.BigEndian.AppendUint32(body, uint32(len(field)))
		body = append(body, field...)
	}
	out := make([]byte, 8)
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
	return append(out, body...)
}

// printed lists what a batch holds as offset@timestamp key=value.
func printed(t *testing.T, batch []byte) (out []string) {
	t.Helper()
	b, rest, err := record.NextBatch(batch)
	if err != nil || len(rest) > 0 || b.Validate() != nil {
		t.Fatalf("not one valid batch: %v, %d bytes left, %v", err, len(rest), b.Validate())
	}
	out = append(out, b.Codec().String())
	if err := b.ForEach(0, func(r *record.Record) error {
		out = append(out, fmt.Sprintf("%d@%d %s=%s", r.Offset, r.Timestamp, r.Key, r.Value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}
