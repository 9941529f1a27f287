package group

import "klamm/internal/cluster"

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
	if e.Group == "" {
		c.reply(e.Token, joinError(cluster.InvalidGroupID, e.MemberID))
		return
	}
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
	if code := c.admit(g, e); code != cluster.None {
		c.reply(e.Token, joinError(code, e.MemberID))
		c.maybeForget(g)
		return
	}
	if e.MemberID == "" {
		c.joinNew(g, e)
	} else {
		c.joinKnown(g, e)
	}
	c.maybeCompleteJoin(g)
	c.maybeForget(g)
}

// admit checks the group's size and the joiner's protocols.
func (c *Core) admit(g *group, e Join) cluster.ErrorCode {
	m := g.members[e.MemberID]
	full := false
	switch g.state {
	case PreparingRebalance:
		// Members known from before count only once they have rejoined: the group may shrink to its limit.
		full = (m == nil || m.join == nil) && g.awaitingJoin() >= c.cfg.MaxSize
	case CompletingRebalance, Stable:
		full = m == nil && len(g.members) >= c.cfg.MaxSize
	}
	switch {
	case full:
		if m != nil {
			c.drop(g, m)
		}
		return cluster.GroupMaxSizeReached
	case !g.supports(e.ProtocolType, e.Protocols):
		return cluster.InconsistentGroupProtocol
	}
	return cluster.None
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
		if e.InstanceID != "" {
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
		r := g.joined(m)
		c.reply(e.Token, r)
	case g.state == Stable:
		r := g.joined(m)
		r.Members = nil
		c.reply(e.Token, r)
	default:
		c.reply(e.Token, joinError(cluster.UnknownMemberID, e.MemberID))
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
	c.maybeRebalance(g)
}

func (c *Core) rejoin(g *group, m *member, e Join) {
	c.answerJoin(m, joinError(cluster.UnknownMemberID, m.id)) // an older join of the same member
	m.protocols, m.sessionTimeoutMs, m.rebalanceTimeoutMs = e.Protocols, e.SessionTimeoutMs, e.RebalanceTimeoutMs
	m.clientID, m.clientHost = e.ClientID, e.ClientHost
	m.join = &e
	c.maybeRebalance(g)
}

// replaceStatic gives the place of a static member to a new process of the same instance (KIP-345).
func (c *Core) replaceStatic(g *group, old *member, e Join) {
	wasLeader := g.leader == old.id
	before := *old
	c.answerJoin(old, joinError(cluster.FencedInstanceID, old.id))
	c.answerSync(old, SyncResult{Err: cluster.FencedInstanceID})
	m := &before
	m.id, m.join, m.sync = e.NewMemberID, nil, nil
	previous := *old
	c.rename(g, old, m)
	oldProtocols := m.protocols
	m.protocols, m.sessionTimeoutMs, m.rebalanceTimeoutMs = e.Protocols, e.SessionTimeoutMs, e.RebalanceTimeoutMs
	m.clientID, m.clientHost = e.ClientID, e.ClientHost
	c.keepAlive(g, m, m.sessionTimeoutMs)
	if g.state != Stable || g.selectProtocol() != g.protocol {
		m.join = &e
		c.maybeRebalance(g)
		return
	}
	// The generation stands: only the new id is stored, and the old one goes back if that fails.
	generation := g.generation
	c.append([]Record{groupRecord(g, c.now, g.assignments())}, func(code cluster.ErrorCode) {
		if code != cluster.None && g.members[m.id] == m {
			m.protocols = oldProtocols
			restored := previous
			restored.join, restored.sync = nil, nil
			c.rename(g, m, &restored)
			c.keepAlive(g, &restored, restored.sessionTimeoutMs)
			c.reply(e.Token, joinError(groupAppendError(code), e.NewMemberID))
			return
		}
		if g.members[m.id] != m || g.generation != generation {
			c.reply(e.Token, joinError(cluster.UnknownMemberID, e.NewMemberID))
			return
		}
		c.reply(e.Token, g.staticReturned(m, wasLeader, previous.id, e.SupportsSkippingAssignment))
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

// rename puts a member in the place of another, keeping order and leadership.
func (c *Core) rename(g *group, old, m *member) {
	delete(g.members, old.id)
	g.members[m.id] = m
	for i, id := range g.order {
		if id == old.id {
			g.order[i] = m.id
		}
	}
	if g.leader == old.id {
		g.leader = m.id
	}
	g.static[m.instance] = m.id
	if g.pendingSync[old.id] {
		delete(g.pendingSync, old.id)
		g.pendingSync[m.id] = true
	}
}

// maybeRebalance begins the join phase unless it runs already.
func (c *Core) maybeRebalance(g *group) {
	if !g.is(Stable, CompletingRebalance, Empty) {
		return
	}
	if g.state == CompletingRebalance {
		c.failSyncs(g, cluster.RebalanceInProgress)
	}
	c.endSyncPhase(g)
	g.initialDelayEnd, g.initialMaxEnd, g.newMemberAdded = 0, 0, false
	if g.state == Empty {
		delay := min(c.cfg.InitialRebalanceMs, g.rebalanceTimeout())
		g.initialDelayEnd = c.now + Time(delay)
		g.initialMaxEnd = c.now + Time(max(g.rebalanceTimeout(), delay))
		g.joinDeadline = g.initialDelayEnd
	} else {
		g.joinDeadline = c.now + Time(g.rebalanceTimeout())
	}
	g.transition(PreparingRebalance, c.now)
	c.startTimer(Timer{TimerJoin, g.id, ""}, g.joinDeadline)
}

// maybeCompleteJoin ends the join phase once every member is back; a new group waits out its initial delay.
func (c *Core) maybeCompleteJoin(g *group) {
	if g.state != PreparingRebalance || g.initialDelayEnd > c.now || !g.allJoined() {
		return
	}
	c.completeJoin(g)
}

func (c *Core) joinTimer(g *group) {
	if g.state != PreparingRebalance || c.now < g.joinDeadline {
		return
	}
	if g.initialDelayEnd != 0 {
		// More members came in: wait another delay, but not past the rebalance timeout.
		if left := g.initialMaxEnd - c.now; g.newMemberAdded && left > 0 {
			g.newMemberAdded = false
			g.initialDelayEnd = c.now + min(Time(c.cfg.InitialRebalanceMs), left)
			g.joinDeadline = g.initialDelayEnd
			c.startTimer(Timer{TimerJoin, g.id, ""}, g.joinDeadline)
			return
		}
		g.initialDelayEnd = 0
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
	if len(g.members) > 0 && !g.electJoinedLeader() {
		// Only static members are left and none has rejoined: give them another rebalance timeout.
		g.joinDeadline = c.now + Time(g.rebalanceTimeout())
		c.startTimer(Timer{TimerJoin, g.id, ""}, g.joinDeadline)
		return
	}
	g.joinDeadline, g.initialDelayEnd = 0, 0
	g.generation++
	if len(g.members) == 0 {
		g.protocol, g.leader = "", ""
		g.transition(Empty, c.now)
		c.append([]Record{groupRecord(g, c.now, nil)}, func(cluster.ErrorCode) {})
		return
	}
	g.protocol = g.selectProtocol()
	g.transition(CompletingRebalance, c.now)
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
