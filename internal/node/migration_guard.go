package node

import (
	"context"
	"log/slog"
	"sync/atomic"

	"klamm/internal/coord"
)

// migrationGuard is the store as requests of clients write it: not at all while the cluster migrates to KRaft, whose controller
// would not take over what appears here (Kafka refuses such writes since 3.7: AdminZkClient.setOrCreateEntityConfigs). What a broker
// writes for itself goes past it. It is safe for concurrent use.
type migrationGuard struct {
	coord.Store
	log     *slog.Logger
	refusal atomic.Pointer[error] // nil while there is no migration
}

// Multi implements coord.Store.
func (g *migrationGuard) Multi(ctx context.Context, ops ...coord.Op) ([]coord.OpResult, error) {
	if refusal := g.refusal.Load(); refusal != nil {
		return nil, *refusal
	}
	return g.Store.Multi(ctx, ops...)
}

// run follows /migration until ctx ends. When it cannot be read, what was last known stays.
func (g *migrationGuard) run(ctx context.Context) error {
	w := g.NewWatcher()
	defer w.Close()
	w.Add(coord.MigrationPath, coord.WatchNode)
	for {
		g.look(ctx)
		if _, err := w.Next(ctx); err != nil {
			return nil
		}
	}
}

func (g *migrationGuard) look(ctx context.Context) {
	migrating, err := coord.Migrating(ctx, g.Store)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		g.log.Warn("cannot tell whether the cluster migrates to KRaft", "err", err)
	case migrating == nil:
		if g.refusal.Swap(nil) != nil {
			g.log.Info("the cluster no longer migrates to KRaft: changes are taken again")
		}
	case g.refusal.Swap(&migrating) == nil:
		g.log.Error("no changes of configs, quotas, users, access rules and tokens are taken", "reason", migrating)
	}
}
