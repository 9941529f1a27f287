package token

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
	"klamm/internal/security/scram"
)

const owner, friend, stranger = "User:owner", "User:friend", "User:stranger"

// inBubble runs a test with one engine and two brokers' managers that share a secret; the first is the controller when
// controls says so.
func inBubble(t *testing.T, test func(ctx context.Context, s coord.Store, controls *atomic.Bool, one, two *Manager)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		engine, controls := memstore.New(), &atomic.Bool{}
		var running sync.WaitGroup
		open := func(isController func() bool) *Manager {
			m := New(Options{Log: slog.New(slog.DiscardHandler), Secret: "shared", MaxLifetime: 7 * 24 * time.Hour, RenewTime: 24 * time.Hour,
				CheckEvery: time.Hour, IsController: isController}, engine.Client())
			if err := errors.Join(m.EnsureRoots(ctx), m.Load(ctx)); err != nil {
				t.Fatal(err)
			}
			running.Go(func() { _ = m.Run(ctx) })
			return m
		}
		one, two := open(controls.Load), open(func() bool { return false })
		synctest.Wait()
		test(ctx, engine.Client(), controls, one, two)
		cancel()
		running.Wait()
	})
}

func create(t *testing.T, m *Manager, lifetime time.Duration) Token {
	t.Helper()
	tok, err := m.Create(context.Background(), owner, owner, []string{friend}, lifetime.Milliseconds())
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func all(*Token) bool { return true }

func TestTokensAreKeptInKafkasNodesWithoutTheirSecret(t *testing.T) {
	inBubble(t, func(ctx context.Context, s coord.Store, _ *atomic.Bool, one, two *Manager) {
		tok := create(t, one, 0)
		n, err := s.Get(ctx, "/delegation_token/tokens/"+tok.TokenID)
		if err != nil || !strings.Contains(string(n.Data), `"owner":"User%3Aowner"`) || bytes.Contains(n.Data, []byte(base64.StdEncoding.EncodeToString(tok.HMAC))) {
			t.Errorf("node holds %s, %v", n.Data, err)
		}
		change, err := s.Get(ctx, "/delegation_token/token_changes/token_change_0000000000")
		if err != nil || string(change.Data) != tok.TokenID {
			t.Errorf("notification holds %q, %v", change.Data, err)
		}
		synctest.Wait()
		// Another broker makes the same secret of the id.
		got := two.List(all)
		if len(got) != 1 || !bytes.Equal(got[0].HMAC, tok.HMAC) || got[0].Owner != owner || len(got[0].Renewers) != 1 {
			t.Errorf("another broker knows %+v", got)
		}
	})
}

func TestATokenWhoseNodeCannotBeReadIsKept(t *testing.T) {
	var log strings.Builder
	s := memstore.New().Client()
	m := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Secret: "shared", MaxLifetime: 7 * 24 * time.Hour, RenewTime: 24 * time.Hour,
		CheckEvery: time.Hour, IsController: func() bool { return false }}, s)
	if err := m.EnsureRoots(t.Context()); err != nil {
		t.Fatal(err)
	}
	tok := create(t, m, 0)
	path := "/delegation_token/tokens/" + tok.TokenID
	for reason, spoil := range map[string]func(){
		coord.ErrNoPermission.Error(): func() { s.Deny(path) },
		"decode delegation token": func() {
			s.Deny()
			if _, err := s.Multi(t.Context(), coord.Set(path, []byte("{"), coord.AnyVersion)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		log.Reset()
		spoil()
		if err := m.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(m.List(all)) != 1 || !strings.Contains(log.String(), path) || !strings.Contains(log.String(), reason) {
			t.Errorf("%d tokens are known; told was: %s", len(m.List(all)), log.String())
		}
	}
}

func TestALifeIsBoundedAndRenewedWithinIt(t *testing.T) {
	inBubble(t, func(ctx context.Context, _ coord.Store, _ *atomic.Bool, one, _ *Manager) {
		now := time.Now().UnixMilli()
		day := (24 * time.Hour).Milliseconds()
		long, short := create(t, one, 365*24*time.Hour), create(t, one, time.Hour)
		if long.MaxTimestampMs != now+7*day || long.ExpiryTimestampMs != now+day {
			t.Errorf("a life of a year is %+v", long)
		}
		if short.MaxTimestampMs != now+day/24 || short.ExpiryTimestampMs != short.MaxTimestampMs {
			t.Errorf("a life of an hour is %+v", short)
		}
		for _, tt := range []struct{ renewMs, want int64 }{{-1, now + day}, {3 * day, now + 3*day}, {30 * day, now + 7*day}, {1<<63 - 1, now + 7*day}} {
			if got, err := one.Renew(ctx, friend, long.HMAC, tt.renewMs); got != tt.want || err != nil {
				t.Errorf("renewed by %d ends at %d, %v; want %d", tt.renewMs, got, err, tt.want)
			}
		}
	})
}

func TestOnlyOwnerRequesterAndRenewersChangeAToken(t *testing.T) {
	inBubble(t, func(ctx context.Context, _ coord.Store, _ *atomic.Bool, one, two *Manager) {
		tok := create(t, one, 0)
		synctest.Wait()
		if _, err := two.Renew(ctx, stranger, tok.HMAC, -1); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("a stranger renews: %v", err)
		}
		if _, err := two.Expire(ctx, owner, []byte("x"), -1); !errors.Is(err, ErrNotFound) {
			t.Errorf("an unknown secret: %v", err)
		}
		if _, err := two.Expire(ctx, owner, tok.HMAC, -1); err != nil {
			t.Errorf("the owner removes: %v", err)
		}
		synctest.Wait()
		if left := one.List(all); len(left) != 0 {
			t.Errorf("left are %v", left)
		}
	})
}

func TestAnExpiredTokenIsRefusedAndTheControllerRemovesIt(t *testing.T) {
	inBubble(t, func(ctx context.Context, _ coord.Store, controls *atomic.Bool, one, two *Manager) {
		tok := create(t, one, time.Minute)
		time.Sleep(3 * time.Hour)
		if _, err := one.Renew(ctx, owner, tok.HMAC, -1); !errors.Is(err, ErrExpired) {
			t.Errorf("an expired token is renewed: %v", err)
		}
		if len(two.List(all)) != 1 {
			t.Error("a broker that is not the controller removed it")
		}
		controls.Store(true)
		time.Sleep(time.Hour + time.Second)
		if len(one.List(all)) != 0 || len(two.List(all)) != 0 {
			t.Error("the controller did not remove it")
		}
	})
}

func TestATokensSecretIsItsPassword(t *testing.T) {
	inBubble(t, func(_ context.Context, _ coord.Store, _ *atomic.Bool, one, _ *Manager) {
		tok := create(t, one, 0)
		for _, m := range scram.Mechanisms() {
			found, ok := one.Lookup(m, tok.TokenID)
			password := base64.StdEncoding.EncodeToString(tok.HMAC)
			want := m.FromSalted(m.Salted(password, found.Credential.Salt, found.Credential.Iterations), found.Credential.Salt, found.Credential.Iterations)
			if !ok || found.Owner != owner || found.Credential.String() != want.String() || found.Expires.UnixMilli() != tok.ExpiryTimestampMs {
				t.Errorf("%s: %+v, %v", m.Name, found, ok)
			}
		}
		if _, ok := one.Lookup(scram.SHA256, "other"); ok {
			t.Error("an unknown id is found")
		}
		if _, ok := (*Manager)(nil).Lookup(scram.SHA256, tok.TokenID); ok {
			t.Error("a broker without tokens knows one")
		}
	})
}
