package replica

import (
	"testing"

	"klamm/internal/config"
)

func TestVersionsFollowTheInterBrokerProtocol(t *testing.T) {
	for _, tc := range []struct {
		protocol config.ProtocolVersion
		want     Versions
	}{
		{protocol(3, 9, 0), DefaultVersions()},
		{protocol(3, 7, 4), Versions{16, 7, 4, 3, true, false}},
		{protocol(3, 3, 0), Versions{13, 7, 4, 2, true, false}},
		{protocol(2, 8, 0), Versions{12, 6, 4, 0, true, false}},
		{protocol(2, 7, 2), Versions{12, 5, 3, 0, true, false}},
		{protocol(2, 7, 1), Versions{12, 5, 3, 0, true, true}},
		{protocol(2, 7, 0), Versions{11, 5, 3, 0, false, true}},
		{protocol(2, 6, 0), Versions{11, 5, 3, 0, false, true}},
		{protocol(0, 10, 0), Versions{4, 1, 0, 0, false, true}},
	} {
		if got := VersionsFor(tc.protocol); got != tc.want {
			t.Errorf("%v: %+v, want %+v", tc.protocol, got, tc.want)
		}
	}
}
