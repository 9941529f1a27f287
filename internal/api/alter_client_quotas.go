package api

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/quota"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// AlterClientQuotas, key 49, versions 0-1. Sets and removes quotas of users, client ids, both together, and addresses;
// a null name stands for all that have none of their own. Served by any broker; all brokers apply the change on their
// own, shortly after the answer. An entity that is left with nothing is removed, with its empty parents.
//
// As Kafka's ZooKeeper mode, but a node is only written as it was read, so credentials that are set meanwhile stay; and
// limits that are not positive are refused, as Kafka's KRaft mode does: its ZooKeeper mode takes them, and throttles nobody.
func (h *Handlers) handleAlterClientQuotas(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.AlterClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	mayAlter := h.allowedOnCluster(r, acl.AlterConfigs)
	for i := range req.Entries {
		entry := &req.Entries[i]
		out := kmsg.NewAlterClientQuotasResponseEntry()
		for _, e := range entry.Entity {
			out.Entity = append(out.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: e.Type, Name: e.Name})
		}
		e := clusterDenied
		if mayAlter {
			e = h.alterClientQuota(ctx, entry, req.ValidateOnly)
		}
		out.ErrorCode, out.ErrorMessage = int16(e.Code), e.message()
		resp.Entries = append(resp.Entries, out)
	}
	r.Respond(resp, 0)
}

// alterClientQuota changes one entity's quotas.
func (h *Handlers) alterClientQuota(ctx context.Context, entry *kmsg.AlterClientQuotasRequestEntry, validateOnly bool) answerError {
	entity, e := quotaEntityAsked(entry.Entity)
	if e.failed() {
		return e
	}
	return h.alterEntity(ctx, entity, validateOnly, func(current map[string]string) (map[string]string, answerError) {
		return alteredQuotas(entity.kind, current, entry.Ops)
	})
}

// alterEntity writes what change makes of an entity's settings, unless only that is to be tried, on condition that its node is as
// it was read; it tries again when someone else changed the node.
func (h *Handlers) alterEntity(ctx context.Context, entity entityName, validateOnly bool,
	change func(current map[string]string) (map[string]string, answerError)) answerError {
	for try := 0; ; try++ {
		node, err := readQuotaNode(ctx, h.d.Store, entity)
		if err != nil {
			h.d.Log.Error("read an entity before a change", "entity", entity.path(), "err", err)
			return storeError(err)
		}
		settings, e := change(node.settings)
		if e.failed() || validateOnly {
			return e
		}
		group := &atomicGroup{ops: node.writes(settings)}
		writeGroups(ctx, h.d.Store, []*atomicGroup{group})
		switch err := group.err; {
		case err == nil:
			return answerError{}
		case (isConflict(err) || errors.Is(err, coord.ErrNotEmpty)) && try < conflictTriesMax:
		default:
			h.d.Log.Error("write an entity", "entity", entity.path(), "err", err)
			return storeError(err)
		}
	}
}

// The types of the parts of an entity in quota requests (Kafka: ClientQuotaEntity).
const (
	userPart     = "user"
	clientIDPart = "client-id"
	ipPart       = "ip"
)

// quotaEntityAsked turns the parts of an entity into its node's name (Kafka: ZkAdminManager.parseAndSanitizeQuotaEntity).
func quotaEntityAsked(parts []kmsg.AlterClientQuotasRequestEntryEntity) (entityName, answerError) {
	if len(parts) == 0 {
		return entityName{}, errorf(cluster.InvalidRequest, "Invalid empty client quota entity")
	}
	var entity quota.Entity
	var ip quota.Part
	for _, p := range parts {
		part := quota.DefaultPart()
		if p.Name != nil {
			part = quota.NamedPart(*p.Name)
		}
		switch {
		case part.Is == quota.Named && part.Name == "":
			return entityName{}, errorf(cluster.InvalidRequest, "Empty %s not supported", p.Type)
		case p.Type == userPart:
			entity.User = part
		case p.Type == clientIDPart:
			entity.Client = part
		case p.Type == ipPart:
			ip = part
		default:
			return entityName{}, errorf(cluster.InvalidRequest, "Unhandled client quota entity type: %s", p.Type)
		}
		if part.Name == "." || part.Name == ".." {
			return entityName{}, errorf(cluster.InvalidRequest, "%q cannot be a %s with quotas: it is no name for a node", part.Name, p.Type)
		}
	}
	switch {
	case ip.Is == quota.Absent:
		kind, name := quotaNode(entity)
		return entityName{kind, name}, answerError{}
	case entity != quota.Entity{}:
		return entityName{}, errorf(cluster.InvalidRequest, "Invalid quota entity combination, IP entity should not be used with user/client ID entity.")
	case ip.Is == quota.Named && !isAddress(ip.Name):
		return entityName{}, errorf(cluster.InvalidRequest, "%s is not a valid IP or resolvable host.", ip.Name)
	}
	return entityName{coord.IPConfigs, sanitizedPart(ip)}, answerError{}
}

// isAddress accepts addresses only: Kafka also asks the name service for hosts, but compares with addresses afterwards.
func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// alteredQuotas applies the operations to what is stored.
func alteredQuotas(kind string, current map[string]string, ops []kmsg.AlterClientQuotasRequestEntryOp) (map[string]string, answerError) {
	settings := maps.Clone(current)
	for _, op := range ops {
		switch {
		case op.Remove:
			delete(settings, op.Key)
			continue
		case !isQuotaKey(kind, op.Key):
			return nil, errorf(cluster.InvalidRequest, "Invalid configuration key %s", op.Key)
		case math.IsNaN(op.Value) || op.Value < 0 || op.Value == 0 && kind != coord.IPConfigs:
			return nil, errorf(cluster.InvalidRequest, "Quota %s must be greater than 0", op.Key)
		}
		text, e := quotaText(kind, op.Key, op.Value)
		if e.failed() {
			return nil, e
		}
		settings[op.Key] = text
	}
	return settings, answerError{}
}

// isQuotaKey reports whether entities of the kind have the quota.
func isQuotaKey(kind, key string) bool {
	if kind == coord.IPConfigs {
		return key == quota.ConnectionRateKey
	}
	_, ok := quota.KindOfKey(key)
	return ok
}

// quotaText is the value as Kafka stores it.
func quotaText(kind, key string, v float64) (string, answerError) {
	typeName, most := "LONG", float64(math.MaxInt64)
	switch {
	case kind == coord.IPConfigs:
		typeName, most = "INT", math.MaxInt32
	case !wholeQuotaKeys[key]:
		return config.RenderDouble(v), answerError{}
	}
	const epsilon = 1e-6
	whole := int64(most)
	if v+epsilon < most {
		whole = int64(v + epsilon)
	}
	if math.Abs(float64(whole)-v) > epsilon {
		return "", errorf(cluster.InvalidRequest, "Configuration %s must be a %s value", key, typeName)
	}
	return strconv.FormatInt(whole, 10), answerError{}
}

// quotaNodeState is an entity's node as it was read, with what decides whether it and its parents go with its last setting.
type quotaNodeState struct {
	entity      entityName
	exists      bool
	version     int32
	settings    map[string]string
	hasChildren bool
	// parents are the operations on users/U and users/U/clients: of a node that exists, the deletions of those that would be
	// left with nothing; else the creations of those that are missing.
	parents []coord.Op
}

func readQuotaNode(ctx context.Context, store coord.Store, e entityName) (*quotaNodeState, error) {
	n := &quotaNodeState{entity: e, settings: map[string]string{}}
	node, err := store.Get(ctx, e.path())
	switch {
	case errors.Is(err, coord.ErrNoNode):
		n.parents, err = missingParents(ctx, store, e)
		return n, err
	case err != nil:
		return nil, err
	}
	n.exists, n.version = true, node.Stat.Version
	if n.settings, err = coord.DecodeConfig(node.Data); err != nil {
		return nil, err
	}
	children, err := store.Children(ctx, e.path())
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return nil, err
	}
	n.hasChildren = len(children) > 0
	n.parents, err = emptyParents(ctx, store, e)
	return n, err
}

// parentsOf are the nodes between the entity and the list of its kind, the lowest first.
func parentsOf(e entityName) []string {
	if !strings.Contains(e.name, "/") {
		return nil
	}
	clients := coord.ParentPath(e.path())
	return []string{clients, coord.ParentPath(clients)}
}

func missingParents(ctx context.Context, store coord.Store, e entityName) ([]coord.Op, error) {
	paths := parentsOf(e)
	slices.Reverse(paths)
	nodes, err := store.GetMany(ctx, paths)
	if err != nil {
		return nil, err
	}
	var ops []coord.Op
	for i, n := range nodes {
		if n.Err != nil {
			ops = append(ops, coord.Create(paths[i], nil))
		}
	}
	return ops, nil
}

// emptyParents gives the deletions of the nodes above users/U/clients/C that hold nothing else.
func emptyParents(ctx context.Context, store coord.Store, e entityName) ([]coord.Op, error) {
	var ops []coord.Op
	for _, path := range parentsOf(e) {
		children, err := store.Children(ctx, path)
		if err == nil && len(children) > 1 {
			return ops, nil
		}
		node, errNode := store.Get(ctx, path)
		switch err = errors.Join(err, errNode); {
		case errors.Is(err, coord.ErrNoNode): // gone meanwhile: writing the entity itself will tell
			return ops, nil
		case err != nil:
			return nil, err
		}
		settings, err := coord.DecodeConfig(node.Data)
		if err != nil || len(settings) > 0 {
			return ops, err
		}
		ops = append(ops, coord.Delete(path, node.Stat.Version))
	}
	return ops, nil
}

// writes brings the node to the settings and announces the change. Parents that are missing are made.
func (n *quotaNodeState) writes(settings map[string]string) []coord.Op {
	path, data := n.entity.path(), coord.EncodeConfig(settings)
	change := coord.CreateSequential(coord.ConfigChangePrefix, coord.EncodeConfigChange(n.entity.kind+"/"+n.entity.name))
	switch {
	case len(settings) == 0 && !n.exists:
		return []coord.Op{change}
	case len(settings) == 0 && !n.hasChildren:
		return slices.Concat([]coord.Op{coord.Delete(path, n.version)}, n.parents, []coord.Op{change})
	case n.exists:
		return []coord.Op{coord.Set(path, data, n.version), change}
	}
	return append(slices.Clone(n.parents), coord.Create(path, data), change)
}
