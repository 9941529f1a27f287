package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/quota"
	"klamm/internal/security/users"
)

// configFollower keeps config.Dynamic in step with the config entities of topics and of this broker in the store, and the
// quotas with those of client ids, users and addresses: all of them at start, single ones when a change notification names
// them, and those of topics that come to this broker (Kafka: DynamicConfigManager and the config handlers).
//
// Locks: applyMu serialises applying, so that what was read earlier never replaces what was read later; config.Dynamic's
// listeners run below it and must not come back here. It is not held while reading the store.
type configFollower struct {
	log      *slog.Logger
	config   *config.Dynamic
	store    coord.Store
	brokerID string

	quotas      *quota.Clients
	connections *quota.Connections
	users       *users.Store

	applyMu sync.Mutex
	applied map[string]int64 // entity path to the change id (mzxid) of the node that was applied last
}

// configReadBackoff is the pause between two tries to read configs that a request cannot do without.
const configReadBackoff = 100 * time.Millisecond

func newConfigFollower(d Deps) *configFollower {
	return &configFollower{log: d.Log, config: d.Config, store: d.Store, brokerID: brokerName(d.BrokerID),
		quotas: d.Quotas, connections: d.Connections, users: d.Users, applied: map[string]int64{}}
}

// HandleConfigChange is the handler for coord/notify on coord.ConfigChangesPath: it reads the entity that the
// notification names, as it is now, and applies it. The error is for a malformed notification or a store that cannot be read.
func (h *Handlers) HandleConfigChange(ctx context.Context, notification []byte) error {
	path, err := coord.DecodeConfigChange(notification)
	if err != nil {
		return err
	}
	return h.configs.follow(ctx, path)
}

// LoadAllConfigs reads and applies the configs of all topics and of this broker, and all quotas: what coord/notify does on
// its start.
func (h *Handlers) LoadAllConfigs(ctx context.Context) error { return h.configs.loadAll(ctx) }

// follow applies the entity of a path such as "topics/T", "brokers/1" or "brokers/<default>".
func (f *configFollower) follow(ctx context.Context, entityPath string) error {
	kind, name, ok := strings.Cut(entityPath, "/")
	switch {
	case !ok:
		return fmt.Errorf("config change of %q: no entity", entityPath)
	case kind == coord.TopicConfigs && cluster.ValidateTopicName(name) != nil:
		return fmt.Errorf("config change of %q: not a topic name", entityPath)
	case quotaKinds[kind]:
		if _, err := describedParts(entityName{kind, name}); err != nil {
			return fmt.Errorf("config change of %q: %w", entityPath, err)
		}
	case kind == coord.BrokerConfigs && name != f.brokerID && name != coord.DefaultEntity, kind != coord.TopicConfigs && kind != coord.BrokerConfigs:
		return nil
	}
	return f.read(ctx, []entityName{{kind, name}})
}

var quotaKinds = map[string]bool{coord.ClientConfigs: true, coord.UserConfigs: true, coord.IPConfigs: true}

func (f *configFollower) loadAll(ctx context.Context) error {
	all := []entityName{{coord.BrokerConfigs, coord.DefaultEntity}, {coord.BrokerConfigs, f.brokerID}}
	if err := f.read(ctx, all); err != nil {
		return err
	}
	topics, err := f.store.Children(ctx, coord.ConfigTypePath(coord.TopicConfigs))
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return fmt.Errorf("list topic configs: %w", err)
	}
	if err := f.read(ctx, topicEntities(topics)); err != nil {
		return err
	}
	quotas, err := listQuotaEntities(ctx, f.store)
	if err != nil {
		return err
	}
	return f.read(ctx, quotas)
}

func topicEntities(topics []string) []entityName {
	out := make([]entityName, len(topics))
	for i, t := range topics {
		out[i] = entityName{coord.TopicConfigs, t}
	}
	return out
}

// readTopics reads the topics' configs and tries until it can; the error means that the context ended.
func (f *configFollower) readTopics(ctx context.Context, names []string) error {
	for {
		err := f.read(ctx, topicEntities(names))
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		f.log.Warn("cannot read the configs of topics new to this broker, trying again", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(configReadBackoff):
		}
	}
}

func (f *configFollower) read(ctx context.Context, entities []entityName) error {
	if len(entities) == 0 {
		return nil
	}
	paths := make([]string, len(entities))
	for i, e := range entities {
		paths[i] = e.path()
	}
	nodes, err := f.store.GetMany(ctx, paths)
	if err != nil {
		return fmt.Errorf("read %s configs: %w", entities[0].kind, err)
	}
	f.applyMu.Lock()
	defer f.applyMu.Unlock()
	for i, e := range entities {
		f.applyLocked(e.kind, e.name, paths[i], nodes[i])
	}
	return nil
}

// applyLocked applies one entity unless it, or a later state of it, was applied before. An entity that cannot be
// decoded is logged and leaves what was known.
func (f *configFollower) applyLocked(kind, name, path string, node coord.ReadResult) {
	var settings map[string]string
	if node.Err != nil && !errors.Is(node.Err, coord.ErrNoNode) {
		f.log.Error("config in the store cannot be read", "path", path, "err", node.Err)
		return
	}
	if node.Err == nil {
		if node.Node.Stat.Mzxid <= f.applied[path] {
			return
		}
		var err error
		if settings, err = coord.DecodeConfig(node.Node.Data); err != nil {
			f.log.Error("config in the store cannot be read", "path", path, "err", err)
			return
		}
		f.applied[path] = node.Node.Stat.Mzxid
	} else {
		delete(f.applied, path)
	}
	var warnings []config.Warning
	switch {
	case kind == coord.TopicConfigs:
		f.config.ApplyTopic(name, settings)
	case kind != coord.BrokerConfigs:
		if err := f.applyQuotas(kind, name, settings); err != nil {
			warnings = []config.Warning{{Message: err.Error()}}
		}
		if err := f.applyUser(kind, name, settings); err != nil {
			warnings = append(warnings, config.Warning{Message: err.Error()})
		}
	case name == coord.DefaultEntity:
		warnings = f.config.ApplyClusterDefault(settings)
	default:
		warnings = f.config.ApplyBroker(settings)
	}
	for _, w := range warnings {
		f.log.Warn("setting in the store is not applied", "entity", kind+"/"+name, "key", w.Key, "err", w.Message)
	}
}

// applyUser makes the SCRAM credentials of a user hold.
func (f *configFollower) applyUser(kind, name string, settings map[string]string) error {
	if kind != coord.UserConfigs || name == coord.DefaultEntity || strings.Contains(name, "/") {
		return nil
	}
	user, err := coord.DesanitizeEntity(name)
	if err != nil {
		return err
	}
	return f.users.Apply(user, settings)
}

// forgetTopic drops the settings of a topic that was deleted.
func (f *configFollower) forgetTopic(name string) {
	f.applyMu.Lock()
	defer f.applyMu.Unlock()
	delete(f.applied, coord.ConfigEntityPath(coord.TopicConfigs, name))
	f.config.ApplyTopic(name, nil)
}

// LoadConfigs applies the configs of all topics and of this broker, and all quotas, once, for the time before there are handlers: logs
// are opened with them. Of d it uses Log, BrokerID, Config, Store, Quotas, Connections and Users.
func LoadConfigs(ctx context.Context, d Deps) error { return newConfigFollower(d).loadAll(ctx) }
