package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"klamm/internal/cluster"
	"klamm/internal/config"
	"klamm/internal/coord"
)

// producerIDManager hands out producer ids from blocks that the controller allocates (Kafka: RPCProducerIdManager), or that it
// takes itself where the inter-broker protocol is older. The
// next block is asked for when 90 % of the current one is used, so that nobody waits; who comes while there is none, as
// the first one does, is answered when the block arrives, or with COORDINATOR_LOAD_IN_PROGRESS when asking failed.
//
// Locks: mu guards what is beside it and is held for no IO, no channel operation that could block and no callback.
type producerIDManager struct {
	log      *slog.Logger
	brokerID cluster.BrokerID
	epoch    func() cluster.BrokerEpoch
	link     ControllerLink
	// store gives the blocks itself below inter.broker.protocol.version 3.0-IV0, where controllers give none; else nil.
	store  coord.Store
	wanted chan struct{} // holds one token while a block is to be asked for

	mu       sync.Mutex
	current  producerIDBlock
	upcoming producerIDBlock // prefetched, empty until then
	asked    bool            // a block is wanted and has not come
	waiting  []func(id int64, code cluster.ErrorCode)
	ended    bool
}

// producerIDBlock is the ids in [first, end); at prefetchAt the next block is asked for.
type producerIDBlock struct {
	first, end int64
	prefetchAt int64
}

const (
	producerIDRetryBackoff = 50 * time.Millisecond
	producerIDTimeout      = 30 * time.Second
	// producerIDWaitersMax bounds who waits for a block; more are told to come again.
	producerIDWaitersMax = 10_000
)

func newProducerIDManager(d Deps) *producerIDManager {
	m := &producerIDManager{log: d.Log, brokerID: d.BrokerID, epoch: d.BrokerEpoch, link: d.Link, wanted: make(chan struct{}, 1)}
	if !d.Config.Broker().InterBrokerProtocol.AtLeast(config.ProtocolVersion{Major: 3}) {
		m.store = d.Store
	}
	return m
}

// next calls done with a fresh id, maybe before it returns.
func (m *producerIDManager) next(done func(id int64, code cluster.ErrorCode)) {
	m.mu.Lock()
	if m.current.first == m.current.end && m.upcoming.first != m.upcoming.end {
		m.current, m.upcoming = m.upcoming, producerIDBlock{}
	}
	hasID := m.current.first < m.current.end
	id := m.current.first
	if hasID {
		m.current.first++
	}
	isFull := !hasID && (m.ended || len(m.waiting) >= producerIDWaitersMax)
	if !hasID && !isFull {
		m.waiting = append(m.waiting, done)
	}
	ask := (!hasID || m.current.first >= m.current.prefetchAt) && m.upcoming.first == m.upcoming.end && !m.asked && !m.ended
	m.asked = m.asked || ask
	m.mu.Unlock()
	if ask {
		m.wanted <- struct{}{} // has room: asked is set by who sends and cleared after the token was taken
	}
	switch {
	case hasID:
		done(id, cluster.None)
	case isFull:
		done(-1, cluster.CoordinatorLoadInProgress)
	}
}

// run asks the controller for blocks until the context ends.
func (m *producerIDManager) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			m.fail(true)
			return
		case <-m.wanted:
		}
		for !m.fetch(ctx) {
			m.fail(false)
			select {
			case <-ctx.Done():
			case <-time.After(producerIDRetryBackoff):
			}
			if ctx.Err() != nil {
				break
			}
		}
	}
}

// fetch asks for one block and hands it out; false when that failed.
func (m *producerIDManager) fetch(ctx context.Context) bool {
	block, err := m.allocate(ctx)
	if err != nil {
		if ctx.Err() == nil {
			m.log.Warn("no producer ids from the controller", "err", err)
		}
		return false
	}
	m.mu.Lock()
	m.asked = false
	if m.current.first == m.current.end {
		m.current = block
	} else {
		m.upcoming = block
	}
	waiting := m.waiting
	m.waiting = nil
	m.mu.Unlock()
	for _, done := range waiting {
		m.next(done)
	}
	return true
}

// fail tells those who wait that there are no ids now; they come again, and the manager goes on asking.
func (m *producerIDManager) fail(ended bool) {
	m.mu.Lock()
	m.ended = m.ended || ended
	waiting := m.waiting
	m.waiting = nil
	m.mu.Unlock()
	for _, done := range waiting {
		done(-1, cluster.CoordinatorLoadInProgress)
	}
}

func (m *producerIDManager) allocate(ctx context.Context) (producerIDBlock, error) {
	ctx, cancel := context.WithTimeout(ctx, producerIDTimeout)
	defer cancel()
	if m.store != nil {
		return takeProducerIDBlock(ctx, m.store, m.brokerID)
	}
	req := kmsg.NewPtrAllocateProducerIDsRequest()
	req.BrokerID, req.BrokerEpoch = int32(m.brokerID), int64(m.epoch())
	got, err := m.link.Request(ctx, req)
	if err != nil {
		return producerIDBlock{}, fmt.Errorf("allocate producer ids: %w", err)
	}
	resp, ok := got.(*kmsg.AllocateProducerIDsResponse)
	switch {
	case !ok:
		return producerIDBlock{}, fmt.Errorf("allocate producer ids: answer of key %d", got.Key())
	case resp.ErrorCode != 0:
		return producerIDBlock{}, fmt.Errorf("allocate producer ids: %v", cluster.ErrorCode(resp.ErrorCode))
	case resp.ProducerIDStart < 0 || resp.ProducerIDLen <= 0:
		return producerIDBlock{}, errors.New("allocate producer ids: empty block")
	}
	return newProducerIDBlock(resp.ProducerIDStart, int64(resp.ProducerIDLen)), nil
}

func newProducerIDBlock(first, n int64) producerIDBlock {
	return producerIDBlock{first: first, end: first + n, prefetchAt: first + n*9/10}
}

// producerIDBlockSize is how many ids a broker takes at a time; the controller gives as many.
const producerIDBlockSize = 1000

// takeProducerIDBlock writes the next block into the node that holds the last one (Kafka: ZkProducerIdManager). Two brokers
// never get the same ids, since the write is conditional; ids whose write has no known outcome are not used.
func takeProducerIDBlock(ctx context.Context, s coord.Store, id cluster.BrokerID) (producerIDBlock, error) {
	for {
		node, err := s.Get(ctx, coord.ProducerIDBlockPath)
		if err != nil {
			return producerIDBlock{}, fmt.Errorf("read the last block of producer ids: %w", err)
		}
		last, taken, err := coord.DecodeProducerIDBlock(node.Data)
		next := coord.ProducerIDBlock{Broker: id, Last: producerIDBlockSize - 1}
		switch {
		case err != nil:
			return producerIDBlock{}, fmt.Errorf("read the last block of producer ids: %w", err)
		case taken && last.Last > math.MaxInt64-producerIDBlockSize:
			return producerIDBlock{}, errors.New("all producer ids are taken")
		case taken:
			next.First, next.Last = last.Last+1, last.Last+producerIDBlockSize
		}
		_, err = s.Multi(ctx, coord.Set(coord.ProducerIDBlockPath, coord.EncodeProducerIDBlock(next), node.Stat.Version))
		switch {
		case err == nil:
			return newProducerIDBlock(next.First, producerIDBlockSize), nil
		case !errors.Is(err, coord.ErrBadVersion):
			return producerIDBlock{}, fmt.Errorf("take a block of producer ids: %w", err)
		}
	}
}
