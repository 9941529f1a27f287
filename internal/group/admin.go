package group

import (
	"slices"
	"strings"

	"klamm/internal/cluster"
)

// describe gives members' metadata only while the group is stable, as there is no common protocol otherwise.
func (c *Core) describe(id string) Description {
	g := c.groups[id]
	if g == nil {
		return Description{Group: id, State: Dead.String()}
	}
	d := Description{Group: id, State: g.state.String(), ProtocolType: g.protocolType}
	if g.state == Stable {
		d.Protocol = g.protocol
	}
	for _, m := range g.inOrder() {
		md := MemberDescription{MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.clientHost}
		if g.state == Stable {
			md.Metadata, md.Assignment = m.metadata(g.protocol), m.assignment
		}
		d.Members = append(d.Members, md)
	}
	return d
}

func (c *Core) list(states []string) ListResult {
	var r ListResult
	var wanted [Dead + 1]bool
	for state := range wanted {
		isSame := func(s string) bool { return strings.EqualFold(s, State(state).String()) }
		wanted[state] = len(states) == 0 || slices.ContainsFunc(states, isSame)
	}
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		if wanted[g.state] {
			r.Groups = append(r.Groups, Overview{id, g.protocolType, g.state.String()})
		}
	}
	return r
}

// handleDeleteGroup is answered when the tombstones are safe; the group is gone from the start.
func (c *Core) handleDeleteGroup(e DeleteGroup) {
	g := c.groups[e.Group]
	switch {
	case g == nil:
		c.reply(e.Token, ErrorResult{cluster.GroupIDNotFound})
		return
	case g.state != Empty:
		c.reply(e.Token, ErrorResult{cluster.NonEmptyGroup})
		return
	}
	var records []Record
	for _, tp := range g.partitions() {
		records = append(records, offsetTombstone(e.Group, tp))
	}
	if g.generation > 0 {
		records = append(records, groupTombstone(e.Group))
	}
	c.transition(g, Dead, "deleted by request")
	delete(c.groups, e.Group)
	if len(records) == 0 {
		c.reply(e.Token, ErrorResult{})
		return
	}
	c.appendTombstones(records, func(code cluster.ErrorCode) { c.reply(e.Token, ErrorResult{groupAppendError(code)}) })
}

func (c *Core) handleDeleteOffsets(e DeleteOffsets) {
	g := c.groups[e.Group]
	switch {
	case g == nil:
		c.reply(e.Token, DeleteOffsetsResult{Err: cluster.GroupIDNotFound})
		return
	case g.state != Empty && g.protocolType != consumerProtocol:
		c.reply(e.Token, DeleteOffsetsResult{Err: cluster.NonEmptyGroup})
		return
	}
	errs := make([]cluster.ErrorCode, len(e.Partitions))
	var records []Record
	for i, tp := range e.Partitions {
		// What is not known to be unsubscribed may be subscribed.
		if g.state != Empty && (g.subscribed == nil || g.subscribed[tp.Topic]) {
			errs[i] = cluster.GroupSubscribedToTopic
			continue
		}
		if g.forget(tp, c.nextAppend) {
			records = append(records, offsetTombstone(e.Group, tp))
		}
	}
	records = append(records, c.maybeEnd(g)...)
	if len(records) == 0 {
		c.reply(e.Token, DeleteOffsetsResult{Errs: errs})
		return
	}
	c.appendTombstones(records, func(code cluster.ErrorCode) {
		r := DeleteOffsetsResult{Errs: errs}
		if code != cluster.None {
			r = DeleteOffsetsResult{Err: groupAppendError(code)}
		}
		c.reply(e.Token, r)
	})
}
