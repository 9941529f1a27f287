package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"klamm/internal/cluster"
	"klamm/internal/commitlog"
	"klamm/internal/coord"
)

// openDirs opens the log dirs and checks whose they are before anything is written or started.
func (b *broker) openDirs(context.Context) error {
	b.dirs = commitlog.OpenDirs(b.cfg.LogDirs)
	if !slices.ContainsFunc(b.dirs, func(d commitlog.DirSpec) bool { return d.Err == nil }) {
		var errs []error
		for _, d := range b.dirs {
			errs = append(errs, d.Err)
		}
		return fmt.Errorf("no usable directory in log.dirs: %w", errors.Join(errs...))
	}
	for _, d := range b.dirs {
		if d.Err != nil {
			b.log.Error("log dir unusable; the others go on", "dir", d.Path, "err", d.Err)
		}
	}
	meta, found, err := commitlog.ReadMeta(b.dirs)
	if err != nil {
		return err
	}
	if found {
		b.clusterID = meta.ClusterID
		return b.adoptBrokerID(meta.BrokerID)
	}
	return nil
}

// adoptBrokerID compares the configured id with the one in the data; an id to be generated is the data's.
func (b *broker) adoptBrokerID(stored cluster.BrokerID) error {
	switch {
	case stored == cluster.NoBroker || stored == b.cfg.ID:
		return nil
	case b.cfg.ID < 0:
		b.cfg = b.cfg.WithID(stored)
		return nil
	}
	return fmt.Errorf("%s/meta.properties belongs to broker.id=%d, but broker.id=%d is configured; use that id, or another log.dirs",
		b.dirs[0].Path, stored, b.cfg.ID)
}

// resolveBrokerID gives a broker without an id one that no broker of the cluster has or had: the data version of
// /brokers/seqid, above the ids that people choose (Kafka: KafkaServer.generateBrokerId).
func (b *broker) resolveBrokerID(ctx context.Context) error {
	if b.cfg.ID >= 0 {
		return nil
	}
	if !b.cfg.BrokerIDGenerationEnable {
		return fmt.Errorf("broker.id is not set and broker.id.generation.enable=false; set broker.id")
	}
	r, err := b.store.Multi(ctx, coord.Set(coord.BrokerSequencePath, nil, coord.AnyVersion))
	if err != nil {
		return fmt.Errorf("generate a broker id: %w", err)
	}
	b.cfg = b.cfg.WithID(b.cfg.ReservedBrokerMaxID + cluster.BrokerID(r[0].Stat.Version))
	return nil
}

// checkClusterID makes the cluster id of a new cluster, or insists that the data belongs to the one that is there.
// The environment's CLUSTER_ID names the id of a new cluster, as in Kafka's container image. Log dirs that already belong
// to a cluster never name it: an empty store beside them means that the wrong store is configured.
func (b *broker) checkClusterID(ctx context.Context) error {
	stored := b.clusterID
	if wanted := b.cfg.ClusterID; wanted != "" && stored == "" {
		err := settle(ctx, func() error {
			return coord.EnsurePath(ctx, b.store, coord.ClusterIDPath, coord.EncodeClusterID(wanted))
		})
		if err != nil {
			return fmt.Errorf("write the cluster id %s: %w", wanted, err)
		}
	}
	id, err := coord.ClusterID(ctx, b.store)
	if err != nil {
		return fmt.Errorf("read the cluster id: %w", err)
	}
	if stored != "" && stored != id {
		return fmt.Errorf("%s/meta.properties belongs to cluster.id=%s, but the coordination data (%s) is of cluster %s; use log.dirs and coordination data of one cluster",
			b.dirs[0].Path, stored, b.coordination.Name, id)
	}
	b.clusterID = id
	return b.resolveBrokerID(ctx)
}
