package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
)

// script drives one Core by commands and prints every effect. Time moves only by `advance`, which fires the timers that
// became due in order. Appends succeed at once unless the script holds them with `hold`.
type script struct {
	core   *Core
	now    Time
	token  Token
	newIDs int
	timers map[Timer]Time
	log    []Event // what was appended, in order: LoadRecord and TxnEnded
	hold   bool
	held   []Append
	open   map[Token]string // requests not answered yet
	out    strings.Builder
}

func newScript(t *testing.T) *script {
	s := &script{timers: map[Timer]Time{}, open: map[Token]string{}}
	s.core = New(Config{MinSessionTimeoutMs: 6000, MaxSessionTimeoutMs: 1_800_000, MaxSize: 3, InitialRebalanceMs: 3000,
		OffsetMetadataMax: 16, OffsetsRetentionMs: 1_000_000})
	t.Cleanup(func() {
		s.step(Unload{})
		if len(s.open) > 0 {
			t.Errorf("never answered: %v", s.open)
		}
	})
	return s
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := newScript(t)
		s.step(Loaded{})
		s.out.Reset()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.out.Reset()
			s.run(t, d)
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

func (s *script) run(t *testing.T, d *datadriven.TestData) {
	arg := func(key string) string {
		for _, a := range d.CmdArgs {
			if a.Key == key && len(a.Vals) > 0 {
				return a.Vals[0]
			}
		}
		return ""
	}
	number := func(key string, otherwise int64) int64 {
		if v := arg(key); v != "" {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		return otherwise
	}
	has := func(key string) bool {
		return slices.ContainsFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
	}
	group := arg("group")
	if group == "" {
		group = "g"
	}
	s.token++
	switch d.Cmd {
	case "join":
		s.newIDs++
		j := Join{Token: s.token, Group: group, MemberID: arg("member"), InstanceID: arg("instance"), ClientID: "c", ClientHost: "/h",
			NewMemberID: fmt.Sprint("m", s.newIDs), SessionTimeoutMs: number("session", 10_000), RebalanceTimeoutMs: number("rebalance", 60_000),
			ProtocolType: "consumer", RequireKnownMember: has("v4"), SupportsSkippingAssignment: has("v9")}
		for _, p := range strings.Split(arg("protocols"), "+") {
			if p != "" {
				name, md, _ := strings.Cut(p, "=")
				j.Protocols = append(j.Protocols, Protocol{name, subscription(md)})
			}
		}
		s.ask(j.Token, "join "+j.MemberID, j)
	case "sync":
		e := Sync{Token: s.token, Group: group, MemberID: arg("member"), InstanceID: arg("instance"), Generation: int32(number("generation", 1)),
			ProtocolType: arg("type"), ProtocolName: arg("name")}
		for _, a := range strings.Split(arg("assign"), "+") {
			if id, data, ok := strings.Cut(a, "="); ok {
				e.Assignments = append(e.Assignments, Assignment{id, []byte(data)})
			}
		}
		s.ask(e.Token, "sync", e)
	case "heartbeat":
		s.ask(s.token, "heartbeat", Heartbeat{s.token, group, arg("member"), arg("instance"), int32(number("generation", 1))})
	case "leave":
		s.ask(s.token, "leave", Leave{s.token, group, []MemberIdentity{{arg("member"), arg("instance"), ""}}})
	case "commit":
		tp := cluster.TopicPartition{Topic: arg("topic"), Partition: int32(number("partition", 0))}
		var txn *Producer
		if has("txn") {
			txn = &Producer{ID: number("txn", 0)}
		}
		s.ask(s.token, "commit", Commit{Token: s.token, Group: group, MemberID: arg("member"), InstanceID: arg("instance"), Generation: int32(number("generation", -1)), Txn: txn,
			Offsets: []CommitOffset{{TopicPartition: tp, Offset: number("offset", 0), LeaderEpoch: -1, Metadata: arg("metadata"),
				CommitTimestamp: -1, ExpireTimestamp: number("expires", -1)}}})
	case "fetch":
		e := FetchOffsets{Token: s.token, Group: group, All: !has("stable"), RequireStable: has("stable")}
		if has("stable") {
			e.Partitions = []cluster.TopicPartition{{Topic: arg("topic")}}
		}
		s.ask(s.token, "fetch", e)
	case "end-txn":
		ev := TxnEnded{number("producer", 0), !has("abort")}
		s.log = append(s.log, ev)
		s.step(ev)
	case "stats":
		s.ask(s.token, "stats", CollectStats{s.token})
	case "max-size":
		s.core.cfg.MaxSize = int(number("members", 0))
	case "start-loading":
		s.step(Unload{})
		s.timers = map[Timer]Time{}
		s.core = New(s.core.cfg)
	case "finish-loading":
		for _, r := range s.log {
			s.step(r)
		}
		s.step(Loaded{})
	case "describe":
		s.ask(s.token, "describe", Describe{s.token, group})
	case "list":
		s.ask(s.token, "list", List{Token: s.token})
	case "delete-group":
		s.ask(s.token, "delete-group", DeleteGroup{s.token, group})
	case "delete-offsets":
		s.ask(s.token, "delete-offsets", DeleteOffsets{s.token, group, []cluster.TopicPartition{{Topic: arg("topic")}}})
	case "topic-deleted":
		s.step(PartitionsDeleted{[]cluster.TopicPartition{{Topic: arg("topic")}}})
	case "expire":
		s.step(ExpireOffsets{})
	case "advance":
		s.advance(Time(number("ms", 0)))
	case "hold":
		s.hold = true
	case "release":
		s.release(cluster.ErrorCode(number("error", 0)))
	case "reload":
		s.reload(t)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
}

// subscription is a consumer's metadata for the given topics, separated by commas.
func subscription(topics string) []byte {
	md := kmsg.NewConsumerMemberMetadata()
	md.Topics = strings.Split(topics, ",")
	return md.AppendTo(nil)
}

func (s *script) ask(t Token, what string, ev Event) {
	s.open[t] = what
	s.step(ev)
}

func (s *script) step(ev Event) {
	for _, e := range s.core.Step(s.now, ev) {
		s.apply(e)
	}
	s.check()
}

func (s *script) apply(e Effect) {
	switch e := e.(type) {
	case Reply:
		what, ok := s.open[e.Token]
		if !ok {
			panic(fmt.Sprintf("token %d answered twice or never asked", e.Token))
		}
		delete(s.open, e.Token)
		fmt.Fprintf(&s.out, "%d %s: %s\n", e.Token, what, show(e.Value))
	case StartTimer:
		s.timers[e.Timer] = e.At
	case StateChange:
		fmt.Fprintf(&s.out, "%s: %v -> %v generation=%d members=%d%s\n", e.Group, e.From, e.To, e.Generation, e.Members, strings.TrimSuffix(" "+e.Reason, " "))
	case Append:
		for _, r := range e.Records {
			kind := "offset"
			if r.Key[1] == 2 {
				kind = "group"
			}
			if r.Value == nil {
				kind += " tombstone"
			}
			fmt.Fprintf(&s.out, "append %s\n", kind)
		}
		if s.hold {
			s.held = append(s.held, e)
			return
		}
		s.appended(e, cluster.None)
	}
}

func (s *script) appended(a Append, code cluster.ErrorCode) {
	if code == cluster.None {
		for _, r := range a.Records {
			s.log = append(s.log, LoadRecord{r.Key, r.Value, a.Txn})
		}
	}
	s.step(Appended{a.ID, code})
}

func (s *script) release(code cluster.ErrorCode) {
	s.hold = false
	held := s.held
	s.held = nil
	for _, a := range held {
		s.appended(a, code)
	}
}

func (s *script) advance(ms Time) {
	end := s.now + ms
	for {
		var next *Timer
		for _, t := range s.sortedTimers() {
			if s.timers[t] <= end && (next == nil || s.timers[t] < s.timers[*next]) {
				next = &t
			}
		}
		if next == nil {
			break
		}
		s.now = max(s.now, s.timers[*next])
		delete(s.timers, *next)
		s.step(TimerFired{*next})
	}
	s.now = end
}

func (s *script) sortedTimers() []Timer {
	var ts []Timer
	for t := range s.timers {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, func(a, b Timer) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return ts
}

// reload gives the partition's records to a new core, as after a change of leadership.
func (s *script) reload(t *testing.T) {
	s.step(Unload{})
	s.timers = map[Timer]Time{}
	s.core = New(s.core.cfg)
	for _, r := range s.log {
		s.step(r)
	}
	s.step(Loaded{})
}

// check panics when an invariant of Core is broken.
func (s *script) check() {
	for id, g := range s.core.groups {
		if g.id != id || len(g.order) != len(g.members) {
			panic(fmt.Sprintf("group %s: %d in order, %d members", id, len(g.order), len(g.members)))
		}
		if g.is(Empty, Dead) && len(g.members) > 0 {
			panic(fmt.Sprintf("group %s is %v with members", id, g.state))
		}
		if len(g.members) > 0 && g.members[g.leader] == nil {
			panic(fmt.Sprintf("group %s is led by %q, who is no member", id, g.leader))
		}
		for instance, member := range g.static {
			if m := g.members[member]; m == nil || m.instance != instance {
				panic(fmt.Sprintf("group %s: instance %s points to %s", id, instance, member))
			}
		}
	}
}

func show(v any) string {
	switch r := v.(type) {
	case JoinResult:
		if r.Err != cluster.None {
			return fmt.Sprintf("%v member=%s", r.Err, r.MemberID)
		}
		var ms []string
		for _, m := range r.Members {
			ms = append(ms, m.MemberID+strings.Repeat("/"+m.InstanceID, min(1, len(m.InstanceID))))
		}
		skip := ""
		if r.SkipAssignment {
			skip = " skip"
		}
		return fmt.Sprintf("generation=%d protocol=%s leader=%s member=%s members=%v%s", r.Generation, r.ProtocolName, r.Leader, r.MemberID, ms, skip)
	case SyncResult:
		if r.Err != cluster.None {
			return r.Err.String()
		}
		return fmt.Sprintf("assignment=%s", r.Assignment)
	case ErrorResult:
		return r.Err.String()
	case LeaveResult:
		return fmt.Sprint(r.Err, r.Members)
	case CommitResult:
		return fmt.Sprint(r.Errs)
	case FetchOffsetsResult:
		var os []string
		for _, o := range r.Offsets {
			os = append(os, fmt.Sprintf("%v=%d", o.TopicPartition, o.Offset)+strings.TrimPrefix(" "+o.Err.String(), " NONE"))
		}
		return fmt.Sprint(r.Err, os)
	case Description:
		var ms []string
		for _, m := range r.Members {
			ms = append(ms, fmt.Sprintf("%s:%s", m.MemberID, m.Assignment))
		}
		if r.Err != cluster.None {
			return r.Err.String()
		}
		return fmt.Sprintf("%s %s %v", r.State, r.Protocol, ms)
	case ListResult:
		return fmt.Sprint(strings.TrimPrefix(r.Err.String()+" ", "NONE "), r.Groups)
	case Stats:
		return fmt.Sprintf("groups=%v members=%d offsets=%d", r.Groups, r.Members, r.Offsets)
	case DeleteOffsetsResult:
		return fmt.Sprint(r.Err, r.Errs)
	}
	return fmt.Sprintf("%T", v)
}
