package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	"klamm/internal/cluster"
)

// Peer is a broker that runs a member of the etcd cluster, and the one address of the member: for the other members and
// for clients.
type Peer struct {
	Broker cluster.BrokerID
	Addr   string // host:port
}

// String gives the form of etcd.cluster.
func (p Peer) String() string { return p.name() + "@" + p.Addr }

// name is the member's name in etcd.
func (p Peer) name() string { return strconv.Itoa(int(p.Broker)) }

// MemberConfig describes the member that a broker runs in its process as part of an etcd cluster.
type MemberConfig struct {
	Dir  string // data directory, see EmbeddedConfig
	Self Peer
	// Peers are all members, Self among them, as configured at every broker. Once a member has data, the members that
	// etcd itself knows count instead.
	Peers []Peer
	// Listen is the address to bind, host:port; "" for Self's.
	Listen string
	// Listener is used instead of Listen if not nil. The engine closes it.
	Listener net.Listener
	TLS      TLS
	// Former says that this broker's other data belongs to a cluster already. Then an empty Dir is a loss, or the member
	// was added later: it must not take part in founding a cluster anew.
	Former bool
	Log    *slog.Logger
}

// Timing of the members of a cluster: an election takes 0.5 to 1 s, and no session can be shorter than 1 s.
const (
	groupTickMs         = 100
	groupElectionTicks  = 5
	groupElection       = groupTickMs * groupElectionTicks * time.Millisecond
	groupToken          = "klamm"
	groupTryTimeout     = 5 * time.Second
	groupRetryFor       = 10 * time.Second // reads and refused writes outlast an election or two
	quorumNoticeAfter   = 2 * time.Second
	quorumNoticeEvery   = 10 * time.Second
	promoteEvery        = 500 * time.Millisecond
	peerProbeTimeout    = time.Second
	newLeaderGrace      = 200 * time.Millisecond
	clientsDrainTimeout = 200 * time.Millisecond
	handOverTimeout     = time.Second
)

// groupMember is what a member of a cluster has besides: its listener, and what it does about leaders and learners. The
// methods of a nil one do nothing.
type groupMember struct {
	config MemberConfig
	links  *links // to its peers, for questions
	door   *door
	terms  *terms
	stop   context.CancelFunc
	run    sync.WaitGroup
}

// StartMember starts the member and waits until the cluster has a majority, for as long as ctx lasts, saying which
// members are missing. The order in which brokers start does not matter.
func StartMember(ctx context.Context, c MemberConfig) (*Engine, error) {
	dir, err := claimDir(c.Dir)
	if err != nil {
		if c.Listener != nil {
			err = errors.Join(err, c.Listener.Close())
		}
		return nil, err
	}
	e := &Engine{dir: dir, log: c.Log, group: &groupMember{config: c}}
	if err := e.startInGroup(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("etcd member of broker %d, data in %s: %w", c.Self.Broker, c.Dir, err), e.Close())
	}
	return e, nil
}

func (e *Engine) startInGroup(ctx context.Context) error {
	g := e.group
	var err error
	if g.door, err = openDoor(ctx, g.config); err != nil {
		return err
	}
	if g.links, err = newLinks(g.config); err != nil {
		return err
	}
	if e.dir.kind == loneKind && e.dir.hasData() && len(g.config.Peers) > 1 {
		return fmt.Errorf("it holds the cluster state of this broker alone. To make it the first of several members: "+
			"start this broker with etcd.cluster=%s only, add the others one by one with `klamm cluster members add`, then name all in etcd.cluster",
			g.config.Self)
	}
	initial, fresh, err := e.initialMembers(ctx)
	if err != nil {
		return err
	}
	if err := e.dir.mark(clusterKind); err != nil {
		return err
	}
	running, err := e.runServer(ctx, groupServerConfig(g.config, initial, fresh, newZapLogger(e.log)))
	if err != nil {
		return err
	}
	g.door.servePeers(e.server)
	if err := e.awaitMajority(ctx); err != nil {
		return err
	}
	g.door.serveClients(e.server)
	e.client = v3client.New(e.server)
	if err := e.correctAddress(ctx); err != nil {
		return err
	}
	g.run.Go(func() { g.terms.follow(running, e.server) })
	g.run.Go(func() { e.becomeVoter(running) })
	e.backend = groupBackend{member{e.client, e.server}, g.terms}
	e.options = options{tryTimeout: groupTryTimeout, retryFor: groupRetryFor, log: e.log}
	e.store, err = newStore(ctx, e.backend, e.options)
	return err
}

// runServer starts the server with what runs beside it, until the context that it returns ends: with the member.
func (e *Engine) runServer(ctx context.Context, c config.ServerConfig) (context.Context, error) {
	server, err := openServer(c)
	if err != nil {
		return nil, err
	}
	expire, err := checkExpiry(server)
	if err != nil {
		server.Cleanup()
		return nil, err
	}
	if err := boundStreams(server); err != nil {
		server.Cleanup()
		return nil, err
	}
	e.server = server
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.group.stop, e.group.terms = stop, newTerms()
	e.group.run.Go(func() { expire(running) })
	e.server.Start()
	return running, nil
}

func groupServerConfig(c MemberConfig, initial types.URLsMap, fresh bool, zapLog *zapLogger) config.ServerConfig {
	s := serverConfig(c.Dir, zapLog)
	self, err := types.NewURLs([]string{c.TLS.URL(c.Self.Addr)})
	if err != nil {
		panic(err) // addresses were checked with the configuration
	}
	s.Name, s.PeerURLs, s.ClientURLs = c.Self.name(), self, self
	s.InitialPeerURLsMap, s.NewCluster, s.InitialClusterToken = initial, fresh, groupToken
	s.TickMs, s.ElectionTicks = groupTickMs, groupElectionTicks
	s.PeerTLSInfo, s.ClientCertAuthEnabled = c.TLS.info(), c.TLS.on()
	return s
}

// awaitMajority waits until the member takes part in a cluster that works.
func (e *Engine) awaitMajority(ctx context.Context) error {
	notice := time.NewTimer(quorumNoticeAfter)
	defer notice.Stop()
	for {
		select {
		case <-e.server.ReadyNotify():
			return nil
		case <-e.server.StopNotify():
			return e.whyStopped()
		case <-ctx.Done():
			return fmt.Errorf("no majority of the etcd members was there: %w", ctx.Err())
		case <-notice.C:
			notice.Reset(quorumNoticeEvery)
		}
		if missing := e.group.links.missing(ctx, e.peersNow()); len(missing) > 0 {
			e.log.Warn("waiting for a majority of the etcd members", "missing", strings.Join(missing, "; "))
		} else {
			e.log.Warn("waiting for the etcd members to elect a leader; all can be reached")
		}
	}
}

// peersNow lists the other members as etcd knows them.
func (e *Engine) peersNow() []Peer {
	var out []Peer
	for _, m := range e.server.Cluster().Members() {
		if m.ID == e.server.MemberID() || len(m.PeerURLs) == 0 {
			continue
		}
		p := Peer{Broker: cluster.NoBroker, Addr: addrOfURL(m.PeerURLs[0])}
		if id, err := strconv.ParseInt(m.Name, 10, 32); err == nil {
			p.Broker = cluster.BrokerID(id)
		}
		out = append(out, p)
	}
	return out
}

// whyStopped explains a member that stopped by itself.
func (e *Engine) whyStopped() error {
	removed, ok := e.server.Cluster().(interface{ IsIDRemoved(types.ID) bool })
	if ok && removed.IsIDRemoved(e.server.MemberID()) {
		return fmt.Errorf("it was removed from the etcd cluster. Take broker %d out of etcd.cluster, or add it again with `klamm cluster members add %s` after its directory %s was moved away",
			e.group.config.Self.Broker, e.group.config.Self, e.dir.path)
	}
	return errors.New("etcd stopped; its reason is in the log above")
}

// Err tells why the member stopped, once Stopped is closed.
func (e *Engine) Err() error {
	if e.group == nil {
		return errors.New("etcd stopped; its reason is in the log above")
	}
	return e.whyStopped()
}

// correctAddress tells the others where this member is now, if it has moved, or if it was alone until now.
func (e *Engine) correctAddress(ctx context.Context) error {
	want := []string{e.group.config.TLS.URL(e.group.config.Self.Addr)}
	id := e.server.MemberID()
	me := e.server.Cluster().Member(id)
	if me == nil || slices.Equal(me.PeerURLs, want) {
		return nil
	}
	e.log.Info("telling the etcd members the address of this one", "from", strings.Join(me.PeerURLs, ","), "to", want[0])
	try, cancel := context.WithTimeout(ctx, groupRetryFor)
	defer cancel()
	if _, err := e.client.MemberUpdate(try, uint64(id), want); err != nil {
		return fmt.Errorf("change the address of this etcd member from %s to %s: %w", strings.Join(me.PeerURLs, ","), want[0], err)
	}
	return nil
}

// becomeVoter promotes a member that was added as a learner, once it has caught up.
func (e *Engine) becomeVoter(ctx context.Context) {
	tick := time.NewTicker(promoteEvery)
	defer tick.Stop()
	for e.server.IsLearner() {
		try, cancel := context.WithTimeout(ctx, groupTryTimeout)
		_, err := e.client.MemberPromote(try, uint64(e.server.MemberID()))
		cancel()
		switch {
		case err == nil || errors.Is(err, rpctypes.ErrMemberNotLearner):
			e.log.Info("this etcd member has caught up and votes from now on", "broker", e.group.config.Self.Broker)
			return
		case ctx.Err() == nil && !errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
			e.log.Warn("this etcd member cannot become a voter yet", "err", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// handOver makes another voter the leader before this one stops. etcd's own way waits six seconds for a voter that stops
// at the same time; here one is chosen that answers, and not waited for long.
func (e *Engine) handOver() {
	me := e.server.MemberID()
	if e.group == nil || e.group.links == nil || e.server.Leader() != me {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	var voters []types.ID
	var peers []Peer
	for _, m := range e.server.Cluster().Members() {
		if m.ID != me && !m.IsLearner && len(m.PeerURLs) > 0 {
			voters, peers = append(voters, m.ID), append(peers, Peer{cluster.NoBroker, addrOfURL(m.PeerURLs[0])})
		}
	}
	_, errs := e.group.links.ask(ctx, peers)
	for i, err := range errs {
		if err != nil {
			continue
		}
		if err := e.server.MoveLeader(ctx, uint64(me), uint64(voters[i])); err != nil {
			e.log.Info("the etcd members will elect a leader: this one could not hand its office over", "err", err)
		}
		return
	}
}

// stopClients ends the connections of clients, which then go to other members.
func (g *groupMember) stopClients() {
	if g == nil {
		return
	}
	if g.stop != nil {
		g.stop()
		g.run.Wait()
	}
	if g.door != nil {
		g.door.stopClients()
	}
}

func (g *groupMember) close() error {
	if g == nil {
		return nil
	}
	if g.links != nil {
		g.links.close()
	}
	if g.door == nil {
		if g.config.Listener != nil {
			return g.config.Listener.Close()
		}
		return nil
	}
	return g.door.close()
}

// groupBackend is the member of a cluster in this process. A proposal that was on its way to a leader when that fell is
// lost without an answer. So requests that began before a new leader was known are ended soon after, with an unknown
// outcome, and need not wait for their time to run out.
type groupBackend struct {
	member
	terms *terms
}

func (b groupBackend) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	ctx, done := b.terms.join(ctx)
	defer done()
	return b.member.Do(ctx, op)
}

func (b groupBackend) Grant(ctx context.Context, ttlSeconds int64) (*clientv3.LeaseGrantResponse, error) {
	ctx, done := b.terms.join(ctx)
	defer done()
	return b.member.Grant(ctx, ttlSeconds)
}

func (b groupBackend) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	ctx, done := b.terms.join(ctx)
	defer done()
	return b.member.Revoke(ctx, id)
}

// terms has a context per leader: it ends shortly after the next leader is known.
type terms struct {
	mu struct {
		sync.Mutex
		ctx context.Context // long-lived: it belongs to the leader's time in office
		end context.CancelFunc
	}
}

func newTerms() *terms {
	t := &terms{}
	t.mu.ctx, t.mu.end = context.WithCancel(context.Background())
	return t
}

// join gives a context that ends with ctx or with the leader's term.
func (t *terms) join(ctx context.Context) (context.Context, func()) {
	t.mu.Lock()
	term := t.mu.ctx
	t.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(term, cancel)
	return ctx, func() { stop(); cancel() }
}

type leaderSource interface{ LeaderChangedNotify() <-chan struct{} }

// follow starts a new term at every change of leader.
func (t *terms) follow(ctx context.Context, s leaderSource) {
	for {
		changed := s.LeaderChangedNotify()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		t.mu.Lock()
		end := t.mu.end
		t.mu.ctx, t.mu.end = context.WithCancel(context.Background())
		t.mu.Unlock()
		time.AfterFunc(newLeaderGrace, end)
	}
}
