package quota

import (
	"math"
	"slices"
	"strconv"
	"testing"
	"time"
)

var epoch = time.Unix(1_000_000, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func newClients() *Clients { return NewClients(DefaultWindows, DefaultWindows, epoch) }

const ms = time.Millisecond

// Kafka: ClientQuotaManagerTest.testClientQuotaParsing and its siblings, as one table.
func TestTheMostSpecificLimitHoldsAndUsersGoBeforeClientIDs(t *testing.T) {
	u, c, d := NamedPart("u"), NamedPart("c"), DefaultPart()
	byPrecedence := []struct {
		entity Entity
		key    bucketKey
	}{
		{Entity{u, c}, bucketKey{"u", "c"}},
		{Entity{u, d}, bucketKey{"u", "c"}},
		{Entity{u, Part{}}, bucketKey{"u", ""}},
		{Entity{d, c}, bucketKey{"u", "c"}},
		{Entity{d, d}, bucketKey{"u", "c"}},
		{Entity{d, Part{}}, bucketKey{"u", ""}},
		{Entity{Part{}, c}, bucketKey{"", "c"}},
		{Entity{Part{}, d}, bucketKey{"", "c"}},
	}
	q := newClients()
	for i, e := range slices.Backward(byPrecedence) {
		limit := float64(1000 + i)
		q.SetEntity(e.entity, map[Kind]float64{Fetch: limit})
		got, key, ok := q.limits[Fetch].of(Client{"u", "c"})
		if !ok || got != limit || key != e.key {
			t.Errorf("with %v: limit %v of %v (%v), want %v of %v", e.entity, got, key, ok, limit, e.key)
		}
	}
	for i, e := range byPrecedence[:len(byPrecedence)-1] {
		q.SetEntity(e.entity, nil)
		if got, _, _ := q.limits[Fetch].of(Client{"u", "c"}); got != float64(1000+i+1) {
			t.Errorf("without %v: limit %v", e.entity, got)
		}
	}
	if q.Active(Produce) || !q.Active(Fetch) {
		t.Error("a limit of one kind switched another on, or itself off")
	}
	q.SetEntity(byPrecedence[7].entity, nil)
	if _, ok := q.Limit(Fetch, Client{"u", "c"}); ok || q.Active(Fetch) {
		t.Error("a limit is left when all are removed")
	}
}

// Kafka: ClientQuotaManagerTest.testQuotaViolation. 10 seconds of 400 bytes under a limit of 500, then a spike of 2300:
// over 10.5 s, 6300 bytes are 600 a second, which 2.1 s more bring down to 500.
func TestAThrottleBringsTheRateDownToTheLimit(t *testing.T) {
	q := newClients()
	who := Client{"ANONYMOUS", "unknown"}
	q.SetEntity(Entity{Client: DefaultPart()}, map[Kind]float64{Produce: 500})
	for i := range 10 {
		if d := q.Charge(Produce, who, 400, at(time.Duration(i)*time.Second)); d != 0 {
			t.Fatalf("second %d: throttled %v", i, d)
		}
	}
	if d := q.Charge(Produce, who, 2300, at(10500*ms)); d != 2100*ms {
		t.Errorf("throttle of the spike is %v, want 2.1s", d)
	}
	for i := range 10 {
		q.Charge(Produce, who, 400, at(time.Duration(13+i)*time.Second))
	}
	if d := q.Charge(Produce, who, 400, at(23*time.Second)); d != 0 {
		t.Errorf("throttled %v after ten calm seconds", d)
	}
	if d := q.Charge(Produce, Client{"ANONYMOUS", "other"}, 400, at(10500*ms)); d != 0 {
		t.Errorf("another client id is throttled %v", d)
	}
}

func TestOneLimitOfAUserIsSharedByItsClientIDs(t *testing.T) {
	q := newClients()
	q.SetEntity(Entity{User: NamedPart("u")}, map[Kind]float64{Produce: 100})
	q.Charge(Produce, Client{"u", "a"}, 900, at(0))
	if d := q.Charge(Produce, Client{"u", "b"}, 200, at(0)); d == 0 {
		t.Error("the second client id is not throttled")
	}
	if d := q.Charge(Produce, Client{"v", "a"}, 200, at(0)); d != 0 {
		t.Errorf("another user is throttled %v", d)
	}
}

// Kafka: ClientQuotaManagerTest.testRequestPercentageQuotaViolation: a request quota throttles for one window at most.
func TestAThrottleOfRequestTimeIsOneWindowAtMost(t *testing.T) {
	q := newClients()
	who := Client{"u", "c"}
	q.SetEntity(Entity{Client: NamedPart("c")}, map[Kind]float64{Request: 1})
	if d := q.Charge(Request, who, 10.1, at(0)); d != 100*ms {
		t.Errorf("throttle %v, want 100ms", d)
	}
	if d := q.Charge(Request, who, 500, at(100*ms)); d != time.Second {
		t.Errorf("throttle %v, want one window", d)
	}
}

func TestWhatIsTakenBackIsNotCharged(t *testing.T) {
	q := newClients()
	who := Client{"u", "c"}
	q.SetEntity(Entity{User: NamedPart("u")}, map[Kind]float64{Fetch: 100})
	if d := q.Charge(Fetch, who, 5000, at(0)); d == 0 {
		t.Fatal("not throttled")
	}
	q.TakeBack(Fetch, who, 5000, at(0))
	if d := q.Charge(Fetch, who, 1000, at(0)); d != 0 {
		t.Errorf("throttled %v", d)
	}
	if most, ok := q.WindowMax(Fetch, who); !ok || most != 1000 {
		t.Errorf("window takes %v, %v, want ten seconds' worth", most, ok)
	}
}

func TestALimitThatIsNotPositiveIsNone(t *testing.T) {
	for _, limit := range []float64{0, -1, math.NaN()} {
		q := newClients()
		q.SetEntity(Entity{Client: DefaultPart()}, map[Kind]float64{Produce: limit})
		if q.Active(Produce) {
			t.Errorf("limit %v is active", limit)
		}
	}
}

func TestAnOldSampleDoesNotCount(t *testing.T) {
	q := newClients()
	who := Client{"u", "c"}
	q.SetEntity(Entity{Client: DefaultPart()}, map[Kind]float64{Produce: 100})
	if d := q.Charge(Produce, who, 100_000, at(0)); d != 990*time.Second {
		t.Errorf("throttle %v", d)
	}
	if d := q.Charge(Produce, who, 100, at(11*time.Second)); d != 0 {
		t.Errorf("throttled %v eleven seconds later", d)
	}
}

func TestMeasurementsOfInventedClientIDsAreDropped(t *testing.T) {
	q := newClients()
	q.SetEntity(Entity{Client: DefaultPart()}, map[Kind]float64{Produce: 100})
	for i := range 3 * manyBuckets {
		q.Charge(Produce, Client{"u", strconv.Itoa(i)}, 1, at(time.Duration(i)*10*ms))
	}
	if n := len(q.used[Produce].all()); n > manyBuckets+int(2*sweepPause/(10*ms)) {
		t.Errorf("%d measurements are kept", n)
	}
}

func TestUsageTellsRateAndMeanThrottle(t *testing.T) {
	q := newClients()
	who := Client{"u", "c"}
	q.SetEntity(Entity{User: DefaultPart()}, map[Kind]float64{Produce: 100, Mutations: 2})
	q.Charge(Produce, who, 500, at(0))
	q.NoteThrottle(Produce, who, 100*ms, at(0))
	q.NoteThrottle(Produce, who, 300*ms, at(0))
	q.MutationQuota(who, true).Charge(5, at(0))
	got := q.Usage(at(0))
	want := []Usage{
		{Kind: Produce, Who: Client{User: "u"}, Rate: 50, Throttle: 200 * ms},
		{Kind: Mutations, Who: Client{User: "u"}, Rate: 0.5, Tokens: 17},
	}
	if !slices.Equal(got, want) {
		t.Errorf("usage %+v, want %+v", got, want)
	}
}

func TestAnUnlimitedClientCostsNoMemory(t *testing.T) {
	q := newClients()
	q.SetEntity(Entity{User: NamedPart("other")}, map[Kind]float64{Produce: 100})
	who := Client{"u", "c"}
	if n := testing.AllocsPerRun(100, func() { q.Charge(Produce, who, 1, epoch) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	q.SetEntity(Entity{User: NamedPart("u")}, map[Kind]float64{Produce: 1e9})
	q.Charge(Produce, who, 1, epoch)
	if n := testing.AllocsPerRun(100, func() { q.Charge(Produce, who, 1, epoch) }); n != 0 {
		t.Errorf("%v allocations of a limited client", n)
	}
}
