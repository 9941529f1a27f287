package wire

import (
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kmsg writes a known tagged field whenever it differs from its default, whatever the message's version. Kafka's
// generated classes refuse a tag that is known but not to that version ("Tag 0 is not valid for version 9"), so
// these fields are reset before encoding. The bounds are Kafka's message definitions (taggedVersions).

// fitRequest makes req what its version can carry.
func fitRequest(req kmsg.Request) {
	switch req := req.(type) {
	case *kmsg.FetchRequest:
		resetFetchRequestTags(req)
	case *kmsg.FetchSnapshotRequest:
		if req.Version < 1 {
			for t := range req.Topics {
				for p := range req.Topics[t].Partitions {
					req.Topics[t].Partitions[p].ReplicaDirectoryID = [16]byte{}
				}
			}
		}
	case *kmsg.BrokerHeartbeatRequest:
		if req.Version < 1 {
			req.OfflineLogDirs = nil
		}
		if req.Version < 2 {
			req.CordonedLogDirs = nil
		}
	}
}

// fitResponse makes resp what its version can carry.
func fitResponse(resp kmsg.Response) {
	switch resp := resp.(type) {
	case *kmsg.ProduceResponse:
		if resp.Version < 10 {
			resp.Brokers = nil
			for t := range resp.Topics {
				for p := range resp.Topics[t].Partitions {
					resp.Topics[t].Partitions[p].CurrentLeader = kmsg.NewProduceResponseTopicPartitionCurrentLeader()
				}
			}
		}
	case *kmsg.FetchResponse:
		if resp.Version < fetchNodeEndpointsVersion {
			resp.Brokers = nil
		}
	case *kmsg.VoteResponse:
		if resp.Version < 1 {
			resp.NodeEndpoints = nil
		}
	case *kmsg.FetchSnapshotResponse:
		if resp.Version < 1 {
			resp.NodeEndpoints = nil
		}
	case *kmsg.ShareFetchResponse:
		emptyShareFetchRecords(resp)
	}
}

// emptyShareFetchRecords makes null records empty from v1 on, where they may not be null; kmsg writes null in all versions.
func emptyShareFetchRecords(resp *kmsg.ShareFetchResponse) {
	if resp.Version < 1 {
		return
	}
	for t := range resp.Topics {
		for p := range resp.Topics[t].Partitions {
			if part := &resp.Topics[t].Partitions[p]; part.Records == nil {
				part.Records = []byte{}
			}
		}
	}
}

func resetFetchRequestTags(req *kmsg.FetchRequest) {
	if req.Version < 15 {
		req.ReplicaState = kmsg.NewFetchRequestReplicaState()
	}
	if req.Version >= 18 {
		return
	}
	for t := range req.Topics {
		for p := range req.Topics[t].Partitions {
			part := &req.Topics[t].Partitions[p]
			part.HighWatermark = math.MaxInt64
			if req.Version < 17 {
				part.ReplicaDirectoryID = [16]byte{}
			}
		}
	}
}
