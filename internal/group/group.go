package group

import (
	"cmp"
	"maps"
	"slices"
)

// State is a group's state (Kafka: GroupState).
type State uint8

// Group states. Valid previous states: PreparingRebalance from Stable, CompletingRebalance, Empty; CompletingRebalance
// from PreparingRebalance; Stable from CompletingRebalance; Empty from PreparingRebalance; Dead from all.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
)

// String gives the protocol's name of the state.
func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// group is one consumer group.
type group struct {
	id           string
	state        State
	stateSince   Time // negative: unknown, of a group stored by an old broker
	generation   int32
	protocolType string
	protocol     string // chosen for the generation; "" while Empty
	leader       string // member id; "" while there is none

	members map[string]*member
	order   []string          // member ids in order of joining; the first to rejoin leads if the leader does not
	static  map[string]string // instance id -> member id
	pending map[string]Time   // ids given out by MEMBER_ID_REQUIRED -> when they lapse

	// Join phase.
	joinDeadline   Time // 0 outside of it
	initialDelay   bool // first rebalance of an empty group: only the timer ends it
	initialMaxEnd  Time // the initial delay is not stretched past it
	newMemberAdded bool
	// Sync phase.
	pendingSync  map[string]bool
	syncDeadline Time
	storing      bool // the leader's assignment is being appended
	// subscribed are the topics of the generation's members; nil when they are not known.
	subscribed map[string]bool

	committed
}

// member is one member of a group.
type member struct {
	id, instance         string
	clientID, clientHost string
	sessionTimeoutMs     int64
	rebalanceTimeoutMs   int64
	protocols            []Protocol
	assignment           []byte
	isNew                bool // has not been in a generation yet
	deadline             Time // of the session; 0 while it waits for a join or sync, which keeps it alive
	join                 *Join
	sync                 *Sync
}

func newGroup(id string, now Time) *group {
	return &group{id: id, stateSince: now, members: map[string]*member{}, static: map[string]string{}, pending: map[string]Time{},
		pendingSync: map[string]bool{}, committed: newCommitted()}
}

func (g *group) is(states ...State) bool { return slices.Contains(states, g.state) }

func (g *group) add(m *member) {
	g.members[m.id] = m
	g.order = append(g.order, m.id)
	if m.instance != "" {
		g.static[m.instance] = m.id
	}
	if g.leader == "" {
		g.leader = m.id
	}
	delete(g.pending, m.id)
}

func (g *group) remove(m *member) {
	delete(g.members, m.id)
	g.order = slices.DeleteFunc(g.order, func(id string) bool { return id == m.id })
	delete(g.pendingSync, m.id)
	if m.instance != "" && g.static[m.instance] == m.id {
		delete(g.static, m.instance)
	}
	if g.leader == m.id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0]
		}
	}
}

// inOrder walks the members in order of joining.
func (g *group) inOrder() []*member {
	out := make([]*member, 0, len(g.order))
	for _, id := range g.order {
		out = append(out, g.members[id])
	}
	return out
}

// awaitingJoin counts members whose join waits.
func (g *group) awaitingJoin() (n int) {
	for _, m := range g.members {
		if m.join != nil {
			n++
		}
	}
	return n
}

func (g *group) allJoined() bool { return len(g.pending) == 0 && g.awaitingJoin() == len(g.members) }

// rebalanceTimeout is the longest of the members'.
func (g *group) rebalanceTimeout() (ms int64) {
	for _, m := range g.members {
		ms = max(ms, m.rebalanceTimeoutMs)
	}
	return ms
}

// supports reports whether a joiner's protocols fit: some protocol must be supported by every member.
func (g *group) supports(protocolType string, ps []Protocol) bool {
	if len(g.members) == 0 {
		return protocolType != "" && len(ps) > 0
	}
	common := g.commonProtocols()
	return g.protocolType == protocolType && slices.ContainsFunc(ps, func(p Protocol) bool { return common[p.Name] })
}

// commonProtocols are the names that every member supports. Nothing bounds how many a member lists, maybe twice.
func (g *group) commonProtocols() map[string]bool {
	supporters := map[string]int{} // of each name that all members so far support
	seen := 0
	for _, m := range g.members {
		for _, p := range m.protocols {
			if supporters[p.Name] == seen {
				supporters[p.Name]++
			}
		}
		seen++
	}
	common := map[string]bool{}
	for name, n := range supporters {
		if n == seen {
			common[name] = true
		}
	}
	return common
}

// selectProtocol lets every member vote for its first protocol that all support; the most votes win, ties go to the
// lesser name so that the choice is one (Kafka leaves it to a map's order).
func (g *group) selectProtocol() string {
	common := g.commonProtocols()
	votes := map[string]int{}
	for _, m := range g.members {
		for _, p := range m.protocols {
			if common[p.Name] {
				votes[p.Name]++
				break
			}
		}
	}
	names := slices.Collect(maps.Keys(votes))
	if len(names) == 0 {
		return ""
	}
	return slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(votes[b], votes[a]), cmp.Compare(a, b))
	})
}

func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

// sameProtocols compares names and metadata in order.
func (m *member) sameProtocols(ps []Protocol) bool {
	return slices.EqualFunc(m.protocols, ps, func(a, b Protocol) bool {
		return a.Name == b.Name && slices.Equal(a.Metadata, b.Metadata)
	})
}

// hasState says whether the group is worth keeping: members, ids given out, or offsets.
func (g *group) hasState() bool { return len(g.members) > 0 || len(g.pending) > 0 || g.hasOffsets() }
