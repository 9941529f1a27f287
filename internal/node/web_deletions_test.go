package node

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"klamm/internal/cluster"
	"klamm/internal/controller"
)

// A broker that is not the controller shows what the controller says, and asks it in a way that is not passed on again.
func TestDeletionsAreReadFromTheControllersWebAddress(t *testing.T) {
	want := viewOf(controller.DeletionExplanation{
		TopicRef: controller.TopicRef{Name: "t", ID: cluster.TopicID{1}}, Phase: controller.DeletionBlocked, QueuedAt: 1000,
		Reasons:  []controller.DeletionReason{{Kind: controller.BrokerOffline, Broker: 2, LiftedBy: "start of the broker"}},
		Replicas: []controller.ReplicaDeletion{{State: controller.OfflineReplica, Since: 2000}},
	})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(forwardedHeader) == "" || r.URL.Path != "/api/v1/deletions" {
			http.Error(w, "unexpected", http.StatusTeapot)
			return
		}
		_ = json.NewEncoder(w).Encode([]deletionView{want})
	}))
	defer srv.Close()
	got, err := fetchDeletions(t.Context(), strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(got)
	b, _ := json.Marshal([]deletionView{want})
	if string(a) != string(b) {
		t.Errorf("got %s, want %s", a, b)
	}
}
