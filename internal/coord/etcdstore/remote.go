package etcdstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"klamm/internal/coord"
)

// ClientConfig describes the connection to an etcd outside this process.
type ClientConfig struct {
	// Endpoints are URLs of members. Requests go to any of them that works.
	Endpoints []string
	TLS       TLS
	User      string // "" for none
	Password  string
	// Own says that the members are klamm's, which take larger transactions than etcd does by default.
	Own bool
	Log *slog.Logger
}

// Limits of an etcd that was started without options, and the timing of clients.
const (
	foreignReadsMax   = 128
	foreignOpsMax     = 100 // those inside an operation count with those beside it
	remoteTryTimeout  = 3 * time.Second
	remoteDialTimeout = 2 * time.Second
	remoteSendMax     = 10 << 20
)

// Client is a connection to an etcd outside this process.
type Client struct {
	client  *clientv3.Client
	options options
	store   *Store
}

// Dial connects and waits until etcd answers, for as long as ctx lasts, saying what it waits for. What waiting cannot
// cure, as a wrong password, is an error at once.
func Dial(ctx context.Context, c ClientConfig) (*Client, error) {
	client, err := newClient(ctx, c)
	if err != nil {
		return nil, err
	}
	o := options{tryTimeout: remoteTryTimeout, retryFor: groupRetryFor, log: c.Log}
	if !c.Own {
		o.opsMax, o.readsMax = foreignOpsMax, foreignReadsMax
	}
	d := &Client{client: client, options: o}
	if err := d.await(ctx, c); err != nil {
		return nil, errors.Join(err, ignoreCanceled(client.Close()))
	}
	if d.store, err = newStore(ctx, remote{client}, o); err != nil {
		return nil, errors.Join(err, ignoreCanceled(client.Close()))
	}
	return d, nil
}

// newClient makes a client; with a user it logs in, which waits for etcd.
func newClient(ctx context.Context, c ClientConfig) (*clientv3.Client, error) {
	secured, err := c.TLS.client()
	if err != nil {
		return nil, err
	}
	config := clientv3.Config{
		Endpoints: c.Endpoints, TLS: secured, Username: c.User, Password: c.Password,
		DialTimeout: remoteDialTimeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 2 * time.Second,
		MaxCallSendMsgSize: remoteSendMax, Logger: newZapLogger(c.Log).logger(),
	}
	for notice := time.Duration(0); ; notice += remoteDialTimeout {
		client, err := clientv3.New(config)
		if err == nil {
			return client, nil
		}
		if incurable(err) || c.User == "" {
			return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
		}
		if notice%quorumNoticeEvery == 0 {
			c.Log.Warn("waiting for etcd", "endpoints", strings.Join(c.Endpoints, ","), "err", c.reason(ctx, err))
		}
		if pause(ctx, promoteEvery) != nil {
			return nil, c.unanswered(ctx, err)
		}
	}
}

// incurable tells errors that stay whatever is waited for.
func incurable(err error) bool {
	for _, e := range []error{
		rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrUserEmpty, rpctypes.ErrAuthNotEnabled,
		rpctypes.ErrUserNotFound, rpctypes.ErrInvalidAuthToken, rpctypes.ErrInvalidAuthMgmt,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// await waits until etcd has a leader and lets this client read. An error tells why the last try failed.
func (d *Client) await(ctx context.Context, c ClientConfig) error {
	noticed := time.Now().Add(-quorumNoticeEvery + quorumNoticeAfter)
	var last error
	for {
		try, cancel := context.WithTimeout(ctx, remoteDialTimeout)
		_, err := remote{d.client}.Do(try, clientv3.OpGet(nodesBegin, clientv3.WithRange(nodesEnd), clientv3.WithLimit(1), clientv3.WithKeysOnly()))
		cancel()
		switch {
		case err == nil:
			return nil
		case incurable(err):
			return fmt.Errorf("etcd at %s: %w", strings.Join(c.Endpoints, ", "), err)
		}
		if last == nil || ctx.Err() == nil { // a try that the end of ctx cut short has no reason of its own
			last = err
		}
		if time.Since(noticed) >= quorumNoticeEvery {
			noticed = time.Now()
			c.Log.Warn("waiting for etcd", "endpoints", strings.Join(c.Endpoints, ","), "err", c.reason(ctx, last))
		}
		if pause(ctx, promoteEvery) != nil {
			return c.unanswered(ctx, last)
		}
	}
}

// unanswered says that the wait has ended, by what, and why the last try failed.
func (c ClientConfig) unanswered(ctx context.Context, last error) error {
	return fmt.Errorf("etcd at %s: %w: %w", strings.Join(c.Endpoints, ", "), context.Cause(ctx), c.reason(ctx, last))
}

// probeTimeout bounds the look at one member.
const probeTimeout = time.Second

// reason looks for what a deadline hides: why members cannot be reached.
func (c ClientConfig) reason(ctx context.Context, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	reasons := make([]string, len(c.Endpoints))
	var all sync.WaitGroup
	for i, e := range c.Endpoints {
		all.Go(func() {
			reasons[i] = e + " takes connections and does not answer: it has no leader, or speaks otherwise (etcd.tls.*)"
			if err := c.reach(ctx, e); err != nil {
				reasons[i] = fmt.Sprintf("%s: %v", e, err)
			}
		})
	}
	all.Wait()
	return errors.New(strings.Join(reasons, "; "))
}

// reach connects to one member, and with TLS also waits for what it says to the certificate that it is shown.
func (c ClientConfig) reach(ctx context.Context, endpoint string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addrOfURL(endpoint))
	if err != nil {
		return innermost(err)
	}
	defer func() { _ = conn.Close() }() // nothing was sent that could be lost
	if !strings.HasPrefix(endpoint, "https://") {
		return nil
	}
	config, err := c.TLS.client()
	if err != nil {
		return err
	}
	if config == nil { // https without a key of etcd.tls.*: what the system trusts
		config = &tls.Config{}
	}
	config = config.Clone()
	config.NextProtos = []string{"h2"}
	if config.ServerName, _, err = net.SplitHostPort(addrOfURL(endpoint)); err != nil {
		return err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return err
	}
	if end, ok := ctx.Deadline(); ok {
		_ = secured.SetReadDeadline(end)
	}
	if _, err := secured.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// Store returns the connection's store. It is closed with the connection.
func (d *Client) Store() coord.Store { return d.store }

// Connect opens one more store on the connection. The caller closes it first.
func (d *Client) Connect(ctx context.Context) (*Store, error) {
	return newStore(ctx, remote{d.client}, d.options)
}

// Close ends the connection. Sessions that are still open end by their ttl.
func (d *Client) Close() error {
	return errors.Join(d.store.Close(), ignoreCanceled(d.client.Close()))
}

// remote is the backend outside this process. Every request demands a leader, so that a member that was cut off from
// the others refuses at once and another one is asked.
type remote struct{ *clientv3.Client }

func (r remote) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return r.Client.Do(clientv3.WithRequireLeader(ctx), op)
}

func (r remote) Grant(ctx context.Context, ttlSeconds int64) (*clientv3.LeaseGrantResponse, error) {
	return r.Client.Grant(clientv3.WithRequireLeader(ctx), ttlSeconds)
}

func (r remote) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return r.Client.Revoke(clientv3.WithRequireLeader(ctx), id)
}

// KeepAliveOnce asks one member once. The client's own method asks again without a pause until ctx ends, as long as
// members refuse.
func (r remote) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	stream, err := pb.NewLeaseClient(r.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	resp, err := stream.Recv()
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	if resp.TTL <= 0 {
		return nil, rpctypes.ErrLeaseNotFound
	}
	return &clientv3.LeaseKeepAliveResponse{ResponseHeader: resp.GetHeader(), ID: id, TTL: resp.TTL}, nil
}
