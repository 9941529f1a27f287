package authorizer

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
	"klamm/internal/security/acl"
)

const alice, home = "User:alice", "10.0.0.1"

func rule(t acl.ResourceType, name string, kind acl.PatternType, principal string, op acl.Operation) acl.Binding {
	return acl.Binding{Pattern: acl.Pattern{Type: t, Name: name, Kind: kind},
		Entry: acl.Entry{Principal: principal, Host: acl.Wildcard, Operation: op, Permission: acl.Allow}}
}

func everything(t acl.ResourceType) acl.Filter {
	return acl.Filter{Type: t, Kind: acl.AnyPattern, Operation: acl.AnyOperation, Permission: acl.AnyPermission}
}

// inBubble runs a test with one engine and two brokers' authorizers that follow changes.
func inBubble(t *testing.T, test func(ctx context.Context, s coord.Store, one, two *Authorizer)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		engine := memstore.New()
		var running sync.WaitGroup
		open := func() *Authorizer {
			a := New(Options{Store: engine.Client(), Log: slog.New(slog.DiscardHandler), SuperUsers: []string{"User:root"}})
			if err := errors.Join(a.EnsureRoots(ctx), a.Load(ctx)); err != nil {
				t.Fatal(err)
			}
			running.Go(func() { _ = a.Run(ctx) })
			return a
		}
		one, two := open(), open()
		synctest.Wait()
		test(ctx, engine.Client(), one, two)
		cancel()
		running.Wait()
	})
}

func created(t *testing.T, errs []error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// The nodes are those of ../shared/traces/znodes/authorizer.jsonl, which a broker of Kafka 3.9.1 wrote.
func TestNodesAndNotificationsAreKafkas(t *testing.T) {
	inBubble(t, func(ctx context.Context, s coord.Store, one, _ *Authorizer) {
		created(t, one.Create(ctx, []acl.Binding{
			rule(acl.Topic, "secret", acl.Literal, "User:ANONYMOUS", acl.Describe),
			rule(acl.Cluster, acl.ClusterName, acl.Literal, "User:nobody", acl.Create),
			rule(acl.TransactionalID, "tx", acl.Prefixed, "User:nobody", acl.IdempotentWrite),
		}))
		for path, want := range map[string]string{
			"/kafka-acl/Topic/secret":                            `{"acls":[{"principal":"User:ANONYMOUS","permissionType":"Allow","host":"*","operation":"Describe"}],"version":1}`,
			"/kafka-acl/Cluster/kafka-cluster":                   `{"acls":[{"principal":"User:nobody","permissionType":"Allow","host":"*","operation":"Create"}],"version":1}`,
			"/kafka-acl-changes/acl_changes_0000000000":          "TOPIC:secret",
			"/kafka-acl-changes/acl_changes_0000000001":          "CLUSTER:kafka-cluster",
			"/kafka-acl-extended/prefixed/TransactionalId/tx":    `{"acls":[{"principal":"User:nobody","permissionType":"Allow","host":"*","operation":"IdempotentWrite"}],"version":1}`,
			"/kafka-acl-extended-changes/acl_changes_0000000000": `{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx","patternType":"PREFIXED"}`,
		} {
			n, err := s.Get(ctx, path)
			if err != nil || string(n.Data) != want {
				t.Errorf("%s holds %q (%v), want %q", path, n.Data, err, want)
			}
		}
		for root, want := range map[string]string{
			"/kafka-acl":                   "Cluster DelegationToken Group Topic TransactionalId User",
			"/kafka-acl-extended":          "prefixed",
			"/kafka-acl-extended/prefixed": "Cluster DelegationToken Group Topic TransactionalId User",
		} {
			names, err := s.Children(ctx, root)
			if got := strings.Join(names, " "); err != nil || got != want {
				t.Errorf("children of %s are %q (%v), want %q", root, got, err, want)
			}
		}
	})
}

func TestAChangeCountsHereAtOnceAndElsewhereAfterItsNotification(t *testing.T) {
	inBubble(t, func(ctx context.Context, s coord.Store, one, two *Authorizer) {
		may := func(a *Authorizer) bool { return a.Allows(alice, home, acl.Read, acl.Topic, "team-a") }
		if may(one) || may(two) {
			t.Fatal("allowed without a rule")
		}
		b := rule(acl.Topic, "team-", acl.Prefixed, alice, acl.Read)
		created(t, one.Create(ctx, []acl.Binding{b, b}))
		if !may(one) {
			t.Error("not allowed where it was created")
		}
		synctest.Wait()
		if !may(two) {
			t.Error("not allowed on another broker")
		}
		if got := two.Delete(ctx, []acl.Filter{everything(acl.AnyResource), everything(acl.Topic)}); len(got[0]) != 1 || len(got[1]) != 1 || got[0][0].Err != nil {
			t.Errorf("deleted %v", got)
		}
		synctest.Wait()
		if may(one) || may(two) {
			t.Error("allowed after the rule was deleted")
		}
		if _, err := s.Get(ctx, "/kafka-acl-extended/prefixed/Topic/team-"); !errors.Is(err, coord.ErrNoNode) {
			t.Errorf("the node of the last rule is still there: %v", err)
		}
	})
}

func TestARuleThatIsThereIsNotWrittenAgain(t *testing.T) {
	inBubble(t, func(ctx context.Context, s coord.Store, one, _ *Authorizer) {
		b := rule(acl.Group, "g", acl.Literal, alice, acl.Read)
		created(t, one.Create(ctx, []acl.Binding{b}))
		created(t, one.Create(ctx, []acl.Binding{b}))
		if names, _ := s.Children(ctx, coord.ACLChangesPath); len(names) != 1 {
			t.Errorf("%d notifications, want 1", len(names))
		}
	})
}

func TestConcurrentChangesOfOneResourceAllCount(t *testing.T) {
	inBubble(t, func(ctx context.Context, _ coord.Store, one, two *Authorizer) {
		var all sync.WaitGroup
		for i, a := range []*Authorizer{one, two, one, two} {
			all.Go(func() {
				created(t, a.Create(ctx, []acl.Binding{rule(acl.Topic, "t", acl.Literal, alice+string(rune('0'+i)), acl.Read)}))
			})
		}
		all.Wait()
		synctest.Wait()
		if n := len(one.Find(everything(acl.Topic))); n != 4 {
			t.Errorf("%d rules, want 4", n)
		}
	})
}

func TestANodeThatCannotBeReadLeavesWhatWasKnown(t *testing.T) {
	inBubble(t, func(ctx context.Context, s coord.Store, one, _ *Authorizer) {
		created(t, one.Create(ctx, []acl.Binding{rule(acl.Topic, "t", acl.Literal, alice, acl.Read)}))
		for _, bad := range []string{`{"acls":[{"operation":"Fly"}],"version":1}`, `{`, `{"version":2,"acls":[]}`} {
			if _, err := s.Multi(ctx, coord.Set("/kafka-acl/Topic/t", []byte(bad), coord.AnyVersion),
				coord.CreateSequential(coord.ACLChangePrefix, []byte("Topic:t"))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if !one.Allows(alice, home, acl.Read, acl.Topic, "t") {
				t.Errorf("a node with %s took the rule away", bad)
			}
		}
	})
}

func TestANodeThatMayNotBeReadLeavesWhatWasKnown(t *testing.T) {
	var log strings.Builder
	s := memstore.New().Client()
	a := New(Options{Store: s, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err := a.EnsureRoots(t.Context()); err != nil {
		t.Fatal(err)
	}
	deny := rule(acl.Topic, "t", acl.Literal, alice, acl.Read)
	deny.Permission = acl.Deny
	created(t, a.Create(t.Context(), []acl.Binding{deny, rule(acl.Topic, acl.Wildcard, acl.Literal, alice, acl.Read)}))
	s.Deny("/kafka-acl/Topic/t")
	if err := a.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a.Allows(alice, home, acl.Read, acl.Topic, "t") || !a.Allows(alice, home, acl.Read, acl.Topic, "u") {
		t.Error("rules are gone that may not be read any more")
	}
	if !strings.Contains(log.String(), "/kafka-acl/Topic/t") || !strings.Contains(log.String(), coord.ErrNoPermission.Error()) {
		t.Errorf("the node and the reason are not told: %s", log.String())
	}
}

func TestSuperUsersMayDoEverything(t *testing.T) {
	inBubble(t, func(ctx context.Context, _ coord.Store, one, _ *Authorizer) {
		if !one.Allows("User:root", home, acl.ClusterAction, acl.Cluster, acl.ClusterName) || !one.AllowsAny("User:root", home, acl.Write, acl.Topic) {
			t.Error("a super user is refused")
		}
		if one.Allows("User:rooty", home, acl.Read, acl.Topic, "t") {
			t.Error("a name that begins like a super user's is one")
		}
	})
}

func TestWithoutARuleTheSettingDecides(t *testing.T) {
	a := New(Options{AllowEveryoneIfNoACL: true})
	if !a.Allows(alice, home, acl.Read, acl.Topic, "t") || !a.AllowsAny(alice, home, acl.Write, acl.Topic) {
		t.Error("refused though allow.everyone.if.no.acl.found is set")
	}
}

func TestADecisionAllocatesNothing(t *testing.T) {
	a := New(Options{SuperUsers: []string{"User:root"}})
	if n := testing.AllocsPerRun(100, func() { a.Allows(alice, home, acl.Read, acl.Topic, "t") }); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}
