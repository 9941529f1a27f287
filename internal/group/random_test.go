package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// TestRandomSchedulesKeepThePromises runs clients, a log and a clock against a core in random order and checks: every
// request is answered exactly once; an assignment goes to a member of its generation alone; a fetched offset is never
// below an acknowledged one; and a core that loads the log holds what the one before had acknowledged.
func TestRandomSchedulesKeepThePromises(t *testing.T) {
	for seed := range uint64(250) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			w := newRandomWorld(t, seed)
			for range 400 {
				w.act()
			}
			w.settleAppends()
			w.step(Unload{})
			if len(w.open) > 0 {
				t.Fatalf("seed %d: never answered: %v", seed, w.open)
			}
		})
	}
}

// randomClient is one consumer: what it believes of itself.
type randomClient struct {
	group, instance string
	member          string
	generation      int32
	protocol        string
	busy            bool // a join or sync waits
	members         []JoinMember
}

// name is what the assignment of the client says: static members keep it over a restart.
func (c *randomClient) name() string {
	if c.instance != "" {
		return c.instance
	}
	return c.member
}

type randomWorld struct {
	t       *testing.T
	seed    uint64
	rnd     *rand.Rand
	core    *Core
	now     Time
	tokens  Token
	ids     int
	open    map[Token]func(any)
	timers  map[Timer]Time
	pending []Append
	log     []Event
	clients []*randomClient
	// lossy lets appends fail that are in the log all the same, and any that are not; then what is loaded may differ.
	lossy   bool
	counter int64               // of commits: grows with each
	floor   map[string]int64    // by group and partition: the highest acknowledged offset
	deleted map[string]AppendID // by group and partition: the latest tombstone
}

func newRandomWorld(t *testing.T, seed uint64) *randomWorld {
	w := &randomWorld{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), open: map[Token]func(any){}, timers: map[Timer]Time{},
		floor: map[string]int64{}, deleted: map[string]AppendID{}, lossy: seed%4 == 3}
	for _, g := range []string{"g1", "g2"} {
		for range 4 {
			w.clients = append(w.clients, &randomClient{group: g})
		}
		for i := range 2 {
			w.clients = append(w.clients, &randomClient{group: g, instance: fmt.Sprint("i", i)})
		}
	}
	w.newCore()
	w.step(Loaded{})
	return w
}

func (w *randomWorld) newCore() {
	w.core = New(Config{MinSessionTimeoutMs: 1, MaxSessionTimeoutMs: 1_000_000, MaxSize: 4, InitialRebalanceMs: 500,
		OffsetMetadataMax: 16, OffsetsRetentionMs: 100_000_000})
}

// act does one random thing.
func (w *randomWorld) act() {
	c := w.clients[w.rnd.IntN(len(w.clients))]
	switch w.rnd.IntN(20) {
	case 0, 1, 2, 3:
		w.join(c)
	case 4, 5, 6:
		w.sync(c)
	case 7, 8:
		w.ask(Heartbeat{Group: c.group, MemberID: c.member, InstanceID: c.instance, Generation: c.generation}, func(any) {})
	case 9:
		if w.rnd.IntN(3) == 0 {
			w.ask(Leave{Group: c.group, Members: []MemberIdentity{{MemberID: c.member, InstanceID: c.instance}}}, func(any) {})
			c.member = ""
		}
	case 10, 11, 12:
		w.commit(c)
	case 13, 14:
		w.fetch(c.group)
	case 15:
		w.advance(Time(w.rnd.IntN(3000)))
	case 16, 17, 18:
		w.finishOneAppend()
	case 19:
		w.rarely(c)
	}
	w.check()
}

func (w *randomWorld) rarely(c *randomClient) {
	switch w.rnd.IntN(8) {
	case 0:
		w.reload()
	case 1: // the process of the client is replaced by another
		c.member, c.busy = "", false
	case 2:
		w.ask(DeleteGroup{Group: c.group}, func(any) {})
	case 3:
		w.ask(DeleteOffsets{Group: c.group, Partitions: []cluster.TopicPartition{w.partition()}}, func(any) {})
	case 4:
		w.step(PartitionsDeleted{[]cluster.TopicPartition{w.partition()}})
	case 5:
		w.step(ExpireOffsets{})
	case 6:
		w.ask(Describe{Group: c.group}, func(any) {})
		w.ask(List{}, func(any) {})
		w.ask(CollectStats{}, func(any) {})
	case 7:
		w.advance(20_000)
	}
}

func (w *randomWorld) partition() cluster.TopicPartition {
	return cluster.TopicPartition{Topic: "t", Partition: w.rnd.Int32N(3)}
}

func (w *randomWorld) join(c *randomClient) {
	if c.busy && w.rnd.IntN(8) > 0 {
		return
	}
	w.ids++
	topics := []string{"t", "u", "t,u"}[w.rnd.IntN(3)]
	protocols := []Protocol{{"range", subscription(topics)}, {"sticky", subscription(topics)}}
	if w.rnd.IntN(4) == 0 {
		protocols = protocols[:1]
	}
	c.busy = true
	w.ask(Join{Group: c.group, MemberID: c.member, InstanceID: c.instance, ClientID: "c", ClientHost: "/h", NewMemberID: fmt.Sprint("m", w.ids),
		SessionTimeoutMs: 6000, RebalanceTimeoutMs: int64(2000 + w.rnd.IntN(8000)), ProtocolType: "consumer", Protocols: protocols,
		RequireKnownMember: c.instance == "" && w.rnd.IntN(2) == 0, SupportsSkippingAssignment: w.rnd.IntN(2) == 0,
	}, func(v any) {
		r := v.(JoinResult)
		c.busy = false
		switch r.Err {
		case cluster.None:
			c.member, c.generation, c.protocol, c.members = r.MemberID, r.Generation, r.ProtocolName, nil
			if r.Leader == r.MemberID && !r.SkipAssignment {
				c.members = r.Members
			}
		case cluster.MemberIDRequired:
			c.member = r.MemberID
		case cluster.UnknownMemberID, cluster.FencedInstanceID, cluster.GroupMaxSizeReached:
			c.member = ""
		}
	})
}

// sync brings an assignment that names, for each member, its generation and the member.
func (w *randomWorld) sync(c *randomClient) {
	if c.busy || c.member == "" {
		return
	}
	e := Sync{Group: c.group, MemberID: c.member, InstanceID: c.instance, Generation: c.generation}
	for _, m := range c.members {
		name := m.MemberID
		if m.InstanceID != "" {
			name = m.InstanceID
		}
		e.Assignments = append(e.Assignments, Assignment{m.MemberID, fmt.Appendf(nil, "%d/%s", c.generation, name)})
	}
	c.busy = true
	want := fmt.Sprintf("%d/%s", c.generation, c.name())
	w.ask(e, func(v any) {
		c.busy = false
		r := v.(SyncResult)
		if r.Err == cluster.None && len(r.Assignment) > 0 && string(r.Assignment) != want {
			w.t.Fatalf("seed %d: the assignment %q went to %q", w.seed, r.Assignment, want)
		}
		if r.Err == cluster.UnknownMemberID || r.Err == cluster.FencedInstanceID {
			c.member = ""
		}
	})
}

func (w *randomWorld) commit(c *randomClient) {
	w.counter++
	offset, tp := w.counter, w.partition()
	e := Commit{Group: c.group, MemberID: c.member, InstanceID: c.instance, Generation: c.generation,
		Offsets: []CommitOffset{{TopicPartition: tp, Offset: offset, LeaderEpoch: -1, CommitTimestamp: -1, ExpireTimestamp: -1}}}
	if w.rnd.IntN(3) == 0 {
		e.MemberID, e.InstanceID, e.Generation = "", "", -1
	}
	if w.rnd.IntN(20) == 0 {
		e.Offsets[0].Metadata = strings.Repeat("x", 17)
	}
	key := fmt.Sprint(c.group, "/", tp)
	before := w.core.nextAppend
	w.ask(e, func(v any) {
		if v.(CommitResult).Errs[0] == cluster.None && before >= w.deleted[key] {
			w.floor[key] = max(w.floor[key], offset)
		}
	})
}

func (w *randomWorld) fetch(id string) {
	w.ask(FetchOffsets{Group: id, All: true}, func(v any) {
		got := map[string]int64{}
		for _, o := range v.(FetchOffsetsResult).Offsets {
			got[fmt.Sprint(id, "/", o.TopicPartition)] = o.Offset
		}
		for key, floor := range w.floor {
			if strings.HasPrefix(key, id+"/") && got[key] < floor && !w.lossy {
				w.t.Fatalf("seed %d: %s was committed at %d and is at %d", w.seed, key, floor, got[key])
			}
		}
	})
}

func (w *randomWorld) ask(r Request, done func(any)) {
	w.tokens++
	w.open[w.tokens] = done
	w.step(r.WithToken(w.tokens))
}

func (w *randomWorld) step(ev Event) {
	for _, e := range w.core.Step(w.now, ev) {
		switch e := e.(type) {
		case Reply:
			done := w.open[e.Token]
			if done == nil {
				w.t.Fatalf("seed %d: token %d answered twice or never asked", w.seed, e.Token)
			}
			delete(w.open, e.Token)
			done(e.Value)
		case StartTimer:
			w.timers[e.Timer] = e.At
		case Append:
			w.noteTombstones(e)
			w.pending = append(w.pending, e)
			w.log = append(w.log, loadEvents(e)...)
		}
	}
}

func loadEvents(a Append) (out []Event) {
	for _, r := range a.Records {
		out = append(out, LoadRecord{r.Key, r.Value, a.Txn})
	}
	return out
}

// noteTombstones ends the promise for offsets that are being deleted: acknowledgements of commits before it count no more.
func (w *randomWorld) noteTombstones(a Append) {
	for _, r := range a.Records {
		if r.Value == nil && r.Key[1] < 2 {
			g, tp := parseOffsetKey(w.t, r.Key)
			key := fmt.Sprint(g, "/", tp)
			w.deleted[key] = a.ID
			delete(w.floor, key)
		}
	}
}

// finishOneAppend acknowledges any append that waits: acknowledgements overtake each other.
func (w *randomWorld) finishOneAppend() {
	if len(w.pending) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.pending))
	a := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	code := cluster.None
	if w.lossy && w.rnd.IntN(5) == 0 {
		code = []cluster.ErrorCode{cluster.RequestTimedOut, cluster.NotEnoughReplicasAfterAppend, cluster.NotLeaderOrFollower}[w.rnd.IntN(3)]
	}
	w.step(Appended{a.ID, code})
}

func (w *randomWorld) settleAppends() {
	for len(w.pending) > 0 {
		w.finishOneAppend()
	}
}

func (w *randomWorld) advance(ms Time) {
	end := w.now + ms
	for {
		// A runtime may drop what the core does not need: nothing must hang for want of it.
		maps.DeleteFunc(w.timers, func(t Timer, _ Time) bool { return !w.core.Needs(t) })
		names := slices.SortedFunc(maps.Keys(w.timers), func(a, b Timer) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		var next *Timer
		for _, t := range names {
			if w.timers[t] <= end && (next == nil || w.timers[t] < w.timers[*next]) {
				next = &t
			}
		}
		if next == nil {
			break
		}
		w.now = max(w.now, w.timers[*next])
		delete(w.timers, *next)
		w.step(TimerFired{*next})
	}
	w.now = end
}

// reload moves the groups to a new core by way of the log. Where nothing was lost, what is settled must come out the same.
func (w *randomWorld) reload() {
	if w.rnd.IntN(2) == 0 {
		w.settleAppends() // else some are not acknowledged yet, and may be in the log or not: they are
	}
	settled := len(w.pending) == 0 && !w.lossy
	before := snapshot(w.core)
	w.step(Unload{})
	w.pending, w.timers = nil, map[Timer]Time{}
	w.newCore()
	clear(w.deleted) // append ids begin anew, and nothing is under way
	for _, ev := range w.log {
		w.step(ev)
	}
	w.step(Loaded{})
	after := snapshot(w.core)
	if !settled {
		return
	}
	for id, g := range before {
		for line := range g {
			if !after[id][line] {
				w.t.Fatalf("seed %d: group %s had %q, and after loading %v", w.seed, id, line, slices.Sorted(maps.Keys(after[id])))
			}
		}
	}
	for id, g := range after {
		for line := range g {
			if strings.HasPrefix(line, "offset ") && !before[id][line] {
				w.t.Fatalf("seed %d: group %s came back with %q, and had %v", w.seed, id, line, slices.Sorted(maps.Keys(before[id])))
			}
		}
	}
}

// snapshot is what each group promises to remember: offsets, and its generation with members when it is settled.
func snapshot(c *Core) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for id, g := range c.groups {
		lines := map[string]bool{}
		for tp, o := range g.offsets {
			lines[fmt.Sprintf("offset %v=%d", tp, o.offset)] = true
		}
		// Static members who do not rejoin keep a group above its maximum; loading it begins a rebalance.
		if g.is(Stable, Empty) && g.generation > 0 && len(g.members) <= c.cfg.MaxSize {
			lines[fmt.Sprintf("%v generation=%d protocol=%s/%s leader=%s", g.state, g.generation, g.protocolType, g.protocol, g.leader)] = true
			if g.state == Empty {
				lines[fmt.Sprintf("empty since %d", g.stateSince)] = true
			}
			for _, m := range g.members {
				lines[fmt.Sprintf("member %s/%s %s %x", m.id, m.instance, m.assignment, m.metadata(g.protocol))] = true
			}
		}
		out[id] = lines
	}
	return out
}

func (w *randomWorld) check() {
	s := script{core: w.core}
	s.check()
	for id, g := range w.core.groups {
		if g.is(Stable) && g.awaitingJoin() > 0 {
			w.t.Fatalf("seed %d: group %s is stable and %d joins wait", w.seed, id, g.awaitingJoin())
		}
	}
}

func parseOffsetKey(t *testing.T, key []byte) (string, cluster.TopicPartition) {
	t.Helper()
	k := kmsg.NewOffsetCommitKey()
	if err := k.ReadFrom(key); err != nil {
		t.Fatal(err)
	}
	return k.Group, cluster.TopicPartition{Topic: k.Topic, Partition: k.Partition}
}
