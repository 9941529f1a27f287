package users

import (
	"testing"

	"klamm/internal/security/scram"
)

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
