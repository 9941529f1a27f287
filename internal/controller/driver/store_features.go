package driver

import (
	"context"
	"errors"
	"fmt"

	"klamm/internal/controller"
	"klamm/internal/coord"
)

// readFeatures reads what is finalized. Nothing is where features are not enabled.
func (o *storeOp) readFeatures(ctx context.Context) (controller.FeaturesRead, error) {
	f, version, err := o.features(ctx)
	if err != nil {
		return controller.FeaturesRead{}, err
	}
	if f == nil {
		return controller.FeaturesRead{Version: version, Err: "the node of features cannot be decoded"}, nil
	}
	return controller.FeaturesRead{Levels: levelsOf(*f), Version: version}, nil
}

// features reads /feature: an empty value and version -1 when it is absent, nil when it cannot be decoded.
func (o *storeOp) features(ctx context.Context) (*coord.Features, int32, error) {
	node, err := o.d.store.Get(ctx, coord.FeaturePath)
	if errors.Is(err, coord.ErrNoNode) {
		return &coord.Features{}, -1, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read features: %w", err)
	}
	f, err := coord.DecodeFeatures(node.Data)
	if err != nil {
		return nil, node.Stat.Version, nil //nolint:nilerr // a node that somebody spoilt is a fact, not a fault of the store
	}
	return &f, node.Stat.Version, nil
}

func levelsOf(f coord.Features) map[string]int16 {
	levels := map[string]int16{}
	if f.Enabled {
		for name, r := range f.Levels {
			levels[name] = r.Max
		}
	}
	return levels
}

// ensureFeatures sets up /feature for the inter-broker protocol version: enabled with no finalized feature where
// features are versioned, else disabled; levels of an enabled node stay (Kafka: KafkaController.enableFeatureVersioning).
func (o *storeOp) ensureFeatures(ctx context.Context) (controller.StoreValue, error) {
	have, version, err := o.features(ctx)
	if err != nil {
		return nil, err
	}
	if have == nil {
		return controller.FeaturesRead{Version: version, Err: "the node of features cannot be decoded"}, nil
	}
	want := coord.Features{Version: max(1, o.d.versions.FeatureLayout), Enabled: o.d.versions.FeatureLayout > 0}
	if want.Enabled && have.Enabled {
		want.Levels = have.Levels
		for name, l := range want.Levels {
			want.Levels[name] = coord.VersionRange{Min: max(1, l.Min), Max: l.Max} // layout 2 has no lower level
		}
	}
	if version >= 0 && have.Enabled == want.Enabled && have.Version == want.Version {
		return controller.FeaturesRead{Levels: levelsOf(want), Version: version}, nil
	}
	value, err := o.writeFeatures(ctx, want, version)
	if err != nil {
		return nil, err
	}
	item := value.(controller.Written).Items[0]
	if item.Status != controller.ItemOK {
		// Somebody else wrote it in between: what there is counts.
		return o.readFeatures(ctx)
	}
	return controller.FeaturesRead{Levels: levelsOf(want), Version: item.Version}, nil
}

// setFeatures replaces what is finalized. A level that the older layout gives a lower end keeps 1 there.
func (o *storeOp) setFeatures(ctx context.Context, op controller.SetFeatures) (controller.StoreValue, error) {
	f := coord.Features{Version: o.d.versions.FeatureLayout, Enabled: true, Levels: map[string]coord.VersionRange{}}
	for name, level := range op.Levels {
		f.Levels[name] = coord.VersionRange{Min: 1, Max: level}
	}
	return o.writeFeatures(ctx, f, op.Version)
}

func (o *storeOp) writeFeatures(ctx context.Context, f coord.Features, at int32) (controller.StoreValue, error) {
	if at < 0 {
		return o.batch(ctx, "create features", []coord.Op{coord.Create(coord.FeaturePath, coord.EncodeFeatures(f))})
	}
	return o.batch(ctx, "set features", []coord.Op{coord.Set(coord.FeaturePath, coord.EncodeFeatures(f), at)})
}
