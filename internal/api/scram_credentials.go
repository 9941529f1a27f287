package api

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/security/acl"
	"klamm/internal/security/scram"
	"klamm/internal/security/users"
	"klamm/internal/wire"
)

// DescribeUserScramCredentials, key 50, version 0 (KIP-554). Mechanisms and iterations of users, of all that have a
// credential when none are named; never salts or keys. Needs DESCRIBE on the cluster. Read from the store, so every broker
// answers what the last change wrote.
func (h *Handlers) handleDescribeUserSCRAM(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	var e answerError
	if !h.allowedOnCluster(r, acl.Describe) {
		e = clusterDenied
	} else {
		resp.Results, e = h.describeUserSCRAM(ctx, req)
	}
	resp.ErrorCode, resp.ErrorMessage = int16(e.Code), e.message()
	r.Respond(resp, 0)
}

func (h *Handlers) describeUserSCRAM(ctx context.Context, req *kmsg.DescribeUserSCRAMCredentialsRequest) ([]kmsg.DescribeUserSCRAMCredentialsResponseResult, answerError) {
	times := map[string]int{}
	var names []string
	for _, u := range req.Users {
		if times[u.Name]++; times[u.Name] == 1 {
			names = append(names, u.Name)
		}
	}
	all := len(names) == 0
	if all {
		found, err := h.d.Store.Children(ctx, coord.ConfigTypePath(coord.UserConfigs))
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			h.d.Log.Error("list users", "err", err)
			return nil, storeError(err)
		}
		for _, node := range found {
			if name, err := coord.DesanitizeEntity(node); err == nil && node != coord.DefaultEntity {
				names = append(names, name)
			}
		}
	}
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = scramEntity(name).path()
	}
	nodes, err := h.d.Store.GetMany(ctx, paths)
	if err != nil {
		h.d.Log.Error("read users", "err", err)
		return nil, storeError(err)
	}
	var out []kmsg.DescribeUserSCRAMCredentialsResponseResult
	for i, name := range names {
		result := h.describedSCRAM(name, &nodes[i])
		if times[name] > 1 {
			e := errorf(cluster.DuplicateResource, "Cannot describe SCRAM credentials for the same user twice in a single request: %s", name)
			result = kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
			result.User, result.ErrorCode, result.ErrorMessage = name, int16(e.Code), e.message()
		}
		if !all || result.ErrorCode == 0 {
			out = append(out, result)
		}
	}
	return out, answerError{}
}

func (h *Handlers) describedSCRAM(user string, node *coord.ReadResult) kmsg.DescribeUserSCRAMCredentialsResponseResult {
	out := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
	out.User = user
	credentials := map[string]scram.Credential{}
	if node.Err == nil {
		settings, err := coord.DecodeConfig(node.Node.Data)
		if err == nil {
			credentials, err = users.Parse(settings)
		}
		if err != nil {
			h.d.Log.Warn("credentials in the store cannot be read", "path", node.Node.Path, "err", err)
		}
	}
	for _, m := range scram.Mechanisms() {
		if c, ok := credentials[m.Name]; ok {
			info := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
			info.Mechanism, info.Iterations = m.Code, int32(c.Iterations)
			out.CredentialInfos = append(out.CredentialInfos, info)
		}
	}
	if len(out.CredentialInfos) == 0 {
		e := errorf(cluster.ResourceNotFound, "Attempt to describe a user credential that does not exist: %s", user)
		out.ErrorCode, out.ErrorMessage = int16(e.Code), e.message()
	}
	return out
}

// scramEntity is the config node of a user.
func scramEntity(user string) entityName {
	return entityName{coord.UserConfigs, coord.SanitizeName(user)}
}

// AlterUserScramCredentials, key 51, version 0 (KIP-554). Sets and deletes credentials, each user's together; what else is
// in a user's node, its quotas, stays. Needs ALTER on the cluster; as in Kafka only the controller's broker serves it.
func (h *Handlers) handleAlterUserSCRAM(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.AlterUserSCRAMCredentialsRequest)
	changes, order := scramChangesOf(req)
	refusal := answerError{}
	switch {
	case !h.d.Controller.IsActive():
		refusal = answerError{Code: cluster.NotController}
	case !h.allowedOnCluster(r, acl.Alter):
		refusal = clusterDenied
	}
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	for _, user := range order {
		c := changes[user]
		if refusal.failed() {
			c.err = refusal
		}
		if !c.err.failed() {
			c.err = h.alterUserSCRAM(ctx, user, c)
		}
		out := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		out.User, out.ErrorCode, out.ErrorMessage = user, int16(c.err.Code), c.err.message()
		resp.Results = append(resp.Results, out)
	}
	r.Respond(resp, 0)
}

// scramChange is what a request does to one user.
type scramChange struct {
	set map[string]string // mechanism to the node's text; "" deletes
	err answerError
}

// scramChangesOf judges a request (Kafka: ZkAdminManager.alterUserScramCredentials) and gives the users in order.
func scramChangesOf(req *kmsg.AlterUserSCRAMCredentialsRequest) (changes map[string]*scramChange, order []string) {
	changes = map[string]*scramChange{}
	add := func(user string, code int8, text func(*scram.Mechanism) (string, answerError)) {
		c := changes[user]
		if c == nil {
			c = &scramChange{set: map[string]string{}}
			changes[user], order = c, append(order, user)
		}
		m, known := scram.ByCode(code)
		switch {
		case c.err.failed():
		case user == "":
			c.err = errorf(cluster.UnacceptableCredential, "Username must not be empty")
		case user == "." || user == "..":
			c.err = errorf(cluster.UnacceptableCredential, "%q is no name for a user: its node could not have it", user)
		case !known:
			c.err = errorf(cluster.UnsupportedSASLMechanism, "Unknown SCRAM mechanism")
		default:
			if _, twice := c.set[m.Name]; twice {
				c.err = errorf(cluster.DuplicateResource, "A user credential cannot be altered twice in the same request")
				return
			}
			c.set[m.Name], c.err = text(m)
		}
	}
	for _, u := range req.Upsertions {
		add(u.Name, u.Mechanism, func(m *scram.Mechanism) (string, answerError) {
			switch {
			case int(u.Iterations) < m.MinIterations:
				return "", errorf(cluster.UnacceptableCredential, "Too few iterations")
			case u.Iterations > scram.MaxIterations:
				return "", errorf(cluster.UnacceptableCredential, "Too many iterations")
			case len(u.Salt) == 0 || len(u.SaltedPassword) == 0:
				return "", errorf(cluster.UnacceptableCredential, "Salt and salted password must not be empty")
			}
			return m.FromSalted(u.SaltedPassword, u.Salt, int(u.Iterations)).String(), answerError{}
		})
	}
	for _, d := range req.Deletions {
		add(d.Name, d.Mechanism, func(*scram.Mechanism) (string, answerError) { return "", answerError{} })
	}
	return changes, order
}

// alterUserSCRAM changes one user's credentials.
func (h *Handlers) alterUserSCRAM(ctx context.Context, user string, c *scramChange) answerError {
	return h.alterEntity(ctx, scramEntity(user), false, func(current map[string]string) (map[string]string, answerError) {
		settings := maps.Clone(current)
		for _, mechanism := range slices.Sorted(maps.Keys(c.set)) {
			if c.set[mechanism] != "" {
				settings[mechanism] = c.set[mechanism]
				continue
			}
			if settings[mechanism] == "" {
				return nil, errorf(cluster.ResourceNotFound, "Attempt to delete a user credential that does not exist")
			}
			delete(settings, mechanism)
		}
		return settings, answerError{}
	})
}
