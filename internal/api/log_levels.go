package api

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/loglevel"
)

// Log levels are the configs of the resource BROKER_LOGGER, whose name is this broker's id (KIP-412). They are seen by DescribeConfigs and changed
// by IncrementalAlterConfigs, at once and until the broker stops; nothing of them is in the store. Refusals of a change, the
// first match wins and nothing is changed then:
//
//	no ALTER_CONFIGS on the cluster                          CLUSTER_AUTHORIZATION_FAILED
//	not this broker's id                                     INVALID_REQUEST
//	append or subtract                                       INVALID_REQUEST
//	a logger that does not exist, a level that is none       INVALID_CONFIG
//	the root's level taken away                              INVALID_REQUEST
//
// Kafka: ConfigAdminManager.validateLogLevelConfigs and alterLogLevelConfigs.

// alterLogLevels is called for what passed the checks that all resources share.
func (h *Handlers) alterLogLevels(c *configAlteration, validateOnly bool) answerError {
	if e := checkNodeID(c.name, h.d.BrokerID); e.failed() {
		return e
	}
	levels := h.d.LogLevels
	for _, change := range c.changes {
		if e := checkLogLevel(levels, change); e.failed() {
			return e
		}
	}
	if validateOnly {
		return answerError{}
	}
	for _, change := range c.changes {
		if change.Op == config.Delete {
			levels.Unset(change.Name)
		} else if level, err := loglevel.Parse(*change.Value); err == nil {
			levels.Set(change.Name, level)
		}
	}
	return answerError{}
}

func checkLogLevel(levels *loglevel.Levels, c config.Change) answerError {
	switch {
	case c.Op != config.Set && c.Op != config.Delete:
		return errorf(cluster.InvalidRequest, "The level of logger %s can be set and deleted, nothing else.", c.Name)
	case !levels.Exists(c.Name):
		return errorf(cluster.InvalidConfig, "Logger %s does not exist. There are: %s.", c.Name, strings.Join(levels.Names(), ", "))
	case c.Op == config.Delete && c.Name == loglevel.Root:
		return errorf(cluster.InvalidRequest, "The level of the %s logger cannot be deleted.", loglevel.Root)
	case c.Op == config.Delete:
		return answerError{}
	}
	if _, err := loglevel.Parse(*c.Value); err != nil {
		return errorf(cluster.InvalidConfig, "Logger %s: %v.", c.Name, err)
	}
	return answerError{}
}

// describeLogLevels lists the loggers with the levels that they have.
func (h *Handlers) describeLogLevels(res *kmsg.DescribeConfigsRequestResource) ([]config.Entry, answerError) {
	if res.ResourceName == "" {
		return nil, errorf(cluster.InvalidRequest, "Broker id must not be empty")
	}
	if e := h.checkDescribedBroker(res.ResourceName, ""); e.failed() {
		return nil, e
	}
	var out []config.Entry
	for _, name := range h.d.LogLevels.Names() {
		if keys := askedKeys(res); keys != nil && !slices.Contains(keys, name) {
			continue
		}
		level := h.d.LogLevels.Level(name)
		out = append(out, config.Entry{Name: name, Value: &level, Source: config.DynamicBrokerLogger})
	}
	return out, answerError{}
}
