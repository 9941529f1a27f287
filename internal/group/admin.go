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
	for _, id := range sortedKeys(c.groups) {
		g := c.groups[id]
		wanted := len(states) == 0 || slices.ContainsFunc(states, func(s string) bool { return strings.EqualFold(s, g.state.String()) })
		if wanted {
			r.Groups = append(r.Groups, Overview{id, g.protocolType, g.state.String()})
		}
	}
	return r
}

func (c *Core) handleDeleteGroups(e DeleteGroups) {
	errs := make([]cluster.ErrorCode, len(e.Groups))
	var records []Record
	for i, id := range e.Groups {
		g := c.groups[id]
		switch {
		case id == "":
			errs[i] = cluster.InvalidGroupID
		case g == nil:
			errs[i] = cluster.GroupIDNotFound
		case g.state != Empty || len(g.pending) > 0:
			errs[i] = cluster.NonEmptyGroup
		default:
			for _, tp := range g.partitions() {
				records = append(records, offsetTombstone(id, tp))
			}
			records = append(records, groupTombstone(id))
			g.transition(Dead, c.now)
			delete(c.groups, id)
		}
	}
	if len(records) == 0 {
		c.reply(e.Token, DeleteGroupsResult{errs})
		return
	}
	c.append(records, func(code cluster.ErrorCode) {
		for i := range errs {
			if errs[i] == cluster.None {
				errs[i] = groupAppendError(code)
			}
		}
		c.reply(e.Token, DeleteGroupsResult{errs})
	})
}

func (g *group) partitions() (tps []cluster.TopicPartition) {
	for tp := range g.offsets {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, cluster.TopicPartition.Compare)
	return tps
}

func (c *Core) handleDeleteOffsets(e DeleteOffsets) {
	g := c.groups[e.Group]
	errs := make([]cluster.ErrorCode, len(e.Partitions))
	fail := func(code cluster.ErrorCode) { c.reply(e.Token, DeleteOffsetsResult{Err: code}) }
	var subscribed map[string]bool
	switch {
	case e.Group == "":
		fail(cluster.InvalidGroupID)
		return
	case g == nil:
		fail(cluster.GroupIDNotFound)
		return
	case g.state != Empty && g.protocolType != "consumer":
		fail(cluster.NonEmptyGroup)
		return
	case g.state != Empty:
		topics, ok := g.subscribedTopics()
		if !ok {
			fail(cluster.NonEmptyGroup)
			return
		}
		subscribed = topics
	}
	var records []Record
	for i, tp := range e.Partitions {
		if subscribed[tp.Topic] {
			errs[i] = cluster.GroupSubscribedToTopic
			continue
		}
		if _, ok := g.offsets[tp]; ok {
			delete(g.offsets, tp)
			records = append(records, offsetTombstone(e.Group, tp))
		}
	}
	records = append(records, c.maybeEnd(g)...)
	if len(records) == 0 {
		c.reply(e.Token, DeleteOffsetsResult{Errs: errs})
		return
	}
	c.append(records, func(code cluster.ErrorCode) {
		r := DeleteOffsetsResult{Errs: errs}
		if code != cluster.None {
			r = DeleteOffsetsResult{Err: groupAppendError(code)}
		}
		c.reply(e.Token, r)
	})
}
