package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
	"klamm/internal/security/acl"
	"klamm/internal/wire"
)

// configAlteration is one resource whose configs a request changes and, afterwards, what became of it.
type configAlteration struct {
	kind    kmsg.ConfigResourceType
	name    string
	changes []config.Change // incremental; applied to what the store has
	replace bool            // changes is the whole new set (AlterConfigs)

	err answerError
}

// String is Kafka's ConfigResource.toString, which its messages contain.
func (c *configAlteration) String() string {
	return fmt.Sprintf("ConfigResource(type=%s, name='%s')", resourceTypeName(c.kind), c.name)
}

func resourceTypeName(kind kmsg.ConfigResourceType) string {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return "TOPIC"
	case kmsg.ConfigResourceTypeBroker:
		return "BROKER"
	case kmsg.ConfigResourceTypeBrokerLogger:
		return "BROKER_LOGGER"
	case kmsg.ConfigResourceTypeClientMetrics:
		return "CLIENT_METRICS"
	case kmsg.ConfigResourceTypeGroupConfig:
		return "GROUP"
	default:
		return "UNKNOWN"
	}
}

// alterConfigs checks the changes and writes those that pass, each entity on condition that it is as it was read,
// together with the notification that makes all brokers read it. Kafka reads, changes and overwrites, so of two
// concurrent changes one can be lost (Kafka: ConfigAdminManager.preprocess, ZkAdminManager.alterConfigs).
func (h *Handlers) alterConfigs(ctx context.Context, r *wire.Request, items []*configAlteration, validateOnly bool) {
	preprocess(items, h.d.BrokerID)
	for _, c := range items {
		if !c.err.failed() {
			c.err = answerError{Code: h.configsDenied(r, acl.AlterConfigs, c.kind, c.name).Code} // Kafka: without a text
		}
		if c.kind == kmsg.ConfigResourceTypeBrokerLogger && !c.err.failed() {
			c.err = h.alterLogLevels(c, validateOnly)
		}
	}
	pending := slices.DeleteFunc(slices.Clone(items), func(c *configAlteration) bool { return c.kind == kmsg.ConfigResourceTypeBrokerLogger })
	for try := 0; len(pending) > 0; try++ {
		entities, err := h.readEntities(ctx, pending)
		if err != nil {
			h.d.Log.Error("read configs before a change", "err", err)
			for _, c := range pending {
				if !c.err.failed() {
					c.err = storeError(err)
				}
			}
			return
		}
		var groups []*atomicGroup
		var writing []*configAlteration
		for i, c := range pending {
			if c.err.failed() {
				continue
			}
			e := entities[i]
			var settings map[string]string
			if settings, c.err = h.alter(c, e); c.err.failed() || validateOnly {
				continue
			}
			groups = append(groups, e.writes(settings))
			writing = append(writing, c)
		}
		writeGroups(ctx, h.d.Store, groups)
		pending = nil
		for i, c := range writing {
			switch err := groups[i].err; {
			case err == nil:
			case isConflict(err) && try < conflictTriesMax:
				pending = append(pending, c)
			default:
				h.d.Log.Error("write configs", "entity", c.String(), "err", err)
				c.err = storeError(err)
			}
		}
	}
}

// preprocess holds the checks that need no store: each resource once, no key twice, no null where a value is needed, the
// types, and brokers by their own id.
func preprocess(items []*configAlteration, self cluster.BrokerID) {
	type key struct {
		kind kmsg.ConfigResourceType
		name string
	}
	times := map[key]int{}
	for _, c := range items {
		times[key{c.kind, c.name}]++
	}
	for _, c := range items {
		switch e := checkChanges(c.changes); {
		case times[key{c.kind, c.name}] > 1:
			c.err = errorf(cluster.InvalidRequest, "Each resource must appear at most once.")
		case e.failed():
			c.err = e
		case c.kind == kmsg.ConfigResourceTypeTopic:
			if c.name == "" {
				c.err = errorf(cluster.InvalidRequest, "Default topic resources are not allowed.")
			}
		case c.kind == kmsg.ConfigResourceTypeBroker:
			c.err = checkOwnBroker(c.name, self)
		case c.kind == kmsg.ConfigResourceTypeClientMetrics, c.kind == kmsg.ConfigResourceTypeGroupConfig:
			c.err = errorf(cluster.InvalidRequest, "AlterConfigs is only supported for topics and brokers, but resource type is %s", resourceTypeName(c.kind))
		case c.kind == kmsg.ConfigResourceTypeBrokerLogger && !c.replace: // alterLogLevels, once it is known that the client may
		default:
			c.err = errorf(cluster.InvalidRequest, "Unknown resource type %d", c.kind)
		}
	}
}

func checkChanges(changes []config.Change) answerError {
	seen := map[string]bool{}
	var null []string
	for _, c := range changes {
		if seen[c.Name] {
			return errorf(cluster.InvalidRequest, "Error due to duplicate config keys")
		}
		seen[c.Name] = true
		if c.Value == nil && c.Op != config.Delete {
			null = append(null, c.Name)
		}
	}
	if null != nil {
		return errorf(cluster.InvalidRequest, "Null value not supported for : %s", strings.Join(null, ", "))
	}
	return answerError{}
}

func checkOwnBroker(name string, self cluster.BrokerID) answerError {
	if name == "" {
		return answerError{}
	}
	return checkNodeID(name, self)
}

func checkNodeID(name string, self cluster.BrokerID) answerError {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return errorf(cluster.InvalidRequest, "Node id must be an integer, but it is: %s", name)
	}
	if cluster.BrokerID(id) != self {
		return errorf(cluster.InvalidRequest, "Unexpected broker id, expected %d, but received %s", self, name)
	}
	return answerError{}
}

// configEntity is a config node as it was read, with the topic's own node where it is a topic's.
type configEntity struct {
	kind, name string
	settings   map[string]string
	exists     bool
	version    int32
	noTopic    bool
}

// writes sets the entity as it was read and announces the change. A topic must still exist, so that no config outlives it.
func (e *configEntity) writes(settings map[string]string) *atomicGroup {
	path, data := coord.ConfigEntityPath(e.kind, e.name), coord.EncodeConfig(settings)
	var ops []coord.Op
	if e.kind == coord.TopicConfigs {
		ops = append(ops, coord.Check(coord.TopicPath(e.name), coord.AnyVersion))
	}
	if e.exists {
		ops = append(ops, coord.Set(path, data, e.version))
	} else {
		ops = append(ops, coord.Create(path, data))
	}
	change := coord.CreateSequential(coord.ConfigChangePrefix, coord.EncodeConfigChange(e.kind+"/"+e.name))
	return &atomicGroup{ops: append(ops, change)}
}

// readEntities reads what the items without error are about, in one call; the result is parallel to items.
func (h *Handlers) readEntities(ctx context.Context, items []*configAlteration) ([]*configEntity, error) {
	out := make([]*configEntity, len(items))
	var paths []string
	var of []int
	for i, c := range items {
		if c.err.failed() {
			continue
		}
		e := &configEntity{kind: coord.TopicConfigs, name: c.name}
		if c.kind == kmsg.ConfigResourceTypeBroker {
			e.kind, e.name = coord.BrokerConfigs, c.name
			if c.name == "" {
				e.name = coord.DefaultEntity
			}
		} else if cluster.ValidateTopicName(c.name) != nil { // must not become a path
			e.noTopic = true
			out[i] = e
			continue
		}
		out[i] = e
		second := coord.ConfigEntityPath(e.kind, e.name) // for a broker there is no second node: read the same again
		if e.kind == coord.TopicConfigs {
			second = coord.TopicPath(c.name)
		}
		paths = append(paths, coord.ConfigEntityPath(e.kind, e.name), second)
		of = append(of, i)
	}
	if len(paths) == 0 {
		return out, nil
	}
	nodes, err := h.d.Store.GetMany(ctx, paths)
	if err != nil {
		return nil, err
	}
	for n, i := range of {
		e := out[i]
		node := nodes[2*n]
		e.noTopic = e.kind == coord.TopicConfigs && errors.Is(nodes[2*n+1].Err, coord.ErrNoNode)
		if node.Err != nil {
			continue
		}
		e.exists, e.version = true, node.Node.Stat.Version
		if e.settings, err = coord.DecodeConfig(node.Node.Data); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// alter gives the entity's new settings.
func (h *Handlers) alter(c *configAlteration, e *configEntity) (map[string]string, answerError) {
	if e.noTopic {
		return nil, errorf(cluster.UnknownTopicOrPartition, "The topic '%s' does not exist.", c.name)
	}
	var settings map[string]string
	var err *config.Error
	isTopic, isOne := e.kind == coord.TopicConfigs, e.name != coord.DefaultEntity
	switch {
	case isTopic && c.replace:
		settings, err = h.d.Config.ValidateTopic(wholeSet(c.changes))
	case isTopic:
		settings, err = h.d.Config.AlterTopic(e.settings, c.changes)
	case c.replace:
		settings, err = h.d.Config.ValidateBroker(wholeSet(c.changes), isOne)
	default:
		settings, err = h.d.Config.AlterBroker(e.settings, c.changes, isOne)
	}
	switch {
	case err == nil:
		return settings, answerError{}
	case isTopic && err.Code == cluster.InvalidConfig && strings.HasPrefix(err.Message, "Invalid value "):
		// Kafka: a ConfigException gets this prefix, its other exceptions do not.
		return nil, errorf(err.Code, "Invalid config value for resource %v: %s", c, err.Message)
	default:
		return nil, answerError{err.Code, err.Message}
	}
}

func wholeSet(changes []config.Change) map[string]*string {
	out := make(map[string]*string, len(changes))
	for _, c := range changes {
		out[c.Name] = c.Value
	}
	return out
}
