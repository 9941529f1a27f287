package etcdstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Membership shows and changes the members of an etcd cluster, over the members' client address.
type Membership struct {
	client *clientv3.Client
	tls    TLS
}

// MemberInfo is one member as the cluster knows it, and as it answered.
type MemberInfo struct {
	ID      uint64
	Name    string // the broker's id; "" until the member has started once
	Addr    string // host:port
	Learner bool   // it follows, and votes once it has caught up
	Leader  bool
	Err     error // why it did not answer; nil if it did
	Bytes   int64 // size of its database
	Version string
}

// statusTimeout bounds the wait for one member's answer.
const statusTimeout = 2 * time.Second

// OpenMembership connects; the members may be down.
func OpenMembership(ctx context.Context, c ClientConfig) (*Membership, error) {
	client, err := newClient(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Membership{client, c.TLS}, nil
}

// Close ends the connection.
func (m *Membership) Close() error { return ignoreCanceled(m.client.Close()) }

func (m *Membership) members(ctx context.Context) ([]*pb.Member, error) {
	resp, err := m.client.MemberList(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask %s for the members: %w", strings.Join(m.client.Endpoints(), ", "), membershipError(err))
	}
	return resp.Members, nil
}

// List returns all members in the order of their broker ids, with how they are.
func (m *Membership) List(ctx context.Context) ([]MemberInfo, error) {
	members, err := m.members(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]MemberInfo, len(members))
	var all sync.WaitGroup
	for i, member := range members {
		out[i] = MemberInfo{ID: member.ID, Name: member.Name, Learner: member.IsLearner}
		if len(member.PeerURLs) > 0 {
			out[i].Addr = addrOfURL(member.PeerURLs[0])
		}
		all.Go(func() { m.ask(ctx, &out[i], len(member.ClientURLs) > 0) })
	}
	all.Wait()
	slices.SortFunc(out, func(a, b MemberInfo) int {
		return cmp.Or(cmp.Compare(brokerOf(a.Name), brokerOf(b.Name)), cmp.Compare(a.Addr, b.Addr))
	})
	return out, nil
}

func brokerOf(name string) int {
	n, err := strconv.Atoi(name)
	if err != nil {
		return 1 << 31
	}
	return n
}

func (m *Membership) ask(ctx context.Context, info *MemberInfo, started bool) {
	if !started {
		info.Err = errors.New("has not started yet")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	s, err := m.client.Status(ctx, m.tls.URL(info.Addr))
	if err != nil {
		info.Err = errors.New("does not answer")
		return
	}
	info.Leader, info.Bytes, info.Version = s.Leader == info.ID, s.DbSize, s.Version
	if s.Leader == 0 {
		info.Err = errors.New("knows no leader")
	}
}

// Add makes room for one more member, which follows without a vote until it has started and caught up. Another member
// that was added must have done so first.
func (m *Membership) Add(ctx context.Context, p Peer) error {
	members, err := m.members(ctx)
	if err != nil {
		return err
	}
	url := m.tls.URL(p.Addr)
	for _, o := range members {
		switch {
		case slices.Contains(o.PeerURLs, url):
			return fmt.Errorf("%s is the address of a member already", p.Addr)
		case o.Name == p.name():
			return fmt.Errorf("broker %d has a member already, at %s; remove that first", p.Broker, addrOfURL(o.PeerURLs[0]))
		}
	}
	err = whenHealthy(ctx, func() error { _, err := m.client.MemberAddAsLearner(ctx, []string{url}); return err })
	if err != nil {
		return fmt.Errorf("add member %s: %w", p, membershipError(err))
	}
	return nil
}

// Remove takes a member out for good; who is its broker's id, or its address. Its broker stops if it runs.
func (m *Membership) Remove(ctx context.Context, who string) (MemberInfo, error) {
	members, err := m.members(ctx)
	if err != nil {
		return MemberInfo{}, err
	}
	for _, o := range members {
		addr := ""
		if len(o.PeerURLs) > 0 {
			addr = addrOfURL(o.PeerURLs[0])
		}
		if o.Name != who && addr != who {
			continue
		}
		if len(members) == 1 {
			return MemberInfo{}, errors.New("it is the only member: with it the cluster's state would go")
		}
		err := whenHealthy(ctx, func() error { _, err := m.client.MemberRemove(ctx, o.ID); return err })
		if err != nil {
			return MemberInfo{}, fmt.Errorf("remove member %s: %w", who, membershipError(err))
		}
		return MemberInfo{ID: o.ID, Name: o.Name, Addr: addr, Learner: o.IsLearner}, nil
	}
	return MemberInfo{}, fmt.Errorf("there is no member %s; `klamm cluster members list` shows them", who)
}

// healthyAfter is how long etcd wants members to be connected before it changes who they are, and a bit.
const healthyAfter = 6 * time.Second

// whenHealthy repeats a change that etcd refuses because members were not connected for long enough.
func whenHealthy(ctx context.Context, change func() error) error {
	for end := time.Now().Add(healthyAfter); ; {
		err := change()
		if !errors.Is(err, rpctypes.ErrUnhealthy) || time.Now().After(end) || pause(ctx, promoteEvery) != nil {
			return err
		}
	}
}

// membershipError says in an operator's words what etcd refused.
func membershipError(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrTooManyLearners):
		return errors.New("another member was added and does not vote yet: start its broker, or remove it")
	case errors.Is(err, rpctypes.ErrUnhealthy):
		return errors.New("not now: too few of the members that would remain can be reached, or were so for five seconds")
	case errors.Is(err, rpctypes.ErrMemberNotEnoughStarted):
		return errors.New("too few of the members that would remain have started: there would be no majority")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, rpctypes.ErrNoLeader), errors.Is(err, rpctypes.ErrTimeout):
		return fmt.Errorf("no majority of the members answers: %w", err)
	}
	return err
}
