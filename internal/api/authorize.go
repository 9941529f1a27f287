package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// Authorization as Kafka's AuthHelper does it: each handler asks for the operation on the resource that its request is
// about. Without an authorizer everything is allowed. Asking allocates nothing.

// allowed decides whether the client of a request may do an operation to a resource; a refusal is logged.
func (h *Handlers) allowed(r *wire.Request, op acl.Operation, t acl.ResourceType, name string) bool {
	if h.allowedQuietly(r, op, t, name) {
		return true
	}
	h.denials.note(r, op, t, name)
	return false
}

// allowedQuietly is allowed where a refusal is normal: it decides what a list shows, or another permission will do.
func (h *Handlers) allowedQuietly(r *wire.Request, op acl.Operation, t acl.ResourceType, name string) bool {
	a := h.d.Authorizer
	return a == nil || a.Allows(r.Conn.Principal(), r.Conn.RemoteHost(), op, t, name)
}

// allowedOnCluster is allowed for the cluster itself.
func (h *Handlers) allowedOnCluster(r *wire.Request, op acl.Operation) bool {
	return h.allowed(r, op, acl.Cluster, acl.ClusterName)
}

// operationsOn gives the bits of the operations that the client may do to a resource, of those that its type knows.
func (h *Handlers) operationsOn(r *wire.Request, t acl.ResourceType, name string) int32 {
	all := supportedOperations[t]
	if h.d.Authorizer == nil {
		return all
	}
	granted := int32(0)
	for op := acl.Read; op <= acl.DescribeTokens; op++ {
		if all&(1<<op) != 0 && h.allowedQuietly(r, op, t, name) {
			granted |= 1 << op
		}
	}
	return granted
}

// clusterOperationsFor are those on the cluster; none for who may not describe it.
func (h *Handlers) clusterOperationsFor(r *wire.Request) int32 {
	if !h.allowedOnCluster(r, acl.Describe) {
		return 0
	}
	return h.operationsOn(r, acl.Cluster, acl.ClusterName)
}

// supportedOperations are, per resource type, the bits of every operation it knows (Kafka: AclEntry.supportedOperations).
var supportedOperations = map[acl.ResourceType]int32{
	acl.Topic:   1<<acl.Read | 1<<acl.Write | 1<<acl.Create | 1<<acl.Describe | 1<<acl.Delete | 1<<acl.Alter | 1<<acl.DescribeConfigs | 1<<acl.AlterConfigs,
	acl.Group:   1<<acl.Read | 1<<acl.Describe | 1<<acl.Delete,
	acl.Cluster: 1<<acl.Create | 1<<acl.ClusterAction | 1<<acl.DescribeConfigs | 1<<acl.AlterConfigs | 1<<acl.IdempotentWrite | 1<<acl.Alter | 1<<acl.Describe,
}

// operationsNotAsked is the protocol's default for a field of authorized operations that was not requested.
const operationsNotAsked = -1 << 31

// The texts that Kafka's answers have beside the codes.
var (
	topicDenied   = answerError{cluster.TopicAuthorizationFailed, "Topic authorization failed."}
	groupDenied   = answerError{cluster.GroupAuthorizationFailed, "Group authorization failed."}
	clusterDenied = answerError{cluster.ClusterAuthorizationFailed, "Cluster authorization failed."}
)

// betweenBrokers serves the requests of brokers and controllers to those that may ClusterAction (CVE-2018-1288: they also
// come on inter-broker listeners only, which wire sees to).
func (h *Handlers) betweenBrokers(handle func(ctx context.Context, r *wire.Request)) func(context.Context, *wire.Request) {
	return func(ctx context.Context, r *wire.Request) {
		if h.allowedOnCluster(r, acl.ClusterAction) {
			handle(ctx, r)
			return
		}
		r.Respond(refusedBetweenBrokers(r.Msg), 0)
	}
}

// refusedBetweenBrokers is CLUSTER_AUTHORIZATION_FAILED in the answer's form.
func refusedBetweenBrokers(req kmsg.Request) kmsg.Response {
	const code = int16(cluster.ClusterAuthorizationFailed)
	resp := req.ResponseKind()
	switch resp := resp.(type) {
	case *kmsg.LeaderAndISRResponse:
		resp.ErrorCode = code
	case *kmsg.StopReplicaResponse:
		resp.ErrorCode = code
	case *kmsg.UpdateMetadataResponse:
		resp.ErrorCode = code
	case *kmsg.ControlledShutdownResponse:
		resp.ErrorCode = code
	case *kmsg.AlterPartitionResponse:
		resp.ErrorCode = code
	case *kmsg.AllocateProducerIDsResponse:
		resp.ErrorCode = code
	default:
		panic("api: no refusal for " + wire.APIName(req.Key()))
	}
	return resp
}

// denialLog writes down what was refused, at most denialsPerSecond of it: whoever may not do a thing often tries it in a loop.
type denialLog struct {
	log *slog.Logger
	mu  struct {
		sync.Mutex
		second     int64 // unix
		written    int
		suppressed int
	}
}

const denialsPerSecond = 10

func (d *denialLog) note(r *wire.Request, op acl.Operation, t acl.ResourceType, name string) {
	now := time.Now().Unix()
	d.mu.Lock()
	if d.mu.second != now {
		d.mu.second, d.mu.written = now, 0
	}
	write := d.mu.written < denialsPerSecond
	suppressed := d.mu.suppressed
	if d.mu.written++; write {
		d.mu.suppressed = 0
	} else {
		d.mu.suppressed++
	}
	d.mu.Unlock()
	if !write {
		return
	}
	args := []any{"principal", r.Conn.Principal(), "operation", op.String(), "remote", r.Conn.RemoteHost(),
		"resource", t.String(), "name", name, "api", wire.APIName(r.Key)}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	d.log.Info("access denied", args...)
}
