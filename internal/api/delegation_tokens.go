package api

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/security/acl"
	"klamm/internal/security/token"
	"klamm/internal/wire"
)

// Delegation tokens (KIP-48, KIP-373): CreateDelegationToken (key 38, versions 0-3), RenewDelegationToken (39, 0-2),
// ExpireDelegationToken (40, 0-2) and DescribeDelegationToken (41, 0-3). Any broker serves them, on connections whose client
// is known by something better than a token: not on PLAINTEXT, not anonymously. DELEGATION_TOKEN_AUTH_DISABLED without
// delegation.token.secret.key.
//
//	v2  flexible
//	v3  tokens for someone else: needs CREATE_TOKENS on the user, DESCRIBE_TOKENS to see them

// tokenRefusal is the error of a whole request about tokens, if it has one.
func (h *Handlers) tokenRefusal(r *wire.Request) cluster.ErrorCode {
	protocol := r.Conn.SecurityProtocol()
	switch {
	case r.Conn.ByToken(), protocol == "PLAINTEXT", protocol == "SSL" && r.Conn.Principal() == wire.AnonymousPrincipal:
		return cluster.DelegationTokenRequestNotAllowed
	case h.d.Tokens == nil:
		return cluster.DelegationTokenAuthDisabled
	}
	return cluster.None
}

func tokenError(err error) cluster.ErrorCode {
	switch {
	case err == nil:
		return cluster.None
	case errors.Is(err, token.ErrNotFound):
		return cluster.DelegationTokenNotFound
	case errors.Is(err, token.ErrNotAllowed):
		return cluster.DelegationTokenOwnerMismatch
	case errors.Is(err, token.ErrExpired):
		return cluster.DelegationTokenExpired
	}
	return storeError(err).Code
}

func (h *Handlers) handleCreateToken(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.CreateDelegationTokenRequest)
	resp := req.ResponseKind().(*kmsg.CreateDelegationTokenResponse)
	requester := r.Conn.Principal()
	owner := requester
	if text(req.OwnerPrincipalName) != "" {
		owner = text(req.OwnerPrincipalType) + ":" + text(req.OwnerPrincipalName)
	}
	var renewers []string
	code := h.tokenRefusal(r)
	if code == cluster.None && owner != requester && !h.allowed(r, acl.CreateTokens, acl.User, owner) {
		code = cluster.DelegationTokenAuthorizationFailed
	}
	for _, p := range req.Renewers {
		if p.PrincipalType != "User" && code == cluster.None {
			code = cluster.InvalidPrincipalType
		}
		renewers = append(renewers, p.PrincipalType+":"+p.PrincipalName)
	}
	resp.PrincipalType, resp.PrincipalName, _ = strings.Cut(owner, ":")
	resp.TokenRequesterPrincipalType, resp.TokenRequesterPrincipalName, _ = strings.Cut(requester, ":")
	resp.IssueTimestamp, resp.ExpiryTimestamp, resp.MaxTimestamp = -1, -1, -1
	if code == cluster.None {
		t, err := h.d.Tokens.Create(ctx, owner, requester, renewers, req.MaxLifetimeMillis)
		if code = h.noteTokenError("create delegation token", err); err == nil {
			resp.IssueTimestamp, resp.ExpiryTimestamp, resp.MaxTimestamp = t.IssueTimestampMs, t.ExpiryTimestampMs, t.MaxTimestampMs
			resp.TokenID, resp.HMAC = t.TokenID, t.HMAC
		}
	}
	resp.ErrorCode = int16(code)
	r.Respond(resp, 0)
}

// noteTokenError logs what the store is to blame for.
func (h *Handlers) noteTokenError(what string, err error) cluster.ErrorCode {
	code := tokenError(err)
	if code == cluster.UnknownServerError || code == cluster.RequestTimedOut {
		h.d.Log.Error(what, "err", err)
	}
	return code
}

func (h *Handlers) handleRenewToken(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.RenewDelegationTokenRequest)
	resp := req.ResponseKind().(*kmsg.RenewDelegationTokenResponse)
	code, expiry := h.tokenRefusal(r), int64(-1)
	if code == cluster.None {
		end, err := h.d.Tokens.Renew(ctx, r.Conn.Principal(), req.HMAC, req.RenewTimeMillis)
		if code = h.noteTokenError("renew delegation token", err); err == nil {
			expiry = end
		}
	}
	resp.ErrorCode, resp.ExpiryTimestamp = int16(code), expiry
	r.Respond(resp, 0)
}

func (h *Handlers) handleExpireToken(ctx context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.ExpireDelegationTokenRequest)
	resp := req.ResponseKind().(*kmsg.ExpireDelegationTokenResponse)
	code, expiry := h.tokenRefusal(r), int64(-1)
	if code == cluster.None {
		end, err := h.d.Tokens.Expire(ctx, r.Conn.Principal(), req.HMAC, req.ExpiryPeriodMillis)
		if code = h.noteTokenError("expire delegation token", err); err == nil {
			expiry = end
		}
	}
	resp.ErrorCode, resp.ExpiryTimestamp = int16(code), expiry
	r.Respond(resp, 0)
}

func (h *Handlers) handleDescribeTokens(_ context.Context, r *wire.Request) {
	req := r.Msg.(*kmsg.DescribeDelegationTokenRequest)
	resp := req.ResponseKind().(*kmsg.DescribeDelegationTokenResponse)
	resp.TokenDetails = []kmsg.DescribeDelegationTokenResponseTokenDetail{}
	code := h.tokenRefusal(r)
	if resp.ErrorCode = int16(code); code != cluster.None || req.Owners != nil && len(req.Owners) == 0 {
		r.Respond(resp, 0)
		return
	}
	var owners []string
	for _, o := range req.Owners {
		owners = append(owners, o.PrincipalType+":"+o.PrincipalName)
	}
	for _, t := range h.d.Tokens.List(func(t *token.Token) bool { return h.seesToken(r, t, owners) }) {
		resp.TokenDetails = append(resp.TokenDetails, describedToken(&t))
	}
	r.Respond(resp, 0)
}

// seesToken follows Kafka's DelegationTokenManager.filterToken; no owners means those of all.
func (h *Handlers) seesToken(r *wire.Request, t *token.Token, owners []string) bool {
	if owners != nil && !slices.ContainsFunc(owners, t.OwnerOrRenewer) {
		return false
	}
	return t.OwnerOrRenewer(r.Conn.Principal()) || h.allowedQuietly(r, acl.Describe, acl.DelegationToken, t.TokenID) ||
		h.allowedQuietly(r, acl.DescribeTokens, acl.User, t.Owner)
}

func describedToken(t *token.Token) kmsg.DescribeDelegationTokenResponseTokenDetail {
	d := kmsg.NewDescribeDelegationTokenResponseTokenDetail()
	d.PrincipalType, d.PrincipalName, _ = strings.Cut(t.Owner, ":")
	d.TokenRequesterPrincipalType, d.TokenRequesterPrincipalName, _ = strings.Cut(t.Requester, ":")
	d.IssueTimestamp, d.ExpiryTimestamp, d.MaxTimestamp = t.IssueTimestampMs, t.ExpiryTimestampMs, t.MaxTimestampMs
	d.TokenID, d.HMAC = t.TokenID, t.HMAC
	for _, p := range t.Renewers {
		out := kmsg.NewDescribeDelegationTokenResponseTokenDetailRenewer()
		out.PrincipalType, out.PrincipalName, _ = strings.Cut(p, ":")
		d.Renewers = append(d.Renewers, out)
	}
	return d
}
