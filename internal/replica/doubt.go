package replica

import (
	"context"
	"time"

	"klamm/internal/cluster"
)

// A leadership is in doubt while this broker has no session with the coordination store and no other in-sync replica fetches:
// the others may have elected another leader long since, and nobody can say so here. Its clients get NOT_LEADER_OR_FOLLOWER then
// and look elsewhere, where a leader of Kafka's holds their requests until they time out, again and again as long as its own
// metadata names it, and takes records with acks 0 and 1 that are truncated later. A store that is down for all
// stops nobody: followers go on fetching, and that is proof enough. Nor does it stop a leader that is alone in the ISR, since
// no other replica may be elected.

// doubtEvery is how often leaderships are looked at while there is no session.
const doubtEvery = 250 * time.Millisecond

// silenceFactor is after how many of the longest waits of a follower's fetch (replica.fetch.wait.max.ms) a follower counts as silent.
const silenceFactor = 2

func (m *Manager) runDoubts(ctx context.Context) {
	tick := time.NewTicker(doubtEvery)
	defer tick.Stop()
	doubted := 0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			lost := !m.registered()
			if !lost && doubted == 0 {
				continue
			}
			before := doubted
			doubted = m.doubt(lost, now)
			switch {
			case before == 0 && doubted > 0:
				m.log.Warn("leaderships in doubt: this broker has no session with the coordination store, and no in-sync replica fetches; clients are told to look for another leader",
					"partitions", doubted)
			case before > 0 && doubted == 0:
				m.log.Info("no leadership is in doubt any more")
			}
		}
	}
}

// doubt looks at all leaderships, wakes who waits for those that have come into doubt, and counts these.
func (m *Manager) doubt(lost bool, now time.Time) (doubted int) {
	online, _ := m.online()
	for _, p := range online {
		doubtful := lost && p.unheard(now, silenceFactor*m.cfg.FetchWaitMax)
		if doubtful {
			doubted++
		}
		if was := p.doubtful.Swap(doubtful); doubtful && !was {
			m.wakeAll(p.tp)
		}
	}
	return doubted
}

// unheard reports whether this broker leads, is not alone in the ISR, and has not had a fetch of any other member for that long.
func (p *Partition) unheard(now time.Time, silence time.Duration) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if !p.isLeaderLocked() || len(p.mu.isr.committed) < 2 {
		return false
	}
	p.followers.Lock()
	defer p.followers.Unlock()
	for _, f := range p.followers.list {
		if contains(p.mu.isr.committed, f.id) && now.Sub(later(f.fetchTime, f.caughtUpTime)) <= silence {
			return false
		}
	}
	return true
}

// InDoubt reports whether clients are sent away from a partition that this broker leads: they may find another leader.
func (m *Manager) InDoubt(tp cluster.TopicPartition) bool {
	p, _ := m.Partition(tp)
	return p != nil && p.doubtful.Load()
}

// servesClientsLocked reports whether clients may take this broker for the leader. mu is held, for reading at least.
func (p *Partition) servesClientsLocked() bool { return p.isLeaderLocked() && !p.doubtful.Load() }
