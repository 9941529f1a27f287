package config

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Authorizer is how requests are authorized.
type Authorizer struct {
	Enabled              bool     // authorizer.class.name names Kafka's authorizer over ZooKeeper
	SuperUsers           []string // super.users; principals, "Type:name"
	AllowEveryoneIfNoACL bool     // allow.everyone.if.no.acl.found
}

// Keys of Kafka's authorizer, which its table of broker keys does not have.
const (
	superUsersKey           = "super.users"
	allowEveryoneIfNoACLKey = "allow.everyone.if.no.acl.found"
)

// aclAuthorizers are the names of the one authorizer there is: of Kafka 2.4 to 3.9, and of the releases before, which kept the same nodes.
var aclAuthorizers = []string{"kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer"}

// DelegationTokens is the delegation.token.* keys. Secret is "" when there are no tokens.
type DelegationTokens struct {
	Secret        string        // delegation.token.secret.key, else its older name delegation.token.master.key
	MaxLifetime   time.Duration // delegation.token.max.lifetime.ms
	ExpiryTime    time.Duration // delegation.token.expiry.time.ms
	CheckInterval time.Duration // delegation.token.expiry.check.interval.ms
}

func (b *Broker) fillTokens(r keyReader) {
	t := &b.Tokens
	older := r.string("delegation.token.master.key")
	if t.Secret = r.string("delegation.token.secret.key"); t.Secret == "" {
		t.Secret = older
	}
	t.MaxLifetime, t.ExpiryTime = r.ms("delegation.token.max.lifetime.ms"), r.ms("delegation.token.expiry.time.ms")
	t.CheckInterval = r.ms("delegation.token.expiry.check.interval.ms")
}

// checkAuthorizer reads the authorizer's keys and sets them on b.
func (c *checker) checkAuthorizer(b *Broker) {
	class := c.text("authorizer.class.name")
	switch {
	case class == "":
		return
	case class == "org.apache.kafka.metadata.authorizer.StandardAuthorizer":
		c.fault("authorizer.class.name", "keeps its rules in KRaft's log, which klamm does not have: use %s", aclAuthorizers[0])
	case !slices.Contains(aclAuthorizers, class):
		c.fault("authorizer.class.name", "klamm loads no Java classes: use %s, which is built in, or remove the key to run without authorization", aclAuthorizers[0])
	}
	users, err := parsePrincipals(c.set[superUsersKey])
	if err != nil {
		c.fault(superUsersKey, "%s", err)
	}
	open := strings.ToLower(strings.TrimSpace(c.set[allowEveryoneIfNoACLKey]))
	if open != "" && open != "true" && open != "false" {
		c.fault(allowEveryoneIfNoACLKey, "must be true or false")
	}
	b.Authorizer = Authorizer{Enabled: true, SuperUsers: users, AllowEveryoneIfNoACL: open == "true"}
}

// parsePrincipals reads super.users: principals separated by semicolons, since names of certificates have commas.
func parsePrincipals(text string) ([]string, error) {
	var out []string
	for part := range strings.SplitSeq(text, ";") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		if kind, name, ok := strings.Cut(part, ":"); !ok || kind == "" || name == "" {
			return nil, fmt.Errorf("%q is no principal: write Type:name, like User:admin, separated by semicolons", part)
		}
		out = append(out, part)
	}
	return out, nil
}
