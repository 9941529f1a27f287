package replica

import "klamm/internal/config"

// Versions are the request versions that this broker sends to others, by inter.broker.protocol.version.
type Versions struct {
	Fetch, ListOffsets, OffsetForLeaderEpoch, AlterPartition int16
	// TruncationOnFetch: followers find diverging epochs by fetching (2.7-IV1 and later).
	TruncationOnFetch bool
	// WriteISR: leaders write their ISRs into the state nodes themselves (before 2.7-IV2).
	WriteISR bool
}

// DefaultVersions are those of inter.broker.protocol.version 3.9.
func DefaultVersions() Versions {
	return Versions{Fetch: 17, ListOffsets: 9, OffsetForLeaderEpoch: 4, AlterPartition: 3, TruncationOnFetch: true}
}

// sinceVersion is the request version sent from a protocol version on.
type sinceVersion struct {
	since   config.ProtocolVersion
	version int16
}

func protocol(major, minor, step int) config.ProtocolVersion {
	return config.ProtocolVersion{Major: major, Minor: minor, Step: step}
}

// The tables follow Kafka's MetadataVersion, newest first. Peers of AlterPartition are asked for nothing newer than their
// release is known to have: Kafka negotiates that one instead.
var (
	fetchVersions = []sinceVersion{
		{protocol(3, 9, 0), 17}, {protocol(3, 7, 4), 16}, {protocol(3, 5, 1), 15}, {protocol(3, 5, 0), 14}, {protocol(3, 1, 0), 13},
		{protocol(2, 7, 1), 12}, {protocol(2, 3, 1), 11}, {protocol(2, 1, 2), 10}, {protocol(2, 0, 1), 8}, {protocol(1, 1, 0), 7}, {protocol(0, 11, 1), 5},
	}
	listOffsetsVersions = []sinceVersion{
		{protocol(3, 9, 0), 9}, {protocol(3, 8, 0), 8}, {protocol(3, 0, 1), 7}, {protocol(2, 8, 0), 6}, {protocol(2, 2, 1), 5}, {protocol(2, 1, 1), 4},
		{protocol(2, 0, 1), 3}, {protocol(0, 11, 0), 2},
	}
	epochVersions = []sinceVersion{
		{protocol(2, 8, 0), 4}, {protocol(2, 3, 1), 3}, {protocol(2, 1, 1), 2}, {protocol(2, 0, 0), 1},
	}
	alterPartitionVersions = []sinceVersion{
		{protocol(3, 5, 0), 3}, {protocol(3, 3, 0), 2}, {protocol(3, 2, 0), 1},
	}
)

// VersionsFor gives the versions to send under an inter.broker.protocol.version.
func VersionsFor(p config.ProtocolVersion) Versions {
	pick := func(table []sinceVersion, least int16) int16 {
		for _, row := range table {
			if p.AtLeast(row.since) {
				return row.version
			}
		}
		return least
	}
	return Versions{
		Fetch: pick(fetchVersions, 4), ListOffsets: pick(listOffsetsVersions, 1), OffsetForLeaderEpoch: pick(epochVersions, 0),
		AlterPartition: pick(alterPartitionVersions, 0), TruncationOnFetch: p.AtLeast(protocol(2, 7, 1)),
		WriteISR: !p.AtLeast(protocol(2, 7, 2)),
	}
}
