package api

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/quota"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// DescribeClientQuotas, key 48, versions 0-1. Needs DESCRIBE_CONFIGS on the cluster. Finds the quotas of entities whose parts are a name, the default, or
// anything; strict leaves out entities with a part that was not asked for. Addresses are apart from users and client ids.
// Read from the store, so every broker answers what the last AlterClientQuotas wrote (Kafka: ZkAdminManager.describeClientQuotas).
func (h *Handlers) handleDescribeClientQuotas(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	filter, e := quotaFilterAsked(req)
	if !h.allowedOnCluster(r, acl.DescribeConfigs) {
		e = clusterDenied
	}
	if !e.failed() {
		resp.Entries, e = h.describeClientQuotas(ctx, filter)
	}
	resp.ErrorCode, resp.ErrorMessage = int16(e.Code), e.message()
	r.Respond(resp, 0)
}

func (h *Handlers) describeClientQuotas(ctx context.Context, filter *quotaFilter) ([]kmsg.DescribeClientQuotasResponseEntry, answerError) {
	entities, err := listQuotaEntities(ctx, h.d.Store)
	if err != nil {
		h.d.Log.Error("list quotas to describe", "err", err)
		return nil, storeError(err)
	}
	var asked [][]describedPart
	var paths []string
	var kinds []string
	for _, e := range entities {
		parts, err := describedParts(e)
		if err != nil {
			h.d.Log.Warn("quotas in the store have no legal name", "entity", e.path(), "err", err)
			continue
		}
		if filter.matches(parts) {
			asked, paths, kinds = append(asked, parts), append(paths, e.path()), append(kinds, e.kind)
		}
	}
	nodes, err := h.d.Store.GetMany(ctx, paths)
	if err != nil {
		h.d.Log.Error("read quotas to describe", "err", err)
		return nil, storeError(err)
	}
	out := []kmsg.DescribeClientQuotasResponseEntry{} // null means an error
	for i, n := range nodes {
		if n.Err != nil {
			continue // deleted meanwhile
		}
		settings, err := coord.DecodeConfig(n.Node.Data)
		if err != nil {
			h.d.Log.Error("config in the store cannot be read", "path", paths[i], "err", err)
			return nil, answerError{Code: cluster.UnknownServerError}
		}
		entry := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			if !isQuotaKey(kinds[i], key) {
				continue // credentials
			}
			v, err := quotaValue(key, settings[key])
			if err != nil {
				h.d.Log.Error("quota in the store cannot be read", "path", paths[i], "err", err)
				return nil, answerError{Code: cluster.UnknownServerError}
			}
			entry.Values = append(entry.Values, kmsg.DescribeClientQuotasResponseEntryValue{Key: key, Value: v})
		}
		if len(entry.Values) == 0 {
			continue
		}
		for _, p := range asked[i] {
			entry.Entity = append(entry.Entity, kmsg.DescribeClientQuotasResponseEntryEntity{Type: p.kind, Name: p.name()})
		}
		out = append(out, entry)
	}
	return out, answerError{}
}

// describedPart is one part of an entity as requests and answers have it.
type describedPart struct {
	kind string
	part quota.Part
}

// name is null for the default.
func (p describedPart) name() *string {
	if p.part.Is == quota.Default {
		return nil
	}
	return &p.part.Name
}

func describedParts(e entityName) ([]describedPart, error) {
	if e.kind == coord.IPConfigs {
		p, err := entityPart(e.name)
		return []describedPart{{ipPart, p}}, err
	}
	entity, err := userOrClientEntity(e.kind, e.name)
	var out []describedPart
	if entity.User.Is != quota.Absent {
		out = append(out, describedPart{userPart, entity.User})
	}
	if entity.Client.Is != quota.Absent {
		out = append(out, describedPart{clientIDPart, entity.Client})
	}
	return out, err
}

// quotaFilter is what a request asks for: per type of part a component, nil for any of that type.
type quotaFilter struct {
	components map[string]*quota.Part
	strict     bool
}

// matches reports whether an entity has all parts that are asked for and, if strict, no others.
func (f *quotaFilter) matches(parts []describedPart) bool {
	found := 0
	for _, p := range parts {
		want, asked := f.components[p.kind]
		switch {
		case !asked && f.strict:
			return false
		case asked && want != nil && *want != p.part:
			return false
		case asked:
			found++
		}
	}
	return found == len(f.components)
}

func quotaFilterAsked(req *kmsg.DescribeClientQuotasRequest) (*quotaFilter, answerError) {
	f := &quotaFilter{components: map[string]*quota.Part{}, strict: req.Strict}
	for _, c := range req.Components {
		switch c.EntityType {
		case userPart, clientIDPart, ipPart:
		case "":
			return nil, errorf(cluster.InvalidRequest, "Unexpected empty filter component entity type")
		default:
			return nil, errorf(cluster.UnsupportedVersion, "Custom entity type '%s' not supported", c.EntityType)
		}
		if _, twice := f.components[c.EntityType]; twice {
			return nil, errorf(cluster.InvalidRequest, "Duplicate %s filter component entity type", strings.TrimSuffix(c.EntityType, "-id"))
		}
		switch c.MatchType {
		case kmsg.QuotasMatchTypeExact:
			if c.Match == nil {
				return nil, errorf(cluster.InvalidRequest, "Request specified MATCH_TYPE_EXACT, but no match string.")
			}
			p := quota.NamedPart(*c.Match)
			f.components[c.EntityType] = &p
		case kmsg.QuotasMatchTypeDefault:
			p := quota.DefaultPart()
			f.components[c.EntityType] = &p
		case kmsg.QuotasMatchTypeAny:
			f.components[c.EntityType] = nil
		default:
			return nil, errorf(cluster.InvalidRequest, "Unknown match type %d", c.MatchType)
		}
	}
	if _, ip := f.components[ipPart]; ip && len(f.components) > 1 {
		return nil, errorf(cluster.InvalidRequest, "Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component.")
	}
	return f, answerError{}
}
