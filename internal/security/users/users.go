// Package users keeps the SCRAM credentials that the cluster has, by user and mechanism, as they were read from the config
// nodes of users (Kafka: CredentialProvider, UserConfigHandler). It does no IO: whoever follows the nodes applies them.
package users

import (
	"errors"
	"sync"

	"klamm/internal/security/scram"
)

// Store holds credentials. It is safe for concurrent use.
type Store struct {
	mu struct {
		sync.RWMutex
		byUser map[string]map[string]scram.Credential // user, mechanism
		usual  map[string]scram.Credential            // that a user was given last, by mechanism
	}
}

// New makes a store without users.
func New() *Store {
	s := &Store{}
	s.mu.byUser, s.mu.usual = map[string]map[string]scram.Credential{}, map[string]scram.Credential{}
	return s
}

// Apply replaces the credentials of a user by those among the settings of its node; none are left without settings. A
// credential that cannot be read is left out and named in the error.
func (s *Store) Apply(user string, settings map[string]string) error {
	credentials, err := Parse(settings)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range credentials {
		s.mu.usual[name] = c
	}
	if len(credentials) == 0 {
		delete(s.mu.byUser, user)
	} else {
		s.mu.byUser[user] = credentials
	}
	return err
}

// Parse reads the credentials among the settings of a user's node, by mechanism.
func Parse(settings map[string]string) (map[string]scram.Credential, error) {
	out := map[string]scram.Credential{}
	var errs []error
	for _, m := range scram.Mechanisms() {
		text, ok := settings[m.Name]
		if !ok {
			continue
		}
		c, err := m.ParseCredential(text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[m.Name] = c
	}
	return out, errors.Join(errs...)
}

// Credential finds a user's credential for a mechanism. Where there is none it gives what another has: by salt
// and iterations a client must not tell that there is no such user.
func (s *Store) Credential(m *scram.Mechanism, user string) (scram.Credential, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	c, ok := s.mu.byUser[user][m.Name]
	if !ok {
		c = s.mu.usual[m.Name]
	}
	return c, ok
}
