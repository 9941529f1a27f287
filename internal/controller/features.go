package controller

import (
	"fmt"
	"maps"
	"slices"

	"klamm/internal/cluster"
)

// Finalized features (KIP-584): levels in /feature that every broker of the cluster must support. The controller filters brokers by
// them, and UpdateFeatures changes them.

// setUpFeatures brings /feature in line with the inter-broker protocol version and learns what is finalized.
func (c *Core) setUpFeatures() error {
	for attempt := 0; ; attempt++ {
		r := c.run(EnsureFeatures{}, true, c.backoff(attempt))
		switch r.Outcome {
		case Applied:
			f := valueAs[FeaturesRead](r, EnsureFeatures{})
			if f.Err != "" {
				c.note(Warn, "finalized features could not be set up", "", f.Err)
			}
			c.ctx.features = f.Levels
			return nil
		case UnknownOutcome, Unavailable:
			c.noteStoreRetry(EnsureFeatures{}, r, attempt)
		default:
			return outcomeError(r, EnsureFeatures{})
		}
	}
}

// compatible leaves out brokers that do not support what is finalized: they are handled as if they were not registered, and told
// nothing (W22: to Kafka they are new at every BrokerChange, and get what a new broker gets).
func (c *Core) compatible(brokers []cluster.Broker) []cluster.Broker {
	x := c.ctx
	before := x.incompatible
	x.incompatible = map[cluster.BrokerID]cluster.BrokerEpoch{}
	out := make([]cluster.Broker, 0, len(brokers))
	for _, b := range brokers {
		feature := unsupported(b.Features, x.features)
		if feature == "" {
			out = append(out, b)
			continue
		}
		x.incompatible[b.ID] = b.Epoch
		if before[b.ID] != b.Epoch {
			c.noteBroker(Warn, "broker does not support a finalized feature and is left out", b.ID,
				fmt.Sprintf("%s at level %d; it supports %d to %d", feature, x.features[feature], b.Features[feature].Min, b.Features[feature].Max))
		}
	}
	return out
}

// unsupported names the first finalized feature that a broker does not support at its level; "" when there is none.
func unsupported(supported map[string]cluster.VersionRange, finalized map[string]int16) string {
	for _, name := range slices.Sorted(maps.Keys(finalized)) {
		if !supported[name].Contains(finalized[name]) {
			return name
		}
	}
	return ""
}

// handleUpdateFeatures changes finalized features. The features of a request are judged one by one, against what is finalized before it; the valid
// ones are written together, conditional on the node's version and, unlike in Kafka, fenced (W23).
func (c *Core) handleUpdateFeatures(ev UpdateFeatures) error {
	if !c.cfg.FeatureVersioning {
		c.reply(UpdateFeaturesResult{Err: cluster.InvalidRequest, Version: -1,
			Message: "features are not versioned: inter.broker.protocol.version is below 2.7-IV0"})
		return nil
	}
	attempt := 0
	for range maxConflictRounds {
		cur, err := query[FeaturesRead](c, ReadFeatures{})
		if err != nil {
			return err
		}
		target, outcomes := c.judgeFeatures(ev.Updates, cur.Levels)
		switch {
		case cur.Err != "":
			c.reply(UpdateFeaturesResult{Features: failFeatures(outcomes, cur.Err), Version: -1})
			return nil
		case ev.ValidateOnly || maps.Equal(target, cur.Levels):
			c.reply(UpdateFeaturesResult{Features: outcomes, Version: -1})
			return nil
		}
		written, failure, err := c.setFeatures(target, cur.Version, &attempt)
		switch {
		case err != nil:
			return err
		case failure != "":
			c.reply(UpdateFeaturesResult{Features: failFeatures(outcomes, failure), Version: -1})
			return nil
		case written >= 0:
			c.note(Info, "finalized features changed", "", fmt.Sprint(target))
			c.ctx.features = target
			c.reply(UpdateFeaturesResult{Features: outcomes, Version: written})
			if len(c.ctx.incompatible) > 0 { // what was finalized may have been deleted
				return c.handleBrokerChange()
			}
			return nil
		}
	}
	_, outcomes := c.judgeFeatures(ev.Updates, nil)
	c.reply(UpdateFeaturesResult{Features: failFeatures(outcomes, "the node of features is being changed by others"), Version: -1})
	return nil
}

// setFeatures writes what is finalized. It returns the node's new version, -1 when the node changed meanwhile, or why it cannot be written.
func (c *Core) setFeatures(levels map[string]int16, at int32, attempt *int) (version int32, failure string, err error) {
	items, applied, err := c.write(SetFeatures{levels, at}, 1, attempt)
	if err != nil {
		return -1, "", err
	}
	if !applied {
		now, err := query[FeaturesRead](c, ReadFeatures{})
		if err != nil || now.Version != at+1 || !maps.Equal(now.Levels, levels) {
			return -1, "", err
		}
		return now.Version, "", nil
	}
	switch items[0].Status {
	case ItemOK:
		return items[0].Version, "", nil
	case ItemConflict, ItemExists, ItemNoNode:
		return -1, "", nil
	}
	return -1, itemError("write the node of features", items[0]), nil
}

// failFeatures makes valid updates FEATURE_UPDATE_FAILED; invalid ones keep their errors.
func failFeatures(outcomes []FeatureOutcome, why string) []FeatureOutcome {
	for i := range outcomes {
		if outcomes[i].Err == cluster.None {
			outcomes[i].Err, outcomes[i].Message = cluster.FeatureUpdateFailed, why
		}
	}
	return outcomes
}

// judgeFeatures says what becomes of each update, in order, and what is finalized with the valid ones. A feature that the request names twice is
// taken as named first (Kafka keeps updates by name).
func (c *Core) judgeFeatures(updates []FeatureUpdate, existing map[string]int16) (target map[string]int16, outcomes []FeatureOutcome) {
	target = maps.Clone(existing)
	if target == nil {
		target = map[string]int16{}
	}
	seen := map[string]bool{}
	for _, u := range updates {
		if seen[u.Feature] {
			continue
		}
		seen[u.Feature] = true
		level, finalized := existing[u.Feature]
		o := FeatureOutcome{Feature: u.Feature}
		if why := c.judgeFeature(u, level, finalized); why != "" {
			o.Err, o.Message = cluster.InvalidRequest, why
		} else if u.deletes() {
			delete(target, u.Feature)
		} else {
			target[u.Feature] = u.Level
		}
		outcomes = append(outcomes, o)
	}
	return target, outcomes
}

// deletes: a level below 1 takes the feature out, which counts as a downgrade (Kafka: UpdateFeaturesRequest.isDeleteRequest).
func (u FeatureUpdate) deletes() bool { return u.Level < 1 && u.Type != UpgradeFeature }

// judgeFeature says why one update is invalid; "" when it is valid (Kafka: KafkaController.validateFeatureUpdate). All refusals are INVALID_REQUEST.
func (c *Core) judgeFeature(u FeatureUpdate, level int16, finalized bool) string {
	switch {
	case u.Feature == "":
		return "a feature has a name"
	case u.Type < UpgradeFeature || u.Type > UnsafeDowngradeFeature:
		return fmt.Sprintf("upgrade type %d is unknown", u.Type)
	case u.deletes() && !finalized:
		return "a feature that is not finalized cannot be deleted"
	case u.deletes():
		return ""
	case u.Level < 1:
		return fmt.Sprintf("level %d is below 1, which deletes the feature and needs a downgrade", u.Level)
	case finalized && u.Level == level:
		return fmt.Sprintf("the feature is at level %d already", level)
	case finalized && u.Level < level && u.Type != SafeDowngradeFeature:
		return fmt.Sprintf("level %d is below the present one, %d, which needs a safe downgrade", u.Level, level)
	case finalized && u.Level > level && u.Type != UpgradeFeature:
		return fmt.Sprintf("level %d is above the present one, %d, which is no downgrade", u.Level, level)
	}
	supported, known := c.cfg.SupportedFeatures[u.Feature]
	if !known {
		return "the feature is not supported"
	}
	if !supported.Contains(u.Level) {
		return fmt.Sprintf("the controller supports levels %d to %d", supported.Min, supported.Max)
	}
	for _, id := range c.ctx.brokerIDs() {
		if r := c.ctx.brokers[id].Features[u.Feature]; !r.Contains(u.Level) {
			return fmt.Sprintf("broker %d supports levels %d to %d", id, r.Min, r.Max)
		}
	}
	return ""
}
