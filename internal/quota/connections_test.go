package quota

import (
	"testing"
	"time"
)

// Kafka: ConnectionQuotasTest.testIpConnectionRateMetricUpdate and its siblings.
func TestConnectionsOfOneAddressAreBoundedByItsOwnRateOrTheDefault(t *testing.T) {
	c := NewConnections(DefaultWindows, epoch)
	if d := c.Admit("10.0.0.1", at(0)); d != 0 {
		t.Errorf("held %v without a limit", d)
	}
	c.SetIP(DefaultPart(), 2, true)
	c.SetIP(NamedPart("10.0.0.2"), 0, true)
	admitted := 0
	for range 50 {
		if c.Admit("10.0.0.1", at(0)) == 0 {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("%d admitted at once, want what ten windows take at two per second", admitted)
	}
	if d := c.Admit("10.0.0.1", at(0)); d != 500*ms {
		t.Errorf("held %v, want half a second", d)
	}
	if d := c.Admit("10.0.0.2", at(0)); d != time.Second {
		t.Errorf("an address with rate 0 is held %v, want one window", d)
	}
	if d := c.Admit("10.0.0.3", at(0)); d != 0 {
		t.Errorf("another address is held %v", d)
	}
	c.SetIP(NamedPart("10.0.0.1"), 1000, true)
	if d := c.Admit("10.0.0.1", at(0)); d != 0 {
		t.Errorf("held %v with a larger limit of its own", d)
	}
	c.SetIP(NamedPart("10.0.0.2"), 0, false)
	if d := c.Admit("10.0.0.2", at(0)); d != 0 {
		t.Errorf("held %v under the default", d)
	}
}
