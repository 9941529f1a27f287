package driver

import "testing"

func TestRequestVersionsFollowTheInterBrokerProtocolVersion(t *testing.T) {
	for _, c := range []struct {
		ibp                                string
		leaderAndISR, updateMetadata, stop int16
		features                           int32
		topicIDs, recovery, leadersWrite   bool
	}{
		{"0.8.2", 0, 0, 0, 0, false, false, true},
		{"0.9.0", 0, 1, 0, 0, false, false, true},
		{"0.10.0-IV0", 0, 1, 0, 0, false, false, true},
		{"0.10.0-IV1", 0, 2, 0, 0, false, false, true},
		{"0.10.1", 0, 2, 0, 0, false, false, true},
		{"0.10.2-IV0", 0, 3, 0, 0, false, false, true},
		{"0.11.0", 0, 3, 0, 0, false, false, true},
		{"1.0-IV0", 1, 4, 0, 0, false, false, true},
		{"2.1", 1, 4, 0, 0, false, false, true},
		{"2.2-IV0", 2, 5, 1, 0, false, false, true},
		{"2.4-IV0", 3, 5, 1, 0, false, false, true},
		{"2.4-IV1", 4, 6, 2, 0, false, false, true},
		{"2.5.1", 4, 6, 2, 0, false, false, true},
		{"2.6-IV0", 4, 6, 3, 0, false, false, true},
		{"2.7-IV1", 4, 6, 3, 1, false, false, true},
		{"2.7", 4, 6, 3, 1, false, false, false},
		{"2.8-IV0", 4, 6, 3, 1, true, false, false},
		{"2.8-IV1", 5, 7, 3, 1, true, false, false},
		{"3.1", 5, 7, 3, 1, true, false, false},
		{"3.2-IV0", 6, 7, 3, 1, true, true, false},
		{"3.3", 6, 7, 3, 2, true, true, false},
		{"3.4-IV0", 7, 8, 4, 2, true, true, false},
		{"3.9", 7, 8, 4, 2, true, true, false},
		{"3.9-IV0", 7, 8, 4, 2, true, true, false},
		{"3.9.1", 7, 8, 4, 2, true, true, false},
	} {
		want := Versions{c.leaderAndISR, c.updateMetadata, c.stop, c.features, c.topicIDs, c.recovery, c.leadersWrite}
		if got, err := VersionsFor(c.ibp); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", c.ibp, got, err, want)
		}
	}
	for _, bad := range []string{"", "3", "latest", "3.x", "3.9-IV", "3.9-IVx", "4.0", "1.2.3.4.5", "-1.0"} {
		if got, err := VersionsFor(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}
