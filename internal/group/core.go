package group

import (
	"fmt"

	"klamm/internal/cluster"
)

// Config holds the coordinator's settings by Kafka's names.
type Config struct {
	MinSessionTimeoutMs  int64 // group.min.session.timeout.ms
	MaxSessionTimeoutMs  int64 // group.max.session.timeout.ms
	MaxSize              int   // group.max.size
	InitialRebalanceMs   int64 // group.initial.rebalance.delay.ms
	OffsetMetadataMax    int   // offset.metadata.max.bytes
	OffsetsRetentionMs   int64 // offsets.retention.minutes
	NewMemberJoinTimeout int64 // how long a new member may take for its first generation; 0 means Kafka's 5 minutes
}

// newMemberJoinTimeoutMs is Kafka's GroupCoordinator.NewMemberJoinTimeoutMs.
const newMemberJoinTimeoutMs = 5 * 60 * 1000

// Core holds the groups of one partition of __consumer_offsets. It is owned by one goroutine.
//
// Invariants, checked by the tests after every step: (1) a member has at most one waiting join and one waiting sync;
// (2) no member is in a group that is Empty or Dead; (3) the leader of a group with members is one of them; (4) every
// token fed was or will be answered exactly once.
type Core struct {
	cfg        Config
	now        Time
	groups     map[string]*group
	loading    bool
	effects    []Effect
	nextAppend AppendID
	appends    map[AppendID]func(cluster.ErrorCode)
	deleted    []cluster.TopicPartition // PartitionsDeleted while loading
}

// New returns a core that waits for its records: LoadRecord events, then Loaded.
func New(cfg Config) *Core {
	if cfg.NewMemberJoinTimeout == 0 {
		cfg.NewMemberJoinTimeout = newMemberJoinTimeoutMs
	}
	return &Core{cfg: cfg, groups: map[string]*group{}, loading: true, appends: map[AppendID]func(cluster.ErrorCode){}}
}

// Anew gives a core that waits for the same records from the first one on, instead of one whose load has not ended. It keeps
// what is not among the records: which partitions were deleted meanwhile.
func (c *Core) Anew() *Core {
	n := New(c.cfg)
	n.deleted = c.deleted
	return n
}

// Step handles one event and returns what is to be done, in order. The slice belongs to the caller.
func (c *Core) Step(now Time, ev Event) []Effect {
	c.now, c.effects = now, nil
	if c.loading {
		c.stepLoading(ev)
		return c.effects
	}
	switch e := ev.(type) {
	case Join:
		c.handleJoin(e)
	case Sync:
		c.handleSync(e)
	case Heartbeat:
		c.reply(e.Token, ErrorResult{c.heartbeat(e)})
	case Leave:
		c.handleLeave(e)
	case Commit:
		c.handleCommit(e)
	case FetchOffsets:
		c.reply(e.Token, c.fetchOffsets(e))
	case Describe:
		c.reply(e.Token, c.describe(e.Group))
	case List:
		c.reply(e.Token, c.list(e.States))
	case DeleteGroup:
		c.handleDeleteGroup(e)
	case DeleteOffsets:
		c.handleDeleteOffsets(e)
	case CollectStats:
		c.reply(e.Token, c.stats())
	case PartitionsDeleted:
		c.removePartitions(e.Partitions)
	case ExpireOffsets:
		c.expireOffsets()
	case TimerFired:
		c.handleTimer(e.Timer)
	case Appended:
		c.handleAppended(e)
	case TxnEnded:
		c.endTxn(e)
	case Unload:
		c.unload()
	case LoadRecord, Loaded:
		panic(fmt.Sprintf("group: %T after loading has ended", e))
	}
	return c.effects
}

// stepLoading answers requests while the partition's records are being read.
func (c *Core) stepLoading(ev Event) {
	switch e := ev.(type) {
	case LoadRecord:
		c.load(e)
	case TxnEnded:
		c.endTxn(e)
	case Loaded:
		c.finishLoading()
	case PartitionsDeleted:
		c.deleted = append(c.deleted, e.Partitions...)
	case Unload:
		c.unload()
	case Request:
		c.reply(tokenOf(e), whileLoading(e))
	case ExpireOffsets, TimerFired, Appended:
		// Nothing is there yet; offsets expire at the next round.
	}
}

func (c *Core) reply(t Token, value any) { c.effects = append(c.effects, Reply{t, value}) }

// append writes records and calls then with the outcome, in a later Step.
func (c *Core) append(records []Record, then func(cluster.ErrorCode)) {
	c.appendTxn(nil, records, then)
}

// appendTxn writes records in the name of a transactional producer; nil for none.
func (c *Core) appendTxn(p *Producer, records []Record, then func(cluster.ErrorCode)) {
	c.nextAppend++
	c.appends[c.nextAppend] = then
	c.effects = append(c.effects, Append{c.nextAppend, records, p})
}

func (c *Core) handleAppended(e Appended) {
	then := c.appends[e.Append]
	delete(c.appends, e.Append)
	if then != nil {
		then(e.Err)
	}
}

func (c *Core) startTimer(t Timer, at Time) { c.effects = append(c.effects, StartTimer{t, at}) }

// unload answers everything that waits and forgets all groups.
func (c *Core) unload() {
	for _, g := range c.groups {
		g.state = Dead // before the appends end: nothing goes on from them
	}
	for _, id := range sortedKeys(c.appends) {
		c.appends[id](cluster.NotCoordinator)
	}
	for _, id := range sortedKeys(c.groups) {
		for _, m := range c.groups[id].inOrder() {
			c.answerJoin(m, joinError(cluster.NotCoordinator, m.id))
			c.answerSync(m, SyncResult{Err: cluster.NotCoordinator})
		}
	}
	c.appends, c.groups, c.loading = map[AppendID]func(cluster.ErrorCode){}, map[string]*group{}, true
}

// transition changes a group's state and tells of it.
func (c *Core) transition(g *group, to State, reason string) {
	c.effects = append(c.effects, StateChange{g.id, g.state, to, g.generation, len(g.members), reason})
	g.state, g.stateSince = to, c.now
}

func (c *Core) handleTimer(t Timer) {
	g := c.groups[t.Group]
	if g == nil {
		return
	}
	switch t.Kind {
	case TimerMember:
		c.memberTimer(g, t.Member)
	case TimerJoin:
		c.joinTimer(g)
	case TimerSync:
		c.syncTimer(g)
	}
}

// Needs reports whether anything waits for the timer still. One of a member or phase that is over does nothing when it runs
// out, and may be dropped before.
func (c *Core) Needs(t Timer) bool {
	g := c.groups[t.Group]
	if g == nil {
		return false
	}
	switch t.Kind {
	case TimerJoin:
		return g.joinDeadline != 0
	case TimerSync:
		return g.syncDeadline != 0
	}
	_, isPending := g.pending[t.Member]
	return isPending || g.members[t.Member] != nil
}

// maybeForget drops a group that holds nothing any more; one that was stored leaves its tombstone to expireOffsets.
// Kafka keeps such groups until the next round of expiry.
func (c *Core) maybeForget(g *group) {
	if g.state == Empty && g.generation == 0 && !g.hasState() {
		g.state = Dead
		delete(c.groups, g.id)
	}
}

func (c *Core) stats() Stats {
	s := Stats{Groups: map[State]int{}}
	for _, g := range c.groups {
		s.Groups[g.state]++
		s.Members += len(g.members)
		s.Offsets += len(g.offsets)
	}
	return s
}
