package cluster

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// TopicID is the 128-bit id of one incarnation of a topic (KIP-516). The zero value means "no id".
type TopicID [16]byte

// IsZero reports whether the id is absent.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String gives the 22-character unpadded base64url form that Kafka writes and prints.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// ParseTopicID reads the base64url form, padded or not.
func ParseTopicID(s string) (TopicID, error) {
	for len(s) > 0 && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 16 {
		return TopicID{}, fmt.Errorf("%q is not a topic id: want 22 base64url characters", s)
	}
	return TopicID(b), nil
}

// NewTopicID returns a random id that is neither zero, nor Kafka's reserved id 1, nor starts with a dash,
// which command lines would take for an option (Kafka: Uuid.randomUuid).
func NewTopicID() TopicID {
	for {
		var id TopicID
		_, _ = rand.Read(id[:]) // crypto/rand.Read never fails
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if id.String()[0] != '-' {
			return id
		}
	}
}
