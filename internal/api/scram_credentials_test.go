package api

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/security/scram"
)

func upsertion(user string, mechanism int8, iterations int32) kmsg.AlterUserSCRAMCredentialsRequestUpsertion {
	return kmsg.AlterUserSCRAMCredentialsRequestUpsertion{Name: user, Mechanism: mechanism, Iterations: iterations, Salt: []byte("salt"),
		SaltedPassword: scram.SHA256.Salted("secret", []byte("salt"), 4096)}
}

// alterSCRAM gives the codes by user.
func (b *testBroker) alterSCRAM(deletions []kmsg.AlterUserSCRAMCredentialsRequestDeletion, upsertions ...kmsg.AlterUserSCRAMCredentialsRequestUpsertion) map[string]cluster.ErrorCode {
	b.t.Helper()
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	req.Deletions, req.Upsertions = deletions, upsertions
	codes := map[string]cluster.ErrorCode{}
	for _, res := range b.do(0, req).(*kmsg.AlterUserSCRAMCredentialsResponse).Results {
		codes[res.User] = cluster.ErrorCode(res.ErrorCode)
	}
	return codes
}

func (b *testBroker) describeSCRAM(users ...string) map[string]string {
	b.t.Helper()
	req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
	for _, u := range users {
		req.Users = append(req.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: u})
	}
	out := map[string]string{}
	for _, res := range b.do(0, req).(*kmsg.DescribeUserSCRAMCredentialsResponse).Results {
		out[res.User] = cluster.ErrorCode(res.ErrorCode).String()
		for _, c := range res.CredentialInfos {
			m, _ := scram.ByCode(c.Mechanism)
			out[res.User] += " " + m.Name
		}
	}
	return out
}

// KIP-554. The node is Kafka's, and what else is in it stays.
func TestSCRAMUsersAreKeptBesideTheirQuotas(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		node := coord.ConfigEntityPath(coord.UserConfigs, "a%20user")
		b.put(coord.Create(node, coord.EncodeConfig(map[string]string{"producer_byte_rate": "7"})))
		same(t, map[string]cluster.ErrorCode{"a user": 0}, b.alterSCRAM(nil, upsertion("a user", 1, 4096)))
		settings := b.storedConfig(coord.UserConfigs, "a%20user")
		want := scram.SHA256.FromSalted(scram.SHA256.Salted("secret", []byte("salt"), 4096), []byte("salt"), 4096).String()
		if settings["producer_byte_rate"] != "7" || settings["SCRAM-SHA-256"] != want || !strings.HasPrefix(want, "salt=c2FsdA==,stored_key=") {
			t.Errorf("node holds %v", settings)
		}
		if err := b.h.LoadAllConfigs(b.ctx); err != nil {
			t.Fatal(err)
		}
		if c, ok := b.h.d.Users.Credential(scram.SHA256, "a user"); !ok || c.String() != want {
			t.Errorf("in force is %v, %v", c, ok)
		}
		same(t, map[string]string{"a user": "NONE SCRAM-SHA-256"}, b.describeSCRAM())
		same(t, map[string]string{"a user": "NONE SCRAM-SHA-256", "other": "RESOURCE_NOT_FOUND"}, b.describeSCRAM("a user", "other"))
		same(t, map[string]string{"a user": "DUPLICATE_RESOURCE"}, b.describeSCRAM("a user", "a user"))
		gone := []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "a user", Mechanism: 1}}
		same(t, map[string]cluster.ErrorCode{"a user": 0}, b.alterSCRAM(gone))
		same(t, map[string]cluster.ErrorCode{"a user": cluster.ResourceNotFound}, b.alterSCRAM(gone))
		same(t, map[string]string{"producer_byte_rate": "7"}, b.storedConfig(coord.UserConfigs, "a%20user"))
		synctest.Wait()
	})
}

func TestSCRAMChangesAreJudgedUserByUser(t *testing.T) {
	inBubble(t, nil, func(b *testBroker) {
		got := b.alterSCRAM([]kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: "absent", Mechanism: 2}, {Name: "twice", Mechanism: 1}},
			upsertion("good", 2, 4096), upsertion("few", 1, 4095), upsertion("many", 1, 16385), upsertion("unknown", 3, 4096),
			upsertion("", 1, 4096), upsertion("twice", 1, 4096))
		same(t, map[string]cluster.ErrorCode{"good": 0, "few": cluster.UnacceptableCredential, "many": cluster.UnacceptableCredential,
			"unknown": cluster.UnsupportedSASLMechanism, "": cluster.UnacceptableCredential, "twice": cluster.DuplicateResource, "absent": cluster.ResourceNotFound}, got)
		if users := slices.Collect(maps.Keys(b.describeSCRAM())); !slices.Equal(users, []string{"good"}) {
			t.Errorf("users are %v", users)
		}
		b.ctl.active.Store(false)
		same(t, map[string]cluster.ErrorCode{"good": cluster.NotController}, b.alterSCRAM(nil, upsertion("good", 2, 4096)))
	})
}
