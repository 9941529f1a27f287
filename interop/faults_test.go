//go:build interop

package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fault is something that happens to one broker.
type fault struct {
	name string
	// do lets it happen, undo ends it and waits until the broker takes part again. Between both the producers must go on.
	do, undo func(l *traffic, victim int)
	// sudden says that the broker cannot say good-bye: the others wait for its session to end.
	sudden bool
	// silent says that its connections stay open besides, which clients take time to give up.
	silent bool
}

var faults = []fault{
	{"kill -9", func(l *traffic, v int) { l.c.brokers[v].kill() }, func(l *traffic, v int) { l.c.start(v) }, true, false},
	{"kill -9 and start at once", func(l *traffic, v int) { l.c.brokers[v].kill(); l.c.start(v) }, func(*traffic, int) {}, true, false},
	{"SIGSTOP past the session", func(l *traffic, v int) {
		l.c.brokers[v].signal(syscall.SIGSTOP)
		l.awaitNoticed(v, time.Now())
	}, func(l *traffic, v int) { l.c.thaw(v) }, true, true},
	{"SIGTERM", func(l *traffic, v int) {
		if code := l.c.brokers[v].stop(); code != 0 {
			l.c.t.Errorf("exit code %d after SIGTERM", code)
		}
	}, func(l *traffic, v int) { l.c.start(v) }, false, false},
}

// awaitNoticed waits until the others know that a broker is gone.
func (l *traffic) awaitNoticed(victim int, since time.Time) {
	l.c.t.Helper()
	eventually(l.c.t, l.c.session+10*time.Second, "the others notice", func() (bool, string) {
		return !l.c.noticed(victim, since).IsZero(), fmt.Sprint("broker ", victim+1, " is still taken for alive")
	})
}

// thaw lets a frozen broker go on and waits until it has found out what it missed. The others are not to suffer from what it
// believes meanwhile.
func (c *trio) thaw(i int) {
	c.t.Helper()
	began := time.Now()
	c.brokers[i].signal(syscall.SIGCONT)
	c.awaitReturn(i, began)
	for j, b := range c.brokers {
		if j != i && !b.stderr.said(began, `msg="session expired"`).IsZero() {
			c.t.Errorf("broker %d lost its session when broker %d woke up", j+1, i+1)
		}
	}
}

// awaitReturn waits until a broker whose session had ended has another.
func (c *trio) awaitReturn(i int, since time.Time) {
	c.t.Helper()
	eventually(c.t, 30*time.Second, "the broker registers again", func() (bool, string) {
		return !c.brokers[i].stderr.said(since, `msg="broker registered again under a new session"`).IsZero(), c.brokers[i].stderr.tail(3)
	})
}

// Bounds on how long a producer may get no acknowledgement.
const (
	// goOnAfter is what the promise allows after the session timeout: for an election of etcd members, for those of
	// partitions, and for the clients to find the new leaders.
	goOnAfter = time.Second
	// goodByePause is for a broker that hands its leaderships over, and for one that comes back.
	goodByePause = time.Second
	// clientStuck is what a client adds that has requests under way to a broker which keeps its connections but does not
	// answer: the requests run out of time, and then each of the five opens two connections to the same broker, one after the
	// other, before the client looks where the leader is. What the cluster itself takes is measured by a new client.
	clientStuck = clientProduce + clientOverhead + 5*2*clientOverhead + time.Second
)

// probeTopic is written to by new clients only.
const probeTopic = "probe"

// probe waits until clients that come anew get a record acknowledged in every partition. Each has half a second: one whose request
// lies with a broker that keeps connections and does not answer would tell its own time-outs, not what the cluster takes.
func (l *traffic) probe(victim int) {
	l.c.t.Helper()
	var others []string
	for i, b := range l.c.brokers {
		if i != victim {
			others = append(others, b.addr)
		}
	}
	attempt := func(p int32, patience time.Duration) error {
		cl := l.c.client(kgo.SeedBrokers(others...), kgo.DisableIdempotentWrite()) // no producer id, which any broker may be asked for
		defer cl.Close()
		ctx, cancel := context.WithTimeout(l.c.t.Context(), patience)
		defer cancel()
		return cl.ProduceSync(ctx, &kgo.Record{Topic: probeTopic, Partition: p, Value: []byte("probe")}).FirstErr()
	}
	began := time.Now()
	for p := range int32(trioPartitions) {
		patience := 500 * time.Millisecond
		for err := attempt(p, patience); err != nil; err = attempt(p, patience) {
			if time.Since(began) > 20*time.Second {
				l.c.t.Errorf("partition %d takes no record: %v", p, err)
				return
			}
			patience += patience / 10 // on a busy machine that may be too little
		}
	}
}

// strike lets a fault happen under load, waits until the producers go on, undoes it, and waits until all is well.
func (l *traffic) strike(f fault, victim int) {
	l.c.t.Helper()
	what := fmt.Sprintf("%s of broker %d", f.name, victim+1)
	l.resetPauses()
	began, starved := time.Now(), l.starved.Load()
	f.do(l, victim)
	served := time.Duration(0)
	if f.silent {
		l.probe(victim)
		served = time.Since(began)
	}
	l.awaitProgress(l.c.session + 20*time.Second)
	held, which := l.paused()
	limit := goodByePause
	noticed := time.Duration(0)
	if f.sudden {
		if at := l.c.noticed(victim, began); !at.IsZero() {
			noticed = at.Sub(began)
		}
		limit = max(l.c.session, noticed) + goOnAfter
	}
	waited := time.Duration(l.starved.Load() - starved)
	limit += waited
	if served > limit {
		l.c.t.Errorf("%s at %s: a new client was served after %v, the limit is %v", what, began.UTC().Format("15:04:05.000"), served, limit)
	}
	if f.silent {
		limit += clientStuck
	}
	if held > limit {
		l.c.t.Errorf("%s at %s: %s was held up for %v, the limit is %v", what, began.UTC().Format("15:04:05.000"), which, held, limit)
	}
	l.resetPauses()
	starved = l.starved.Load()
	f.undo(l, victim)
	l.c.awaitInSync(l.topic)
	l.awaitProgress(20 * time.Second)
	back, late := l.paused()
	if back > goodByePause+time.Duration(l.starved.Load()-starved) {
		l.c.t.Errorf("return of broker %d after %s: %s was held up for %v", victim+1, what, late, back)
	}
	l.c.t.Logf("%s %-40s noticed after %5dms, new clients served after %5dms, held up %5dms (%s), by its return %4dms; %6dms in all, %dms without a processor", began.UTC().Format("15:04:05.000"),
		what, noticed.Milliseconds(), served.Milliseconds(), held.Milliseconds(), which, back.Milliseconds(), time.Since(began).Milliseconds(), waited.Milliseconds())
}

// setting is a number given to the tests from outside.
func setting(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

// Twenty faults and more by a seed, under load: nothing acknowledged is lost, doubled or out of order, and producers go on
// within the session timeout and a second. KLAMM_INTEROP_SEED repeats a run, KLAMM_INTEROP_ROUNDS makes it longer.
func TestThreeBrokersBearRandomFaults(t *testing.T) {
	seed := setting("KLAMM_INTEROP_SEED", rand.Uint64())
	t.Logf("KLAMM_INTEROP_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	c := startTrio(t)
	c.createTopic("n")
	c.createTopic(probeTopic)
	l := c.startLoad("n")
	for range setting("KLAMM_INTEROP_ROUNDS", 24) {
		f := faults[r.IntN(len(faults))]
		var victim int
		switch r.IntN(3) {
		case 0:
			victim = c.controller()
		case 1:
			victim = c.leader("n", int32(r.IntN(trioPartitions)))
		default:
			victim = r.IntN(3)
		}
		l.strike(f, victim)
	}
	l.finish()
}
