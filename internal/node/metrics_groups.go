package node

import (
	"context"
	"strings"
	"time"

	"klamm/internal/group"
	"klamm/internal/group/coordinator"
)

// groupStates are those that Kafka has a metric for each.
var groupStates = []group.State{group.Empty, group.PreparingRebalance, group.CompletingRebalance, group.Stable, group.Dead}

// groups gives the group coordinator's figures; what a shard does not tell within a second is left out.
func (e emitter) groups(c *coordinator.Coordinator) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m := c.Metrics(ctx)
	const p = "kafka_coordinator_group_groupmetadatamanager_"
	total := 0
	for _, s := range groupStates {
		total += m.Groups[s]
		e.gauge(p+"numgroups"+strings.ToLower(s.String()), "groups in this state", float64(m.Groups[s]))
	}
	e.gauge(p+"numgroups", "groups coordinated here", float64(total))
	e.gauge(p+"numoffsets", "committed offsets of the groups coordinated here", float64(m.Offsets))
	e.gauge("klamm_group_members", "members of the groups coordinated here", float64(m.Members))
	e.gauge("klamm_group_partitions", "partitions of __consumer_offsets served or being loaded here", float64(m.Partitions))
	e.counter("klamm_group_rebalances_total", "generations of groups begun", float64(m.Rebalances))
	e.counter("klamm_group_loads_total", "partitions of __consumer_offsets read into memory", float64(m.Loads))
	e.counter("klamm_group_loads_failed_total", "reads of __consumer_offsets that were begun again", float64(m.LoadsFailed))
	e.counter("klamm_group_load_seconds_total", "time of all loads", m.LoadTime.Seconds())
	e.gauge("klamm_group_load_seconds_max", "time of the longest load", m.LoadTimeMax.Seconds())
	e.counter("klamm_group_records_appended_total", "offsets, group records and tombstones stored", float64(m.RecordsAppended))
	e.counter("klamm_group_appends_failed_total", "batches that could not be stored", float64(m.AppendsFailed))
}
