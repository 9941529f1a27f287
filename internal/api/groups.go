package api

import (
	"crypto/rand"
	"encoding/hex"
	"sync"

	"klamm/internal/cluster"
	"klamm/internal/group"
)

// Groups is the group coordinator of this broker; coordinator.Coordinator satisfies it. Functions named done are called
// exactly once, on any goroutine.
type Groups interface {
	// PartitionFor is the partition of __consumer_offsets that holds a group.
	PartitionFor(groupID string) int32
	// Ask hands over a request about one group; done gets the result of the type that the request's comment names.
	Ask(r group.Request, done func(result any))
	// List gives the groups led here that are in one of the states; all without states.
	List(states []string, done func(group.ListResult))
}

// askGroups asks for several results and calls done when all are there, in the order of the requests.
func askGroups[R any](groups Groups, requests []group.Request, done func([]R)) {
	results := make([]R, len(requests))
	var left struct {
		sync.Mutex
		n int
	}
	left.n = len(requests) + 1
	one := func() {
		left.Lock()
		left.n--
		last := left.n == 0
		left.Unlock()
		if last {
			done(results)
		}
	}
	for i, r := range requests {
		groups.Ask(r, func(v any) {
			results[i] = v.(R)
			one()
		})
	}
	one()
}

// askGroup is askGroups for one request.
func askGroup[R any](groups Groups, r group.Request, done func(R)) {
	groups.Ask(r, func(v any) { done(v.(R)) })
}

// newMemberID makes a member's id as Kafka does: the instance's or the client's name and a random UUID.
func newMemberID(clientID, instanceID string) string {
	name := instanceID
	if name == "" {
		name = clientID
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	h := hex.EncodeToString(id[:])
	return name + "-" + h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// text reads a nullable string; null is empty.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// nullable is a string that is sent as null when it is empty.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// reason is what a client gives as its reason, cut to the length that Kafka's clients keep.
func reason(s *string) string {
	r := text(s)
	return r[:min(len(r), 255)]
}

// partitionExists reports whether this broker knows the partition.
func (h *Handlers) partitionExists(tp cluster.TopicPartition) bool {
	return h.d.Replicas.Exists(h.d.Cache.Image(), tp)
}
