package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// initialMembers decides as what a member starts. One with data knows by itself. One without founds the cluster
// together with those that are configured, or joins a cluster that it was added to. What it must never do is to take
// the place of a member whose data is lost as if nothing had happened: it would vote without knowing what it had voted for.
func (e *Engine) initialMembers(ctx context.Context) (initial types.URLsMap, fresh bool, err error) {
	c := e.group.config
	if e.dir.hasData() {
		initial, err = urlsMap(c, c.Peers)
		return initial, true, err // neither counts
	}
	others := c.others()
	for waited := time.Duration(0); ; waited += promoteEvery {
		answers, _ := e.group.links.ask(ctx, others)
		for _, members := range answers {
			if len(members) > 0 {
				return c.joinOf(members)
			}
		}
		if !c.Former {
			initial, err = urlsMap(c, c.Peers)
			return initial, true, err
		}
		if len(others) == 0 {
			return nil, false, errors.New("log.dirs belong to a cluster, but the etcd data that describes it is gone; put etcd.data.dir back, or start with empty log.dirs")
		}
		if waited%quorumNoticeEvery == 0 {
			e.log.Warn("log.dirs belong to a cluster, but there is no etcd data here yet: waiting for another etcd member to tell what to do",
				"dir", c.Dir, "missing", strings.Join(e.group.links.missing(ctx, others), "; "))
		}
		if err := pause(ctx, promoteEvery); err != nil {
			return nil, false, fmt.Errorf("wait for another etcd member: %w", err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c MemberConfig) others() []Peer {
	var out []Peer
	for _, p := range c.Peers {
		if p != c.Self {
			out = append(out, p)
		}
	}
	return out
}

// joinOf judges what a running member knows about this one.
func (c MemberConfig) joinOf(members []*membership.Member) (initial types.URLsMap, fresh bool, err error) {
	self := c.TLS.URL(c.Self.Addr)
	var me *membership.Member
	for _, m := range members {
		if len(m.PeerURLs) > 0 && m.PeerURLs[0] == self {
			me = m
		}
	}
	switch {
	case me == nil:
		return nil, false, fmt.Errorf("the etcd cluster has no member at %s, it has %s. Add it first: klamm cluster members add %s",
			c.Self.Addr, describeMembers(members), c.Self)
	case len(me.ClientURLs) > 0:
		return nil, false, fmt.Errorf("broker %d was a member of the etcd cluster before, but its directory %s is empty. If the data is lost: "+
			"klamm cluster members remove %d, then klamm cluster members add %s, then start again", c.Self.Broker, c.Dir, c.Self.Broker, c.Self)
	case me.ID == c.foundingID():
		initial, err = urlsMap(c, c.Peers)
		return initial, true, err
	}
	initial = types.URLsMap{}
	for _, m := range members {
		name := m.Name
		switch {
		case m == me:
			name = c.Self.name()
		case name == "":
			name = "unnamed-" + m.ID.String()
		}
		urls, err := types.NewURLs(m.PeerURLs)
		if err != nil {
			return nil, false, fmt.Errorf("addresses of etcd member %s: %w", m.ID, err)
		}
		initial[name] = urls
	}
	return initial, false, nil
}

// foundingID is the id that this member has in a cluster that it was a founder of.
func (c MemberConfig) foundingID() types.ID {
	urls, err := types.NewURLs([]string{c.TLS.URL(c.Self.Addr)})
	if err != nil {
		panic(err) // addresses were checked with the configuration
	}
	return membership.NewMember(c.Self.name(), urls, groupToken, nil).ID
}

func urlsMap(c MemberConfig, peers []Peer) (types.URLsMap, error) {
	m := types.URLsMap{}
	for _, p := range peers {
		urls, err := types.NewURLs([]string{c.TLS.URL(p.Addr)})
		if err != nil {
			return nil, fmt.Errorf("address of etcd member %s: %w", p, err)
		}
		m[p.name()] = urls
	}
	return m, nil
}

func describeMembers(members []*membership.Member) string {
	var out []string
	for _, m := range members {
		name := m.Name
		if name == "" {
			name = "?"
		}
		for _, u := range m.PeerURLs {
			out = append(out, name+"@"+addrOfURL(u))
		}
	}
	return strings.Join(out, ", ")
}
