package replica

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// followerSession is the fetching side of a fetch session (KIP-227, Kafka: FetchSessionHandler): it sends only the
// partitions that changed since the last request. Owned by a fetcher's goroutine.
type followerSession struct {
	id    int32
	epoch int32
	byID  bool
	sent  map[cluster.TopicPartition]FetchPartition // what the leader's session holds
}

// reset makes the next request a full one. An open session is named in it, so that the leader closes it.
func (s *followerSession) reset() { s.epoch, s.sent = InitialFetchEpoch, nil }

// fill puts the wanted partitions into the request, as a whole or as differences.
func (s *followerSession) fill(req *kmsg.FetchRequest, want []FetchPartition) {
	byID := req.Version >= firstFetchVersionByID
	for i := range want {
		byID = byID && !want[i].TopicID.IsZero()
	}
	if !byID {
		req.Version = min(req.Version, firstFetchVersionByID-1)
	}
	if s.sent == nil || s.byID != byID {
		s.reset()
		s.byID, s.sent = byID, make(map[cluster.TopicPartition]FetchPartition, len(want))
	}
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	wanted := make(map[cluster.TopicPartition]struct{}, len(want))
	var changed, gone []FetchPartition
	for _, part := range want {
		wanted[part.TP] = struct{}{}
		old, known := s.sent[part.TP]
		if known && old == part {
			continue
		}
		if known && old.TopicID != part.TopicID {
			gone = append(gone, old) // created again: the old incarnation leaves the session
		}
		s.sent[part.TP] = part
		changed = append(changed, part)
	}
	for tp, part := range s.sent {
		if _, stays := wanted[tp]; !stays {
			gone = append(gone, part)
			delete(s.sent, tp)
		}
	}
	req.Topics = fetchTopics(changed)
	req.ForgottenTopics = forgottenTopics(gone)
}

// fetchTopics groups partitions by topic, keeping the order of first appearance.
func fetchTopics(parts []FetchPartition) []kmsg.FetchRequestTopic {
	var topics []kmsg.FetchRequestTopic
	at := map[string]int{}
	for _, part := range parts {
		i, known := at[part.TP.Topic]
		if !known {
			i = len(topics)
			at[part.TP.Topic] = i
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = part.TP.Topic, part.TopicID
			topics = append(topics, t)
		}
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.CurrentLeaderEpoch, p.FetchOffset = part.TP.Partition, int32(part.CurrentLeaderEpoch), part.FetchOffset
		p.LastFetchedEpoch, p.LogStartOffset, p.PartitionMaxBytes = int32(part.LastFetchedEpoch), part.LogStartOffset, part.MaxBytes
		topics[i].Partitions = append(topics[i].Partitions, p)
	}
	return topics
}

// forgottenTopics groups by topic and id: both incarnations of a topic may be among them.
func forgottenTopics(parts []FetchPartition) []kmsg.FetchRequestForgottenTopic {
	slices.SortFunc(parts, func(a, b FetchPartition) int {
		return cmp.Or(cmp.Compare(a.TP.Topic, b.TP.Topic), slices.Compare(a.TopicID[:], b.TopicID[:]), cmp.Compare(a.TP.Partition, b.TP.Partition))
	})
	var topics []kmsg.FetchRequestForgottenTopic
	for _, part := range parts {
		if n := len(topics); n == 0 || topics[n-1].Topic != part.TP.Topic || topics[n-1].TopicID != part.TopicID {
			t := kmsg.NewFetchRequestForgottenTopic()
			t.Topic, t.TopicID = part.TP.Topic, part.TopicID
			topics = append(topics, t)
		}
		last := &topics[len(topics)-1]
		last.Partitions = append(last.Partitions, part.TP.Partition)
	}
	return topics
}

// answered takes over the answer's session and reports whether its partitions are to be used.
func (s *followerSession) answered(resp *kmsg.FetchResponse) bool {
	if resp.ErrorCode != 0 {
		// FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH and the like: start anew.
		if cluster.ErrorCode(resp.ErrorCode) == cluster.FetchSessionIDNotFound {
			s.id = NoFetchSession
		}
		s.reset()
		return false
	}
	if resp.SessionID == NoFetchSession {
		s.id = NoFetchSession
		s.reset()
		return true
	}
	s.id = resp.SessionID
	s.epoch = nextFetchEpoch(s.epoch)
	return true
}
