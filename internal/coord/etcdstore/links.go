package etcdstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// links ask other members for what they know before, or without, taking part in their cluster.
type links struct {
	tls    TLS
	client *http.Client
}

// membersBytesMax bounds the answer to a question for the members.
const membersBytesMax = 1 << 20

func newLinks(c MemberConfig) (*links, error) {
	rt, err := rafthttp.NewRoundTripper(c.TLS.info(), peerProbeTimeout)
	if err != nil {
		return nil, fmt.Errorf("etcd.tls.*: %w", err)
	}
	return &links{tls: c.TLS, client: &http.Client{Transport: rt, Timeout: peerProbeTimeout}}, nil
}

func (l *links) close() { l.client.CloseIdleConnections() }

// members asks a member for all members of its cluster.
func (l *links) members(ctx context.Context, p Peer) ([]*membership.Member, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.tls.URL(p.Addr)+"/members", nil)
	if err != nil {
		return nil, err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return nil, innermost(err)
	}
	defer func() { _ = resp.Body.Close() }() // read to its end below, or not of interest
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %s: no etcd member listens there", resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, membersBytesMax))
	if err != nil {
		return nil, innermost(err)
	}
	var out []*membership.Member
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, errors.New("did not answer as an etcd member")
	}
	return out, nil
}

// innermost drops what an HTTP client wraps around the reason.
func innermost(err error) error {
	text := err.Error()
	if i := strings.LastIndex(text, ": dial tcp "); i >= 0 {
		text = text[i+len(": dial tcp "):]
	}
	if i := strings.LastIndex(text, "connect: "); i >= 0 {
		text = text[i+len("connect: "):]
	}
	return errors.New(text)
}

// ask asks all of them at once; answers[i] or errs[i] is set.
func (l *links) ask(ctx context.Context, peers []Peer) (answers [][]*membership.Member, errs []error) {
	answers, errs = make([][]*membership.Member, len(peers)), make([]error, len(peers))
	var wg sync.WaitGroup
	for i, p := range peers {
		wg.Go(func() { answers[i], errs[i] = l.members(ctx, p) })
	}
	wg.Wait()
	return answers, errs
}

// missing names the members that do not answer, with the reason.
func (l *links) missing(ctx context.Context, peers []Peer) []string {
	_, errs := l.ask(ctx, peers)
	var out []string
	for i, err := range errs {
		if err != nil {
			out = append(out, fmt.Sprintf("%s (%v)", peers[i], err))
		}
	}
	return out
}
