package replica

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// followerSession is the fetching side of a fetch session (KIP-227, Kafka: FetchSessionHandler): it sends only the
// partitions that changed since the last request. Owned by a fetcher's goroutine. The zero value has no session.
type followerSession struct {
	none    bool // no session is wanted: every request is a full one
	id      int32
	epoch   int32
	started bool // the leader has, or is about to have, what sent says
	byID    bool
	sent    map[cluster.TopicPartition]FetchPartition // the last request, whole
	names   map[cluster.TopicID]string                // of the topics in sent, and maybe some before
}

// reset makes the next request a full one. An open session is named in it, so that the leader closes it.
func (s *followerSession) reset() { s.started = false }

// fill puts the wanted partitions into the request, as a whole or as differences.
func (s *followerSession) fill(req *kmsg.FetchRequest, want []FetchPartition) {
	byID := req.Version >= firstFetchVersionByID
	for i := range want {
		byID = byID && !want[i].TopicID.IsZero()
	}
	if !byID {
		req.Version = min(req.Version, firstFetchVersionByID-1)
	}
	if !s.started || s.byID != byID {
		s.started, s.byID, s.epoch = true, byID, InitialFetchEpoch
		if s.none {
			s.epoch = FinalFetchEpoch
		}
		s.sent, s.names = make(map[cluster.TopicPartition]FetchPartition, len(want)), map[cluster.TopicID]string{}
	}
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	var changed, gone []FetchPartition
	for _, part := range want {
		old, known := s.sent[part.TP]
		if known && old == part {
			continue
		}
		if known && old.TopicID != part.TopicID {
			gone = append(gone, old) // created again: the old incarnation leaves the session
		}
		s.sent[part.TP], s.names[part.TopicID] = part, part.TP.Topic
		changed = append(changed, part)
	}
	if len(s.sent) > len(want) {
		gone = s.forget(want, gone)
	}
	req.Topics = fetchTopics(changed)
	req.ForgottenTopics = forgottenTopics(gone)
}

// forget drops what is no longer wanted and appends it to gone.
func (s *followerSession) forget(want, gone []FetchPartition) []FetchPartition {
	wanted := make(map[cluster.TopicPartition]struct{}, len(want))
	for _, part := range want {
		wanted[part.TP] = struct{}{}
	}
	for tp, part := range s.sent {
		if _, stays := wanted[tp]; !stays {
			gone = append(gone, part)
			delete(s.sent, tp)
		}
	}
	if len(s.names) > 2*len(s.sent)+100 {
		clear(s.names)
		for _, part := range s.sent {
			s.names[part.TopicID] = part.TP.Topic
		}
	}
	return gone
}

// asked returns how the last request asked for a partition of the answer.
func (s *followerSession) asked(topic *kmsg.FetchResponseTopic, partition int32, version int16) (FetchPartition, bool) {
	name := topic.Topic
	if version >= firstFetchVersionByID {
		name = s.names[topic.TopicID]
	}
	part, ok := s.sent[cluster.TopicPartition{Topic: name, Partition: partition}]
	return part, ok && (version < firstFetchVersionByID || part.TopicID == topic.TopicID)
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
