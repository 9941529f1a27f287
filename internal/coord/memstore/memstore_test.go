package memstore

import (
	"testing"

	"klamm/internal/coord"
	"klamm/internal/coord/coordtest"
)

func TestConformance(t *testing.T) {
	coordtest.Run(t, func(t *testing.T) coordtest.Engine {
		e := New()
		return coordtest.Engine{
			Connect: func() coord.Store {
				c := e.Client()
				t.Cleanup(func() { _ = c.Close() })
				return c
			},
			Expire: func(s coord.Session) {
				if !e.ExpireSession(s.ID()) {
					t.Errorf("session %d was not open", s.ID())
				}
			},
		}
	})
}
