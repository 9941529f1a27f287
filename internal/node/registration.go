package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"klamm/internal/api"
	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
)

// registration keeps the broker registered: one session with one node under /brokers/ids. Safe for concurrent use.
type registration struct {
	store coord.Store
	id    cluster.BrokerID
	node  coord.BrokerNode
	ttl   time.Duration
	log   *slog.Logger
	// remember keeps a new session for the process that comes after this one.
	remember func(coord.Session)
	// renewed is called after each registration but the first.
	renewed func()

	mu struct {
		sync.Mutex
		session coord.Session
		epoch   cluster.BrokerEpoch
	}
}

// register announces the broker. Another live broker with the same id or address refuses it.
func (b *broker) register(ctx context.Context) error {
	b.leftovers = newLeftovers(b)
	b.reg = &registration{
		renewed: b.leftovers.registeredAgain,
		store:   b.store, id: b.cfg.ID, log: b.log, ttl: b.sessionTTL(),
		remember: func(s coord.Session) {
			if err := rememberSession(b.dirs, b.clusterID, formerSession{s.ID(), coord.SessionKey(s)}); err != nil {
				b.log.Warn("cannot remember the session: a restart after a crash will wait until it has expired", "err", err)
			}
		},
		node: coord.BrokerNode{Endpoints: b.endpoints(), Rack: b.cfg.BrokerRack, JMXPort: -1, TimestampMs: time.Now().UnixMilli(),
			Version: registrationVersion(b.cfg.InterBrokerProtocol),
			Klamm:   &coord.KlammRegistration{Version: 1, Web: b.webAdvertised()}},
	}
	b.endFormerSessions(ctx)
	// A node left by this broker's own crash, unknown to this process, goes with its session; waiting for that beats
	// refusing to start.
	_, err := b.reg.open(ctx, coord.RegisterOptions{Wait: 2 * b.cfg.CoordinationSession()})
	var conflict *coord.BrokerConflictError
	if errors.As(err, &conflict) {
		return fmt.Errorf("refusing to start: %w", err)
	}
	return err
}

// Members of an etcd cluster end a session up to half a second late. And when the broker that died was the leader among
// them, the next one is elected within a second and gives every session its whole time again.
const (
	etcdLateness   = time.Second
	lateSessionMin = 3 * time.Second // shorter ones are left alone: they would become too nervous
)

// sessionTTL is the session to ask for, so that a dead broker is noticed within broker.session.timeout.ms in most cases,
// and a second later in the worst.
func (b *broker) sessionTTL() time.Duration {
	ttl := b.cfg.CoordinationSession()
	if len(b.cfg.Etcd.Cluster) > 0 && ttl >= lateSessionMin {
		ttl -= etcdLateness
	}
	return ttl
}

// registrationVersion is the layout that brokers of an inter.broker.protocol.version can read (Kafka: BrokerIdZNode,
// BrokerInfo.apply): with features from 2.7-IV0 on, with listener names from 0.10.0-IV1 on.
func registrationVersion(p config.ProtocolVersion) int32 {
	switch {
	case p.AtLeast(config.ProtocolVersion{Major: 2, Minor: 7}):
		return 5
	case p.AtLeast(config.ProtocolVersion{Minor: 10, Step: 1}):
		return 4
	}
	return 2
}

func (r *registration) open(ctx context.Context, o coord.RegisterOptions) (coord.Session, error) {
	s, err := r.store.OpenSession(ctx, r.ttl)
	if err != nil {
		return nil, fmt.Errorf("open a coordination session: %w", err)
	}
	r.remember(s)
	if err := coord.EnsurePath(ctx, r.store, coord.KlammBrokerPath(r.id), nil); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	epoch, err := coord.RegisterBroker(ctx, r.store, s, r.id, r.node, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("register broker %d: %w", r.id, err), s.Close(context.WithoutCancel(ctx)))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.session, r.mu.epoch = s, epoch
	return s, nil
}

// renew registers again after the session expired; the new registration has a new broker epoch.
func (r *registration) renew(ctx context.Context, previous int64) (coord.Session, error) {
	// The engine may hold the former session for a while yet, and with it not the registration only but also
	// /controller.
	if ender, ok := r.store.(coord.SessionEnder); ok {
		var key []byte
		if s := r.session(); s != nil && s.ID() == previous {
			key = coord.SessionKey(s)
		}
		if err := ender.EndSession(ctx, previous, key); err != nil {
			return nil, fmt.Errorf("end the former session: %w", err)
		}
	}
	s, err := r.open(ctx, coord.RegisterOptions{PreviousSession: previous})
	if err == nil {
		r.renewed()
	}
	return s, err
}

// leaveTimeout bounds taking the registration back: without a majority of the engine's members it cannot be, and goes
// with its session.
const leaveTimeout = time.Second

// leave takes the registration back, so that the cluster need not wait for the session to expire.
func (r *registration) leave(ctx context.Context) error {
	s := r.session()
	if s == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	err := s.Close(ctx)
	switch {
	case err == nil || errors.Is(err, coord.ErrSessionExpired):
		return nil
	case errors.Is(err, coord.ErrUnavailable), errors.Is(err, coord.ErrUnknownOutcome), errors.Is(err, context.DeadlineExceeded):
		r.log.Warn("the registration could not be taken back, it goes when the session expires", "broker", r.id, "err", err)
		return nil
	}
	return fmt.Errorf("take back the registration of broker %d: %w", r.id, err)
}

func (r *registration) session() coord.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.session
}

func (r *registration) epoch() cluster.BrokerEpoch {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.session == nil {
		return cluster.NoBrokerEpoch
	}
	return r.mu.epoch
}

// alive reports whether the session lives, as far as this broker knows.
func (r *registration) alive() bool {
	s := r.session()
	if s == nil {
		return false
	}
	select {
	case <-s.Done():
		return false
	default:
		return true
	}
}

// loadConfigs applies the dynamic configs and quotas of the store before logs are opened with them and requests served.
func (b *broker) loadConfigs(ctx context.Context) error {
	b.dynamic = config.NewDynamic(b.cfg)
	b.quotas = newQuotas(b.cfg)
	b.quotas.setAcceptRates(b.cfg)
	b.quotas.follow(b.dynamic, b.cfg.ID)
	b.dynamic.OnBroker(func(_ []string, now *config.Broker) { b.followCertificates(now) })
	b.dynamic.CheckBroker(b.checkCertificates)
	d := api.Deps{Log: b.log, BrokerID: b.cfg.ID, Config: b.dynamic, Store: b.store, Quotas: b.quotas.clients, Connections: b.quotas.connections, Users: b.users}
	if err := api.LoadConfigs(ctx, d); err != nil {
		return fmt.Errorf("load configs: %w", err)
	}
	return nil
}
