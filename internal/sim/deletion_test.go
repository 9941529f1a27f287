package sim

import (
	"testing"

	"klamm/internal/cluster"
)

func brokers(ids ...cluster.BrokerID) []cluster.BrokerID { return ids }

func verify(t *testing.T, w *World) {
	t.Helper()
	for _, f := range w.Failures() {
		t.Error(f)
	}
}

func TestTopicsAreCreatedAndDeletedWithTheirData(t *testing.T) {
	w := New(Options{Trace: func(s string) { t.Log(s) }})
	defer w.Close()
	w.StartAll()
	w.Settle()
	w.CreateTopic("a", brokers(1, 2), brokers(2, 3))
	w.CreateTopic("b", brokers(3))
	w.Settle()
	w.Final()
	w.DeleteTopic("a", true)
	w.Settle()
	w.Final()
	verify(t, w)
}
