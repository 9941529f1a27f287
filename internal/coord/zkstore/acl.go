package zkstore

import (
	"strings"

	"klamm/internal/coord"
)

const (
	permRead int32 = 1
	permAll  int32 = 31
)

// The ACLs of new nodes, encoded. Creator is whoever the connection is logged in as.
var (
	openACL      = encodeACL(aclEntry{permAll, "world", "anyone"})
	creatorACL   = encodeACL(aclEntry{permAll, "auth", ""}, aclEntry{permRead, "world", "anyone"})
	sensitiveACL = encodeACL(aclEntry{permAll, "auth", ""})
)

// sensitivePrefixes are of nodes that hold secrets (Kafka: ZkData.SensitiveRootPaths).
var sensitivePrefixes = []string{coord.ConfigPath + "/users", coord.ConfigPath + "/brokers", coord.DelegationTokensPath}

type aclEntry struct {
	perms      int32
	scheme, id string
}

func encodeACL(entries ...aclEntry) []byte {
	b := appendInt(nil, int32(len(entries)))
	for _, e := range entries {
		b = appendString(appendString(appendInt(b, e.perms), e.scheme), e.id)
	}
	return b
}

// acl gives the ACL of a new node (Kafka: ZkData.defaultAcls). Consumers of old releases create their own nodes below /consumers.
func (s *Store) acl(path string) []byte {
	if !s.o.SetACL || path == coord.ConsumersPath {
		return openACL
	}
	for _, prefix := range sensitivePrefixes {
		if strings.HasPrefix(path, prefix) {
			return sensitiveACL
		}
	}
	return creatorACL
}
