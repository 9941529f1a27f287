package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// What clients would have written while the cluster migrates to KRaft is refused with the reason, and taken once the migration is
// given up. What brokers write for themselves, and what clients read, goes on.
func TestChangesAreRefusedWhileTheClusterMigratesToKRaft(t *testing.T) {
	client := memstore.New().Client()
	r := startOn(t, configure(t, t.TempDir(), map[string]string{
		"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS",
	}), client)
	adm := kadm.NewClient(r.client(t))
	if created, err := adm.CreateTopic(t.Context(), 1, 1, nil, "t"); err != nil || created.Err != nil {
		t.Fatal(err, created.Err)
	}
	value := "1000"
	changes := map[string]func() (message string, err error){
		"a config": func() (message string, err error) {
			res, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "retention.ms", Value: &value}}, "t")
			return res[0].ErrMessage, errors.Join(err, res[0].Err)
		},
		"a quota": func() (message string, err error) {
			user := "u"
			res, err := adm.AlterClientQuotas(t.Context(), []kadm.AlterClientQuotaEntry{{
				Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &user}}, Ops: []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 1}},
			}})
			return res[0].ErrMessage, errors.Join(err, res[0].Err)
		},
		"a user": func() (message string, err error) {
			res, err := adm.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: "u", Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "x"}})
			return res["u"].ErrMessage, errors.Join(err, res["u"].Err)
		},
		"a rule": func() (message string, err error) {
			res, err := adm.CreateACLs(t.Context(), kadm.NewACLs().Topics("t").Operations(kadm.OpRead).Allow("User:u").AllowHosts().ResourcePatternType(kadm.ACLPatternLiteral))
			return res[0].ErrMessage, errors.Join(err, res[0].Err)
		},
	}
	put(t, client, coord.MigrationPath, `{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":5,"kraft_metadata_offset":1,"kraft_metadata_epoch":1}`)
	if !within(20*time.Second, func() bool { return strings.Contains(r.log.String(), "no changes of configs") }) {
		t.Fatalf("the broker has not noticed:\n%s", r.log)
	}
	for what, change := range changes {
		const reason = "/migration says that the cluster migrates to KRaft (controller 3000, epoch 5): klamm takes no part in that. Finish it or roll it back"
		if text, err := change(); !errors.Is(err, kerr.StaleControllerEpoch) || !strings.HasSuffix(text, reason) {
			t.Errorf("%s: %v, %q", what, err, text)
		}
	}
	if topics, err := adm.ListTopics(t.Context(), "t"); err != nil || !topics.Has("t") {
		t.Errorf("a look: %v, %v", topics, err)
	}
	if _, err := client.Multi(t.Context(), coord.Delete(coord.MigrationPath, coord.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	if !within(20*time.Second, func() bool { return strings.Contains(r.log.String(), "changes are taken again") }) {
		t.Fatalf("the broker has not noticed:\n%s", r.log)
	}
	for what, change := range changes {
		if text, err := change(); err != nil {
			t.Errorf("%s: %v, %q", what, err, text)
		}
	}
}
