//go:build interop

package interop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
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
	// answers says that it answers clients all the same: they need not run into their own time-outs.
	answers bool
	// frozen is for how long it does nothing, once do has returned; 0 when that is not what this fault is about.
	frozen *time.Duration
}

// kinds are the faults to choose from. What a fault leaves to chance comes from r.
var kinds = []func(r *rand.Rand) fault{
	func(*rand.Rand) fault {
		return fault{name: "kill -9", do: func(l *traffic, v int) { l.c.brokers[v].kill() }, undo: startAgain, sudden: true}
	},
	func(*rand.Rand) fault {
		return fault{name: "kill -9 and start at once", do: func(l *traffic, v int) { l.c.brokers[v].kill(); l.c.start(v) }, undo: nothing, sudden: true}
	},
	func(*rand.Rand) fault {
		return fault{name: "SIGSTOP past the session", do: func(l *traffic, v int) {
			l.c.brokers[v].signal(syscall.SIGSTOP)
			l.awaitNoticed(v, time.Now())
		}, undo: func(l *traffic, v int) { l.c.thaw(v) }, sudden: true, silent: true}
	},
	func(*rand.Rand) fault {
		return fault{name: "SIGTERM", do: func(l *traffic, v int) {
			if code := l.c.brokers[v].stop(); code != 0 {
				l.c.t.Errorf("exit code %d after SIGTERM", code)
			}
		}, undo: startAgain}
	},
	func(r *rand.Rand) fault {
		return freeze("SIGSTOP for a moment", between(r, 20*time.Millisecond, momentMax))
	},
	func(r *rand.Rand) fault {
		return freeze("SIGSTOP up to the session", between(r, trioLease/2, trioSession))
	},
}

func startAgain(l *traffic, v int) { l.c.start(v) }

func nothing(*traffic, int) {}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// momentMax is a time that a broker can stand still with nobody else concerned: it leaves half of its session with etcd for the last
// renewal before and for the election of another etcd leader, should its member have been that. And it is less than the clients
// of these tests wait for an answer.
const momentMax = trioLease * 9 / 20

// freeze stops a process and lets it go on again, and waits until it is clear whether it has kept its session.
func freeze(name string, length time.Duration) fault {
	f := fault{name: fmt.Sprint(name, ", ", length.Milliseconds(), " ms"), undo: nothing, silent: true, frozen: new(time.Duration)}
	f.do = func(l *traffic, v int) {
		began, b := time.Now(), l.c.brokers[v]
		b.signal(syscall.SIGSTOP)
		<-time.After(length)
		woke := time.Now()
		b.signal(syscall.SIGCONT)
		*f.frozen = time.Since(began)
		if *f.frozen <= trioLease/2 {
			return
		}
		eventually(l.c.t, 30*time.Second, "the broker has kept its session or has another", func() (bool, string) {
			kept := b.stderr.said(woke, `msg="session renewed late: this process or the coordination store stood still"`)
			another := b.stderr.said(woke, `msg="broker registered again under a new session"`)
			return !kept.IsZero() || !another.IsZero(), b.stderr.tail(3)
		})
	}
	return f
}

// awaitNoticed waits until the others know that a broker is gone.
func (l *traffic) awaitNoticed(victim int, since time.Time) {
	l.c.t.Helper()
	eventually(l.c.t, l.c.session+10*time.Second, "the others notice", func() (bool, string) {
		return !l.c.noticed(victim, since).IsZero(), fmt.Sprint("broker ", victim+1, " is still taken for alive")
	})
}

// thaw lets a frozen broker go on and waits until it has found out what it missed.
func (c *trio) thaw(i int) {
	c.t.Helper()
	began := time.Now()
	c.brokers[i].signal(syscall.SIGCONT)
	c.awaitReturn(i, began)
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

// probe waits until clients that come anew get a record acknowledged in every partition. They come to all partitions at once: a follower
// that is away hinders a partition from the first record on that it has not fetched.
func (l *traffic) probe(victim int) {
	l.c.t.Helper()
	var others []string
	for i, b := range l.c.brokers {
		if i != victim {
			others = append(others, b.addr)
		}
	}
	var all sync.WaitGroup
	for p := range int32(trioPartitions) {
		all.Go(func() { l.probePartition(p, others) })
	}
	all.Wait()
}

// probePartition tries with one client after the other. Each has half a second: one whose request lies with a broker that keeps connections
// and does not answer would tell its own time-outs, not what the cluster takes.
func (l *traffic) probePartition(p int32, seeds []string) {
	began := time.Now()
	for patience := 500 * time.Millisecond; ; patience += patience / 10 { // on a busy machine that may be too little
		err := l.produceOnce(p, seeds, patience)
		switch {
		case err == nil:
			return
		case time.Since(began) > 20*time.Second:
			l.c.t.Errorf("partition %d takes no record: %v", p, err)
			return
		}
	}
}

// produceOnce writes a record as a client that has just come.
func (l *traffic) produceOnce(p int32, seeds []string, patience time.Duration) error {
	cl, err := kgo.NewClient(l.c.options(kgo.SeedBrokers(seeds...), kgo.DisableIdempotentWrite())...) // no producer id, which any broker may be asked for
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(l.c.t.Context(), patience)
	defer cancel()
	return cl.ProduceSync(ctx, &kgo.Record{Topic: probeTopic, Partition: p, Value: []byte("probe")}).FirstErr()
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
	waited := time.Duration(l.starved.Load() - starved)
	limit, noticed := l.allowed(f, victim, began)
	limit += waited
	if served > limit {
		l.c.t.Errorf("%s at %s: a new client was served after %v, the limit is %v", what, began.UTC().Format("15:04:05.000"), served, limit)
	}
	if f.silent && !f.answers && (f.frozen == nil || *f.frozen+waited > clientProduce+clientOverhead) {
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
	l.c.wantSessions(l.c.others(victim), began, what)
	if f.frozen != nil && *f.frozen+waited <= trioLease/2 {
		l.c.wantNoFailover(began, what)
	}
	l.c.t.Logf("%s %-40s noticed after %5dms, new clients served after %5dms, held up %5dms (%s), by its return %4dms; %6dms in all, %dms without a processor", began.UTC().Format("15:04:05.000"),
		what, noticed.Milliseconds(), served.Milliseconds(), held.Milliseconds(), which, back.Milliseconds(), time.Since(began).Milliseconds(), waited.Milliseconds())
}

// allowed is for how long new clients may not be served because of a fault, and producers not go on, and after which time the
// others have noticed that the broker was gone; 0 if that was not to be noticed, or has not been.
func (l *traffic) allowed(f fault, victim int, began time.Time) (limit, noticed time.Duration) {
	if !f.sudden && f.frozen == nil {
		return goodByePause, 0
	}
	if at := l.c.noticed(victim, began); !at.IsZero() {
		noticed = at.Sub(began)
	}
	if f.frozen != nil && noticed == 0 { // it still leads what it led
		return *f.frozen + goOnAfter, 0
	}
	return max(l.c.session, noticed) + goOnAfter, noticed
}

// wantSessions says which brokers were to keep their sessions: a fault is no other broker's concern.
func (c *trio) wantSessions(brokers []int, since time.Time, what string) {
	c.t.Helper()
	for _, i := range brokers {
		if !c.brokers[i].stderr.said(since, `msg="session expired, the controller gives up office if it holds it"`).IsZero() {
			c.t.Errorf("%s: broker %d lost its session", what, i+1)
		}
	}
}

// wantNoFailover says that nobody was to take a broker for gone, nor to become the controller.
func (c *trio) wantNoFailover(since time.Time, what string) {
	c.t.Helper()
	c.wantSessions(c.others(), since, what)
	for i, b := range c.brokers {
		for _, message := range []string{"broker is gone", "broker bounced", "elected as controller"} {
			if !b.stderr.said(since, fmt.Sprintf("msg=%q", message)).IsZero() {
				c.t.Errorf("%s: broker %d said %q", what, i+1, message)
			}
		}
	}
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
		f := kinds[r.IntN(len(kinds))](r)
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
