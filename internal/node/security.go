package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"reflect"
	"slices"

	"klamm/internal/config"
	"klamm/internal/security/authorizer"
	"klamm/internal/security/certs"
	"klamm/internal/security/sasl"
	"klamm/internal/security/scram"
	"klamm/internal/security/token"
	"klamm/internal/wire"
)

// loadAccessRules builds the authorizer, if one is configured, and reads all rules: none of a broker's requests may be
// decided without them.
func (b *broker) loadAccessRules(ctx context.Context) error {
	c := b.cfg.Authorizer
	if !c.Enabled {
		return nil
	}
	b.authorizer = authorizer.New(authorizer.Options{Store: b.clientStore, Log: b.log, SuperUsers: c.SuperUsers, AllowEveryoneIfNoACL: c.AllowEveryoneIfNoACL})
	if err := settle(ctx, func() error { return b.authorizer.EnsureRoots(ctx) }); err != nil {
		return err
	}
	if err := settle(ctx, func() error { return b.authorizer.Load(ctx) }); err != nil {
		return fmt.Errorf("load access rules: %w", err)
	}
	return nil
}

// loadTokens reads the delegation tokens, if brokers share a secret for them.
func (b *broker) loadTokens(ctx context.Context) error {
	c := b.cfg.Tokens
	if c.Secret == "" {
		return nil
	}
	b.tokens = token.New(token.Options{Log: b.log, Secret: c.Secret, MaxLifetime: c.MaxLifetime, RenewTime: c.ExpiryTime, CheckEvery: c.CheckInterval,
		IsController: func() bool { return b.driver.IsActive() }}, b.clientStore)
	if err := settle(ctx, func() error { return b.tokens.EnsureRoots(ctx) }); err != nil {
		return err
	}
	return settle(ctx, func() error { return b.tokens.Load(ctx) })
}

// listenerSecurity is what secures the connections of one listener, in both directions.
type listenerSecurity struct {
	certs  *certs.Source // nil without TLS
	tls    *config.TLS   // of certs; owned by the goroutine that applies configs
	mapper *certs.Mapper
	sasl   *wire.SASL // nil without SASL
	login  *config.SASL
}

// secureListeners reads certificates and makes each listener's authentication. It comes before anything else that can
// fail, since a wrong file or password is the operator's to correct.
func (b *broker) secureListeners(context.Context) error {
	b.secured = map[string]*listenerSecurity{}
	for _, l := range b.cfg.Listeners {
		c := b.cfg.Security[l.Name]
		s := &listenerSecurity{}
		b.secured[l.Name] = s
		if c.TLS != nil {
			var err error
			if s.certs, err = certs.Open(l.Name, c.TLS, b.log); err != nil {
				return err
			}
			s.tls = c.TLS
			if s.mapper, err = certs.ParseMapper(c.TLS.PrincipalRules); err != nil {
				return fmt.Errorf("listener %s: ssl.principal.mapping.rules: %w", l.Name, err)
			}
		}
		if c.SASL != nil {
			s.login = c.SASL
			s.sasl = sasl.NewServer(sasl.Options{
				Mechanisms: c.SASL.Mechanisms, Passwords: c.SASL.Logins[sasl.Plain].Users, Users: b.usersOf(c.SASL),
				Tokens:    func(m *scram.Mechanism, id string) (sasl.Token, bool) { return b.tokens.Lookup(m, id) },
				ReauthMax: c.SASL.ReauthMax, FailureDelay: c.SASL.FailureDelay,
			})
		}
	}
	return nil
}

// usersOf finds users' credentials: those of the cluster, and for the name that brokers log in by also the one that the
// configuration says, so that a cluster can start whose nodes have no users yet.
func (b *broker) usersOf(c *config.SASL) func(*scram.Mechanism, string) (scram.Credential, bool) {
	own := map[string]scram.Credential{} // by mechanism
	login := c.Logins[c.InterBrokerMechanism]
	if m, ok := scram.ByName(c.InterBrokerMechanism); ok {
		own[m.Name] = m.NewCredential(login.Password, m.MinIterations)
	}
	return func(m *scram.Mechanism, user string) (scram.Credential, bool) {
		found, known := b.users.Credential(m, user)
		if configured, ok := own[m.Name]; !known && ok && user == login.Username {
			return configured, true
		}
		return found, known
	}
}

// apply secures what clients connect to.
func (s *listenerSecurity) apply(l wire.Listener) wire.Listener {
	if s.certs != nil {
		l.Net = tls.NewListener(l.Net, s.certs.Server())
		l.TLSPrincipal = s.mapper.Principal
	}
	l.SASL = s.sasl
	return l
}

// client secures connections to the listener of this name on other brokers.
func (s *listenerSecurity) client(cfg wire.ClientConfig) wire.ClientConfig {
	if s.certs != nil {
		cfg.Dial = s.dialTLS
	}
	if s.login != nil {
		m := s.login.InterBrokerMechanism
		cfg.Login = sasl.Login(m, s.login.Logins[m].Username, s.login.Logins[m].Password)
	}
	return cfg
}

func (s *listenerSecurity) dialTLS(ctx context.Context, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	nc, err := wire.DialTCP(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := tls.Client(nc, s.certs.Client(host))
	if err := c.HandshakeContext(ctx); err != nil {
		_ = nc.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return c, nil
}

// risk says what is dangerous about a listener that strangers can reach; "" for nothing.
func (b *broker) risk(l *boundListener) string {
	c := b.cfg.Security[l.name]
	switch {
	case c.SASL != nil && c.TLS == nil && slices.Contains(c.SASL.Mechanisms, sasl.Plain):
		return "passwords and records cross the network of this listener in clear text: whoever can listen there can log in as others; use SASL_SSL"
	case c.SASL != nil, c.TLS != nil && c.TLS.ClientAuth == "required":
		return ""
	case b.cfg.Authorizer.Enabled:
		return "this listener is open to the network without authentication: whoever reaches it has the permissions of User:ANONYMOUS"
	}
	return "this listener is open to the network without authentication: whoever reaches it can read, write and delete every topic"
}

// followCertificates takes over key and trust stores that are set dynamically for a listener. Ones that cannot be read are told
// and leave the old ones: a Kafka broker may have set them, on another machine.
func (b *broker) followCertificates(now *config.Broker) {
	for _, l := range b.cfg.Listeners {
		s, set := b.secured[l.Name], now.Security[l.Name].TLS
		if s.certs == nil || set == nil || reflect.DeepEqual(set, s.tls) {
			continue
		}
		if err := s.certs.Reconfigure(set); err != nil {
			b.log.Error("certificates that are set for a listener cannot be used: the old ones stay", "listener", l.Name, "err", err)
			continue
		}
		s.tls = set
		b.log.Info("certificates of a listener were set anew", "listener", l.Name)
	}
}

// checkCertificates refuses key and trust stores that cannot be read, before they are stored.
func (b *broker) checkCertificates(now, next *config.Broker) error {
	for _, l := range b.cfg.Listeners {
		was, set := now.Security[l.Name].TLS, next.Security[l.Name].TLS
		if set == nil || reflect.DeepEqual(set, was) {
			continue
		}
		if _, err := certs.Open(l.Name, set, b.log); err != nil {
			return err
		}
	}
	return nil
}
