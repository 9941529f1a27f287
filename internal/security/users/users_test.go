package users

import (
	"encoding/base64"
	"regexp"
	"testing"

	"klamm/internal/security/scram"
)

func TestAnUnknownUserLooksLikeOthers(t *testing.T) {
	s := New()
	salt := []byte("1kmdf2u9q0pz6xw3cvn7bh8t5r") // as Kafka's tools make them
	made := scram.SHA256.FromSalted(scram.SHA256.Salted("p", salt, 8192), salt, 8192)
	if err := s.Apply("alice", map[string]string{"SCRAM-SHA-256": made.String()}); err != nil {
		t.Fatal(err)
	}
	exchange := scram.SHA256.NewServer(func(user string, _ bool) (scram.Credential, bool) { return s.Credential(scram.SHA256, user) }, []byte("pepper"))
	answer, _, err := exchange.Step([]byte("n,,n=nobody,r=abc"))
	m := regexp.MustCompile(`,s=(.*),i=8192$`).FindSubmatch(answer)
	if err != nil || m == nil {
		t.Fatalf("answer %q, %v", answer, err)
	}
	got, err := base64.StdEncoding.DecodeString(string(m[1]))
	if err != nil || !regexp.MustCompile(`^[0-9a-z]{26}$`).Match(got) || string(got) == string(salt) {
		t.Errorf("salt %q, %v", got, err)
	}
}

func TestCredentialsFollowTheSettings(t *testing.T) {
	s := New()
	c := scram.SHA256.NewCredential("p", 4096)
	if err := s.Apply("alice", map[string]string{"SCRAM-SHA-256": c.String(), "producer_byte_rate": "7"}); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.Credential(scram.SHA256, "alice"); !ok || got.String() != c.String() {
		t.Errorf("credential %v, %v", got, ok)
	}
	if _, ok := s.Credential(scram.SHA512, "alice"); ok {
		t.Error("a credential of another mechanism is found")
	}
	if err := s.Apply("alice", map[string]string{"SCRAM-SHA-256": "broken", "SCRAM-SHA-512": scram.SHA512.NewCredential("p", 4096).String()}); err == nil {
		t.Error("a broken credential is not told")
	}
	if _, ok := s.Credential(scram.SHA256, "alice"); ok {
		t.Error("a broken credential is in force")
	}
	if _, ok := s.Credential(scram.SHA512, "alice"); !ok {
		t.Error("the one beside the broken one is not")
	}
	if err := s.Apply("alice", nil); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Credential(scram.SHA512, "alice"); ok {
		t.Error("a deleted user is known")
	}
}
