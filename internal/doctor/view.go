package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
)

// Snapshot is the tree as it was read, nodes sorted by path.
type Snapshot struct {
	Taken time.Time
	Nodes []coord.Node
	// Refused are the nodes that the store did not show, with its reasons.
	Refused []Evidence
}

// view is a snapshot decoded.
type view struct {
	taken    time.Time
	grace    time.Duration // Observation.DeletionGrace
	answers  *Answers      // Observation.Brokers
	nodes    map[string]coord.Node
	names    map[string][]string // children by parent
	brokers  map[cluster.BrokerID]coord.BrokerNode
	live     []cluster.BrokerID // registered ones, also those whose node cannot be decoded
	topics   map[string]*topic  // every name that has a topic node, a marker or a config node
	order    []string           // names of topics, sorted
	assigned map[cluster.BrokerID][]cluster.TopicPartition
	broken   []Finding // nodes that cannot be decoded
}

// topic is all that the tree says about a name.
type topic struct {
	name       string
	node       *coord.Node // nil: there is no such topic
	decoded    bool
	id         cluster.TopicID
	partitions map[int32]*partition
	marker     *coord.Node
	config     *coord.Node
}

// partition is all that the tree says about a partition.
type partition struct {
	tp         cluster.TopicPartition
	assignment *cluster.ReplicaAssignment // nil: the topic node does not name it
	state      *cluster.LeaderAndISR      // nil: absent or not readable
	stateNode  *coord.Node
}

// sorted gives the partitions in order.
func (t *topic) sorted() []*partition {
	var out []*partition
	for _, id := range slices.Sorted(maps.Keys(t.partitions)) {
		out = append(out, t.partitions[id])
	}
	return out
}

func newView(s *Snapshot) *view {
	v := &view{
		taken: s.Taken, nodes: make(map[string]coord.Node, len(s.Nodes)), names: map[string][]string{},
		brokers: map[cluster.BrokerID]coord.BrokerNode{}, topics: map[string]*topic{},
		assigned: map[cluster.BrokerID][]cluster.TopicPartition{},
	}
	for _, n := range s.Nodes {
		v.nodes[n.Path] = n
		parent := coord.ParentPath(n.Path)
		v.names[parent] = append(v.names[parent], coord.BaseName(n.Path))
	}
	if len(s.Refused) > 0 {
		v.broken = append(v.broken, Finding{
			Code: "not-permitted", Severity: Warning, Subject: "examination",
			What:     fmt.Sprintf("The store does not show %s to this examination.", count(len(s.Refused), "node")),
			Evidence: s.Refused,
			Why:      "They, and what is below them, are taken for absent: other findings may follow from that.",
			Next:     "Examine as a user that may read them: --config with a broker's zookeeper.sasl.* or zookeeper.ssl.*.",
		})
	}
	v.readBrokers()
	for _, name := range v.names[coord.TopicsPath] {
		v.readTopic(name)
	}
	for _, name := range v.names[coord.DeleteTopicsPath] {
		v.topic(name).marker = v.node(coord.DeleteTopicPath(name))
	}
	for _, name := range v.names[coord.ConfigTypePath(coord.TopicConfigs)] {
		v.topic(name).config = v.node(coord.ConfigEntityPath(coord.TopicConfigs, name))
	}
	v.order = slices.Sorted(maps.Keys(v.topics))
	v.readOthers()
	return v
}

// node gives a node, or nil.
func (v *view) node(path string) *coord.Node {
	n, ok := v.nodes[path]
	if !ok {
		return nil
	}
	return &n
}

func (v *view) isLive(id cluster.BrokerID) bool { return slices.Contains(v.live, id) }

func (v *view) topic(name string) *topic {
	t := v.topics[name]
	if t == nil {
		t = &topic{name: name, partitions: map[int32]*partition{}}
		v.topics[name] = t
	}
	return t
}

// exists reports whether there is a topic of that name that is not being deleted.
func (v *view) exists(name string) bool {
	t := v.topics[name]
	return t != nil && t.node != nil && t.marker == nil
}

func (v *view) readBrokers() {
	for _, name := range v.names[coord.BrokerIDsPath] {
		id, ok := coord.ParseBrokerName(name)
		path := coord.BrokerIDsPath + "/" + name
		if !ok {
			v.broken = append(v.broken, v.unreadable(path, fmt.Errorf("%q is not a broker id", name)))
			continue
		}
		v.live = append(v.live, id)
		n, err := coord.DecodeBroker(v.nodes[path].Data)
		if err != nil {
			v.broken = append(v.broken, v.unreadable(path, err))
			continue
		}
		v.brokers[id] = n
	}
	slices.Sort(v.live)
}

func (v *view) readTopic(name string) {
	t := v.topic(name)
	t.node = v.node(coord.TopicPath(name))
	at := func(id int32) *partition {
		p := t.partitions[id]
		if p == nil {
			p = &partition{tp: cluster.TopicPartition{Topic: name, Partition: id}}
			t.partitions[id] = p
		}
		return p
	}
	decoded, err := coord.DecodeTopic(t.node.Data)
	if err != nil {
		v.broken = append(v.broken, v.unreadable(t.node.Path, err))
	}
	t.decoded, t.id = err == nil, decoded.ID
	for id, a := range decoded.Partitions {
		p := at(id)
		p.assignment = &a
		for _, r := range a.Replicas {
			v.assigned[r] = append(v.assigned[r], p.tp)
		}
	}
	for _, child := range v.names[coord.PartitionsPath(name)] {
		id, err := strconv.ParseInt(child, 10, 32)
		if err != nil || id < 0 {
			v.broken = append(v.broken, v.unreadable(coord.PartitionsPath(name)+"/"+child, fmt.Errorf("%q is not a partition", child)))
			continue
		}
		p := at(int32(id))
		p.stateNode = v.node(coord.PartitionStatePath(p.tp))
		if p.stateNode == nil {
			continue
		}
		state, err := coord.DecodePartitionState(p.stateNode.Data, p.stateNode.Stat.Version)
		if err != nil {
			v.broken = append(v.broken, v.unreadable(p.stateNode.Path, err))
			continue
		}
		p.state = &state
	}
}

// decoders say how to read the nodes that no check needs decoded; the first match counts.
var decoders = []struct {
	at    string // a path, or with a final slash all below it
	check func([]byte) error
}{
	{coord.ClusterIDPath, failure(coord.DecodeClusterID)},
	{coord.FeaturePath, failure(coord.DecodeFeatures)},
	{coord.ProducerIDBlockPath, func(b []byte) error { _, _, err := coord.DecodeProducerIDBlock(b); return err }},
	{coord.ConfigChangesPath + "/", failure(coord.DecodeConfigChange)},
	{coord.ConfigTypePath(coord.TopicConfigs) + "/", failure(coord.DecodeConfig)},
	{coord.ConfigTypePath(coord.BrokerConfigs) + "/", failure(coord.DecodeConfig)},
	{coord.ConfigTypePath(coord.ClientConfigs) + "/", failure(coord.DecodeConfig)},
	{coord.ConfigTypePath(coord.UserConfigs) + "/", failure(coord.DecodeConfig)},
	{coord.ConfigTypePath(coord.IPConfigs) + "/", failure(coord.DecodeConfig)},
	{coord.ISRChangePath + "/", failure(coord.DecodeISRChange)},
	{coord.LogDirEventPath + "/", failure(coord.DecodeLogDirEvent)},
	{coord.ACLPath + "/", failure(coord.DecodeACLs)},
	{coord.ACLExtendedPath + "/", failure(coord.DecodeACLs)},
	{coord.ACLChangesPath + "/", failure(coord.DecodeACLChange)},
	{coord.ACLExtendedChangesPath + "/", failure(coord.DecodeExtendedACLChange)},
	{coord.DelegationTokensPath + "/", failure(coord.DecodeDelegationToken)},
	{coord.MigrationPath, failure(coord.DecodeMigration)},
}

func failure[T any](decode func([]byte) (T, error)) func([]byte) error {
	return func(b []byte) error { _, err := decode(b); return err }
}

// readOthers looks for what cannot be decoded among the nodes that brokers read.
func (v *view) readOthers() {
	for _, path := range slices.Sorted(maps.Keys(v.nodes)) {
		for _, d := range decoders {
			if path != d.at && !(strings.HasSuffix(d.at, "/") && strings.HasPrefix(path, d.at)) {
				continue
			}
			if data := v.nodes[path].Data; len(data) > 0 {
				if err := d.check(data); err != nil {
					v.broken = append(v.broken, v.unreadable(path, err))
				}
			}
			break
		}
	}
}

// unreadable is the finding about a node that cannot be decoded.
func (v *view) unreadable(path string, err error) Finding {
	return Finding{
		Code: "unreadable-node", Severity: Error, Subject: path,
		What:     fmt.Sprintf("%s does not hold what belongs there: %v.", path, err),
		Evidence: []Evidence{v.see(path)},
		Why:      "Brokers skip such a node or fail on it: a controller that reads it at its start may not be able to begin its term.",
		Next:     "Find out who wrote it. Compare it with its neighbours or with a backup, and restore it with the tool that owns it (kafka-configs, kafka-acls, kafka-topics), not by hand.",
	}
}

// see gives a node as evidence.
func (v *view) see(path string) Evidence {
	n := v.node(path)
	if n == nil {
		return Evidence{path, "absent"}
	}
	if len(n.Data) == 0 {
		return Evidence{path, "exists, empty"}
	}
	return Evidence{path, string(n.Data)}
}

func (v *view) seeAll(paths ...string) []Evidence {
	out := make([]Evidence, len(paths))
	for i, p := range paths {
		out[i] = v.see(p)
	}
	return out
}

// age is how long ago a node was created; 0 when the engine does not tell.
func (v *view) age(n *coord.Node) time.Duration {
	if n.Stat.Ctime.IsZero() || n.Stat.Ctime.After(v.taken) {
		return 0
	}
	return v.taken.Sub(n.Stat.Ctime).Round(time.Second)
}

// ids writes "broker 1" or "brokers 1, 2".
func ids(list []cluster.BrokerID) string {
	text := make([]string, len(list))
	for i, id := range list {
		text[i] = strconv.Itoa(int(id))
	}
	return plural(len(list), "broker") + " " + strings.Join(text, ", ")
}

// plural adds an s where it belongs.
func plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}

// count writes "1 partition" or "3 partitions".
func count(n int, noun string) string { return fmt.Sprintf("%d %s", n, plural(n, noun)) }

// either picks the form for one or for several.
func either(n int, one, several string) string {
	if n == 1 {
		return one
	}
	return several
}

// ranges writes partition numbers as "0-4, 7".
func ranges(ps []*partition) string {
	var b strings.Builder
	for i := 0; i < len(ps); {
		j := i
		for j+1 < len(ps) && ps[j+1].tp.Partition == ps[j].tp.Partition+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d", ps[i].tp.Partition)
		if j > i {
			fmt.Fprintf(&b, "-%d", ps[j].tp.Partition)
		}
		i = j + 1
	}
	return b.String()
}

// partitionsText writes "partition 3" or "partitions 0-4".
func partitionsText(ps []*partition) string { return plural(len(ps), "partition") + " " + ranges(ps) }
