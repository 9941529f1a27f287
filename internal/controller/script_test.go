package controller_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/sim"
)

// TestScripts runs the scripts in testdata: commands against a simulated cluster, whose output is the whole trace of the controllers:
// "N > " an event fed to broker N's core, "N   " an effect it asked for, "- " what happens around.
// Rewrite the expectations with -rewrite, and read what changed.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &script{t: t}
		t.Cleanup(func() { s.w.Close() })
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(d) })
	})
}

type script struct {
	t       *testing.T
	w       *sim.World
	out     strings.Builder
	quiet   bool
	brokers bool // also show what brokers receive
}

func (s *script) trace(line string) {
	if s.quiet || strings.Contains(line, " = ") && !s.brokers {
		return
	}
	s.out.WriteString(line + "\n")
}

// run carries out one command. Arguments: "quiet" leaves the trace out, "brokers" also shows requests as brokers handle them, "nosettle" does not run
// the cluster afterwards.
func (s *script) run(d *datadriven.TestData) string {
	s.out.Reset()
	s.quiet, s.brokers = d.HasArg("quiet"), d.HasArg("brokers")
	if d.Cmd == "cluster" {
		s.cluster(d)
	} else {
		s.command(d)
	}
	if settles(d) {
		s.w.Settle()
	}
	if d.HasArg("final") {
		s.w.Final()
	}
	for _, f := range s.w.Failures() {
		if !strings.Contains(s.out.String(), f) {
			fmt.Fprintln(&s.out, "FAILED:", f)
		}
		s.t.Errorf("%s: %s", d.Pos, f)
	}
	if s.out.Len() == 0 {
		return "ok"
	}
	return s.out.String()
}

func settles(d *datadriven.TestData) bool {
	switch d.Cmd {
	case "explain", "metrics", "leftovers", "leader", "run-until", "fault", "fail-deletions":
		return false
	}
	return !d.HasArg("nosettle")
}

func (s *script) cluster(d *datadriven.TestData) {
	if s.w != nil {
		s.w.Close()
	}
	o := sim.Options{Brokers: 3, Trace: s.trace, DeletionDisabled: d.HasArg("deletion-disabled"), AutoRebalance: d.HasArg("rebalance")}
	if d.HasArg("brokers-n") {
		d.ScanArgs(s.t, "brokers-n", &o.Brokers)
	}
	s.offlineReplicas(d, &o)
	s.w = sim.New(o)
	s.w.StartAll()
}

// offlineReplicas reads the arguments offline-replicas=auto|complete|wait, timeout=ms, kafka=id. Scripts wait, as Kafka does, where they
// say nothing.
func (s *script) offlineReplicas(d *datadriven.TestData, o *sim.Options) {
	policy := "wait"
	if d.HasArg("offline-replicas") {
		policy = s.str(d, "offline-replicas")
	}
	for p := range controller.OfflineReplicasWait + 1 {
		if p.String() == policy {
			o.OfflineReplicas = p
		}
	}
	if d.HasArg("timeout") {
		o.OfflineReplicaTimeoutMs = int64(s.num(d, "timeout"))
	}
	if d.HasArg("kafka") {
		o.Kafka = []cluster.BrokerID{cluster.BrokerID(s.num(d, "kafka"))}
	}
}

func (s *script) command(d *datadriven.TestData) {
	w := s.w
	switch d.Cmd {
	case "settle":
	case "create":
		if !w.CreateTopic(s.str(d, "topic"), s.assignment(d)...) {
			s.out.WriteString("TOPIC_ALREADY_EXISTS\n")
		}
	case "delete":
		w.DeleteTopic(s.str(d, "topic"), !d.HasArg("no-id"))
	case "late-marker":
		w.MarkForIncarnation(s.str(d, "topic"), cluster.TopicID{0: 0xff})
	case "add-partition":
		w.AddPartition(s.str(d, "topic"), s.assignment(d)[0])
	case "create-by-hand":
		w.CreateByHand(s.str(d, "topic"), s.assignment(d)...)
	case "remove-by-hand":
		w.RemoveByHand(s.str(d, "topic"))
	case "kill":
		w.Kill(s.id(d))
		if !d.HasArg("keep-session") {
			w.ExpireDead()
		}
	case "start":
		w.Start(s.id(d))
	case "repair-dirs":
		w.RepairDirs(s.id(d))
	case "bounce":
		w.Bounce(s.id(d))
	case "pause":
		w.Pause(s.id(d))
	case "resume":
		w.Resume(s.id(d))
	case "notice-expiry":
		w.NoticeExpiry(s.id(d))
	case "fail-dir":
		w.FailDir(s.id(d), s.num(d, "dir"))
	case "fail-deletions":
		w.FailDeletions(s.num(d, "percent"))
	case "fault":
		w.FaultNext(s.str(d, "op"), s.str(d, "how"))
	case "run-until":
		if !w.RunUntil(strings.Join(strings.Fields(d.Input), " ")) {
			s.out.WriteString("not reached\n")
		}
	case "step":
		w.Step()
	case "elect":
		ev := controller.ElectLeaders{Partitions: s.partitions(d)}
		if d.HasArg("unclean") {
			ev.Type = controller.UncleanElection
		}
		w.Ask(func(token controller.ReplyToken, _ cluster.BrokerEpoch) controller.Event {
			ev.Reply = token
			return ev
		}, 1)
	case "reassign":
		s.reassign(d)
	case "list-reassignments":
		w.Ask(func(token controller.ReplyToken, _ cluster.BrokerEpoch) controller.Event {
			return controller.ListPartitionReassignments{Reply: token, All: d.Input == "", Partitions: s.partitions(d)}
		}, 1)
	case "catch-up":
		w.CatchUp()
	case "preferred-election":
		w.RequestPreferredElection(s.partitions(d)...)
	case "balance":
		w.BalanceLeaders()
	case "leftovers":
		for _, l := range w.Leftovers() {
			fmt.Fprintf(&s.out, "broker %d: %s %s %v\n", l.Broker, l.Name, l.ID, l.Partitions)
		}
	case "unclean":
		w.SetUnclean(s.str(d, "topic"), true)
		w.Feed(controller.TopicUncleanLeaderElectionEnable{Topic: s.str(d, "topic")})
	case "unclean-default":
		w.Feed(controller.UncleanLeaderElectionEnable{Enabled: true})
	case "topic-deletion":
		w.Feed(controller.TopicDeletionEnable{Enabled: d.HasArg("on")})
	case "controlled-shutdown":
		w.Ask(func(token controller.ReplyToken, epoch cluster.BrokerEpoch) controller.Event {
			return controller.ControlledShutdown{Reply: token, Broker: s.id(d), BrokerEpoch: epoch}
		}, s.id(d))
	case "producer-ids":
		w.Ask(func(token controller.ReplyToken, epoch cluster.BrokerEpoch) controller.Event {
			return controller.AllocateProducerIDs{Reply: token, Broker: s.id(d), BrokerEpoch: epoch}
		}, s.id(d))
	case "alter-partition":
		w.Ask(s.alterPartition(d), s.id(d))
	case "explain":
		s.explain()
	case "metrics":
		fmt.Fprintf(&s.out, "%+v\n", w.Active().Core().Metrics())
	default:
		s.t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
	}
}

func (s *script) alterPartition(d *datadriven.TestData) func(controller.ReplyToken, cluster.BrokerEpoch) controller.Event {
	topic := s.str(d, "topic")
	p := controller.AlterPartitionPartition{
		Partition: int32(s.num(d, "partition")), LeaderEpoch: cluster.LeaderEpoch(s.num(d, "le")),
		PartitionEpoch: cluster.PartitionEpoch(s.num(d, "pe")), ISR: s.ids(s.str(d, "isr")),
	}
	return func(token controller.ReplyToken, epoch cluster.BrokerEpoch) controller.Event {
		return controller.AlterPartition{Reply: token, Broker: s.id(d), BrokerEpoch: epoch, Version: 3,
			Topics: []controller.AlterPartitionTopic{{ID: s.w.TopicID(topic), Partitions: []controller.AlterPartitionPartition{p}}}}
	}
}

func (s *script) explain() {
	for _, e := range s.w.Active().Core().Deletions() {
		fmt.Fprintf(&s.out, "%s: %s, attempts %d", e.Name, e.Phase, e.Attempts)
		if e.LastError != "" {
			fmt.Fprintf(&s.out, ", last error: %s", e.LastError)
		}
		s.out.WriteString("\n")
		for _, r := range e.Reasons {
			fmt.Fprintf(&s.out, "  waits: %s, broker %d; lifted by %s", r.Kind, r.Broker, r.LiftedBy)
			if r.Kind == controller.BrokerOffline && r.Detail != "" {
				fmt.Fprintf(&s.out, " (%s)", r.Detail)
			}
			if r.RetryAt != 0 {
				s.out.WriteString("; retry is due")
			}
			s.out.WriteString("\n")
		}
		for _, r := range e.Replicas {
			fmt.Fprintf(&s.out, "  %s %s, attempts %d, last %s", r.TopicPartitionReplica, r.State, r.Attempts, r.LastError)
			if r.WaitsFor != nil {
				fmt.Fprintf(&s.out, ", waits: %s", r.WaitsFor.Kind)
			}
			s.out.WriteString("\n")
		}
	}
}

func (s *script) str(d *datadriven.TestData, key string) string {
	var v string
	d.ScanArgs(s.t, key, &v)
	return v
}

func (s *script) num(d *datadriven.TestData, key string) int {
	var v int
	d.ScanArgs(s.t, key, &v)
	return v
}

func (s *script) id(d *datadriven.TestData) cluster.BrokerID {
	return cluster.BrokerID(s.num(d, "broker"))
}

// assignment reads "1,2" lines of the input: one partition each.
func (s *script) assignment(d *datadriven.TestData) [][]cluster.BrokerID {
	var out [][]cluster.BrokerID
	for _, f := range strings.Fields(d.Input) {
		out = append(out, s.ids(f))
	}
	return out
}

// reassign reads "t-0=2,3 u-1=cancel"; with the argument node they go into the node of old tools.
func (s *script) reassign(d *datadriven.TestData) {
	ev := controller.AlterPartitionReassignments{}
	var targets []controller.ReassignmentTarget
	for _, f := range strings.Fields(d.Input) {
		name, list, _ := strings.Cut(f, "=")
		tp := s.partitions(&datadriven.TestData{Input: name})[0]
		var target []cluster.BrokerID
		if list != "cancel" {
			target = []cluster.BrokerID{}
			if list != "none" {
				target = s.ids(list)
			}
		}
		ev.Partitions = append(ev.Partitions, controller.PartitionReassignment{TopicPartition: tp, Target: target})
		targets = append(targets, controller.ReassignmentTarget{TopicPartition: tp, Replicas: target})
	}
	if d.HasArg("node") {
		s.w.RequestReassignment(targets...)
		return
	}
	s.w.Ask(func(token controller.ReplyToken, _ cluster.BrokerEpoch) controller.Event {
		ev.Reply = token
		return ev
	}, 1)
}

// partitions reads "t-0 u-1" of the input.
func (s *script) partitions(d *datadriven.TestData) []cluster.TopicPartition {
	var out []cluster.TopicPartition
	for _, f := range strings.Fields(d.Input) {
		topic, n, _ := strings.Cut(f, "-")
		p, err := strconv.Atoi(n)
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, cluster.TopicPartition{Topic: topic, Partition: int32(p)})
	}
	return out
}

func (s *script) ids(list string) []cluster.BrokerID {
	var out []cluster.BrokerID
	for _, f := range strings.Split(strings.Trim(list, "[]"), "-") {
		for _, g := range strings.Split(f, ",") {
			n, err := strconv.Atoi(g)
			if err != nil {
				s.t.Fatal(err)
			}
			out = append(out, cluster.BrokerID(n))
		}
	}
	return out
}
