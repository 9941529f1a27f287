package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"klamm/internal/cluster"
	"klamm/internal/coord"
	"klamm/internal/coord/memstore"
)

// endingStore ends sessions of the engine by their id and key.
type endingStore struct {
	coord.Store
	engine *memstore.Engine
	ended  []string
}

func (s *endingStore) EndSession(_ context.Context, id int64, key []byte) error {
	s.ended = append(s.ended, fmt.Sprintf("%x %s", id, key))
	s.engine.ExpireSession(id)
	return nil
}

// A broker that was killed ends the session that it left behind, with its key, and registers at once. But when its log dirs
// are a copy of those of a broker that lives under another address, that one keeps its session.
func TestABrokerEndsItsFormerSessionButNotThatOfABrokerElsewhere(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		engine := memstore.New()
		store := &endingStore{Store: engine.Client(), engine: engine}
		dir := t.TempDir()
		cfg := configure(t, dir, map[string]string{"broker.session.timeout.ms": "1000"})
		first := startOn(t, cfg, store)
		if err := first.stop(); err != nil {
			t.Fatal(err)
		}
		left, err := engine.Client().OpenSession(t.Context(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		n, err := store.Get(t.Context(), coord.ClusterIDPath)
		if err != nil {
			t.Fatal(err)
		}
		clusterID := strings.Split(string(n.Data), `"`)[7]
		if err := os.WriteFile(filepath.Join(dir, "data", sessionFile), fmt.Appendf(nil, "%s %x 6b6579\n", clusterID, left.ID()), 0o600); err != nil {
			t.Fatal(err)
		}
		port := strings.Split(first.addr, ":")[1]
		cfg = configure(t, dir, map[string]string{"broker.session.timeout.ms": "1000", "listeners": "PLAINTEXT://127.0.0.1:" + port})
		advertised := cluster.Endpoint{Listener: "PLAINTEXT", SecurityProtocol: "PLAINTEXT", Host: "127.0.0.1", Port: int32(cfg.AdvertisedListeners[0].Port)}
		if elsewhere {
			advertised.Host = "10.1.2.3"
		}
		holder := coord.BrokerNode{Endpoints: []cluster.Endpoint{advertised}, JMXPort: -1}
		if _, err := coord.RegisterBroker(t.Context(), store, left, cfg.ID, holder, coord.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}
		if elsewhere {
			err := Run(t.Context(), Options{Config: cfg, Log: quietLog(), Coordination: coordinationOn(store)})
			if err == nil || !strings.Contains(err.Error(), "is in use by a live broker (PLAINTEXT://10.1.2.3:") || len(store.ended) > 0 {
				t.Errorf("ended %q, and then: %v", store.ended, err)
			}
			continue
		}
		second := startOn(t, cfg, store)
		if want := []string{fmt.Sprintf("%x key", left.ID())}; !slices.Equal(store.ended, want) {
			t.Errorf("ended %q, want %q", store.ended, want)
		}
		if err := second.stop(); err != nil {
			t.Error(err)
		}
	}
}
