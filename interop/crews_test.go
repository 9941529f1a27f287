//go:build interop

package interop

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// watchedGroup is a group whose members tell what they own, read and commit, and a watcher of its committed offsets.
type watchedGroup struct {
	l    *traffic
	name string
	adm  *kadm.Client

	mu        sync.Mutex
	members   []*watchedMember
	owner     [trioPartitions]*watchedMember
	consumed  [trioPartitions][]bool // by offset
	through   [trioPartitions]int64  // all below were consumed
	committed [trioPartitions]int64  // highest that was acknowledged
	again     int                    // records that were read more than once
}

// watchedMember is a member in this process that can die without a word.
type watchedMember struct {
	g     *watchedGroup
	id    int
	cl    *kgo.Client
	stop  context.CancelFunc // of its work
	kill  context.CancelFunc // of its client, which then sends nothing any more
	ended chan struct{}
	gone  atomic.Bool
}

const groupSession = 4 * time.Second

func (l *traffic) watchGroup(name string) *watchedGroup {
	l.c.t.Helper()
	return &watchedGroup{l: l, name: name, adm: kadm.NewClient(l.c.client())}
}

// join adds a member and returns once it runs.
func (g *watchedGroup) join() {
	t := g.l.c.t
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	g.mu.Lock()
	life, kill := context.WithCancel(context.Background())
	m := &watchedMember{g: g, id: len(g.members) + 1, stop: stop, kill: kill, ended: make(chan struct{})}
	g.members = append(g.members, m)
	g.mu.Unlock()
	m.cl = g.l.c.client(kgo.ConsumerGroup(g.name), kgo.ConsumeTopics(g.l.topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(groupSession),
		kgo.WithContext(life), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { g.assigned(m, ps[g.l.topic]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { g.released(m, ps[g.l.topic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) { g.released(m, ps[g.l.topic]) }))
	go func() { defer close(m.ended); m.work(ctx) }()
}

// work reads and commits until the context ends.
func (m *watchedMember) work(ctx context.Context) {
	for ctx.Err() == nil {
		fs := m.cl.PollFetches(ctx)
		if m.gone.Load() {
			return
		}
		m.g.read(m, fs)
		commit, done := context.WithTimeout(ctx, 20*time.Second)
		offsets := m.cl.UncommittedOffsets()[m.g.l.topic]
		if err := m.cl.CommitUncommittedOffsets(commit); err == nil {
			m.g.acknowledgedCommit(offsets)
		}
		done()
		m.cl.AllowRebalance()
	}
}

// leave ends a member with a LeaveGroup, die without one.
func (m *watchedMember) leave() {
	m.stop()
	<-m.ended
	m.cl.CloseAllowingRebalance()
	m.gone.Store(true)
}

func (m *watchedMember) die() {
	m.g.mu.Lock()
	m.gone.Store(true)
	for p, owner := range m.g.owner {
		if owner == m {
			m.g.owner[p] = nil
		}
	}
	m.g.mu.Unlock()
	m.kill()
	m.stop()
	<-m.ended
	m.cl.CloseAllowingRebalance()
}

func (g *watchedGroup) assigned(m *watchedMember, ps []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range ps {
		if o := g.owner[p]; o != nil && o != m {
			g.l.c.t.Errorf("partition %d was assigned to member %d while member %d owns it", p, m.id, o.id)
		}
		g.owner[p] = m
	}
}

func (g *watchedGroup) released(m *watchedMember, ps []int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range ps {
		if g.owner[p] == m {
			g.owner[p] = nil
		}
	}
}

func (g *watchedGroup) read(m *watchedMember, fs kgo.Fetches) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fs.EachRecord(func(r *kgo.Record) {
		p := r.Partition
		if g.owner[p] != m {
			g.l.c.t.Errorf("member %d read offset %d of partition %d, which it does not own", m.id, r.Offset, p)
		}
		for int64(len(g.consumed[p])) <= r.Offset {
			g.consumed[p] = append(g.consumed[p], false)
		}
		if g.consumed[p][r.Offset] {
			g.again++
		}
		g.consumed[p][r.Offset] = true
		for g.through[p] < int64(len(g.consumed[p])) && g.consumed[p][g.through[p]] {
			g.through[p]++
		}
	})
}

func (g *watchedGroup) acknowledgedCommit(offsets map[int32]kgo.EpochOffset) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, o := range offsets {
		g.committed[p] = max(g.committed[p], o.Offset)
	}
}

// watch compares the committed offsets with what was acknowledged before it asked, until ctx ends.
func (g *watchedGroup) watch(ctx context.Context) {
	var seen [trioPartitions]int64
	for ctx.Err() == nil {
		g.mu.Lock()
		least := g.committed
		g.mu.Unlock()
		try, done := context.WithTimeout(ctx, 5*time.Second)
		got, err := g.adm.FetchOffsets(try, g.name)
		done()
		if err != nil || got.Error() != nil {
			continue // the coordinator is moving; what an answer says is of interest
		}
		for p := range int32(trioPartitions) {
			at := int64(0)
			if o, ok := got.Lookup(g.l.topic, p); ok {
				at = max(0, o.At)
			}
			if at < least[p] || at < seen[p] {
				g.l.c.t.Errorf("partition %d is committed at %d after %d was acknowledged and %d was seen", p, at, least[p], seen[p])
			}
			seen[p] = max(seen[p], at)
		}
		tick := time.NewTimer(20 * time.Millisecond)
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		tick.Stop()
	}
}

// awaitProgress waits until every partition has an owner and all that was written until now was consumed and committed.
func (g *watchedGroup) awaitProgress(what string) {
	t := g.l.c.t
	t.Helper()
	var ends kadm.ListedOffsets
	eventually(t, 20*time.Second, "all partitions tell their ends after "+what, func() (bool, string) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var err error
		ends, err = g.adm.ListCommittedOffsets(ctx, g.l.topic)
		return err == nil && ends.Error() == nil && len(ends[g.l.topic]) == trioPartitions, fmt.Sprint(err, ends.Error())
	})
	eventually(t, 40*time.Second, "the group goes on after "+what, func() (bool, string) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for p := range int32(trioPartitions) {
			end, _ := ends.Lookup(g.l.topic, p)
			if g.owner[p] == nil || g.through[p] < end.Offset || g.committed[p] < end.Offset {
				return false, fmt.Sprintf("partition %d: owned %v, consumed to %d and committed to %d of %d", p, g.owner[p] != nil, g.through[p], g.committed[p], end.Offset)
			}
		}
		return true, ""
	})
}

// some picks a member that lives.
func (g *watchedGroup) some(r *rand.Rand) *watchedMember {
	g.mu.Lock()
	defer g.mu.Unlock()
	alive := slices.DeleteFunc(slices.Clone(g.members), func(m *watchedMember) bool { return m.gone.Load() })
	return alive[r.IntN(len(alive))]
}

func (g *watchedGroup) coordinator() int {
	g.l.c.t.Helper()
	id := -1
	eventually(g.l.c.t, 20*time.Second, "the group has a coordinator", func() (bool, string) {
		got := g.adm.FindGroupCoordinators(g.l.c.t.Context(), g.name)[g.name]
		id = int(got.NodeID) - 1
		return got.Err == nil && id >= 0, fmt.Sprint(got.Err)
	})
	return id
}

// Members come, leave and die, and so do brokers, the group's coordinator above all: every record is read, by the member that
// owns its partition and no other, and committed offsets never go back. KLAMM_INTEROP_SEED repeats a run.
func TestAGroupBearsTheDeathsOfMembersAndBrokers(t *testing.T) {
	seed := setting("KLAMM_INTEROP_SEED", rand.Uint64())
	t.Logf("KLAMM_INTEROP_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	c := startTrio(t, "group.min.session.timeout.ms=1000", "offsets.topic.num.partitions=5")
	c.createTopic("jobs")
	l := c.startLoad("jobs")
	g := l.watchGroup("workers")
	for range 3 {
		g.join()
	}
	g.awaitProgress("its start")
	ctx, cancel := context.WithCancel(t.Context())
	var watcher sync.WaitGroup
	watcher.Go(func() { g.watch(ctx) })

	restart := func(i int, what string, end func()) {
		end()
		g.awaitProgress(what)
		c.start(i)
		c.awaitInSync("jobs")
	}
	killCoordinator := func() {
		i := g.coordinator()
		restart(i, "kill -9 of its coordinator", c.brokers[i].kill)
	}
	events := map[string]func(){
		"1 kill coordinator":  killCoordinator,
		"2 kill coordinator":  killCoordinator,
		"kill another broker": func() { i := (g.coordinator() + 1) % 3; restart(i, "kill -9 of another broker", c.brokers[i].kill) },
		"stop coordinator": func() {
			i := g.coordinator()
			restart(i, "SIGTERM of its coordinator", func() { c.brokers[i].signal(syscall.SIGTERM); <-c.brokers[i].exited })
		},
		"1 join": g.join,
		"2 join": g.join,
		"die":    func() { g.some(r).die() },
		"leave":  func() { g.some(r).leave() },
	}
	names := slices.Sorted(maps.Keys(events))
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		began := time.Now()
		events[name]()
		g.awaitProgress(name)
		t.Logf("%-20s all records consumed and committed after %v", name, time.Since(began).Round(time.Millisecond))
	}
	l.finish()
	g.awaitProgress("the end of the load")
	cancel()
	watcher.Wait()
	for _, m := range g.members {
		if !m.gone.Load() {
			m.leave()
		}
	}
	t.Logf("%d records were read again after a death", g.again)
}
