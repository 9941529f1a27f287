// Package token keeps delegation tokens (KIP-48, KIP-373) in the coordination store and in memory: short-lived secrets by which
// a client logs in as the token's owner, with SCRAM (Kafka: DelegationTokenManagerZk). Nodes and notifications are Kafka's. A
// token's secret, its HMAC, is in no node: every broker makes it of the id and the secret that all brokers share.
package token

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"klamm/internal/coord"
	"klamm/internal/coord/notify"
	"klamm/internal/security/sasl"
	"klamm/internal/security/scram"
)

// Options is what a Manager is built of.
type Options struct {
	Log         *slog.Logger
	Secret      string        // delegation.token.secret.key
	MaxLifetime time.Duration // delegation.token.max.lifetime.ms
	RenewTime   time.Duration // delegation.token.expiry.time.ms
	CheckEvery  time.Duration // delegation.token.expiry.check.interval.ms
	// IsController reports whether this broker is the controller, which removes expired tokens.
	IsController func() bool
}

// Errors of requests about tokens.
var (
	ErrNotFound   = errors.New("no such token")
	ErrNotAllowed = errors.New("only owner, requester and renewers may change a token")
	ErrExpired    = errors.New("the token is expired")
)

// Token is a delegation token with its secret.
type Token struct {
	coord.DelegationToken
	HMAC []byte
}

// OwnerOrRenewer reports whether a principal may see and renew the token.
func (t *Token) OwnerOrRenewer(principal string) bool {
	return principal == t.Owner || principal == t.Requester || slices.Contains(t.Renewers, principal)
}

func (t *Token) expiredAt(nowMs int64) bool {
	return t.MaxTimestampMs < nowMs || t.ExpiryTimestampMs < nowMs
}

// Manager keeps the tokens of a cluster. It is safe for concurrent use.
type Manager struct {
	o     Options
	store coord.Store

	mu struct {
		sync.RWMutex
		byID map[string]*entry
	}
	// refreshing holds a token while nodes are read and applied: what was read earlier must not replace what was read
	// later. A channel, because it is held during IO.
	refreshing chan struct{}
}

// entry is a token in memory with the credentials that were needed so far.
type entry struct {
	Token
	credentials [2]func() scram.Credential // by mechanism's code less one
}

// New makes a manager that knows no tokens yet: Load reads them.
func New(o Options, store coord.Store) *Manager {
	m := &Manager{o: o, store: store, refreshing: make(chan struct{}, 1)}
	m.mu.byID = map[string]*entry{}
	return m
}

// EnsureRoots creates the parents of tokens and notifications where they are missing.
func (m *Manager) EnsureRoots(ctx context.Context) error {
	for _, path := range []string{coord.DelegationTokensPath, coord.DelegationTokenChangesPath} {
		if err := coord.EnsurePath(ctx, m.store, path, nil); err != nil {
			return err
		}
	}
	return nil
}

// Load reads all tokens and drops what is there no more.
func (m *Manager) Load(ctx context.Context) error {
	ids, err := m.store.Children(ctx, coord.DelegationTokensPath)
	if err != nil && !errors.Is(err, coord.ErrNoNode) {
		return fmt.Errorf("list delegation tokens: %w", err)
	}
	m.mu.RLock()
	for id := range m.mu.byID {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	m.mu.RUnlock()
	return m.refresh(ctx, ids)
}

// refresh reads tokens' nodes and applies them. A node that cannot be read leaves what was known of it.
func (m *Manager) refresh(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	select {
	case m.refreshing <- struct{}{}:
		defer func() { <-m.refreshing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	paths := make([]string, len(ids))
	for i, id := range ids {
		paths[i] = coord.DelegationTokenPath(id)
	}
	nodes, err := m.store.GetMany(ctx, paths)
	if err != nil {
		return fmt.Errorf("read delegation tokens: %w", err)
	}
	for i, n := range nodes {
		var e *entry
		if !errors.Is(n.Err, coord.ErrNoNode) {
			t, err := decode(n, ids[i])
			if err != nil {
				m.o.Log.Error("delegation token cannot be read: what was known of it before stays in force", "path", paths[i], "err", err)
				continue
			}
			e = m.entryOf(t)
		}
		m.mu.Lock()
		if e == nil {
			delete(m.mu.byID, ids[i])
		} else {
			m.mu.byID[ids[i]] = e
		}
		m.mu.Unlock()
	}
	return nil
}

func decode(n coord.ReadResult, id string) (coord.DelegationToken, error) {
	if n.Err != nil {
		return coord.DelegationToken{}, n.Err
	}
	t, err := coord.DecodeDelegationToken(n.Node.Data)
	if err == nil && t.TokenID != id {
		err = fmt.Errorf("it holds token %q", t.TokenID)
	}
	return t, err
}

func (m *Manager) entryOf(t coord.DelegationToken) *entry {
	e := &entry{Token: Token{t, m.hmacOf(t.TokenID)}}
	password := base64.StdEncoding.EncodeToString(e.HMAC)
	for i, mechanism := range scram.Mechanisms() {
		// Deriving it takes a millisecond, and most tokens are used with one mechanism on few brokers.
		e.credentials[i] = sync.OnceValue(func() scram.Credential { return mechanism.NewCredential(password, mechanism.MinIterations) })
	}
	return e
}

func (m *Manager) hmacOf(id string) []byte {
	h := hmac.New(sha512.New, []byte(m.o.Secret))
	h.Write([]byte(id))
	return h.Sum(nil)
}

// Lookup finds a token for an authentication. A nil Manager has none.
func (m *Manager) Lookup(mechanism *scram.Mechanism, id string) (sasl.Token, bool) {
	if m == nil {
		return sasl.Token{}, false
	}
	m.mu.RLock()
	e := m.mu.byID[id]
	m.mu.RUnlock()
	if e == nil {
		return sasl.Token{}, false
	}
	expires := min(e.ExpiryTimestampMs, e.MaxTimestampMs)
	return sasl.Token{Owner: e.Owner, Credential: e.credentials[mechanism.Code-1](), Expires: time.UnixMilli(expires)}, true
}

// List gives the tokens that a function chooses, by id.
func (m *Manager) List(chosen func(*Token) bool) []Token {
	m.mu.RLock()
	all := make([]*entry, 0, len(m.mu.byID))
	for _, e := range m.mu.byID {
		all = append(all, e)
	}
	m.mu.RUnlock()
	var out []Token
	for _, e := range all {
		if chosen(&e.Token) {
			out = append(out, e.Token)
		}
	}
	slices.SortFunc(out, func(a, b Token) int { return strings.Compare(a.TokenID, b.TokenID) })
	return out
}

// Create makes a token. A lifetime of zero or less stands for the longest; none is longer.
func (m *Manager) Create(ctx context.Context, owner, requester string, renewers []string, lifetimeMs int64) (Token, error) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	now := time.Now().UnixMilli()
	life := m.o.MaxLifetime.Milliseconds()
	if lifetimeMs > 0 {
		life = min(life, lifetimeMs)
	}
	t := coord.DelegationToken{TokenID: base64.RawURLEncoding.EncodeToString(id[:]), Owner: owner, Requester: requester, Renewers: renewers,
		IssueTimestampMs: now, MaxTimestampMs: now + life, ExpiryTimestampMs: min(now+life, now+m.o.RenewTime.Milliseconds())}
	if err := m.write(ctx, coord.Create(coord.DelegationTokenPath(t.TokenID), coord.EncodeDelegationToken(t)), t.TokenID); err != nil {
		return Token{}, err
	}
	return Token{t, m.hmacOf(t.TokenID)}, nil
}

// Renew moves the end of the token with this secret, at most to the end of its life; a negative time stands for the usual one.
func (m *Manager) Renew(ctx context.Context, principal string, secret []byte, renewMs int64) (expiryMs int64, err error) {
	if renewMs < 0 {
		renewMs = m.o.RenewTime.Milliseconds()
	}
	return m.moveEnd(ctx, principal, secret, renewMs)
}

// Expire moves the end of the token with this secret to so long from now; a negative time removes it at once.
func (m *Manager) Expire(ctx context.Context, principal string, secret []byte, afterMs int64) (expiryMs int64, err error) {
	if afterMs >= 0 {
		return m.moveEnd(ctx, principal, secret, afterMs)
	}
	t, err := m.changeable(principal, secret)
	if err != nil {
		return 0, err
	}
	return time.Now().UnixMilli(), m.remove(ctx, t.TokenID)
}

func (m *Manager) moveEnd(ctx context.Context, principal string, secret []byte, fromNowMs int64) (int64, error) {
	t, err := m.changeable(principal, secret)
	if err != nil {
		return 0, err
	}
	end := time.Now().UnixMilli() + fromNowMs
	if end < fromNowMs || end > t.MaxTimestampMs { // the sum overflows for what is meant to be for ever
		end = t.MaxTimestampMs
	}
	next := t.DelegationToken
	next.ExpiryTimestampMs = end
	err = m.write(ctx, coord.Set(coord.DelegationTokenPath(t.TokenID), coord.EncodeDelegationToken(next), coord.AnyVersion), t.TokenID)
	if errors.Is(err, coord.ErrNoNode) {
		err = ErrNotFound
	}
	return end, err
}

// changeable finds the token with a secret for who may change it.
func (m *Manager) changeable(principal string, secret []byte) (*Token, error) {
	found := m.List(func(t *Token) bool { return hmac.Equal(t.HMAC, secret) })
	switch {
	case len(found) == 0:
		return nil, ErrNotFound
	case !found[0].OwnerOrRenewer(principal):
		return nil, ErrNotAllowed
	case found[0].expiredAt(time.Now().UnixMilli()):
		return nil, ErrExpired
	}
	return &found[0], nil
}

func (m *Manager) remove(ctx context.Context, id string) error {
	err := m.write(ctx, coord.Delete(coord.DelegationTokenPath(id), coord.AnyVersion), id)
	if errors.Is(err, coord.ErrNoNode) {
		return m.refresh(ctx, []string{id}) // someone else was first
	}
	return err
}

// write changes a token's node together with its notification, and applies the change here.
func (m *Manager) write(ctx context.Context, op coord.Op, id string) error {
	if _, err := m.store.Multi(ctx, op, coord.CreateSequential(coord.TokenChangePrefix, []byte(id))); err != nil {
		return fmt.Errorf("write delegation token %s: %w", id, err)
	}
	return m.refresh(ctx, []string{id})
}

// Run follows the changes that others make, and removes expired tokens while this broker is the controller, until the
// context ends, which is no error, or the store is closed.
func (m *Manager) Run(ctx context.Context) error {
	changes := &notify.Consumer{Root: coord.DelegationTokenChangesPath, Log: m.o.Log, OnStart: m.Load,
		Handle: func(ctx context.Context, data []byte) error {
			if id := string(data); coord.ValidPath(coord.DelegationTokenPath(id)) && id != "" {
				return m.refresh(ctx, []string{id})
			}
			return fmt.Errorf("token change of %q: not an id", data)
		}}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { ended <- changes.Run(ctx, m.store) }()
	ticker := time.NewTicker(m.o.CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
			m.removeExpired(ctx)
		}
	}
}

func (m *Manager) removeExpired(ctx context.Context) {
	if !m.o.IsController() {
		return
	}
	now := time.Now().UnixMilli()
	for _, t := range m.List(func(t *Token) bool { return t.expiredAt(now) }) {
		if err := m.remove(ctx, t.TokenID); err != nil {
			m.o.Log.Warn("expired delegation token is not removed, trying again later", "token", t.TokenID, "err", err)
			return
		}
		m.o.Log.Info("expired delegation token removed", "token", t.TokenID, "owner", t.Owner)
	}
}
