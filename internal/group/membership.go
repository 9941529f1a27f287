package group

import "klamm/internal/cluster"

// keepAlive lets the member live for ms from now. The timer that runs already looks again when it fires, so that a
// heartbeat costs no timer.
func (c *Core) keepAlive(g *group, m *member, ms int64) {
	at := c.now + Time(ms)
	armed := m.deadline != 0 && m.deadline <= at
	m.deadline = at
	if !armed {
		c.startTimer(Timer{TimerMember, g.id, m.id}, at)
	}
}

// memberTimer takes out a member whose session is over, unless it waits for an answer of ours.
func (c *Core) memberTimer(g *group, id string) {
	if until, ok := g.pending[id]; ok {
		if c.now < until {
			c.startTimer(Timer{TimerMember, g.id, id}, until)
			return
		}
		delete(g.pending, id)
		c.maybeCompleteJoin(g)
		c.maybeForget(g)
		return
	}
	m := g.members[id]
	if m == nil {
		return
	}
	if c.now < m.deadline {
		c.startTimer(Timer{TimerMember, g.id, id}, m.deadline)
		return
	}
	if waits := m.join != nil && !m.isNew || m.sync != nil; waits {
		c.keepAlive(g, m, m.sessionTimeoutMs)
		c.startTimer(Timer{TimerMember, g.id, id}, m.deadline)
		return
	}
	c.drop(g, m, "the session of member "+m.id+" is over")
}

// drop takes a member out and lets the rest go on (Kafka: removeMemberAndUpdateGroup).
func (c *Core) drop(g *group, m *member, reason string) {
	c.answerJoin(m, joinError(cluster.UnknownMemberID, ""))
	c.answerSync(m, SyncResult{Err: cluster.UnknownMemberID})
	g.remove(m)
	switch g.state {
	case Stable, CompletingRebalance:
		c.maybeRebalance(g, reason)
		c.maybeCompleteJoin(g)
	case PreparingRebalance:
		c.maybeCompleteJoin(g)
	}
}

func (c *Core) heartbeat(e Heartbeat) cluster.ErrorCode {
	g := c.groups[e.Group]
	if g == nil {
		return cluster.UnknownMemberID
	}
	m, code := g.inGeneration(e.MemberID, e.InstanceID, e.Generation)
	if code != cluster.None {
		return code
	}
	c.keepAlive(g, m, m.sessionTimeoutMs)
	if g.state == PreparingRebalance {
		return cluster.RebalanceInProgress
	}
	return cluster.None
}

func (c *Core) handleLeave(e Leave) {
	r := LeaveResult{Members: make([]cluster.ErrorCode, len(e.Members))}
	g := c.groups[e.Group]
	if g == nil {
		r.Members = repeat(cluster.UnknownMemberID, len(e.Members))
	} else {
		for i, who := range e.Members {
			r.Members[i] = c.leave(g, who)
		}
	}
	c.reply(e.Token, r)
	if g != nil {
		c.maybeForget(g)
	}
}

func (c *Core) leave(g *group, who MemberIdentity) cluster.ErrorCode {
	if who.MemberID == "" && who.InstanceID != "" {
		// An operator removes a static member by its instance id alone (KIP-345).
		who.MemberID = g.static[who.InstanceID]
	}
	if _, ok := g.pending[who.MemberID]; ok {
		delete(g.pending, who.MemberID)
		c.maybeCompleteJoin(g)
		return cluster.None
	}
	m, code := g.current(who.MemberID, who.InstanceID)
	if code != cluster.None {
		return code
	}
	c.drop(g, m, because("member "+m.id+" left", who.Reason))
	return cluster.None
}
