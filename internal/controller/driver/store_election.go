package driver

import (
	"context"
	"errors"
	"fmt"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/coord"
)

func (o *storeOp) readController(ctx context.Context) (controller.StoreValue, error) {
	id, err := coord.ActiveController(ctx, o.d.store)
	return controller.ControllerRead{Broker: id}, err
}

// readControllerEpoch begins every election. While the cluster migrates to KRaft there is none for klamm: the brokers do not
// belong to who is elected here any more.
func (o *storeOp) readControllerEpoch(ctx context.Context) (controller.StoreValue, error) {
	if err := coord.RefuseMigration(ctx, o.d.store); err != nil {
		return nil, err
	}
	node, err := o.d.store.Get(ctx, coord.ControllerEpochPath)
	if errors.Is(err, coord.ErrNoNode) {
		return controller.ControllerEpochRead{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read controller epoch: %w", err)
	}
	epoch, err := coord.DecodeControllerEpoch(node.Data)
	return controller.ControllerEpochRead{Exists: true, Epoch: epoch, Version: node.Stat.Version}, err
}

func (o *storeOp) createControllerEpoch(ctx context.Context) (controller.StoreValue, error) {
	results, err := o.d.store.Multi(ctx, coord.Create(coord.ControllerEpochPath, coord.EncodeControllerEpoch(0)))
	switch {
	case err == nil:
		return controller.ControllerEpochRead{Exists: true, Version: results[0].Stat.Version}, nil
	case errors.Is(err, coord.ErrNodeExists):
		return o.readControllerEpoch(ctx)
	default:
		return nil, fmt.Errorf("create controller epoch: %w", err)
	}
}

// elect is the one transaction that makes a controller: from its success on, no write of an earlier one can succeed.
func (o *storeOp) elect(ctx context.Context, op controller.Elect) (controller.StoreValue, error) {
	me := coord.ControllerNode{BrokerID: op.Broker, TimestampMs: int64(op.At), KRaftEpoch: coord.NoKRaftEpoch}
	results, err := o.d.store.Multi(ctx,
		coord.CreateEphemeral(coord.ControllerPath, coord.EncodeController(me), o.session),
		coord.Set(coord.ControllerEpochPath, coord.EncodeControllerEpoch(op.Epoch), op.Version))
	switch {
	case err == nil:
		return controller.ElectResult{Status: controller.ItemOK, Version: results[1].Stat.Version}, nil
	case errors.Is(err, coord.ErrNodeExists):
		return controller.ElectResult{Status: controller.ItemExists}, nil
	case errors.Is(err, coord.ErrBadVersion), errors.Is(err, coord.ErrNoNode):
		return controller.ElectResult{Status: controller.ItemConflict}, nil
	default:
		return nil, fmt.Errorf("elect: %w", err)
	}
}

// releaseOffice removes /controller if it belongs to this driver's session: after a crash of the core, where nobody acts
// under it, and at the end of Run, so that another broker need not wait for the session to go. It is fenced by the epoch
// that the store shows, which is ours as long as /controller is.
func (d *Driver) releaseOffice(ctx context.Context, s coord.Session) error {
	node, err := d.store.Get(ctx, coord.ControllerPath)
	if errors.Is(err, coord.ErrNoNode) || err == nil && node.Stat.EphemeralOwner != s.ID() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read controller: %w", err)
	}
	epoch, err := d.store.Get(ctx, coord.ControllerEpochPath)
	if err != nil {
		return fmt.Errorf("read controller epoch: %w", err)
	}
	term := coord.Term{Controller: d.cfg.BrokerID, EpochVersion: epoch.Stat.Version}
	if err := coord.Resign(ctx, d.store, term); err != nil && !errors.Is(err, coord.ErrFenced) {
		return err
	}
	return nil
}

// readBrokers reads the registrations; one that cannot be decoded is left out with a warning, as if the broker were not there.
func (o *storeOp) readBrokers(ctx context.Context) (controller.StoreValue, error) {
	names, err := o.children(ctx, coord.BrokerIDsPath)
	if err != nil {
		return nil, err
	}
	var ids []cluster.BrokerID
	var paths []string
	for _, name := range names {
		if id, ok := coord.ParseBrokerPath(coord.BrokerIDsPath + "/" + name); ok {
			ids, paths = append(ids, id), append(paths, coord.BrokerPath(id))
		}
	}
	reads, err := o.d.store.GetMany(ctx, paths)
	if err != nil {
		return nil, fmt.Errorf("read brokers: %w", err)
	}
	var out controller.BrokersRead
	for i, r := range reads {
		ok, err := o.mayRead(r, paths[i])
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		n, err := coord.DecodeBroker(r.Node.Data)
		if err != nil {
			o.d.log.Warn("registration of a broker cannot be read, it is taken for absent", "path", paths[i], "err", err)
			continue
		}
		out.Brokers = append(out.Brokers, n.Broker(ids[i], cluster.BrokerEpoch(r.Node.Stat.Czxid)))
	}
	known, err := o.children(ctx, coord.KlammBrokersPath)
	for _, name := range known {
		if id, ok := coord.ParseBrokerName(name); ok {
			out.Klamm = append(out.Klamm, id)
		}
	}
	return out, err
}

// children lists a node's children; an absent node has none.
func (o *storeOp) children(ctx context.Context, path string) ([]string, error) {
	names, err := o.d.store.Children(ctx, path)
	if errors.Is(err, coord.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", path, err)
	}
	return names, nil
}
