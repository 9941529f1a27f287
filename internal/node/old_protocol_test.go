package node

import (
	"testing"

	"klamm/internal/config"
)

// What a broker writes and sends before it knows who reads it goes by the inter-broker protocol alone.
func TestRegistrationAndControlledShutdownFollowTheInterBrokerProtocol(t *testing.T) {
	for _, c := range []struct {
		protocol     config.ProtocolVersion
		registration int32
		shutdown     int16
	}{
		{config.ProtocolVersion{Minor: 9}, 2, 1},
		{config.ProtocolVersion{Minor: 10, Step: 1}, 4, 1},
		{config.ProtocolVersion{Major: 2, Minor: 1}, 4, 1},
		{config.ProtocolVersion{Major: 2, Minor: 2}, 4, 2},
		{config.ProtocolVersion{Major: 2, Minor: 4}, 4, 2},
		{config.ProtocolVersion{Major: 2, Minor: 4, Step: 1}, 4, 3},
		{config.ProtocolVersion{Major: 2, Minor: 7}, 5, 3},
		{config.ProtocolVersion{Major: 3, Minor: 9}, 5, 3},
	} {
		if r, s := registrationVersion(c.protocol), controlledShutdownVersion(c.protocol); r != c.registration || s != c.shutdown {
			t.Errorf("%v: registration %d, controlled shutdown %d; want %d, %d", c.protocol, r, s, c.registration, c.shutdown)
		}
	}
}
