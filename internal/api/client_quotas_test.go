package api

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
	"klamm/internal/quota"
)

// quotaEntity builds an entity of pairs of type and name; the name "<default>" stands for null.
func quotaEntity(pairs ...string) (out []kmsg.AlterClientQuotasRequestEntryEntity) {
	for i := 0; i < len(pairs); i += 2 {
		e := kmsg.AlterClientQuotasRequestEntryEntity{Type: pairs[i], Name: &pairs[i+1]}
		if pairs[i+1] == "<default>" {
			e.Name = nil
		}
		out = append(out, e)
	}
	return out
}

func quotaOp(key string, v float64) kmsg.AlterClientQuotasRequestEntryOp {
	return kmsg.AlterClientQuotasRequestEntryOp{Key: key, Value: v}
}

func quotaRemoval(key string) kmsg.AlterClientQuotasRequestEntryOp {
	return kmsg.AlterClientQuotasRequestEntryOp{Key: key, Remove: true}
}

// alterQuota sends one entry and gives "CODE message".
func (b *testBroker) alterQuota(version int16, entity []kmsg.AlterClientQuotasRequestEntryEntity, ops ...kmsg.AlterClientQuotasRequestEntryOp) string {
	b.t.Helper()
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Entries = []kmsg.AlterClientQuotasRequestEntry{{Entity: entity, Ops: ops}}
	entry := b.do(version, req).(*kmsg.AlterClientQuotasResponse).Entries[0]
	if len(entry.Entity) != len(entity) {
		b.t.Errorf("the answer is about %v", entry.Entity)
	}
	return verdict(entry.ErrorCode, entry.ErrorMessage)
}

// quota changes an entity's quotas and has the broker follow, as the change notification would.
func (b *testBroker) quota(entity []kmsg.AlterClientQuotasRequestEntryEntity, ops ...kmsg.AlterClientQuotasRequestEntryOp) {
	b.t.Helper()
	if got := b.alterQuota(1, entity, ops...); got != "NONE" {
		b.t.Fatal(got)
	}
	b.configChanges()
}

// configTree lists the nodes below /config that are about quotas, as "path=data".
func (b *testBroker) configTree() (out []string) {
	var walk func(path string)
	walk = func(path string) {
		n, err := b.ctl.store.Get(b.ctx, path)
		if err != nil {
			b.t.Fatal(err)
		}
		if coord.Depth(path) > 2 {
			out = append(out, strings.TrimPrefix(path, "/config/")+"="+string(n.Data))
		}
		names, _ := b.ctl.store.Children(b.ctx, path)
		for _, name := range names {
			walk(path + "/" + name)
		}
	}
	for _, kind := range []string{coord.ClientConfigs, coord.UserConfigs, coord.IPConfigs, "changes"} {
		walk(coord.ConfigTypePath(kind))
	}
	return out
}

func (b *testBroker) wantTree(want ...string) {
	b.t.Helper()
	if got := b.configTree(); !slices.Equal(got, want) {
		b.t.Errorf("tree\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestQuotaNodesAreKafkas(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.quota(quotaEntity("client-id", "a b*c"), quotaOp("producer_byte_rate", 1024), quotaOp("request_percentage", 12.5))
		b.quota(quotaEntity("client-id", "<default>"), quotaOp("consumer_byte_rate", 2048))
		b.quota(quotaEntity("user", "CN=me,O=x", "client-id", "c"), quotaOp("controller_mutation_rate", 10))
		b.quota(quotaEntity("user", "<default>", "client-id", "<default>"), quotaOp("request_percentage", 1e7))
		b.quota(quotaEntity("ip", "<default>"), quotaOp("connection_creation_rate", 5))
		b.wantTree(
			`clients/<default>={"version":1,"config":{"consumer_byte_rate":"2048"}}`,
			`clients/a%20b%2Ac={"version":1,"config":{"request_percentage":"12.5","producer_byte_rate":"1024"}}`,
			`users/<default>=`, `users/<default>/clients=`,
			`users/<default>/clients/<default>={"version":1,"config":{"request_percentage":"1.0E7"}}`,
			`users/CN%3Dme%2CO%3Dx=`, `users/CN%3Dme%2CO%3Dx/clients=`,
			`users/CN%3Dme%2CO%3Dx/clients/c={"version":1,"config":{"controller_mutation_rate":"10.0"}}`,
			`ips/<default>={"version":1,"config":{"connection_creation_rate":"5"}}`,
			`changes/config_change_0000000000={"version":2,"entity_path":"clients/a%20b%2Ac"}`,
			`changes/config_change_0000000001={"version":2,"entity_path":"clients/<default>"}`,
			`changes/config_change_0000000002={"version":2,"entity_path":"users/CN%3Dme%2CO%3Dx/clients/c"}`,
			`changes/config_change_0000000003={"version":2,"entity_path":"users/<default>/clients/<default>"}`,
			`changes/config_change_0000000004={"version":2,"entity_path":"ips/<default>"}`,
		)
		if limit, ok := b.h.d.Quotas.Limit(quota.Mutations, quota.Client{User: "CN=me,O=x", ID: "c"}); !ok || limit != 10 {
			t.Errorf("limit %v, %v", limit, ok)
		}
		if limit, ok := b.h.d.Quotas.Limit(quota.Produce, quota.Client{User: "u", ID: "a b*c"}); !ok || limit != 1024 {
			t.Errorf("limit %v, %v", limit, ok)
		}
	})
}

func TestAnEntityLeftWithNothingGoesWithItsEmptyParents(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		rate, none := quotaOp("producer_byte_rate", 1), quotaRemoval("producer_byte_rate")
		b.quota(quotaEntity("user", "u"), rate)
		b.quota(quotaEntity("user", "u", "client-id", "c"), rate)
		b.quota(quotaEntity("user", "u", "client-id", "d"), rate)
		b.quota(quotaEntity("user", "u"), none)
		without := func() []string {
			return slices.DeleteFunc(b.configTree(), func(s string) bool { return strings.HasPrefix(s, "changes/") })
		}
		data := `={"version":1,"config":{"producer_byte_rate":"1"}}`
		want := []string{`users/u={"version":1,"config":{}}`, "users/u/clients=", "users/u/clients/c" + data, "users/u/clients/d" + data}
		if got := without(); !slices.Equal(got, want) {
			t.Errorf("after the user's: %v", got)
		}
		b.quota(quotaEntity("user", "u", "client-id", "c"), none)
		if got := without(); !slices.Equal(got, slices.Delete(slices.Clone(want), 2, 3)) {
			t.Errorf("after one client id's: %v", got)
		}
		b.quota(quotaEntity("user", "u", "client-id", "d"), none)
		if got := without(); len(got) != 0 {
			t.Errorf("after all: %v", got)
		}
		if b.h.d.Quotas.Active(quota.Produce) {
			t.Error("a limit is left")
		}
	})
}

func TestQuotasOfAUserLeaveItsCredentialsAlone(t *testing.T) {
	const node = `{"version":1,"config":{"SCRAM-SHA-256":"salt=x,stored_key=y,server_key=z,iterations=4096"}}`
	inBubble(t, nil, func(b *testBroker) {
		path := coord.ConfigEntityPath(coord.UserConfigs, "alice")
		b.put(coord.Create(path, []byte(node)))
		// Between reading and writing somebody else sets another credential.
		between := 0
		b.store.SetHook(func(c memstore.Call) memstore.Fault {
			if c.Method == "Multi" && between == 0 {
				between++
				b.put(coord.Set(path, []byte(strings.Replace(node, "4096", "8192", 1)), coord.AnyVersion))
			}
			return memstore.Fault{}
		})
		b.quota(quotaEntity("user", "alice"), quotaOp("producer_byte_rate", 5))
		got := b.storedConfig(coord.UserConfigs, "alice")
		if len(got) != 2 || got["producer_byte_rate"] != "5" || !strings.Contains(got["SCRAM-SHA-256"], "8192") {
			t.Errorf("stored %v", got)
		}
		b.quota(quotaEntity("user", "alice"), quotaRemoval("producer_byte_rate"))
		if got := b.storedConfig(coord.UserConfigs, "alice"); len(got) != 1 {
			t.Errorf("stored %v", got)
		}
		if entries := b.describeQuotas(1, true, "user", "alice"); len(entries) != 0 {
			t.Errorf("credentials are described: %v", entries)
		}
	})
}

func TestAlterClientQuotasRefusals(t *testing.T) {
	rate := quotaOp("producer_byte_rate", 1)
	for _, c := range []struct {
		name   string
		entity []kmsg.AlterClientQuotasRequestEntryEntity
		op     kmsg.AlterClientQuotasRequestEntryOp
		want   string
	}{
		{"nobody", nil, rate, "INVALID_REQUEST Invalid empty client quota entity"},
		{"unknown type", quotaEntity("group", "g"), rate, "INVALID_REQUEST Unhandled client quota entity type: group"},
		{"empty name", quotaEntity("user", ""), rate, "INVALID_REQUEST Empty user not supported"},
		{"ip and user", quotaEntity("user", "u", "ip", "127.0.0.1"), rate, "INVALID_REQUEST Invalid quota entity combination, IP entity should not be used with user/client ID entity."},
		{"no address", quotaEntity("ip", "not an ip"), quotaOp("connection_creation_rate", 1), "INVALID_REQUEST not an ip is not a valid IP or resolvable host."},
		{"unknown key", quotaEntity("user", "u"), quotaOp("nosuch", 1), "INVALID_REQUEST Invalid configuration key nosuch"},
		{"credentials", quotaEntity("user", "u"), quotaOp("SCRAM-SHA-256", 1), "INVALID_REQUEST Invalid configuration key SCRAM-SHA-256"},
		{"key of users for an address", quotaEntity("ip", "127.0.0.1"), rate, "INVALID_REQUEST Invalid configuration key producer_byte_rate"},
		{"fraction of a byte", quotaEntity("user", "u"), quotaOp("producer_byte_rate", 1.5), "INVALID_REQUEST Configuration producer_byte_rate must be a LONG value"},
		{"fraction of a connection", quotaEntity("ip", "::1"), quotaOp("connection_creation_rate", 1.5), "INVALID_REQUEST Configuration connection_creation_rate must be a INT value"},
		{"more bytes than a long", quotaEntity("user", "u"), quotaOp("producer_byte_rate", 1e20), "INVALID_REQUEST Configuration producer_byte_rate must be a LONG value"},
		{"zero", quotaEntity("user", "u"), quotaOp("request_percentage", 0), "INVALID_REQUEST Quota request_percentage must be greater than 0"},
		{"a path", quotaEntity("user", ".."), rate, `INVALID_REQUEST ".." cannot be a user with quotas: it is no name for a node`},
		{"a path in a name", quotaEntity("user", "../brokers"), rate, "NONE"},
		{"removal of an unknown key", quotaEntity("user", "u"), quotaRemoval("nosuch"), "NONE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, nil, func(b *testBroker) {
				if got := b.alterQuota(0, c.entity, c.op); got != c.want {
					t.Errorf("got %s\nwant %s", got, c.want)
				}
				if c.want != "NONE" {
					b.wantTree()
				}
			})
		})
	}
}

func TestAlterClientQuotasValidatesOnly(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		req := kmsg.NewPtrAlterClientQuotasRequest()
		req.ValidateOnly = true
		req.Entries = []kmsg.AlterClientQuotasRequestEntry{
			{Entity: quotaEntity("user", "u"), Ops: []kmsg.AlterClientQuotasRequestEntryOp{quotaOp("producer_byte_rate", 1)}},
			{Entity: quotaEntity("user", "u"), Ops: []kmsg.AlterClientQuotasRequestEntryOp{quotaOp("nosuch", 1)}},
		}
		resp := b.do(1, req).(*kmsg.AlterClientQuotasResponse)
		if resp.Entries[0].ErrorCode != 0 || cluster.ErrorCode(resp.Entries[1].ErrorCode) != cluster.InvalidRequest {
			t.Errorf("answer %+v", resp.Entries)
		}
		b.wantTree()
	})
}

// describeQuotas asks for pairs of type and match: a name, "<default>" or "<any>". Entries come as "type=name ... key=value".
func (b *testBroker) describeQuotas(version int16, strict bool, pairs ...string) (out []string) {
	b.t.Helper()
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	req.Strict = strict
	for i := 0; i < len(pairs); i += 2 {
		c := kmsg.DescribeClientQuotasRequestComponent{EntityType: pairs[i], Match: &pairs[i+1]}
		switch pairs[i+1] {
		case "<default>":
			c.MatchType, c.Match = kmsg.QuotasMatchTypeDefault, nil
		case "<any>":
			c.MatchType, c.Match = kmsg.QuotasMatchTypeAny, nil
		}
		req.Components = append(req.Components, c)
	}
	resp := b.do(version, req).(*kmsg.DescribeClientQuotasResponse)
	if resp.ErrorCode != 0 {
		return []string{verdict(resp.ErrorCode, resp.ErrorMessage)}
	}
	if resp.Entries == nil {
		b.t.Error("entries are null without an error")
	}
	for _, e := range resp.Entries {
		var words []string
		for _, p := range e.Entity {
			name := "<default>"
			if p.Name != nil {
				name = *p.Name
			}
			words = append(words, p.Type+"="+name)
		}
		for _, v := range e.Values {
			text, _ := quotaText(coord.UserConfigs, v.Key, v.Value)
			words = append(words, v.Key+"="+text)
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

// Kafka: ClientQuotasRequestTest.testDescribeClientQuotasMatchExact, ...MatchPartial.
func TestDescribeClientQuotasFindsWhatMatches(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		for i, e := range [][]string{
			{"client-id", "c"}, {"client-id", "<default>"},
			{"user", "u"}, {"user", "u", "client-id", "c"}, {"user", "u", "client-id", "<default>"},
			{"user", "<default>"}, {"user", "<default>", "client-id", "c"},
			{"ip", "10.0.0.1"}, {"ip", "<default>"},
		} {
			key := "producer_byte_rate"
			if e[0] == "ip" {
				key = "connection_creation_rate"
			}
			b.quota(quotaEntity(e...), quotaOp(key, float64(i+1)))
		}
		for _, c := range []struct {
			name   string
			strict bool
			ask    []string
			want   string // the numbers of the entities
		}{
			{"everything", false, nil, "2 1 6 3 8 9 7 5 4"},
			{"strictly nothing", true, nil, ""},
			{"one user strictly", true, []string{"user", "u"}, "3"},
			{"one user", false, []string{"user", "u"}, "3 5 4"},
			{"any user strictly", true, []string{"user", "<any>"}, "6 3"},
			{"the default user", false, []string{"user", "<default>"}, "6 7"},
			{"user and client id", true, []string{"user", "u", "client-id", "c"}, "4"},
			{"user and default client id", true, []string{"user", "u", "client-id", "<default>"}, "5"},
			{"any client id strictly", true, []string{"client-id", "<any>"}, "2 1"},
			{"one client id", false, []string{"client-id", "c"}, "1 7 4"},
			{"both of any kind", true, []string{"user", "<any>", "client-id", "<any>"}, "7 5 4"},
			{"one address", true, []string{"ip", "10.0.0.1"}, "8"},
			{"any address", false, []string{"ip", "<any>"}, "8 9"},
			{"no such user", false, []string{"user", "nosuch"}, ""},
		} {
			var got []string
			for _, line := range b.describeQuotas(0, c.strict, c.ask...) {
				v := line[strings.LastIndex(line, "=")+1:]
				got = append(got, strings.TrimSuffix(v, ".0"))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s: %v, want %s", c.name, got, c.want)
			}
		}
		if got := b.describeQuotas(1, true, "user", "u", "client-id", "<default>"); got[0] != "user=u client-id=<default> producer_byte_rate=5" {
			t.Errorf("got %v", got)
		}
	})
}

func TestDescribeClientQuotasRefusals(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		for _, c := range []struct {
			ask  []string
			want string
		}{
			{[]string{"user", "a", "user", "b"}, "INVALID_REQUEST Duplicate user filter component entity type"},
			{[]string{"client-id", "a", "client-id", "b"}, "INVALID_REQUEST Duplicate client filter component entity type"},
			{[]string{"", "a"}, "INVALID_REQUEST Unexpected empty filter component entity type"},
			{[]string{"group", "a"}, "UNSUPPORTED_VERSION Custom entity type 'group' not supported"},
			{[]string{"user", "a", "ip", "::1"}, "INVALID_REQUEST Invalid entity filter component combination, IP filter component should not be used with user or clientId filter component."},
		} {
			if got := b.describeQuotas(1, false, c.ask...); len(got) != 1 || got[0] != c.want {
				t.Errorf("%v: %v", c.ask, got)
			}
		}
	})
}

func TestQuotasOfTheStoreHoldFromTheStartAndAfterOldNotifications(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.put(
			coord.Create("/config/users/u", nil), coord.Create("/config/users/u/clients", nil),
			coord.Create("/config/users/u/clients/c", []byte(`{"version":1,"config":{"producer_byte_rate":"7","nosuch":"1"}}`)),
			coord.Create("/config/users/bad", []byte(`{"version":1,"config":{"producer_byte_rate":"much","consumer_byte_rate":"8"}}`)),
			coord.Create("/config/clients/x%zz", []byte(`{"version":1,"config":{"producer_byte_rate":"9"}}`)),
			coord.Create("/config/ips/10.0.0.1", []byte(`{"version":1,"config":{"connection_creation_rate":"0"}}`)),
		)
		if err := b.h.LoadAllConfigs(b.ctx); err != nil {
			t.Fatal(err)
		}
		limit := func(k quota.Kind, user, client string) float64 {
			v, _ := b.h.d.Quotas.Limit(k, quota.Client{User: user, ID: client})
			return v
		}
		if limit(quota.Produce, "u", "c") != 7 || limit(quota.Fetch, "bad", "c") != 8 || limit(quota.Produce, "bad", "x") != 0 {
			t.Error("quotas of the store do not hold")
		}
		b.put(coord.Create("/config/clients/old", []byte(`{"version":1,"config":{"producer_byte_rate":"3"}}`)))
		// The notification of Kafka before 0.10.1.
		if err := b.h.HandleConfigChange(b.ctx, []byte(`{"version":1,"entity_type":"clients","entity_name":"old"}`)); err != nil {
			t.Fatal(err)
		}
		if limit(quota.Produce, "", "old") != 3 {
			t.Error("a notification of version 1 is not followed")
		}
		b.put(coord.Delete("/config/users/u/clients/c", coord.AnyVersion))
		if err := b.h.HandleConfigChange(b.ctx, coord.EncodeConfigChange("users/u/clients/c")); err != nil {
			t.Fatal(err)
		}
		if limit(quota.Produce, "u", "c") != 0 {
			t.Error("a deleted entity's limit holds")
		}
	})
}

func TestAlterClientQuotasWithoutAStoreFails(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		b.store.SetHook(func(memstore.Call) memstore.Fault { return memstore.Fault{Err: errors.New("gone")} })
		if got := b.alterQuota(1, quotaEntity("user", "u"), quotaOp("producer_byte_rate", 1)); got != "UNKNOWN_SERVER_ERROR" {
			t.Error(got)
		}
		if got := b.describeQuotas(1, false); got[0] != "UNKNOWN_SERVER_ERROR" {
			t.Error(got)
		}
	})
}
