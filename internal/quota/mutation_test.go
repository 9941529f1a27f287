package quota

import (
	"testing"
	"time"
)

var mutator = Client{"u", "c"}

func withMutationRate(rate float64) *Clients {
	q := newClients()
	q.SetEntity(Entity{User: NamedPart("u")}, map[Kind]float64{Mutations: rate})
	return q
}

// Kafka: ControllerMutationQuotaManagerTest.testNewStrictQuotaForReturnsUnboundedQuotaWhenQuotaIsDisabled and its permissive twin.
func TestAMutationQuotaWithoutALimitIsUnbounded(t *testing.T) {
	q := newClients()
	for _, strict := range []bool{true, false} {
		m := q.MutationQuota(mutator, strict)
		if m != nil || !m.Charge(1_000_000, at(0)) || m.Throttle(at(0)) != 0 {
			t.Errorf("strict=%v: %v is not unbounded", strict, m)
		}
	}
	q.SetEntity(Entity{User: NamedPart("other")}, map[Kind]float64{Mutations: 1})
	if m := q.MutationQuota(mutator, true); m != nil {
		t.Errorf("another user's limit gives %v", m)
	}
}

// Kafka: StrictControllerMutationQuotaTest.testControllerMutationQuotaViolation, ControllerMutationQuotaManagerTest.testThrottleTime.
func TestAStrictMutationQuotaRefusesWhileTheBucketIsBelowZero(t *testing.T) {
	q := withMutationRate(10) // 110 in the full bucket
	m := q.MutationQuota(mutator, true)
	if !m.Charge(111, at(0)) || m.Throttle(at(0)) != 0 {
		t.Error("a burst is not taken from the full bucket")
	}
	m = q.MutationQuota(mutator, true)
	if m.Charge(1, at(0)) {
		t.Error("one below zero another charge passes")
	}
	if d := m.Throttle(at(0)); d != 100*ms {
		t.Errorf("throttle %v, want what refills one at ten per second", d)
	}
	if d := m.Throttle(at(60 * ms)); d != 40*ms {
		t.Errorf("throttle %v after 60ms of waiting, want 40ms", d)
	}
	if d := m.Throttle(at(time.Second)); d != 0 {
		t.Errorf("throttle %v after a second of waiting", d)
	}
	if m = q.MutationQuota(mutator, true); !m.Charge(1, at(100*ms)) {
		t.Error("not accepted once the bucket is at zero")
	}
}

func TestARefusedMutationIsNotCharged(t *testing.T) {
	q := withMutationRate(1)
	q.MutationQuota(mutator, true).Charge(12, at(0))
	for range 5 {
		q.MutationQuota(mutator, true).Charge(100, at(0))
	}
	if !q.MutationQuota(mutator, true).Charge(1, at(time.Second)) {
		t.Error("refusals were charged")
	}
}

// Kafka: PermissiveControllerMutationQuotaTest.testControllerMutationQuotaViolation.
func TestAPermissiveMutationQuotaAcceptsEverythingAndThrottles(t *testing.T) {
	q := withMutationRate(10)
	m := q.MutationQuota(mutator, false)
	if !m.Charge(110, at(0)) || m.Throttle(at(0)) != 0 {
		t.Error("throttled within the burst")
	}
	if !m.Charge(20, at(0)) {
		t.Error("refused")
	}
	if d := m.Throttle(at(0)); d != 2*time.Second {
		t.Errorf("throttle %v, want 2s", d)
	}
	if d := m.Throttle(at(500 * ms)); d != 1500*ms {
		t.Errorf("throttle %v half a second later", d)
	}
}

func TestTheMutationBucketHoldsAllWindowsAndNoMore(t *testing.T) {
	q := withMutationRate(2)
	if left := q.MutationQuota(mutator, true); !left.Charge(0, at(time.Hour)) {
		t.Fatal("refused")
	}
	if u := q.Usage(at(2 * time.Hour)); len(u) != 1 || u[0].Tokens != 22 {
		t.Errorf("usage %+v, want 22 tokens", u)
	}
}

// Kafka: ControllerMutationQuotaTest.testSetUnsetQuota: what was used keeps counting under a new limit.
func TestAChangedMutationRateHoldsForTheNextRequest(t *testing.T) {
	q := withMutationRate(1)
	q.MutationQuota(mutator, true).Charge(21, at(0)) // 10 below zero
	q.SetEntity(Entity{User: NamedPart("u")}, map[Kind]float64{Mutations: 100})
	m := q.MutationQuota(mutator, true)
	if m.Charge(1, at(0)) || m.Throttle(at(0)) != 100*ms {
		t.Errorf("throttle %v, want 10 missing tokens at the new rate", m.Throttle(at(0)))
	}
	q.SetEntity(Entity{User: NamedPart("u")}, nil)
	if q.MutationQuota(mutator, true) != nil {
		t.Error("a removed limit still holds")
	}
}
