package group

import (
	"slices"

	"klamm/internal/cluster"
)

func joinError(code cluster.ErrorCode, memberID string) JoinResult {
	return JoinResult{Err: code, Generation: -1, MemberID: memberID}
}

func (c *Core) answerJoin(m *member, r JoinResult) {
	if m.join == nil {
		return
	}
	token := m.join.Token
	m.join = nil
	c.reply(token, r)
}

// handleJoin follows Kafka's GroupCoordinator.handleJoinGroup.
func (c *Core) handleJoin(e Join) {
	if e.SessionTimeoutMs < c.cfg.MinSessionTimeoutMs || e.SessionTimeoutMs > c.cfg.MaxSessionTimeoutMs {
		c.reply(e.Token, joinError(cluster.InvalidSessionTimeout, e.MemberID))
		return
	}
	g := c.groups[e.Group]
	if g == nil {
		if e.MemberID != "" {
			c.reply(e.Token, joinError(cluster.UnknownMemberID, e.MemberID))
			return
		}
		g = newGroup(e.Group, c.now)
		c.groups[e.Group] = g
	}
	switch {
	case c.isFull(g, e.MemberID):
		c.turnAway(g, e)
	case !g.supports(e.ProtocolType, e.Protocols):
		c.reply(e.Token, joinError(cluster.InconsistentGroupProtocol, e.MemberID))
	case e.MemberID == "":
		c.joinNew(g, e)
	default:
		c.joinKnown(g, e)
	}
	c.maybeCompleteJoin(g)
	c.maybeForget(g)
}

// isFull reports whether the group has no place for the joiner (Kafka: acceptJoiningMember).
func (c *Core) isFull(g *group, memberID string) bool {
	m := g.members[memberID]
	switch g.state {
	case PreparingRebalance:
		// Members known from before count only once they have rejoined: a group above a limit that was lowered sheds those
		// who come last.
		return (m == nil || m.join == nil) && g.awaitingJoin() >= c.cfg.MaxSize
	case CompletingRebalance, Stable:
		return m == nil && len(g.members) >= c.cfg.MaxSize
	}
	return false
}

// turnAway refuses a joiner for whom there is no place; what the group knew of it goes.
func (c *Core) turnAway(g *group, e Join) {
	delete(g.pending, e.MemberID)
	if m := g.members[e.MemberID]; m != nil {
		c.drop(g, m, "no place for member "+m.id)
	}
	c.reply(e.Token, joinError(cluster.GroupMaxSizeReached, ""))
}

// joinNew handles a member without an id.
func (c *Core) joinNew(g *group, e Join) {
	switch old := g.static[e.InstanceID]; {
	case e.InstanceID != "" && old != "":
		c.replaceStatic(g, g.members[old], e)
	case e.InstanceID == "" && e.RequireKnownMember:
		g.pending[e.NewMemberID] = c.now + Time(e.SessionTimeoutMs)
		c.startTimer(Timer{TimerMember, g.id, e.NewMemberID}, g.pending[e.NewMemberID])
		c.reply(e.Token, joinError(cluster.MemberIDRequired, e.NewMemberID))
	default:
		c.addMember(g, e, e.NewMemberID)
	}
}

// joinKnown handles a member that brings its id.
func (c *Core) joinKnown(g *group, e Join) {
	if _, ok := g.pending[e.MemberID]; ok {
		if e.InstanceID != "" { // ids are given out ahead to dynamic members only
			c.reply(e.Token, joinError(cluster.UnknownMemberID, e.MemberID))
			return
		}
		c.addMember(g, e, e.MemberID)
		return
	}
	m, code := g.current(e.MemberID, e.InstanceID)
	if code != cluster.None {
		c.reply(e.Token, joinError(code, e.MemberID))
		return
	}
	switch {
	case g.state == PreparingRebalance,
		g.state == CompletingRebalance && !m.sameProtocols(e.Protocols),
		g.state == Stable && (g.leader == m.id || !m.sameProtocols(e.Protocols)):
		// In Stable the leader rejoins to force a rebalance, a follower because its metadata changed.
		c.rejoin(g, m, e)
	case g.state == CompletingRebalance:
		// It did not get the answer to its join: give it again.
		c.reply(e.Token, g.joined(m))
	default:
		r := g.joined(m)
		r.Members = nil
		c.reply(e.Token, r)
	}
}

// current finds the member that a request speaks for (Kafka: validateCurrentMember).
func (g *group) current(memberID, instanceID string) (*member, cluster.ErrorCode) {
	if instanceID != "" {
		switch id, ok := g.static[instanceID]; {
		case !ok:
			return nil, cluster.UnknownMemberID
		case id != memberID:
			return nil, cluster.FencedInstanceID
		}
	}
	m := g.members[memberID]
	if m == nil {
		return nil, cluster.UnknownMemberID
	}
	return m, cluster.None
}

// joined is the answer to a join of the current generation.
func (g *group) joined(m *member) JoinResult {
	r := JoinResult{Generation: g.generation, ProtocolType: g.protocolType, ProtocolName: g.protocol, Leader: g.leader, MemberID: m.id}
	if g.leader == m.id {
		r.Members = g.joinMembers()
	}
	return r
}

func (g *group) joinMembers() (ms []JoinMember) {
	for _, m := range g.inOrder() {
		ms = append(ms, JoinMember{m.id, m.instance, m.metadata(g.protocol)})
	}
	return ms
}

func (c *Core) addMember(g *group, e Join, id string) {
	m := &member{id: id, instance: e.InstanceID, clientID: e.ClientID, clientHost: e.ClientHost, sessionTimeoutMs: e.SessionTimeoutMs,
		rebalanceTimeoutMs: e.RebalanceTimeoutMs, protocols: e.Protocols, isNew: true, join: &e}
	if g.state == PreparingRebalance && g.generation == 0 {
		g.newMemberAdded = true
	}
	first := len(g.members) == 0
	g.add(m)
	if first {
		g.protocolType = e.ProtocolType
	}
	// A client that gave up during a long rebalance must not hold its place for ever.
	c.keepAlive(g, m, c.cfg.NewMemberJoinTimeout)
	c.maybeRebalance(g, because("new member "+m.id, e.Reason))
}

func (c *Core) rejoin(g *group, m *member, e Join) {
	// An older join of the same member: its connection is gone, or the client asks twice and is to ask again. Kafka
	// leaves such a request without an answer.
	c.answerJoin(m, joinError(cluster.RebalanceInProgress, m.id))
	why := "member " + m.id + " changed its metadata"
	if g.leader == m.id {
		why = "leader " + m.id + " rejoined"
	}
	m.update(e)
	m.join = &e
	c.maybeRebalance(g, because(why, e.Reason))
}

// because adds the client's words to ours.
func because(why, client string) string {
	if client == "" {
		return why
	}
	return why + "; the client says: " + client
}

// update takes over what a join says of its member.
func (m *member) update(e Join) {
	m.protocols, m.sessionTimeoutMs, m.rebalanceTimeoutMs = e.Protocols, e.SessionTimeoutMs, e.RebalanceTimeoutMs
	m.clientID, m.clientHost = e.ClientID, e.ClientHost
}

// replaceStatic gives the place of a static member to a new process of the same instance (KIP-345).
func (c *Core) replaceStatic(g *group, m *member, e Join) {
	c.answerJoin(m, joinError(cluster.FencedInstanceID, m.id))
	c.answerSync(m, SyncResult{Err: cluster.FencedInstanceID})
	before, wasLeader := *m, g.leader == m.id
	c.rename(g, m, e.NewMemberID)
	m.update(e)
	c.keepAlive(g, m, m.sessionTimeoutMs)
	if g.state != Stable || g.selectProtocol() != g.protocol {
		// In CompletingRebalance the leader may assign to the old id, and the new one would get nothing: begin anew.
		m.join = &e
		c.maybeRebalance(g, because("static member "+m.instance+" came back as "+m.id, e.Reason))
		return
	}
	// The generation stands: only the new id is stored, and the old one comes back if that fails.
	generation := g.generation
	c.append([]Record{groupRecord(g, g.assignments())}, func(code cluster.ErrorCode) {
		current := g.state != Dead && g.members[e.NewMemberID] == m
		switch {
		case code != cluster.None:
			if current {
				c.rename(g, m, before.id)
				m.protocols, m.sessionTimeoutMs, m.rebalanceTimeoutMs = before.protocols, before.sessionTimeoutMs, before.rebalanceTimeoutMs
				m.clientID, m.clientHost = before.clientID, before.clientHost
				c.keepAlive(g, m, m.sessionTimeoutMs)
			}
			c.reply(e.Token, joinError(groupAppendError(code), ""))
		case g.static[e.InstanceID] != e.NewMemberID && g.static[e.InstanceID] != "":
			c.reply(e.Token, joinError(cluster.FencedInstanceID, e.NewMemberID))
		case !current || g.generation != generation:
			c.reply(e.Token, joinError(cluster.UnknownMemberID, e.NewMemberID))
		default:
			c.reply(e.Token, g.staticReturned(m, wasLeader, before.id, e.SupportsSkippingAssignment))
		}
	})
}

// staticReturned is the answer to a static member that came back into a stable generation. A leader that can skip the
// assignment (KIP-814) learns that it leads; an older one must not think so, or it would assign again.
func (g *group) staticReturned(m *member, wasLeader bool, oldID string, canSkip bool) JoinResult {
	r := JoinResult{Generation: g.generation, ProtocolType: g.protocolType, ProtocolName: g.protocol, Leader: g.leader, MemberID: m.id}
	switch {
	case wasLeader && canSkip:
		r.SkipAssignment, r.Members = true, g.joinMembers()
	case wasLeader:
		r.Leader = oldID
	}
	return r
}

// rename gives a static member another id; it keeps its place and its leadership.
func (c *Core) rename(g *group, m *member, id string) {
	old := m.id
	delete(g.members, old)
	m.id = id
	m.deadline = 0 // the timer that runs has the old name
	g.members[id] = m
	g.order[slices.Index(g.order, old)] = id
	if g.leader == old {
		g.leader = id
	}
	g.static[m.instance] = id
	if g.pendingSync[old] {
		delete(g.pendingSync, old)
		g.pendingSync[id] = true
	}
}

// maybeRebalance begins the join phase unless it runs already.
func (c *Core) maybeRebalance(g *group, reason string) {
	if !g.is(Stable, CompletingRebalance, Empty) {
		return
	}
	if g.state == CompletingRebalance {
		c.failSyncs(g, cluster.RebalanceInProgress)
	}
	c.endSyncPhase(g)
	g.newMemberAdded = false
	g.initialDelay = g.state == Empty
	g.joinDeadline = c.now + Time(g.rebalanceTimeout())
	if g.initialDelay {
		g.initialMaxEnd = g.joinDeadline
		g.joinDeadline = c.now + Time(c.cfg.InitialRebalanceMs)
	}
	c.transition(g, PreparingRebalance, reason)
	c.startTimer(Timer{TimerJoin, g.id, ""}, g.joinDeadline)
}

// maybeCompleteJoin ends the join phase once every member is back; a new group waits out its initial delay.
func (c *Core) maybeCompleteJoin(g *group) {
	if g.state == PreparingRebalance && !g.initialDelay && g.allJoined() {
		c.completeJoin(g)
	}
}

func (c *Core) joinTimer(g *group) {
	if g.state != PreparingRebalance || c.now < g.joinDeadline {
		return
	}
	if left := g.initialMaxEnd - c.now; g.initialDelay && g.newMemberAdded && left > 0 {
		// More members came in: wait another delay, but not past the rebalance timeout.
		g.newMemberAdded = false
		g.joinDeadline = c.now + min(Time(c.cfg.InitialRebalanceMs), left)
		c.startTimer(Timer{TimerJoin, g.id, ""}, g.joinDeadline)
		return
	}
	c.completeJoin(g)
}

// completeJoin begins the next generation with the members that came (Kafka: onCompleteJoin).
func (c *Core) completeJoin(g *group) {
	for _, m := range g.inOrder() {
		if m.join == nil && m.instance == "" {
			g.remove(m)
		}
	}
	g.initialDelay = false
	if len(g.members) > 0 && !g.electJoinedLeader() {
		// Only static members are left and none has rejoined: give them another rebalance timeout.
		g.joinDeadline = c.now + Time(g.rebalanceTimeout())
		c.startTimer(Timer{TimerJoin, g.id, ""}, g.joinDeadline)
		return
	}
	g.joinDeadline = 0
	g.generation++
	if len(g.members) == 0 {
		g.protocol, g.leader, g.subscribed = "", "", map[string]bool{}
		c.transition(g, Empty, "")
		// A failure does no harm: the generation before becomes valid again at the next load, and its members time out.
		c.append([]Record{groupRecord(g, nil)}, func(cluster.ErrorCode) {})
		return
	}
	g.protocol = g.selectProtocol()
	g.subscribed = g.subscribedTopics()
	c.transition(g, CompletingRebalance, "")
	for _, m := range g.inOrder() {
		m.isNew = false
		g.pendingSync[m.id] = true
		c.answerJoin(m, g.joined(m))
		c.keepAlive(g, m, m.sessionTimeoutMs)
	}
	g.syncDeadline = c.now + Time(g.rebalanceTimeout())
	c.startTimer(Timer{TimerSync, g.id, ""}, g.syncDeadline)
}

// electJoinedLeader keeps a leader that rejoined, else takes the first member that did.
func (g *group) electJoinedLeader() bool {
	if m := g.members[g.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range g.inOrder() {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}
