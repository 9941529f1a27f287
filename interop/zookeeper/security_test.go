//go:build interop

package zookeeper

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"klamm/internal/coord"
)

// securedListener gives a broker a second listener, for clients that log in with SCRAM, and returns its address, and a third
// one, where brokers log in to each other with PLAIN. On the first one everybody is a super user.
func (b *broker) securedListener() string {
	b.c.Helper()
	addr, between := freeAddr(b.c.T), freeAddr(b.c.T)
	b.addProperties(fmt.Sprintf(`listeners=PLAINTEXT://%s,CLIENTS://%s,BROKERS://%s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT
inter.broker.listener.name=BROKERS
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.brokers.sasl.enabled.mechanisms=PLAIN
listener.name.brokers.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="broker" password="b" user_broker="b";
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.clients.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
super.users=User:ANONYMOUS;User:broker
delegation.token.secret.key=shared
`, b.addr, addr, between))
	return addr
}

// as logs in at an address.
func (c *cluster) as(addr string, auth scram.Auth) *kgo.Client {
	c.Helper()
	var opts []sasl.Mechanism
	if auth.User != "" {
		opts = append(opts, auth.AsSha256Mechanism())
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.SASL(opts...), kgo.RequestRetries(1))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(cl.Close)
	return cl
}

// at sends a request to the broker at the client's address, whichever broker a client library would choose.
func at[R kmsg.Response](c *cluster, cl *kgo.Client, req kmsg.Request) (R, error) {
	ctx, cancel := context.WithTimeout(c.Context(), 20*time.Second)
	defer cancel()
	resp, err := cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		var none R
		return none, err
	}
	return resp.(R), nil
}

// sees gives the error of a topic's metadata at a broker, for who logs in so.
func (c *cluster) sees(addr string, auth scram.Auth, topic string) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	resp, err := at[*kmsg.MetadataResponse](c, c.as(addr, auth), req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// SCRAM users, access rules and delegation tokens made through a broker of either kind hold on the other, at once or after
// a notification, and are gone there when they are removed.
func TestUsersRulesAndTokensOfEitherKindHoldOnTheOther(t *testing.T) {
	c := newCluster(t, kafka, klamm)
	clients := []string{c.brokers[0].securedListener(), c.brokers[1].securedListener()}
	c.start(0, 1)
	c.step("started")
	c.createTopic("t", 1, nil)
	c.awaitISR("t") // the one follows the other over a login
	for _, made := range []struct{ at, other int32 }{{0, 1}, {1, 0}} {
		user := fmt.Sprintf("user %d", made.at)
		auth := scram.Auth{User: user, Pass: "pässword"}
		c.moveController(made.at)
		c.eventually(30*time.Second, "user is made", func() (bool, string) {
			res, err := c.admin.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: auth.Pass}})
			return err == nil && res.Error() == nil, fmt.Sprint(err, res.Error())
		})
		c.awaitAccess(clients[made.other], auth, kerr.TopicAuthorizationFailed)
		c.step("%s, made through broker %d, logs in at broker %d", user, made.at, made.other)

		c.changeRule(made.at, user, true)
		c.awaitAccess(clients[made.other], auth, nil)
		c.tokenHolds(clients[made.at], clients[made.other], auth)
		c.step("its rule and its token hold there")
		c.changeRule(made.at, user, false)
		c.awaitAccess(clients[made.other], auth, kerr.TopicAuthorizationFailed)

		res, err := c.admin.AlterUserSCRAMs(t.Context(), []kadm.DeleteSCRAM{{User: user, Mechanism: kadm.ScramSha256}}, nil)
		if err != nil || res.Error() != nil {
			t.Fatal(err, res.Error())
		}
		c.awaitAccess(clients[made.other], auth, kerr.SaslAuthenticationFailed)
		c.step("they end there")
	}
	c.compareNodes()
	c.refusesSlashes()
	c.step("names with a slash are refused by both")
}

// refusesSlashes wants the same answer of both kinds to rules whose resource has a slash in its name, which would be a path in
// ZooKeeper, and to filters with one.
func (c *cluster) refusesSlashes() {
	c.Helper()
	create, remove := kmsg.NewPtrCreateACLsRequest(), kmsg.NewPtrDeleteACLsRequest()
	for _, r := range []struct {
		kind    kmsg.ACLResourceType
		pattern kmsg.ACLResourcePatternType
		name    string
	}{
		{kmsg.ACLResourceTypeGroup, kmsg.ACLResourcePatternTypeLiteral, "team/app"},
		{kmsg.ACLResourceTypeTransactionalId, kmsg.ACLResourcePatternTypePrefixed, "team/"},
		{kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeLiteral, "/"},
	} {
		rule := kmsg.NewCreateACLsRequestCreation()
		rule.ResourceType, rule.ResourceName, rule.ResourcePatternType = r.kind, r.name, r.pattern
		rule.Principal, rule.Host, rule.Operation, rule.PermissionType = "User:someone", "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		create.Creations = append(create.Creations, rule)
		filter := kmsg.NewDeleteACLsRequestFilter()
		filter.ResourceType, filter.ResourceName, filter.ResourcePatternType = r.kind, &r.name, r.pattern
		filter.Operation, filter.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		remove.Filters = append(remove.Filters, filter)
	}
	answers := map[int32]string{}
	for id := range int32(2) {
		cl := c.as(c.brokers[id].addr, scram.Auth{})
		created, err := at[*kmsg.CreateACLsResponse](c, cl, create)
		if err != nil {
			c.Fatal(err)
		}
		for _, r := range created.Results {
			answers[id] += fmt.Sprintln("create", kerr.ErrorForCode(r.ErrorCode))
			if *r.ErrorMessage == "" || id == 1 && !strings.Contains(*r.ErrorMessage, "must not have a slash") {
				c.Errorf("broker %d says: %s", id, *r.ErrorMessage)
			}
			c.Logf("broker %d says: %s", id, *r.ErrorMessage)
		}
		removed, err := at[*kmsg.DeleteACLsResponse](c, cl, remove)
		if err != nil {
			c.Fatal(err)
		}
		for _, r := range removed.Results {
			answers[id] += fmt.Sprintln("delete", kerr.ErrorForCode(r.ErrorCode), len(r.MatchingACLs))
		}
	}
	if answers[0] != answers[1] || strings.Count(answers[0], "create "+kerr.InvalidRequest.Error()) != len(create.Creations) {
		c.Errorf("Kafka answers\n%s\nklamm answers\n%s", answers[0], answers[1])
	}
}

// awaitAccess waits until looking at topic t ends in a certain way.
func (c *cluster) awaitAccess(addr string, auth scram.Auth, want error) {
	c.Helper()
	c.eventually(20*time.Second, fmt.Sprintf("%s at %s gets %v", auth.User, addr, want), func() (bool, string) {
		err := c.sees(addr, auth, "t")
		return errors.Is(err, want), fmt.Sprint(err)
	})
}

// changeRule lets a user read topic t, or takes that back, through one broker.
func (c *cluster) changeRule(id int32, user string, allow bool) {
	c.Helper()
	cl := c.as(c.brokers[id].addr, scram.Auth{})
	if allow {
		req := kmsg.NewPtrCreateACLsRequest()
		rule := kmsg.NewCreateACLsRequestCreation()
		rule.ResourceType, rule.ResourceName, rule.ResourcePatternType = kmsg.ACLResourceTypeTopic, "t", kmsg.ACLResourcePatternTypePrefixed
		rule.Principal, rule.Host, rule.Operation, rule.PermissionType = "User:"+user, "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, rule)
		resp, err := at[*kmsg.CreateACLsResponse](c, cl, req)
		if err != nil || resp.Results[0].ErrorCode != 0 {
			c.Fatalf("create a rule at broker %d: %v, %+v", id, err, resp)
		}
		return
	}
	req := kmsg.NewPtrDeleteACLsRequest()
	f := kmsg.NewDeleteACLsRequestFilter()
	principal := "User:" + user
	f.ResourceType, f.ResourcePatternType, f.Principal = kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeAny, &principal
	f.Operation, f.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	req.Filters = append(req.Filters, f)
	resp, err := at[*kmsg.DeleteACLsResponse](c, cl, req)
	if err != nil || resp.Results[0].ErrorCode != 0 || len(resp.Results[0].MatchingACLs) != 1 {
		c.Fatalf("delete a rule at broker %d: %v, %+v", id, err, resp)
	}
}

// tokenHolds makes a token at one broker, logs in with it at another, and removes it.
func (c *cluster) tokenHolds(made, other string, auth scram.Auth) {
	c.Helper()
	create := kmsg.NewPtrCreateDelegationTokenRequest()
	create.MaxLifetimeMillis = -1
	owner := c.as(made, auth)
	tok, err := at[*kmsg.CreateDelegationTokenResponse](c, owner, create)
	if err != nil || tok.ErrorCode != 0 {
		c.Fatalf("create a token: %v, %+v", err, tok)
	}
	byToken := scram.Auth{User: tok.TokenID, Pass: base64.StdEncoding.EncodeToString(tok.HMAC), IsToken: true}
	c.awaitAccess(other, byToken, nil)
	expire := kmsg.NewPtrExpireDelegationTokenRequest()
	expire.HMAC, expire.ExpiryPeriodMillis = tok.HMAC, -1
	if gone, err := at[*kmsg.ExpireDelegationTokenResponse](c, c.as(other, auth), expire); err != nil || gone.ErrorCode != 0 {
		c.Fatalf("expire the token at the other broker: %v, %+v", err, gone)
	}
	c.awaitAccess(made, byToken, kerr.SaslAuthenticationFailed)
}

// compareNodes writes the same through each broker and wants the same bytes.
func (c *cluster) compareNodes() {
	c.Helper()
	text := map[int32]string{}
	for id := range int32(2) {
		c.changeRule(id, "same", true)
		n, err := c.store.Get(c.Context(), coord.ACLResourcePath("prefixed", "Topic", "t"))
		if err != nil {
			c.Fatal(err)
		}
		text[id] = string(n.Data)
		changes, err := c.store.Children(c.Context(), coord.ACLExtendedChangesPath)
		if err != nil {
			c.Fatal(err)
		}
		last, err := c.store.Get(c.Context(), coord.ACLExtendedChangesPath+"/"+changes[len(changes)-1])
		if err != nil {
			c.Fatal(err)
		}
		text[id] += " " + string(last.Data)
		c.changeRule(id, "same", false)
	}
	if text[0] != text[1] || !strings.Contains(text[0], "User:same") {
		c.Errorf("Kafka writes %s\nklamm writes %s", text[0], text[1])
	}
}
