package api

import (
	"strings"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/quota"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// mutationQuota is the controller mutation quota of a request (KIP-599). From the version that knows the error on it is
// strict: what comes while the client is over its quota is refused; older versions are throttled afterwards.
func (h *Handlers) mutationQuota(r *wire.Request, strictSince int16) *quota.Mutation {
	return h.d.Quotas.MutationQuota(clientOf(r), r.Version >= strictSince)
}

// charging charges a request's quota topic by topic; nil when there is no limit.
func charging(m *quota.Mutation) chargeQuota {
	if m == nil {
		return nil
	}
	return func(partitions int) answerError {
		if m.Charge(partitions, time.Now()) {
			return answerError{}
		}
		return errorf(cluster.ThrottlingQuotaExceeded, "The throttling quota has been exceeded.")
	}
}

// clientOf tells whose quotas hold for a request. Quotas know users by the name of the principal, without its type.
func clientOf(r *wire.Request) quota.Client {
	_, user, ok := strings.Cut(r.Conn.Principal(), ":")
	if !ok {
		user = r.Conn.Principal()
	}
	return quota.Client{User: user, ID: r.ClientID}
}

// RequestQuota limits the time that requests take, for the wire server.
func (h *Handlers) RequestQuota() *wire.RequestQuota {
	return &wire.RequestQuota{
		Active: func() bool { return h.d.Quotas.Active(quota.Request) },
		Charge: func(r *wire.Request, busy time.Duration) time.Duration {
			client, now := clientOf(r), time.Now()
			throttle := h.d.Quotas.Charge(quota.Request, client, busy.Seconds()*100, now) // percent of one processor
			if throttle > 0 {
				h.d.Quotas.NoteThrottle(quota.Request, client, throttle, now)
			}
			return throttle
		},
	}
}

// fromFollower reports whether a request is another broker's, for its replicas: those are not under client quotas. Kafka limits
// the time of all but their fetches, and with a quota for every client id mutes the connections that it replicates over.
func (h *Handlers) fromFollower(r *wire.Request, replicaID int32) bool {
	return replicaID >= 0 && r.Conn.InterBroker() && h.allowedQuietly(r, acl.ClusterAction, acl.Cluster, acl.ClusterName)
}
