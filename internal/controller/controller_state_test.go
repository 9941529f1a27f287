package controller

import "testing"

func TestEveryControllerStateHasItsNameAndItsTimer(t *testing.T) {
	seen := map[string]bool{}
	for s := range ControllerState(ControllerStates) {
		if s.String() == "" || seen[s.String()] {
			t.Errorf("state %d is called %q", s, s)
		}
		seen[s.String()] = true
		hasTimer := s != StateIdle && s != StateUpdateMetadataResponseReceived // as in Kafka
		if (s.RateAndTimeMetric() != "") != hasTimer {
			t.Errorf("state %s has the timer %q", s, s.RateAndTimeMetric())
		}
	}
}
