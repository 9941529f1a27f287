package acl

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const alice, bob, home = "User:alice", "User:bob", "10.0.0.1"

func allow(principal string, op Operation) Entry { return Entry{principal, Wildcard, op, Allow} }
func deny(principal string, op Operation) Entry  { return Entry{principal, Wildcard, op, Deny} }

func rulesOf(bindings ...Binding) *Rules {
	byPattern := map[Pattern][]Entry{}
	for _, b := range bindings {
		byPattern[b.Pattern] = append(byPattern[b.Pattern], b.Entry)
	}
	return (&Rules{}).With(byPattern)
}

func on(name string, kind PatternType, e Entry) Binding {
	return Binding{Pattern{Topic, name, kind}, e}
}

func TestDecisions(t *testing.T) {
	for _, tt := range []struct {
		fact  string
		rules *Rules
		op    Operation
		name  string
		want  Verdict
	}{
		{"no pattern applies", rulesOf(on("other", Literal, allow(alice, All))), Read, "t", NoRules},
		{"a literal rule allows", rulesOf(on("t", Literal, allow(alice, Read))), Read, "t", Allowed},
		{"a rule for someone else closes the resource", rulesOf(on("t", Literal, allow(bob, Read))), Read, "t", Denied},
		{"a wildcard applies to every name", rulesOf(on("*", Literal, allow(alice, Read))), Read, "t", Allowed},
		{"a prefix applies to what begins with it", rulesOf(on("te", Prefixed, allow(alice, Read))), Read, "team", Allowed},
		{"a prefix applies to its own name", rulesOf(on("team", Prefixed, allow(alice, Read))), Read, "team", Allowed},
		{"a prefix does not apply to a shorter name", rulesOf(on("team", Prefixed, allow(alice, Read))), Read, "tea", NoRules},
		{"a prefix * is a name that begins with *", rulesOf(on("*", Prefixed, allow(alice, Read))), Read, "t", NoRules},
		{"everybody is allowed", rulesOf(on("t", Literal, allow(EveryUser, Read))), Read, "t", Allowed},
		{"deny wins over allow on the same pattern", rulesOf(on("t", Literal, allow(alice, Read)), on("t", Literal, deny(alice, Read))), Read, "t", Denied},
		{"deny by a prefix wins over a literal allow", rulesOf(on("t", Literal, allow(alice, All)), on("t", Prefixed, deny(EveryUser, Read))), Read, "t", Denied},
		{"deny all denies each", rulesOf(on("*", Literal, deny(alice, All)), on("t", Literal, allow(alice, Read))), Read, "t", Denied},
		{"deny of another operation does not matter", rulesOf(on("t", Literal, allow(alice, Read)), on("t", Literal, deny(alice, Write))), Read, "t", Allowed},
		{"deny read does not deny describe", rulesOf(on("t", Literal, allow(alice, Describe)), on("t", Literal, deny(alice, Read))), Describe, "t", Allowed},
		{"all implies each", rulesOf(on("t", Literal, allow(alice, All))), AlterConfigs, "t", Allowed},
		{"write implies describe", rulesOf(on("t", Literal, allow(alice, Write))), Describe, "t", Allowed},
		{"create does not imply describe", rulesOf(on("t", Literal, allow(alice, Create))), Describe, "t", Denied},
		{"describe does not imply read", rulesOf(on("t", Literal, allow(alice, Describe))), Read, "t", Denied},
		{"alter configs implies describe configs", rulesOf(on("t", Literal, allow(alice, AlterConfigs))), DescribeConfigs, "t", Allowed},
		{"alter does not imply describe configs", rulesOf(on("t", Literal, allow(alice, Alter))), DescribeConfigs, "t", Denied},
		{"the host decides", rulesOf(on("t", Literal, Entry{alice, "10.0.0.2", Read, Allow})), Read, "t", Denied},
		{"the host fits", rulesOf(on("t", Literal, Entry{alice, home, Read, Allow})), Read, "t", Allowed},
	} {
		if got := tt.rules.Decide(alice, home, tt.op, Topic, tt.name); got != tt.want {
			t.Errorf("%s: verdict %d, want %d", tt.fact, got, tt.want)
		}
	}
}

func TestHostsOfOneAddressAreEqual(t *testing.T) {
	r := rulesOf(on("t", Literal, Entry{alice, "0:0:0:0:0:0:0:1", Read, Allow}))
	if got := r.Decide(alice, "::1", Read, Topic, "t"); got != Allowed {
		t.Errorf("Java's spelling of ::1 does not match: %d", got)
	}
}

func TestAnOperationOnAnyResourceOfAType(t *testing.T) {
	for _, tt := range []struct {
		fact  string
		rules *Rules
		want  Verdict
	}{
		{"nothing is allowed", rulesOf(on("t", Literal, allow(bob, Write))), NoRules},
		{"one topic is enough", rulesOf(on("t", Literal, allow(alice, Write))), Allowed},
		{"a denied wildcard covers all", rulesOf(on("t", Literal, allow(alice, Write)), on("*", Literal, deny(alice, Write))), Denied},
		{"a denied prefix covers what it begins", rulesOf(on("team", Literal, allow(alice, Write)), on("te", Prefixed, deny(alice, All))), NoRules},
		{"a denied prefix covers a longer prefix", rulesOf(on("team", Prefixed, allow(alice, Write)), on("te", Prefixed, deny(alice, All))), NoRules},
		{"a denied literal leaves other names of an allowed prefix", rulesOf(on("te", Prefixed, allow(alice, Write)), on("te", Literal, deny(alice, All))), Allowed},
		{"a wildcard is not covered by a prefix", rulesOf(on("*", Literal, allow(alice, Write)), on("te", Prefixed, deny(alice, All))), Allowed},
	} {
		if got := tt.rules.DecideAny(alice, home, Write, Topic); got != tt.want {
			t.Errorf("%s: verdict %d, want %d", tt.fact, got, tt.want)
		}
	}
}

func TestFiltersSelectPatterns(t *testing.T) {
	r := rulesOf(on("team", Literal, allow(alice, Read)), on("te", Prefixed, allow(alice, Read)), on("*", Literal, allow(bob, Write)),
		on("other", Literal, allow(alice, Read)))
	for _, tt := range []struct {
		name string
		kind PatternType
		want string
	}{
		{"team", Match, "* team te"},
		{"team", AnyPattern, "team"},
		{"team", Literal, "team"},
		{"te", Prefixed, "te"},
		{"", Prefixed, "te"},
		{"", AnyPattern, "* other team te"},
		{"", Match, "* other team te"},
		{"absent", Match, "*"},
	} {
		var names []string
		for _, b := range r.Find(Filter{Type: Topic, Name: tt.name, Kind: tt.kind, Operation: AnyOperation, Permission: AnyPermission}) {
			names = append(names, b.Name)
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("filter %q %v selects %q, want %q", tt.name, tt.kind, got, tt.want)
		}
	}
}

func TestADecisionAllocatesNothing(t *testing.T) {
	var bindings []Binding
	for i := range 1000 {
		bindings = append(bindings, on(fmt.Sprintf("topic-%d", i), Literal, allow(alice, Read)), on(fmt.Sprintf("p%d", i), Prefixed, allow(bob, Read)))
	}
	r := rulesOf(bindings...)
	if n := testing.AllocsPerRun(100, func() { r.Decide(alice, home, Read, Topic, "topic-77") }); n != 0 {
		t.Errorf("a decision allocates %v times", n)
	}
}

// The index must give what a walk over all rules gives, through any sequence of changes.
func TestTheIndexDecidesAsAWalkOverAllRulesDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"a", "ab", "abc", "b", "*"})
		principals := rapid.SampledFrom([]string{alice, bob, EveryUser})
		entry := rapid.Custom(func(t *rapid.T) Entry {
			return Entry{principals.Draw(t, "principal"), rapid.SampledFrom([]string{home, "10.0.0.2", Wildcard}).Draw(t, "host"),
				Operation(rapid.IntRange(2, 14).Draw(t, "op")), Permission(rapid.IntRange(2, 3).Draw(t, "permission"))}
		})
		r, model := &Rules{}, map[Pattern][]Entry{}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			p := Pattern{Topic, names.Draw(t, "name"), PatternType(rapid.IntRange(3, 4).Draw(t, "kind"))}
			model[p] = rapid.SliceOfN(entry, 0, 3).Draw(t, "entries")
			r = r.With(map[Pattern][]Entry{p: model[p]})
		}
		who, op, name := principals.Draw(t, "who"), Operation(rapid.IntRange(3, 14).Draw(t, "asked")), names.Draw(t, "resource")
		if got, want := r.Decide(who, home, op, Topic, name), walk(model, who, op, name); got != want {
			t.Fatalf("%s %v on %s: verdict %d, a walk over %v gives %d", who, op, name, got, model, want)
		}
	})
}

func walk(model map[Pattern][]Entry, who string, op Operation, name string) Verdict {
	found, allowed := false, false
	for p, entries := range model {
		applies := p.Kind == Literal && (p.Name == name || p.Name == Wildcard) || p.Kind == Prefixed && strings.HasPrefix(name, p.Name)
		if !applies || len(entries) == 0 {
			continue
		}
		found = true
		for _, e := range entries {
			if e.Principal != who && e.Principal != EveryUser || e.Host != Wildcard && e.Host != home {
				continue
			}
			if e.Permission == Deny && slices.Contains([]Operation{op, All}, e.Operation) {
				return Denied
			}
			allowed = allowed || e.Permission == Allow && implies(e.Operation, op)
		}
	}
	switch {
	case allowed:
		return Allowed
	case found:
		return Denied
	}
	return NoRules
}

func TestRulesThatCannotBeCreated(t *testing.T) {
	good := Binding{Pattern{Topic, "t", Literal}, Entry{alice, Wildcard, Read, Allow}}
	if fault := good.Fault(); fault != "" {
		t.Fatal(fault)
	}
	for fact, change := range map[string]func(b *Binding){
		"any type":              func(b *Binding) { b.Type = AnyResource },
		"a match pattern":       func(b *Binding) { b.Kind = Match },
		"any operation":         func(b *Binding) { b.Operation = AnyOperation },
		"any permission":        func(b *Binding) { b.Permission = AnyPermission },
		"another cluster":       func(b *Binding) { b.Type = Cluster },
		"no name":               func(b *Binding) { b.Name = "" },
		"a path":                func(b *Binding) { b.Name = "a/b" },
		"no host":               func(b *Binding) { b.Host = "" },
		"no principal type":     func(b *Binding) { b.Principal = "alice" },
		"an operation too high": func(b *Binding) { b.Operation = 15 },
	} {
		b := good
		change(&b)
		if b.Fault() == "" {
			t.Errorf("a rule with %s passes", fact)
		}
	}
}
