package driver

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"klamm/internal/cluster"
	"klamm/internal/controller"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// storeHarness runs single operations against a tree in memory.
type storeHarness struct {
	*testing.T
	store *memstore.Client
	op    *storeOp
}

func newStoreHarness(t *testing.T, ibp string) *storeHarness {
	t.Helper()
	store := memstore.New().Client()
	if err := coord.EnsurePersistentPaths(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	s, err := store.OpenSession(t.Context(), testTTL)
	if err != nil {
		t.Fatal(err)
	}
	d := &Driver{store: store, versions: mustVersions(t, ibp), log: quiet()}
	return &storeHarness{t, store, &storeOp{d: d, session: s}}
}

func (h *storeHarness) create(path, data string) coord.Stat {
	h.Helper()
	if parent := coord.ParentPath(path); parent != "/" {
		if err := coord.EnsurePath(h.Context(), h.store, parent, nil); err != nil {
			h.Fatal(err)
		}
	}
	r, err := h.store.Multi(h.Context(), coord.Create(path, []byte(data)))
	if err != nil {
		h.Fatal(err)
	}
	return r[0].Stat
}

func (h *storeHarness) run(op controller.StoreOp) controller.StoreValue {
	h.Helper()
	v, err := h.op.run(h.Context(), op)
	if err != nil {
		h.Fatal(err)
	}
	return v
}

// statuses runs a write and gives the status of its items.
func (h *storeHarness) statuses(op controller.StoreOp) []controller.ItemStatus {
	h.Helper()
	var out []controller.ItemStatus
	for _, item := range h.run(op).(controller.Written).Items {
		out = append(out, item.Status)
	}
	return out
}

func (h *storeHarness) want(what string, want, got any) {
	h.Helper()
	if d := cmp.Diff(want, got); d != "" {
		h.Errorf("%s: %s", what, d)
	}
}

func (h *storeHarness) data(path string) string {
	h.Helper()
	n, err := h.store.Get(h.Context(), path)
	if errors.Is(err, coord.ErrNoNode) {
		return "absent"
	}
	if err != nil {
		h.Fatal(err)
	}
	return string(n.Data)
}

func TestElectionOperations(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	h.want("no controller", controller.ControllerRead{Broker: cluster.NoBroker}, h.run(controller.ReadController{}))
	h.want("no epoch", controller.ControllerEpochRead{}, h.run(controller.ReadControllerEpoch{}))
	elect := controller.Elect{Broker: 7, At: 1234, Epoch: 1, Version: 0}
	h.want("elect without epoch node", controller.ElectResult{Status: controller.ItemConflict}, h.run(elect))
	h.want("create epoch", controller.ControllerEpochRead{Exists: true}, h.run(controller.CreateControllerEpoch{}))
	h.want("create again", controller.ControllerEpochRead{Exists: true}, h.run(controller.CreateControllerEpoch{}))
	h.want("elect", controller.ElectResult{Status: controller.ItemOK, Version: 1}, h.run(elect))
	h.want("elect again", controller.ElectResult{Status: controller.ItemExists}, h.run(elect))
	h.want("controller", controller.ControllerRead{Broker: 7}, h.run(controller.ReadController{}))
	h.want("epoch", controller.ControllerEpochRead{Exists: true, Epoch: 1, Version: 1}, h.run(controller.ReadControllerEpoch{}))
	h.want("bytes", `{"version":2,"brokerid":7,"timestamp":"1234","kraftControllerEpoch":-1}`, h.data(coord.ControllerPath))

	h.op.guard = &coord.Guard{Path: coord.ControllerEpochPath, Version: 0}
	if _, err := h.op.run(t.Context(), controller.DeleteController{}); !errors.Is(err, coord.ErrFenced) {
		t.Errorf("a former controller's delete ended with %v", err)
	}
	h.op.guard.Version = 1
	h.want("delete", []controller.ItemStatus{controller.ItemOK}, h.statuses(controller.DeleteController{}))
	h.want("delete again", []controller.ItemStatus{controller.ItemOK}, h.statuses(controller.DeleteController{}))
	h.want("stale version", controller.ElectResult{Status: controller.ItemConflict}, h.run(elect))
}

func TestPartitionStatesAreCreatedWithTheirParentsAndKeptByVersion(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	h.create(coord.TopicPath("a"), `{}`)
	at := func(topic string, p int32) cluster.TopicPartition {
		return cluster.TopicPartition{Topic: topic, Partition: p}
	}
	write := func(tp cluster.TopicPartition, leader cluster.BrokerID, version cluster.PartitionEpoch) controller.PartitionStateWrite {
		return controller.PartitionStateWrite{TopicPartition: tp, State: cluster.LeaderAndISR{
			Leader: leader, ISR: []cluster.BrokerID{leader}, ControllerEpoch: 1, PartitionEpoch: version}}
	}
	create := controller.CreatePartitionStates{States: []controller.PartitionStateWrite{write(at("a", 0), 1, 0), write(at("gone", 0), 1, 0), write(at("a", 1), 1, 0)}}
	h.want("create", []controller.ItemStatus{controller.ItemOK, controller.ItemNoNode, controller.ItemOK}, h.statuses(create))
	again := h.run(create).(controller.Written)
	if r := again.Items[0]; r.Status != controller.ItemExists || !r.HasState || r.State.Leader != 1 {
		t.Errorf("created again: %+v", r)
	}

	set := controller.SetPartitionStates{States: []controller.PartitionStateWrite{write(at("a", 0), 2, 0), write(at("a", 1), 2, 5), write(at("a", 9), 2, 0)}}
	got := h.run(set).(controller.Written).Items
	if got[0].Status != controller.ItemOK || got[0].State.PartitionEpoch != 1 || got[0].HasState {
		t.Errorf("set: %+v", got[0])
	}
	if got[1].Status != controller.ItemConflict || !got[1].HasState || got[1].State.Leader != 1 || got[1].State.PartitionEpoch != 0 {
		t.Errorf("set at a wrong version: %+v", got[1])
	}
	if got[2].Status != controller.ItemNoNode {
		t.Errorf("set of an absent node: %+v", got[2])
	}
	h.create(coord.PartitionStatePath(at("b", 0)), "garbage")
	states := h.run(controller.ReadPartitionStates{Partitions: []cluster.TopicPartition{at("a", 0), at("a", 9), at("b", 0)}}).(controller.StatesRead).States
	if states[0].Status != controller.ItemOK || states[0].State.Leader != 2 || states[1].Status != controller.ItemNoNode || states[2].Status != controller.ItemFailed {
		t.Errorf("read: %+v", states)
	}
}

func TestTopicsAreReadWithTheirCreationAndOnlyThatIncarnationIsDeleted(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	first := h.create(coord.TopicPath("a"), `{"partitions":{"1":[1,2],"0":[2]},"topic_id":"DhSXIGBjQaybgGn43lde7g","adding_replicas":{"1":[2]},"removing_replicas":{},"version":3}`)
	h.create(coord.TopicPath("bad"), `{"partitions":{"x":[1]}}`)
	h.create(coord.PartitionStatePath(cluster.TopicPartition{Topic: "a"}), "{}")
	topics := h.run(controller.ReadTopics{Names: []string{"a", "none", "bad"}}).(controller.TopicsRead).Topics
	id, _ := cluster.ParseTopicID("DhSXIGBjQaybgGn43lde7g")
	h.want("topic", controller.TopicRead{Name: "a", Exists: true, Czxid: first.Czxid, ID: id, Partitions: []controller.PartitionAssignment{
		{Partition: 0, Assignment: cluster.ReplicaAssignment{Replicas: []cluster.BrokerID{2}}},
		{Partition: 1, Assignment: cluster.ReplicaAssignment{Replicas: []cluster.BrokerID{1, 2}, Adding: []cluster.BrokerID{2}}}}}, topics[0])
	if topics[1].Exists || topics[2].Err == "" || !topics[2].Exists {
		t.Errorf("topics %+v", topics[1:])
	}
	write := controller.TopicWrite{TopicRef: controller.TopicRef{Name: "a", ID: id}, Czxid: first.Czxid, Version: 1, Partitions: topics[0].Partitions}
	h.want("write at a wrong version", []controller.ItemStatus{controller.ItemConflict}, h.statuses(controller.SetTopics{Topics: []controller.TopicWrite{write}}))
	write.Version, write.Czxid = 0, first.Czxid+1
	h.want("write to another incarnation", []controller.ItemStatus{controller.ItemConflict}, h.statuses(controller.SetTopics{Topics: []controller.TopicWrite{write}}))
	write.Czxid = first.Czxid
	h.want("write", []controller.ItemStatus{controller.ItemOK}, h.statuses(controller.SetTopics{Topics: []controller.TopicWrite{write}}))
	h.want("names", controller.TopicNamesRead{Names: []string{"a", "bad"}}, h.run(controller.ReadTopicNames{}))

	refs := []controller.NodeRef{{Topic: "a", Czxid: first.Czxid + 1}, {Topic: "none", Czxid: 1}, {Topic: "bad", Czxid: controller.AnyCzxid}}
	h.want("delete", []controller.ItemStatus{controller.ItemConflict, controller.ItemOK, controller.ItemOK}, h.statuses(controller.DeleteTopicTrees{Topics: refs}))
	refs[0].Czxid = first.Czxid
	h.want("delete the right one", []controller.ItemStatus{controller.ItemOK}, h.statuses(controller.DeleteTopicTrees{Topics: refs[:1]}))
	h.want("nothing is left", controller.TopicNamesRead{Names: []string{}}, h.run(controller.ReadTopicNames{}))
}

func TestMarkersAreDeletedByIncarnation(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	a, b := h.create(coord.DeleteTopicPath("a"), ""), h.create(coord.DeleteTopicPath("b"), "")
	h.want("markers", controller.MarkersRead{Markers: []controller.Marker{{Topic: "a", Czxid: a.Czxid}, {Topic: "b", Czxid: b.Czxid}}},
		h.run(controller.ReadDeletionMarkers{}))
	h.want("delete", []controller.ItemStatus{controller.ItemOK, controller.ItemConflict, controller.ItemOK}, h.statuses(controller.DeleteMarkers{
		Markers: []controller.NodeRef{{Topic: "a", Czxid: a.Czxid}, {Topic: "b", Czxid: a.Czxid}, {Topic: "none", Czxid: 3}}}))
	h.want("left", controller.MarkersRead{Markers: []controller.Marker{{Topic: "b", Czxid: b.Czxid}}}, h.run(controller.ReadDeletionMarkers{}))
}

func TestTopicConfigsTellOfUncleanElection(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	topics := []string{"none", "unset", "on", "off", "odd", "broken"}
	for topic, value := range map[string]string{"unset": `{"config":{"retention.ms":"1"}}`, "on": `{"config":{"unclean.leader.election.enable":" True "}}`,
		"off": `{"config":{"unclean.leader.election.enable":"false"}}`, "odd": `{"config":{"unclean.leader.election.enable":"yes"}}`, "broken": `{`} {
		h.create(coord.ConfigEntityPath(coord.TopicConfigs, topic), value)
	}
	var got []string
	for _, c := range h.run(controller.ReadTopicConfigs{Topics: topics}).(controller.TopicConfigsRead).Topics {
		text := c.Topic
		switch {
		case c.Err != "":
			text += " error"
		case c.Unclean != nil && *c.Unclean:
			text += " unclean"
		case c.Unclean != nil:
			text += " clean"
		}
		got = append(got, text)
	}
	h.want("configs", "none, unset, on unclean, off clean, odd error, broken error", strings.Join(got, ", "))
	h.want("delete", []controller.ItemStatus{controller.ItemOK, controller.ItemOK}, h.statuses(controller.DeleteTopicConfigs{Topics: []string{"on", "none"}}))
	h.want("deleted", "absent", h.data(coord.ConfigEntityPath(coord.TopicConfigs, "on")))
}

func TestNotificationsAreReadAndRemoved(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	h.create(coord.LogDirEventPrefix+"0000000000", `{"version":1,"broker":3,"event":1}`)
	h.create(coord.LogDirEventPrefix+"0000000001", `nonsense`)
	h.create(coord.ISRChangePrefix+"0000000004", `{"version":1,"partitions":[{"topic":"a","partition":2}]}`)
	h.want("log dirs", controller.LogDirEventsRead{Events: []controller.LogDirEvent{
		{Name: "log_dir_event_0000000000", Broker: 3, Valid: true}, {Name: "log_dir_event_0000000001"}}}, h.run(controller.ReadLogDirEvents{}))
	h.want("isr changes", controller.ISRChangesRead{Changes: []controller.ISRChange{
		{Name: "isr_change_0000000004", Partitions: []cluster.TopicPartition{{Topic: "a", Partition: 2}}}}}, h.run(controller.ReadISRChanges{}))
	one := []controller.ItemStatus{controller.ItemOK}
	h.want("delete one", one, h.statuses(controller.DeleteLogDirEvents{Names: []string{"log_dir_event_0000000001"}}))
	if n := len(h.run(controller.ReadLogDirEvents{}).(controller.LogDirEventsRead).Events); n != 1 {
		t.Errorf("%d events left, want 1", n)
	}
	h.want("delete all", one, h.statuses(controller.DeleteLogDirEvents{}))
	h.want("delete none", one, h.statuses(controller.DeleteLogDirEvents{}))
	h.want("delete all", one, h.statuses(controller.DeleteISRChanges{}))
	h.want("left", controller.ISRChangesRead{}, h.run(controller.ReadISRChanges{}))
}

func TestProducerIDBlocks(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	h.want("never written", controller.ProducerIDBlockRead{}, h.run(controller.ReadProducerIDBlock{}))
	set := controller.SetProducerIDBlock{Block: controller.ProducerIDBlock{Broker: 2, Start: 0, End: 999}, Version: 0}
	h.want("set", []controller.ItemStatus{controller.ItemOK}, h.statuses(set))
	h.want("read", controller.ProducerIDBlockRead{Exists: true, Block: set.Block, Version: 1}, h.run(controller.ReadProducerIDBlock{}))
	h.want("conflict", []controller.ItemStatus{controller.ItemConflict}, h.statuses(set))
	if _, err := h.store.Multi(t.Context(), coord.Delete(coord.ProducerIDBlockPath, coord.AnyVersion)); err != nil {
		t.Fatal(err)
	}
	h.want("absent", controller.ProducerIDBlockRead{}, h.run(controller.ReadProducerIDBlock{}))
	h.want("set anew", []controller.ItemStatus{controller.ItemOK}, h.statuses(set))
}

func TestFeaturesFollowTheInterBrokerProtocolVersion(t *testing.T) {
	const (
		v2 = `{"features":{},"version":2,"status":1}`
		v1 = `{"features":{},"version":1,"status":1}`
		no = `{"features":{},"version":1,"status":0}`
	)
	for _, c := range []struct{ name, ibp, before, after string }{
		{"a fresh cluster at 3.9", "3.9", "absent", v2},
		{"a fresh cluster at 2.8", "2.8", "absent", v1},
		{"a fresh cluster before features", "2.6", "absent", no},
		{"the protocol version is raised", "3.9", no, v2},
		{"the layout is older", "3.3", v1, v2},
		{"levels stay", "3.9", `{"features":{"f":{"max_version_level":2}},"version":2,"status":1}`, `{"features":{"f":{"max_version_level":2}},"version":2,"status":1}`},
		{"levels in the older layout", "2.8", `{"features":{"f":{"max_version_level":2}},"version":2,"status":1}`, `{"features":{"f":{"min_version_level":1,"max_version_level":2}},"version":1,"status":1}`},
		{"levels of a disabled node go", "3.9", `{"features":{"f":{"max_version_level":2}},"version":2,"status":0}`, v2},
		{"the protocol version is lowered", "2.6", v2, no},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newStoreHarness(t, c.ibp)
			if c.before != "absent" {
				h.create(coord.FeaturePath, c.before)
			}
			for range 2 {
				if f := h.run(controller.EnsureFeatures{}).(controller.FeaturesRead); f.Err != "" || !cmp.Equal(f, h.run(controller.ReadFeatures{})) {
					t.Errorf("set up as %+v, read as %+v", f, h.run(controller.ReadFeatures{}))
				}
			}
			h.want("features", c.after, h.data(coord.FeaturePath))
			if n, _ := h.store.Get(t.Context(), coord.FeaturePath); n.Stat.Version > 1 {
				t.Errorf("written %d times", n.Stat.Version)
			}
		})
	}
	h := newStoreHarness(t, "3.9")
	h.create(coord.FeaturePath, "garbage")
	for _, op := range []controller.StoreOp{controller.EnsureFeatures{}, controller.ReadFeatures{}} {
		if f := h.run(op).(controller.FeaturesRead); f.Err == "" || h.data(coord.FeaturePath) != "garbage" {
			t.Errorf("%T of garbage: %+v", op, f)
		}
	}
}

func TestFinalizedFeaturesAreWrittenByVersion(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	set := controller.SetFeatures{Levels: map[string]int16{"f": 3}, Version: -1}
	h.want("create", []controller.ItemStatus{controller.ItemOK}, h.statuses(set))
	h.want("exists", []controller.ItemStatus{controller.ItemExists}, h.statuses(set))
	h.want("read", controller.FeaturesRead{Levels: map[string]int16{"f": 3}, Version: 0}, h.run(controller.ReadFeatures{}))
	set = controller.SetFeatures{Levels: map[string]int16{"f": 2}, Version: 0}
	h.want("set", []controller.ItemStatus{controller.ItemOK}, h.statuses(set))
	h.want("conflict", []controller.ItemStatus{controller.ItemConflict}, h.statuses(set))
	h.want("data", `{"features":{"f":{"max_version_level":2}},"version":2,"status":1}`, h.data(coord.FeaturePath))
	old := newStoreHarness(t, "2.8")
	old.want("the older layout", []controller.ItemStatus{controller.ItemOK}, old.statuses(controller.SetFeatures{Levels: map[string]int16{"f": 2}, Version: -1}))
	old.want("data", `{"features":{"f":{"min_version_level":1,"max_version_level":2}},"version":1,"status":1}`, old.data(coord.FeaturePath))
}

func TestBrokersThatCannotBeReadAreLeftOut(t *testing.T) {
	h := newStoreHarness(t, "3.9")
	s := h.create(coord.BrokerPath(3), string(coord.EncodeBroker(coord.BrokerNode{Endpoints: []cluster.Endpoint{endpointOf(3)}, Rack: "r", JMXPort: -1})))
	h.create(coord.BrokerPath(4), "garbage")
	h.create(coord.BrokerIDsPath+"/x", "{}")
	want := brokerOf(3)
	want.Epoch, want.Rack = cluster.BrokerEpoch(s.Czxid), "r"
	h.want("brokers", controller.BrokersRead{Brokers: []cluster.Broker{want}}, h.run(controller.ReadBrokers{}))
}
