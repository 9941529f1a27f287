package group

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

func TestCommonProtocolsAreThoseOfAllMembers(t *testing.T) {
	for name, tc := range map[string]struct {
		members [][]string
		want    map[string]bool
	}{
		"no member":          {nil, map[string]bool{}},
		"one":                {[][]string{{"a", "b"}}, map[string]bool{"a": true, "b": true}},
		"listed twice":       {[][]string{{"a", "a", "b"}, {"b", "a"}}, map[string]bool{"a": true, "b": true}},
		"twice by one alone": {[][]string{{"a", "a"}, {"b"}}, map[string]bool{}},
		"some":               {[][]string{{"a", "b", "c"}, {"c", "b"}, {"d", "b"}}, map[string]bool{"b": true}},
		"none":               {[][]string{{"a"}, {"b"}, {"a", "b"}}, map[string]bool{}},
	} {
		g := newGroup("g", 0)
		for i, names := range tc.members {
			m := &member{id: fmt.Sprint(i)}
			for _, n := range names {
				m.protocols = append(m.protocols, Protocol{Name: n})
			}
			g.add(m)
		}
		if got := g.commonProtocols(); !maps.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// One request must not keep the groups of a partition busy for minutes: a member may list as many protocols as fit into a request.
func TestAMemberMayListManyProtocols(t *testing.T) {
	g := newGroup("g", 0)
	m := &member{id: "m"}
	for i := range 300_000 {
		m.protocols = append(m.protocols, Protocol{Name: fmt.Sprint("p", i)})
	}
	g.add(m)
	began := time.Now()
	if got := g.selectProtocol(); got != "p0" {
		t.Errorf("selected %q", got)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Nor may the filter of a ListGroups, which goes to every partition's groups.
func TestAListMayNameManyStates(t *testing.T) {
	c := New(Config{})
	for i := range 5000 {
		g := newGroup(fmt.Sprint("g", i), 0)
		if i == 7 {
			g.state = Stable
		}
		c.groups[g.id] = g
	}
	states := slices.Repeat([]string{"nosuch"}, 500_000)
	began := time.Now()
	if got := c.list(append(states, "stable")); !slices.Equal(got.Groups, []Overview{{Group: "g7", State: "Stable"}}) {
		t.Errorf("%d groups: %+v", len(got.Groups), got.Groups[:min(3, len(got.Groups))])
	}
	if got := c.list(nil); len(got.Groups) != len(c.groups) {
		t.Errorf("%d groups without a filter", len(got.Groups))
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
}
