package driver

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// DefaultInterBrokerProtocol is the inter.broker.protocol.version of Kafka 3.9.
const DefaultInterBrokerProtocol = "3.9"

// Versions are what the inter.broker.protocol.version decides for the controller: the versions of its requests to
// brokers, which are sent without asking the peer, and the layout of /feature.
type Versions struct {
	LeaderAndISR   int16
	UpdateMetadata int16
	StopReplica    int16
	// FeatureLayout is the JSON version of /feature: 1 or 2; 0 where features are not versioned (before 2.7-IV0).
	FeatureLayout int32
	// TopicIDs and LeaderRecoveryState are the core's switches (2.8-IV0 and 3.2-IV0).
	TopicIDs            bool
	LeaderRecoveryState bool
	// LeadersWriteISR is too: below 2.7-IV2 there is no AlterPartition.
	LeadersWriteISR bool
}

// protocolVersion is an inter.broker.protocol.version as numbers that compare in order: major, minor, patch, IV.
type protocolVersion [4]int

func (v protocolVersion) atLeast(o protocolVersion) bool { return slices.Compare(v[:], o[:]) >= 0 }

// VersionsFor gives the versions of an inter.broker.protocol.version such as "3.9", "2.6-IV0" or "0.10.2". Without IV
// the release's newest is meant. It knows Kafka's versions up to 3.9, the last one with ZooKeeper
// (Kafka: MetadataVersion.leaderAndIsrRequestVersion and its neighbours).
func VersionsFor(ibp string) (Versions, error) {
	v, err := parseProtocolVersion(ibp)
	if err != nil {
		return Versions{}, err
	}
	if v.atLeast(protocolVersion{4}) {
		return Versions{}, fmt.Errorf("inter.broker.protocol.version %q is newer than 3.9, the last with this protocol", ibp)
	}
	step := func(steps ...protocolStep) (version int16) {
		for _, s := range steps {
			if v.atLeast(s.from) {
				version = s.version
			}
		}
		return version
	}
	out := Versions{
		LeaderAndISR: step(protocolStep{protocolVersion{1}, 1}, protocolStep{protocolVersion{2, 2}, 2}, protocolStep{protocolVersion{2, 4}, 3},
			protocolStep{protocolVersion{2, 4, 0, 1}, 4}, protocolStep{protocolVersion{2, 8, 0, 1}, 5}, protocolStep{protocolVersion{3, 2}, 6},
			protocolStep{protocolVersion{3, 4}, 7}),
		UpdateMetadata: step(protocolStep{protocolVersion{0, 9}, 1}, protocolStep{protocolVersion{0, 10, 0, 1}, 2}, protocolStep{protocolVersion{0, 10, 2}, 3},
			protocolStep{protocolVersion{1}, 4}, protocolStep{protocolVersion{2, 2}, 5}, protocolStep{protocolVersion{2, 4, 0, 1}, 6},
			protocolStep{protocolVersion{2, 8, 0, 1}, 7}, protocolStep{protocolVersion{3, 4}, 8}),
		StopReplica: step(protocolStep{protocolVersion{2, 2}, 1}, protocolStep{protocolVersion{2, 4, 0, 1}, 2}, protocolStep{protocolVersion{2, 6}, 3},
			protocolStep{protocolVersion{3, 4}, 4}),
		FeatureLayout:       int32(step(protocolStep{protocolVersion{2, 7}, 1}, protocolStep{protocolVersion{3, 3}, 2})),
		TopicIDs:            v.atLeast(protocolVersion{2, 8}),
		LeaderRecoveryState: v.atLeast(protocolVersion{3, 2}),
		LeadersWriteISR:     !v.atLeast(protocolVersion{2, 7, 0, 2}),
	}
	return out, nil
}

// protocolStep says from which inter.broker.protocol.version on a request has which version.
type protocolStep struct {
	from    protocolVersion
	version int16
}

// parseProtocolVersion reads "major.minor[.patch][-IVn]"; only releases before 1.0 count their patch.
func parseProtocolVersion(s string) (protocolVersion, error) {
	bad := fmt.Errorf("inter.broker.protocol.version %q is not a Kafka version such as 3.9 or 3.9-IV0", s)
	release, ivText, hasIV := strings.Cut(s, "-IV")
	v := protocolVersion{3: math.MaxInt}
	if hasIV {
		iv, err := strconv.ParseUint(ivText, 10, 8)
		if err != nil {
			return v, bad
		}
		v[3] = int(iv)
	}
	parts := strings.Split(release, ".")
	if len(parts) < 2 || len(parts) > 4 {
		return v, bad
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return v, bad
		}
		if i < 2 || i == 2 && v[0] == 0 {
			v[i] = int(n)
		}
	}
	return v, nil
}
