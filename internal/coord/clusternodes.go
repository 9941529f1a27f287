package coord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"klamm/internal/cluster"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// controllerVersion is what brokers at 3.4 and later write.
const controllerVersion = 2

// NoKRaftEpoch is the KRaft controller epoch of a controller in ZooKeeper mode.
const NoKRaftEpoch = -1

// ControllerNode is what /controller holds.
type ControllerNode struct {
	Version     int32 // of the layout; 0 writes 2
	BrokerID    cluster.BrokerID
	TimestampMs int64
	KRaftEpoch  int32 // NoKRaftEpoch unless a KRaft controller owns the cluster
}

// EncodeController writes /controller (Kafka: ControllerZNode.encode).
func EncodeController(n ControllerNode) []byte {
	version := n.Version
	if version == 0 {
		version = controllerVersion
	}
	b := appendInt([]byte(`{"version":`), version)
	b = appendInt(append(b, `,"brokerid":`...), n.BrokerID)
	b = appendString(append(b, `,"timestamp":`...), strconv.FormatInt(n.TimestampMs, 10))
	if version >= 2 {
		b = appendInt(append(b, `,"kraftControllerEpoch":`...), n.KRaftEpoch)
	}
	return append(b, '}')
}

// DecodeController reads /controller; only the broker id is required.
func DecodeController(data []byte) (ControllerNode, error) {
	j := struct {
		Version    int32             `json:"version"`
		BrokerID   *cluster.BrokerID `json:"brokerid"`
		Timestamp  looseInt          `json:"timestamp"`
		KRaftEpoch int32             `json:"kraftControllerEpoch"`
	}{KRaftEpoch: NoKRaftEpoch}
	if err := decodeJSON(ControllerPath, data, &j); err != nil {
		return ControllerNode{}, err
	}
	if j.BrokerID == nil {
		return ControllerNode{}, fmt.Errorf("decode %s: brokerid is missing in %q", ControllerPath, data)
	}
	return ControllerNode{Version: j.Version, BrokerID: *j.BrokerID, TimestampMs: int64(j.Timestamp), KRaftEpoch: j.KRaftEpoch}, nil
}

// EncodeControllerEpoch writes /controller_epoch.
func EncodeControllerEpoch(e cluster.ControllerEpoch) []byte { return appendInt([]byte(nil), e) }

// DecodeControllerEpoch reads /controller_epoch.
func DecodeControllerEpoch(data []byte) (cluster.ControllerEpoch, error) {
	n, err := strconv.ParseInt(string(data), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("decode %s: %w", ControllerEpochPath, err)
	}
	return cluster.ControllerEpoch(n), nil
}

// EncodeClusterID writes /cluster/id.
func EncodeClusterID(id string) []byte {
	return append(appendString([]byte(`{"version":"1","id":`), id), '}')
}

// DecodeClusterID reads /cluster/id.
func DecodeClusterID(data []byte) (string, error) {
	var j struct {
		ID string `json:"id"`
	}
	if err := decodeJSON(ClusterIDPath, data, &j); err != nil {
		return "", err
	}
	if j.ID == "" {
		return "", fmt.Errorf("decode %s: id is missing in %q", ClusterIDPath, data)
	}
	return j.ID, nil
}

// ProducerIDBlock is the last block of producer ids that was handed out; First and Last belong to it.
type ProducerIDBlock struct {
	Broker      cluster.BrokerID
	First, Last int64
}

// EncodeProducerIDBlock writes /latest_producer_id_block.
func EncodeProducerIDBlock(p ProducerIDBlock) []byte {
	b := appendInt([]byte(`{"version":1,"broker":`), p.Broker)
	b = appendString(append(b, `,"block_start":`...), strconv.FormatInt(p.First, 10))
	b = appendString(append(b, `,"block_end":`...), strconv.FormatInt(p.Last, 10))
	return append(b, '}')
}

// DecodeProducerIDBlock reads /latest_producer_id_block; false when no block was handed out yet.
func DecodeProducerIDBlock(data []byte) (ProducerIDBlock, bool, error) {
	if len(data) == 0 {
		return ProducerIDBlock{}, false, nil
	}
	var j struct {
		Broker *cluster.BrokerID `json:"broker"`
		First  *looseInt         `json:"block_start"`
		Last   *looseInt         `json:"block_end"`
	}
	if err := decodeJSON("producer id block", data, &j); err != nil {
		return ProducerIDBlock{}, false, err
	}
	if j.Broker == nil || j.First == nil || j.Last == nil || *j.First < 0 || *j.Last < *j.First {
		return ProducerIDBlock{}, false, fmt.Errorf("decode producer id block: want broker, block_start and block_end in %q", data)
	}
	return ProducerIDBlock{Broker: *j.Broker, First: int64(*j.First), Last: int64(*j.Last)}, true, nil
}

// featuresVersion is what brokers at 3.3-IV0 and later write.
const featuresVersion = 2

// Features is what /feature holds: the finalized features. Version 2 has no lower level: Min is 0 there.
type Features struct {
	Version int32 // of the layout, 1 or 2; 0 writes 2
	Enabled bool
	Levels  map[string]VersionRange
}

// EncodeFeatures writes /feature (Kafka: FeatureZNode.encode).
func EncodeFeatures(f Features) []byte {
	version, minKey := f.Version, ""
	if version == 0 {
		version = featuresVersion
	}
	if version == 1 {
		minKey = "min_version_level"
	}
	b := appendFeatureRanges([]byte(`{"features":`), f.Levels, minKey, "max_version_level")
	b = appendInt(append(b, `,"version":`...), version)
	status := 0
	if f.Enabled {
		status = 1
	}
	b = appendInt(append(b, `,"status":`...), status)
	return append(b, '}')
}

// DecodeFeatures reads /feature.
func DecodeFeatures(data []byte) (Features, error) {
	var j struct {
		Version int32 `json:"version"`
		Status  *int  `json:"status"`
		Levels  map[string]struct {
			Min *int16 `json:"min_version_level"`
			Max *int16 `json:"max_version_level"`
		} `json:"features"`
	}
	if err := decodeJSON("features", data, &j); err != nil {
		return Features{}, err
	}
	if j.Version < 1 || j.Version > featuresVersion {
		return Features{}, fmt.Errorf("decode features: unsupported version %d", j.Version)
	}
	if j.Status == nil || *j.Status < 0 || *j.Status > 1 || j.Levels == nil {
		return Features{}, fmt.Errorf("decode features: want status 0 or 1 and features in %q", data)
	}
	f := Features{Version: j.Version, Enabled: *j.Status == 1, Levels: make(map[string]VersionRange, len(j.Levels))}
	for name, l := range j.Levels {
		var r VersionRange
		if l.Max != nil {
			r.Max = *l.Max
		}
		if j.Version == 1 {
			if l.Min == nil || *l.Min < 1 || *l.Min > r.Max {
				return Features{}, fmt.Errorf("decode features: levels of %s are not a range", name)
			}
			r.Min = *l.Min
		}
		if r.Max < 1 {
			return Features{}, fmt.Errorf("decode features: level of %s is below 1", name)
		}
		f.Levels[name] = r
	}
	return f, nil
}

// EncodeConfig writes the configs of an entity (Kafka: ConfigEntityZNode.encode).
func EncodeConfig(configs map[string]string) []byte {
	keys := sortedKeys(configs)
	propertiesOrder(keys)
	b := []byte(`{"version":1,"config":{`)
	for _, k := range keys {
		b = appendString(appendKey(b, k), configs[k])
	}
	return append(b, `}}`...)
}

// DecodeConfig reads the configs of an entity. An empty node has none.
func DecodeConfig(data []byte) (map[string]string, error) {
	if len(data) == 0 {
		return map[string]string{}, nil
	}
	j := struct {
		Config map[string]string `json:"config"`
	}{map[string]string{}}
	if err := decodeJSON("config", data, &j); err != nil {
		return nil, err
	}
	if j.Config == nil {
		j.Config = map[string]string{}
	}
	return j.Config, nil
}

// EncodeConfigChange writes the notification that an entity's configs changed; the path is "topics/T" or the like.
func EncodeConfigChange(entityPath string) []byte {
	return append(appendString([]byte(`{"version":2,"entity_path":`), entityPath), '}')
}

// DecodeConfigChange reads the entity path of a config change notification, version 1 or 2.
func DecodeConfigChange(data []byte) (string, error) {
	var j struct {
		Version int32  `json:"version"`
		Path    string `json:"entity_path"`
		Type    string `json:"entity_type"`
		Name    string `json:"entity_name"`
	}
	if err := decodeJSON("config change", data, &j); err != nil {
		return "", err
	}
	switch {
	case j.Version == 2 && j.Path != "":
		return j.Path, nil
	case j.Version == 1 && (j.Type == TopicConfigs || j.Type == ClientConfigs) && j.Name != "":
		return j.Type + "/" + j.Name, nil
	}
	return "", fmt.Errorf("decode config change: want version 2 with entity_path, or 1 with type and name, in %q", data)
}

// Migration is what /migration holds: how far a KRaft migration driver has come. klamm only reads it.
type Migration struct {
	ControllerID    int32 `json:"kraft_controller_id"`
	ControllerEpoch int32 `json:"kraft_controller_epoch"`
	MetadataOffset  int64 `json:"kraft_metadata_offset"`
	MetadataEpoch   int32 `json:"kraft_metadata_epoch"`
}

// DecodeMigration reads /migration.
func DecodeMigration(data []byte) (Migration, error) {
	var m Migration
	err := decodeJSON("migration", data, &m)
	return m, err
}

// ErrMigrating reports that the cluster moves to KRaft: its state no longer belongs to who is elected in this store.
var ErrMigrating = errors.New("klamm takes no part in that. Finish it or roll it back")

// Migrating tells by an ErrMigrating that there is a /migration; nil where there is none. err: it cannot be read.
func Migrating(ctx context.Context, s Store) (migrating, err error) {
	node, err := s.Get(ctx, MigrationPath)
	if errors.Is(err, ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", MigrationPath, err)
	}
	m, err := DecodeMigration(node.Data)
	if err != nil {
		return fmt.Errorf("%s says that the cluster migrates to KRaft: %w (%w)", MigrationPath, ErrMigrating, err), nil
	}
	return fmt.Errorf("%s says that the cluster migrates to KRaft (controller %d, epoch %d): %w",
		MigrationPath, m.ControllerID, m.ControllerEpoch, ErrMigrating), nil
}

// RefuseMigration fails where Migrating tells of a migration, or cannot tell.
func RefuseMigration(ctx context.Context, s Store) error {
	migrating, err := Migrating(ctx, s)
	return cmp.Or(migrating, err)
}
