package api

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// aclRefusal is the error of a whole request about access rules, if it has one.
func (h *Handlers) aclRefusal(r *wire.Request, op acl.Operation) answerError {
	switch {
	case !h.allowedOnCluster(r, op):
		return clusterDenied
	case h.d.Authorizer == nil:
		// Kafka: AclApis; the text of DescribeAcls goes on.
		text := "No Authorizer is configured."
		if op == acl.Describe {
			text = "No Authorizer is configured on the broker"
		}
		return answerError{cluster.SecurityDisabled, text}
	}
	return answerError{}
}

// DescribeAcls, key 29, versions 0-3. Needs DESCRIBE on the cluster; SECURITY_DISABLED without an authorizer. A filter with
// an unknown element is INVALID_REQUEST.
//
//	v0  literal patterns only
//	v1  pattern types (KIP-290)
//	v2  flexible
//	v3  resource type USER
func (h *Handlers) handleDescribeACLs(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeACLsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeACLsResponse)
	f := acl.Filter{Type: acl.ResourceType(req.ResourceType), Name: text(req.ResourceName), Kind: acl.PatternType(req.ResourcePatternType),
		Principal: text(req.Principal), Host: text(req.Host), Operation: acl.Operation(req.Operation), Permission: acl.Permission(req.PermissionType)}
	if req.Version == 0 {
		f.Kind = acl.Literal
	}
	e := h.aclRefusal(r, acl.Describe)
	if fault := f.Fault(); !e.failed() && fault != "" {
		e = answerError{cluster.InvalidRequest, fault}
	}
	if resp.ErrorCode, resp.ErrorMessage = int16(e.Code), e.message(); e.failed() {
		r.Respond(resp, 0)
		return
	}
	for _, b := range h.d.Authorizer.Find(f) {
		last := len(resp.Resources) - 1
		if last < 0 || patternOf(&resp.Resources[last]) != b.Pattern {
			out := kmsg.NewDescribeACLsResponseResource()
			out.ResourceType, out.ResourceName = kmsg.ACLResourceType(b.Type), b.Name
			out.ResourcePatternType = kmsg.ACLResourcePatternType(b.Kind)
			resp.Resources = append(resp.Resources, out)
			last++
		}
		out := kmsg.NewDescribeACLsResponseResourceACL()
		out.Principal, out.Host = b.Principal, b.Host
		out.Operation, out.PermissionType = kmsg.ACLOperation(b.Operation), kmsg.ACLPermissionType(b.Permission)
		resp.Resources[last].ACLs = append(resp.Resources[last].ACLs, out)
	}
	r.Respond(resp, 0)
}

func patternOf(res *kmsg.DescribeACLsResponseResource) acl.Pattern {
	return acl.Pattern{Type: acl.ResourceType(res.ResourceType), Name: res.ResourceName, Kind: acl.PatternType(res.ResourcePatternType)}
}

// CreateAcls, key 30, versions 0-3. Needs ALTER on the cluster. Each rule has its own verdict; one that is there already is
// a success. A rule that cannot be is INVALID_REQUEST. Rules may name resources that do not exist, and outlive those that
// do (R26).
func (h *Handlers) handleCreateACLs(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.CreateACLsRequest)
	verdicts := make([]answerError, len(req.Creations))
	refusal := h.aclRefusal(r, acl.Alter)
	var rules []acl.Binding
	var of []int
	for i, c := range req.Creations {
		b := acl.Binding{
			Pattern: acl.Pattern{Type: acl.ResourceType(c.ResourceType), Name: c.ResourceName, Kind: acl.PatternType(c.ResourcePatternType)},
			Entry: acl.Entry{Principal: c.Principal, Host: c.Host, Operation: acl.Operation(c.Operation),
				Permission: acl.Permission(c.PermissionType)},
		}
		if req.Version == 0 {
			b.Kind = acl.Literal
		}
		switch fault := b.Fault(); {
		case refusal.failed():
			verdicts[i] = refusal
		case fault != "":
			verdicts[i] = answerError{cluster.InvalidRequest, fault}
		default:
			rules, of = append(rules, b), append(of, i)
		}
	}
	if len(rules) > 0 {
		for i, err := range h.d.Authorizer.Create(ctx, rules) {
			verdicts[of[i]] = h.aclStoreError(err)
		}
	}
	resp := req.ResponseKind().(*kmsg.CreateACLsResponse)
	for _, e := range verdicts {
		out := kmsg.NewCreateACLsResponseResult()
		out.ErrorCode, out.ErrorMessage = int16(e.Code), e.message()
		resp.Results = append(resp.Results, out)
	}
	r.Respond(resp, 0)
}

func (h *Handlers) aclStoreError(err error) answerError {
	if err != nil {
		h.d.Log.Error("change access rules", "err", err)
	}
	return storeError(err)
}

// DeleteAcls, key 31, versions 0-3. Needs ALTER on the cluster. Each filter is answered with the rules that it matched and
// what became of them.
func (h *Handlers) handleDeleteACLs(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DeleteACLsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteACLsResponse)
	resp.Results = make([]kmsg.DeleteACLsResponseResult, len(req.Filters))
	refusal := h.aclRefusal(r, acl.Alter)
	var filters []acl.Filter
	var of []int
	for i, x := range req.Filters {
		f := acl.Filter{Type: acl.ResourceType(x.ResourceType), Name: text(x.ResourceName), Kind: acl.PatternType(x.ResourcePatternType),
			Principal: text(x.Principal), Host: text(x.Host), Operation: acl.Operation(x.Operation), Permission: acl.Permission(x.PermissionType)}
		if req.Version == 0 {
			f.Kind = acl.Literal
		}
		e := refusal
		if fault := f.Fault(); !e.failed() && fault != "" {
			e = answerError{cluster.InvalidRequest, fault}
		}
		resp.Results[i] = kmsg.NewDeleteACLsResponseResult()
		resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage = int16(e.Code), e.message()
		if !e.failed() {
			filters, of = append(filters, f), append(of, i)
		}
	}
	if len(filters) > 0 {
		for i, deleted := range h.d.Authorizer.Delete(ctx, filters) {
			for _, d := range deleted {
				out := kmsg.NewDeleteACLsResponseResultMatchingACL()
				e := h.aclStoreError(d.Err)
				out.ErrorCode, out.ErrorMessage = int16(e.Code), e.message()
				out.ResourceType, out.ResourceName, out.ResourcePatternType = kmsg.ACLResourceType(d.Type), d.Name, kmsg.ACLResourcePatternType(d.Kind)
				out.Principal, out.Host, out.Operation = d.Principal, d.Host, kmsg.ACLOperation(d.Operation)
				out.PermissionType = kmsg.ACLPermissionType(d.Permission)
				resp.Results[of[i]].MatchingACLs = append(resp.Results[of[i]].MatchingACLs, out)
			}
		}
	}
	r.Respond(resp, 0)
}
