package quota

import (
	"sync"
	"sync/atomic"
)

// limits are the limits of one kind.
type limits struct {
	n  atomic.Int64 // how many there are
	mu struct {
		sync.RWMutex
		of map[Entity]float64
	}
}

func (l *limits) set(e Entity, limit float64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.of == nil {
		l.mu.of = map[Entity]float64{}
	}
	if ok {
		l.mu.of[e] = limit
	} else {
		delete(l.mu.of, e)
	}
	l.n.Store(int64(len(l.mu.of)))
}

// of finds the limit that holds for a client, and whose use it limits: under the limit of a user all client ids of that
// user share one measurement, under that of a client id all users of that id. The most specific one holds, users before
// client ids (Kafka: ClientQuotaManager's DefaultQuotaCallback):
//
//	1 users/U/clients/C          5 users/<default>/clients/<default>
//	2 users/U/clients/<default>  6 users/<default>
//	3 users/U                    7 clients/C
//	4 users/<default>/clients/C  8 clients/<default>
func (l *limits) of(who Client) (limit float64, key bucketKey, ok bool) {
	user, client := NamedPart(who.User), NamedPart(who.ID)
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, u := range [2]Part{user, DefaultPart()} {
		for _, c := range [3]Part{client, DefaultPart(), {}} {
			if limit, ok = l.mu.of[Entity{u, c}]; ok {
				key = bucketKey{User: who.User}
				if c.Is != Absent {
					key.ID = who.ID
				}
				return limit, key, true
			}
		}
	}
	for _, c := range [2]Part{client, DefaultPart()} {
		if limit, ok = l.mu.of[Entity{Client: c}]; ok {
			return limit, bucketKey{ID: who.ID}, true
		}
	}
	return 0, bucketKey{}, false
}
