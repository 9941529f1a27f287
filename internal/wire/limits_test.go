package wire

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"klamm/internal/wire/wiretest"
)

func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, func(cfg *ServerConfig, _ *wiretest.Net) {
			cfg.Limits.MaxConnectionsPerIP = 2
			cfg.Limits.MaxConnectionsPerIPOverrides = map[string]int{"192.0.2.9": 1}
		})
		serves := func(p *peer) {
			t.Helper()
			p.send(metadataFrame(1))
			p.correlations(1)
		}
		first := h.dialFrom("192.0.2.1", testAddr)
		serves(first)
		serves(h.dialFrom("192.0.2.1", testAddr))
		h.dialFrom("192.0.2.1", testAddr).expectClosed()
		h.dialFrom("192.0.2.1", testAddr).expectClosed()
		serves(h.dialFrom("192.0.2.9", testAddr))
		h.dialFrom("192.0.2.9", testAddr).expectClosed()
		_ = first.nc.Close()
		synctest.Wait()
		serves(h.dialFrom("192.0.2.1", testAddr))
		if n := h.srv.stats.ConnectionsRefused.Load(); n != 3 {
			t.Errorf("%d refusals counted, want 3", n)
		}
		if lines := h.log.lines(); len(lines) != 2 {
			t.Errorf("log is %q, want one line per address", lines)
		}
		h.end()
	})
}

func TestBeyondMaxConnectionsClientsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, func(cfg *ServerConfig, _ *wiretest.Net) { cfg.Limits.MaxConnections = 2 })
		first, second, third := h.dial(), h.dial(), h.dial()
		third.send(metadataFrame(3))
		if !third.silent() {
			t.Fatal("a third connection is served")
		}
		_ = second.nc.Close()
		third.correlations(1)
		first.send(metadataFrame(1))
		first.correlations(1)
		h.end()
	})
}

func TestAListenersOwnLimitLeavesOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, func(cfg *ServerConfig, n *wiretest.Net) {
			other, _ := n.Listen("10.0.0.1:9093")
			cfg.Limits.ListenerMaxConnections = map[string]int{"PLAINTEXT": 1}
			cfg.Listeners = append(cfg.Listeners, Listener{Name: "OTHER", Net: other})
		})
		h.dial().send(metadataFrame(1))
		waiting := h.dial()
		waiting.send(metadataFrame(2))
		if !waiting.silent() {
			t.Error("a second connection is served")
		}
		other := h.dialFrom("127.0.0.1", "10.0.0.1:9093")
		other.send(metadataFrame(3))
		other.correlations(1)
		h.end()
	})
}

func TestBrokersGetInBeyondMaxConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow, func(cfg *ServerConfig, n *wiretest.Net) {
			internal, _ := n.Listen("10.0.0.1:9093")
			cfg.Limits.MaxConnections = 2
			cfg.Listeners = append(cfg.Listeners, Listener{Name: "INTERNAL", Net: internal, InterBroker: true})
		})
		quiet, busy := h.dial(), h.dial()
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		busy.send(metadataFrame(1))
		busy.correlations(1)
		broker := h.dialFrom("10.0.0.2", "10.0.0.1:9093")
		broker.send(metadataFrame(2))
		broker.correlations(1)
		quiet.expectClosed()
		busy.send(metadataFrame(3))
		busy.correlations(1)
		if n := h.srv.stats.ConnectionsEvicted.Load(); n != 1 {
			t.Errorf("%d evictions counted", n)
		}
		h.end()
	})
}

func TestLimitsChangeAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, answerNow)
		h.srv.SetLimits(Limits{MaxConnectionsPerIP: 1})
		first := h.dial()
		first.send(metadataFrame(1))
		first.correlations(1)
		h.dial().expectClosed()
		h.srv.SetLimits(Limits{})
		second := h.dial()
		second.send(metadataFrame(1))
		second.correlations(1)
		h.end()
	})
}

func TestAConfigurationsFaultsAreReportedAtOnce(t *testing.T) {
	_, err := NewServer(ServerConfig{Listeners: []Listener{{Name: "A"}, {Name: "A"}}})
	want := `wire server: listener "A" needs a name and a net.Listener
listener "A" needs a name and a net.Listener
two listeners are named "A"
no api table
no handler
no log`
	if err == nil || err.Error() != want {
		t.Errorf("error is %v", err)
	}
}

func TestRequestsKnowTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got *Request
		h := start(t, func(_ context.Context, r *Request) { got = r; respondEmpty(r) })
		p := h.dialFrom("192.0.2.7", testAddr)
		p.send(metadataFrame(42))
		p.correlations(1)
		c := got.Conn
		if c.Listener() != "PLAINTEXT" || c.InterBroker() || c.RemoteHost() != "192.0.2.7" || c.LocalAddr().String() != testAddr || c.Principal() != AnonymousPrincipal {
			t.Errorf("connection is %s %v %s %v %s", c.Listener(), c.InterBroker(), c.RemoteHost(), c.LocalAddr(), c.Principal())
		}
		if got.CorrelationID != 42 || got.ClientID != testClientID || got.Version != 12 || got.Size != len(metadataFrame(42))-4 {
			t.Errorf("request is %+v", got)
		}
		h.end()
	})
}

// KIP-612: a listener takes connections no faster than it is told to.
func TestAListenerTakesConnectionsAtItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		next := began
		h := start(t, answerNow, func(cfg *ServerConfig, _ *wiretest.Net) {
			cfg.PaceConnection = func(listener string, protected bool) time.Duration {
				if listener != "PLAINTEXT" || protected {
					t.Errorf("asked for %s, protected %v", listener, protected)
				}
				if wait := time.Until(next); wait > 0 {
					return wait
				}
				next = next.Add(time.Second)
				return 0
			}
		})
		for i := range int32(3) {
			p := h.dial()
			p.send(metadataFrame(i))
			p.correlations(1)
			if took := time.Since(began); took != time.Duration(i)*time.Second {
				t.Errorf("connection %d was served after %v", i, took)
			}
		}
		h.dial()
		h.end() // while one waits
	})
}
