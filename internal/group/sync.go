package group

import (
	"strings"

	"klamm/internal/cluster"
)

func (c *Core) answerSync(m *member, r SyncResult) {
	if m.sync == nil {
		return
	}
	token := m.sync.Token
	m.sync = nil
	c.reply(token, r)
}

// handleSync follows Kafka's GroupCoordinator.doSyncGroup.
func (c *Core) handleSync(e Sync) {
	g := c.groups[e.Group]
	if g == nil {
		c.reply(e.Token, SyncResult{Err: cluster.UnknownMemberID})
		return
	}
	m, code := g.inGeneration(e.MemberID, e.InstanceID, e.Generation)
	switch {
	case code != cluster.None:
	case e.ProtocolType != "" && e.ProtocolType != g.protocolType, e.ProtocolName != "" && e.ProtocolName != g.protocol:
		code = cluster.InconsistentGroupProtocol
	case g.state == PreparingRebalance:
		code = cluster.RebalanceInProgress
	}
	if code != cluster.None {
		c.reply(e.Token, SyncResult{Err: code})
		return
	}
	delete(g.pendingSync, m.id)
	if g.state == Stable {
		c.keepAlive(g, m, m.sessionTimeoutMs)
		c.reply(e.Token, g.synced(m))
		return
	}
	c.answerSync(m, SyncResult{Err: cluster.RebalanceInProgress}) // an older sync of the same member
	m.sync = &e
	if m.id == g.leader && !g.storing { // a leader that asks again waits for what it brought before
		c.storeAssignment(g, e)
	}
}

// inGeneration finds a member and checks the generation it speaks of.
func (g *group) inGeneration(memberID, instanceID string, generation int32) (*member, cluster.ErrorCode) {
	m, code := g.current(memberID, instanceID)
	switch {
	case code != cluster.None:
		return nil, code
	case generation != g.generation:
		return nil, cluster.IllegalGeneration
	case g.is(Empty, Dead):
		return nil, cluster.UnknownMemberID
	}
	return m, cluster.None
}

func (g *group) synced(m *member) SyncResult {
	return SyncResult{ProtocolType: g.protocolType, ProtocolName: g.protocol, Assignment: m.assignment}
}

// assignments are the members' current ones, for storing.
func (g *group) assignments() map[string][]byte {
	out := map[string][]byte{}
	for id, m := range g.members {
		out[id] = m.assignment
	}
	return out
}

// storeAssignment writes the leader's assignment; members hear of it when it is safe.
func (c *Core) storeAssignment(g *group, e Sync) {
	given := map[string][]byte{}
	for _, a := range e.Assignments {
		given[a.MemberID] = a.Data
	}
	generation := g.generation
	g.storing = true
	c.append([]Record{groupRecord(g, given)}, func(code cluster.ErrorCode) {
		if g.state != CompletingRebalance || g.generation != generation {
			return // another rebalance has begun and answered the waiting syncs
		}
		g.storing = false
		if code != cluster.None {
			c.failSyncs(g, groupAppendError(code))
			c.maybeRebalance(g, "the assignment could not be stored: "+code.String())
			return
		}
		c.transition(g, Stable, "")
		for _, m := range g.inOrder() {
			m.assignment = given[m.id]
			if m.sync != nil {
				c.answerSync(m, g.synced(m))
				c.keepAlive(g, m, m.sessionTimeoutMs)
			}
		}
	})
}

// failSyncs answers all waiting syncs with an error and forgets assignments.
func (c *Core) failSyncs(g *group, code cluster.ErrorCode) {
	for _, m := range g.inOrder() {
		m.assignment = nil
		if m.sync != nil {
			c.answerSync(m, SyncResult{Err: code})
			c.keepAlive(g, m, m.sessionTimeoutMs)
		}
	}
}

func (c *Core) endSyncPhase(g *group) {
	clear(g.pendingSync)
	g.syncDeadline, g.storing = 0, false
}

// syncTimer takes out members that joined a generation and never asked for its assignment (KAFKA-10284's family).
func (c *Core) syncTimer(g *group) {
	if !g.is(CompletingRebalance, Stable) || g.syncDeadline == 0 || c.now < g.syncDeadline {
		return
	}
	g.syncDeadline = 0
	var late []string
	for _, m := range g.inOrder() {
		if g.pendingSync[m.id] {
			late = append(late, m.id)
			c.answerSync(m, SyncResult{Err: cluster.UnknownMemberID})
			g.remove(m)
		}
	}
	clear(g.pendingSync)
	if late != nil {
		c.maybeRebalance(g, "no sync came in time from "+strings.Join(late, ", "))
		c.maybeCompleteJoin(g)
	}
}
