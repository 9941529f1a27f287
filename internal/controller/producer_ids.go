package controller

import (
	"math"

	"klamm/internal/cluster"
)

// producerIDBlockSize is how many ids one block has.
const producerIDBlockSize = 1000

// handleAllocateProducerIDs hands out the next block of producer ids. Errors: not active NOT_CONTROLLER (by dispatch), broker not
// registered BROKER_ID_NOT_REGISTERED, its epoch another STALE_BROKER_EPOCH, ids used up or the last
// block unreadable UNKNOWN_SERVER_ERROR. The write is
// conditional on the node's version and, unlike in Kafka, fenced (W23).
func (c *Core) handleAllocateProducerIDs(ev AllocateProducerIDs) error {
	switch b, known := c.ctx.brokers[ev.Broker]; {
	case !known:
		c.reply(AllocateProducerIDsResult{Err: cluster.BrokerIDNotRegistered})
		return nil
	case b.Epoch != ev.BrokerEpoch:
		c.reply(AllocateProducerIDsResult{Err: cluster.StaleBrokerEpoch})
		return nil
	}
	attempt := 0
	for round := 0; round < maxConflictRounds; round++ {
		cur, err := query[ProducerIDBlockRead](c, ReadProducerIDBlock{})
		if err != nil {
			return err
		}
		if cur.Err != "" { // whoever knows the last block must mend it: ids that were given must not be given again
			c.note(Warn, "no producer ids: the last block cannot be read", "", cur.Err)
			c.reply(AllocateProducerIDsResult{Err: cluster.UnknownServerError})
			return nil
		}
		next := ProducerIDBlock{Broker: ev.Broker}
		if cur.Exists {
			if cur.Block.End > math.MaxInt64-producerIDBlockSize {
				c.note(Warn, "producer ids are used up", "", "")
				c.reply(AllocateProducerIDsResult{Err: cluster.UnknownServerError})
				return nil
			}
			next.Start = cur.Block.End + 1
		}
		next.End = next.Start + producerIDBlockSize - 1
		items, applied, err := c.write(SetProducerIDBlock{next, cur.Version}, 1, &attempt)
		if err != nil {
			return err
		}
		if applied && items[0].Status == ItemOK || !applied && c.landed(next, cur.Version, &err) {
			c.reply(AllocateProducerIDsResult{Start: next.Start, Len: producerIDBlockSize})
			return nil
		}
		if err != nil {
			return err
		}
	}
	c.reply(AllocateProducerIDsResult{Err: cluster.UnknownServerError})
	return nil
}

// landed reads whether a write whose answer was lost was applied: exactly our block, one version further.
func (c *Core) landed(block ProducerIDBlock, version int32, err *error) bool {
	r, e := query[ProducerIDBlockRead](c, ReadProducerIDBlock{})
	*err = e
	return e == nil && r.Exists && r.Block == block && r.Version == version+1
}
