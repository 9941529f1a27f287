package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/config"
	"klamm/internal/wire"
)

// AlterConfigs, key 33, versions 0-2. Needs ALTER_CONFIGS on the topic or the cluster. Replaces all settings of topics, of this broker, or (empty broker name) of all
// brokers. Served by any broker; a broker's own settings by that broker only. All brokers apply the change on their own,
// shortly after the answer.
func (h *Handlers) handleAlterConfigs(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.AlterConfigsRequest)
	items := make([]*configAlteration, len(req.Resources))
	for i, res := range req.Resources {
		items[i] = &configAlteration{kind: res.ResourceType, name: res.ResourceName, replace: true}
		for _, c := range res.Configs {
			items[i].changes = append(items[i].changes, config.Change{Name: c.Name, Op: config.Set, Value: c.Value})
		}
	}
	h.alterConfigs(ctx, r, items, req.ValidateOnly)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	for _, c := range items {
		out := kmsg.NewAlterConfigsResponseResource()
		out.ErrorCode, out.ErrorMessage, out.ResourceType, out.ResourceName = int16(c.err.Code), c.err.message(), c.kind, c.name
		resp.Resources = append(resp.Resources, out)
	}
	r.Respond(resp, 0)
}

// IncrementalAlterConfigs, key 44, versions 0-1. As AlterConfigs, but changes single settings: set, delete, and append or
// subtract for lists. It also changes log levels of this broker, see log_levels.go.
func (h *Handlers) handleIncrementalAlterConfigs(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.IncrementalAlterConfigsRequest)
	items := make([]*configAlteration, len(req.Resources))
	for i, res := range req.Resources {
		items[i] = &configAlteration{kind: res.ResourceType, name: res.ResourceName}
		for _, c := range res.Configs {
			items[i].changes = append(items[i].changes, config.Change{Name: c.Name, Op: config.Op(c.Op), Value: c.Value})
		}
	}
	h.alterConfigs(ctx, r, items, req.ValidateOnly)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, c := range items {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ErrorCode, out.ErrorMessage, out.ResourceType, out.ResourceName = int16(c.err.Code), c.err.message(), c.kind, c.name
		resp.Resources = append(resp.Resources, out)
	}
	r.Respond(resp, 0)
}
