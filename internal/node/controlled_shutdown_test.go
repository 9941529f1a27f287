package node

import (
	"math"
	"testing"
	"time"

	"klamm/internal/config"
)

// However long an operator lets a broker wait for its leaderships to be taken, time is left to stop cleanly.
func TestMovingLeadershipsLeavesTimeToStop(t *testing.T) {
	for name, tc := range map[string]struct {
		retries     int
		pause       time.Duration
		tries, last time.Duration
	}{
		"as Kafka does":            {3, 5 * time.Second, 15 * time.Second, 15 * time.Second},
		"none":                     {0, 5 * time.Second, 0, 5 * time.Second},
		"without a pause":          {3, 0, 0, 0},
		"up to the end":            {6, 5 * time.Second, 30 * time.Second, 30 * time.Second},
		"for longer":               {20, 5 * time.Second, 30 * time.Second, 30 * time.Second},
		"one pause is longer":      {1, time.Hour, 30 * time.Second, 30 * time.Second},
		"more than can be counted": {math.MaxInt32, 24 * time.Hour, 30 * time.Second, 30 * time.Second},
	} {
		c := &config.Broker{ControlledShutdownMaxRetries: tc.retries, ControlledShutdownRetryBackoff: tc.pause}
		if tries, last := movingTime(c); tries != tc.tries || last != tc.last {
			t.Errorf("%s: %v and %v, want %v and %v", name, tries, last, tc.tries, tc.last)
		}
	}
}
